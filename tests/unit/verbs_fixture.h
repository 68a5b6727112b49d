/* SPDX-License-Identifier: BSD-3-Clause */
/* Two hardware devices on a libibverbs in memory, "one" (10.0.0.1) and "two" (10.0.0.2), each with
 * a queue pair and memory, by the public API. */
#ifndef FERRULE_TESTS_UNIT_VERBS_FIXTURE_H
#define FERRULE_TESTS_UNIT_VERBS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/ferrule.h>

#include "tests/unit/fake_verbs.h"
#include "tests/unit/patience.h"

enum {
	VERBS_DEPTH = 64,
	VERBS_MEMORY = 65536,
	VERBS_QKEY = 0x1234,
	VERBS_ACCESS = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
		FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND,
};

struct verbs_end {
	const char *name; /* of the device in libibverbs */
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_comp_channel *channel;
	struct frl_cq *cq;
	struct frl_srq *srq; /* or NULL */
	struct frl_qp *qp;
	struct frl_mr *mr;
	uint8_t *memory;
};

/* Properties of the devices and the ends; zeros are right. */
struct verbs_wants {
	enum frl_qp_type type; /* 0: RC */
	bool is_plain;         /* a provider without ibv_wr_*() and extended queues */
	bool is_rxe;
	bool has_srq;
	uint8_t wc_sl; /* as in struct fake_verbs_device */
	uint16_t wc_tci;
	uint32_t depth;             /* of the completion queues; 0: 4 VERBS_DEPTH */
	uint8_t timeout, retry_cnt; /* 0: 1, 1 */
	uint32_t not_access;        /* rights that the queue pairs do not give */
	uint32_t max_send_wr;       /* 0: VERBS_DEPTH */
	uint8_t two_rd_atomic;      /* what device "two" can; 0: as "one" */
	/* Changes each device before it is plugged in; may be NULL. */
	void (*change)(struct fake_verbs_device *device);
};

/* The ends of the case that runs. */
extern struct verbs_end ends[2];
extern struct verbs_end *const one, *const two;
extern const struct verbs_wants defaults;

/* Both devices plugged in; nothing is open yet. */
void verbs_plug(const struct verbs_wants *wants);
/* Also names the ends, which have nothing else yet. */
void verbs_plug_ends(const struct verbs_wants *wants);
/* Also opens them, makes the objects, and connects. */
void verbs_setup(const struct verbs_wants *wants);
/* At the end of each case: everything away; there must be no leaks. */
void verbs_teardown(void);

/* The steps of it, which may fail: 0, or what failed. What was made is in *end, and goes with
 * verbs_drop_end(), whatever it is. */
int verbs_make_end(struct verbs_end *end, const struct verbs_wants *wants);
int verbs_connect(
	struct verbs_end *end, const struct verbs_end *peer, const struct verbs_wants *wants);
void verbs_drop_end(struct verbs_end *end);

/* A device by its port, "verbs:one". */
int verbs_open(const char *port, struct frl_device **ret_device);

/* An element of `length` bytes at `offset` of the end's memory. */
struct frl_sge verbs_sge(const struct verbs_end *end, uint32_t offset, uint32_t length);
/* Posts one request, signaled. */
int verbs_send(struct verbs_end *end, enum frl_wr_opcode opcode, const struct frl_sge *sge,
	uint64_t remote_addr, uint32_t rkey);
void verbs_recv(struct verbs_end *end, uint64_t wr_id, uint32_t offset, uint32_t length);
/* The next completion, which must have this status. */
struct frl_wc verbs_expect(struct verbs_end *end, enum frl_wc_status status);
/* The next asynchronous event, which must be of this type. */
struct frl_async_event verbs_event(struct verbs_end *end, enum frl_event_type type);

/* Returns the last line since the last call that has this word in it; "" if there is none. */
const char *verbs_logged(const char *word);

/* 0, with the last error's text if not. */
void verbs_ok(int rc);
/* `want`, with a sentence that has `word` in it. */
void verbs_refused(int rc, int want, const char *word);

#endif
