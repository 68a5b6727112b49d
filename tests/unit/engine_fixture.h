/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine over a fake port, with queue pairs in RTS towards a peer that the test plays. */
#ifndef FERRULE_TESTS_UNIT_ENGINE_FIXTURE_H
#define FERRULE_TESTS_UNIT_ENGINE_FIXTURE_H

#include <check.h>

#include "lib/engine/engine.h"
#include "tests/unit/fake_port.h"

enum {
	HOST_QPS = 8,
	HOST_QUEUE = 128, /* requests of a queue */
	HOST_CQ = 256,
	HOST_MEMORY = 65536,
	HOST_MTU = 256,
	HOST_RQ_PSN = 1000, /* what the peer sends first */
	HOST_SQ_PSN = 2000,
	HOST_PEER_QPN = 0x500, /* and the next ones for the next queue pairs */
	HOST_FILL = 0x5a,      /* of the memory */
};

struct host_qp {
	struct engine_qp qp;
	struct send_wqe send_wqes[HOST_QUEUE];
	struct recv_wqe recv_wqes[HOST_QUEUE];
};

struct host {
	struct fake_port port;
	struct engine engine;
	struct cq cqs[HOST_QPS]; /* number i is queue pair i's, unless a test says otherwise */
	struct frl_wc wcs[HOST_QPS][HOST_CQ];
	struct host_qp qps[HOST_QPS];
	uint8_t memory[HOST_MEMORY];
	struct region region;
	int pd;
	uint64_t now_ns;
};

struct host_config {
	bool on_demand;
	bool in_place;
};

struct host *host_new(const struct host_config *config);
void host_free(struct host *host);

struct host_qp_config {
	uint16_t link;
	uint32_t capabilities;
	struct cq *send_cq, *recv_cq; /* NULL: its own */
	bool unlimited_retry;
};

/* Adds queue pair `i` in RTS. `config` may be NULL. */
struct engine_qp *host_add(struct host *host, unsigned i, const struct host_qp_config *config);
/* The attributes that host_add() gives it. */
struct frl_qp_attr host_attr(unsigned i, const struct host_qp_config *config);
extern const uint32_t host_mask_init, host_mask_rtr, host_mask_rts;

void host_poll(struct host *host);

/* Receives `length` bytes at `offset` of the memory. */
void host_post_recv(
	struct host *host, unsigned i, uint64_t wr_id, uint32_t offset, uint32_t length);
/* Sends as much, signaled, with further `flags`. */
void host_post_send(struct host *host, unsigned i, uint64_t wr_id, uint32_t length, uint32_t flags);
/* The peer acknowledges everything up to that PSN (counted from HOST_SQ_PSN), in a frame. */
void host_acknowledge(struct host *host, unsigned i, uint32_t psn, bool has_icrc);

/* The next completion; then none, with -1. */
void host_expect_wc(struct cq *cq, uint64_t wr_id, enum frl_wc_status status);
void host_expect_no_wc(struct cq *cq);

#endif
