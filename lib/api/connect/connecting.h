/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair that is moved from RESET to RTS towards its peer's endpoint, in steps that never
 * block. The caller drives the device and calls connecting_step() from time to time.
 *
 * 	open the link of the local fabric; repeat while an earlier link is still closing
 * 	INIT, RTR (Ethernet: resolve the next hop's MAC), RTS
 * 	wait for the peer's end of the link
 *
 * The queue pair is ready before the link is, so that no packet of the peer is lost.
 *
 * All functions but connecting_claim(), connecting_unclaim() and connecting_begin() are called with
 * the guard held.
 */
#ifndef FERRULE_API_CONNECT_CONNECTING_H
#define FERRULE_API_CONNECT_CONNECTING_H

#include "lib/api/connect/endpoint.h"

enum connecting_stage {
	CONNECTING_LINK,  /* the link must be opened */
	CONNECTING_READY, /* the queue pair must be moved to INIT, RTR, RTS */
	CONNECTING_PEER,  /* in RTS; the peer's end of the link is missing */
	CONNECTING_DONE,
	CONNECTING_FAILED,
};

struct connecting {
	struct frl_qp *qp;
	enum connecting_stage stage;
	struct endpoint remote;
	struct frl_ip remote_ip; /* the peer's address that was chosen */
	bool loop;               /* the peer is this device */
	bool has_link;           /* and has a reference to it */
	unsigned next_state;     /* index of the next transition to RTS */
	uint64_t next_try_ns;    /* to open the link */
	uint64_t deadline_ns;    /* the caller's */
	struct frl_qp_attr attr;
};

/* Computes the terms that a configuration requests; see below. */
void connecting_terms(const struct frl_qp *qp, const struct frl_connect_config *config,
	struct frl_qp_attr *ret_terms);

/*
 * Claims the queue pair for the caller. Returns -EINVAL unless it is in RESET, has an endpoint, and
 * is not claimed.
 */
int connecting_claim(struct frl_qp *qp);
void connecting_unclaim(struct frl_qp *qp);

/*
 * Checks the endpoint and starts. `terms` has access_flags, traffic class, timers, retries and
 * depths, and the maximum path MTU and capabilities. Returns -EPROTO if the endpoint is invalid or
 * does not match this end. Changes nothing yet.
 */
int connecting_begin(struct connecting *c, struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_qp_attr *terms);

/*
 * Returns 0 if the queue pair is in RTS and the link is up, and -EAGAIN if not yet. Other errors
 * are those of frl_qp_connect(); all resources are released then.
 */
int connecting_step(struct connecting *c);

/* Cancels: releases the link, and moves the queue pair to ERR if it had one. */
void connecting_abandon(struct connecting *c);

/* As connecting_abandon(), after the timeout; the error names what was awaited. */
int connecting_time_out(struct connecting *c, int timeout_ms);

#endif
