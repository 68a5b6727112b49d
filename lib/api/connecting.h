/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair on its way from RESET to RTS towards its peer's endpoint, in steps that never block:
 * whoever makes the connection calls connecting_step() from time to time, having driven the device.
 *
 *	the link of the local fabric is opened, again while an earlier one is still going
 *	INIT, RTR (on Ethernet the next hop is asked for its MAC), RTS
 *	the peer's end of the link is waited for
 *
 * The queue pair is ready before the link is, so that nothing which the peer sends is missed.
 *
 * All functions but connecting_claim(), connecting_unclaim() and connecting_begin() are called with
 * the guard held.
 */
#ifndef FERRULE_API_CONNECTING_H
#define FERRULE_API_CONNECTING_H

#include "lib/api/endpoint.h"

enum connecting_stage {
	CONNECTING_LINK,  /* its link is to be opened */
	CONNECTING_READY, /* to be made ready: INIT, RTR, RTS */
	CONNECTING_PEER,  /* in RTS; the peer's end of the link is missing */
	CONNECTING_DONE,
	CONNECTING_FAILED,
};

struct connecting {
	struct frl_qp *qp;
	enum connecting_stage stage;
	struct endpoint remote;
	struct frl_ip remote_ip; /* the one of its addresses that was chosen */
	bool loop;               /* the peer is this device */
	bool has_link;           /* and holds it */
	unsigned next_state;     /* of those that lead to RTS */
	uint64_t next_try_ns;    /* to open the link */
	uint64_t deadline_ns;    /* the caller's */
	struct frl_qp_attr attr;
};

/* What a configuration asks for: the terms below. */
void connecting_terms(const struct frl_qp *qp, const struct frl_connect_config *config,
	struct frl_qp_attr *ret_terms);

/* The queue pair is the caller's to connect: in RESET, with an endpoint, nobody else's. -EINVAL. */
int connecting_claim(struct frl_qp *qp);
void connecting_unclaim(struct frl_qp *qp);

/*
 * `terms`: access_flags, traffic class, timers, retries and depths, and at most which path MTU and
 * capabilities. -EPROTO: the endpoint is none, or does not fit this one. Nothing is changed yet.
 */
int connecting_begin(struct connecting *c, struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_qp_attr *terms);

/* 0: RTS, and the link is up; -EAGAIN: not yet. Else it has failed, as in frl_qp_connect(), and
 * holds nothing any more. */
int connecting_step(struct connecting *c);

/* Gives up what is not done: the link is let go, and the queue pair goes to ERR if it had one. */
void connecting_abandon(struct connecting *c);

/* As connecting_abandon(), because it took too long: says for what was waited for all the time. */
int connecting_give_up(struct connecting *c, int timeout_ms);

#endif
