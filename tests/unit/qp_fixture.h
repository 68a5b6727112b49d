/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair with queues, memory and a peer that is played by the test: what the tests of
 * lib/protocol share. Nothing here sends anything; payload of packets is `peer` memory.
 */
#ifndef FERRULE_TESTS_QP_FIXTURE_H
#define FERRULE_TESTS_QP_FIXTURE_H

#include "lib/protocol/qp.h"
#include "lib/protocol/qp_internal.h"

#include <check.h>

enum {
	F_QPN = 0x11,
	F_PEER_QPN = 0x22,
	F_QUEUE = 64,   /* requests in a queue */
	F_CQ = 256,     /* completions */
	F_OUT = 512,    /* packets of one fixture_output() */
	F_WINDOW = 128, /* default */
	F_MEMORY = 64 * 1024,
	F_SLOTS = 16,
	F_TIMEOUT_NS = 4096 << 4, /* of the default `timeout` */
};

/* Zero means the default that stands behind it. */
struct fixture_config {
	uint32_t mtu;    /* 1024 */
	uint32_t sq_psn; /* 0 */
	uint32_t rq_psn; /* 0 */
	uint32_t window; /* F_WINDOW */
	uint32_t n_recv; /* F_QUEUE */
	uint32_t n_send; /* F_QUEUE */
	uint32_t n_cq;   /* F_CQ */
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	bool no_timeout;      /* else `timeout` is 4 */
	bool no_remote_write; /* access_flags 0, else REMOTE_WRITE */
	bool unlimited_retry;
	enum frl_qp_state state; /* RTS */
};

struct fixture {
	struct qp qp;
	struct cq send_cq;
	struct cq recv_cq;
	struct frl_wc send_wc[F_CQ];
	struct frl_wc recv_wc[F_CQ];
	struct send_wqe send_wqes[F_QUEUE];
	struct recv_wqe recv_wqes[F_QUEUE];
	struct region_table table;
	struct region *slots[F_SLOTS];
	struct region local;     /* `memory`, LOCAL_WRITE | REMOTE_WRITE */
	struct region read_only; /* `memory`, no access */
	struct region foreign;   /* `memory`, of another protection domain */
	struct region huge;      /* 4 GiB that do not exist */
	struct frl_stats stats;
	struct placements placements; /* of the last fixture_input() */
	struct packet_out out[F_OUT]; /* of the last fixture_output() */
	uint32_t n_out;
	uint64_t now_ns;
	uint8_t memory[F_MEMORY];
	uint8_t peer[8192];
};

/* The attributes, and the mask for each step towards RTS. */
void fixture_attr(const struct fixture_config *config, struct frl_qp_attr *ret_attr);
extern const uint32_t fixture_mask_init, fixture_mask_rtr, fixture_mask_rts;

/* Of static storage, one at a time. `config` NULL: all defaults. */
struct fixture *fixture_new(const struct fixture_config *config);
/* From RESET, towards config->state. */
void fixture_bring_up(struct fixture *f, const struct fixture_config *config);

/* Posts; must succeed. Payload is f->memory from `offset`. */
void fixture_send(struct fixture *f, uint64_t wr_id, enum frl_wr_opcode opcode, uint32_t length);
void fixture_send_flags(struct fixture *f, uint64_t wr_id, uint32_t length, uint32_t flags);
void fixture_recv(struct fixture *f, uint64_t wr_id, uint32_t offset, uint32_t length);

/* All packets that may go; returns how many. */
uint32_t fixture_output(struct fixture *f);

/* A packet as the peer sends it, with `length` bytes of f->peer. */
struct wire_packet fixture_packet(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length);
/* qp_input() with a look at the invariants. */
void fixture_input(struct fixture *f, const struct wire_packet *packet);
/* The two together. */
void fixture_arrive(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length);
void fixture_arrive_write(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length,
	uint64_t va, uint32_t rkey, uint32_t dma_length);
void fixture_ack(struct fixture *f, uint8_t syndrome, uint32_t psn);
void fixture_deadline(struct fixture *f); /* time jumps to the next one */

/* The next completion is this one; or there is none. */
void expect_wc(struct cq *cq, uint64_t wr_id, enum frl_wc_status status);
void expect_no_wc(struct cq *cq);
/* qp_output() gives exactly one packet, an acknowledgement like this; or nothing. */
void expect_answer(struct fixture *f, uint8_t syndrome, uint32_t psn, uint32_t msn);
void expect_silence(struct fixture *f);
/* The last packet, `psn`, took the queue pair to ERR: one NAK, then silence. */
void expect_refused(struct fixture *f, uint8_t nak, uint32_t psn, uint32_t msn);
/* Packet `i` of the last output. */
void expect_out(const struct fixture *f, uint32_t i, uint8_t opcode, uint32_t psn, uint32_t length,
	bool ack_request);

/* Carries the placements out, as the engine does. */
void fixture_place(struct fixture *f);

/* What always holds. */
void check_invariants(const struct fixture *f);

/* Runs the cases; the number of failures. */
int run_suite(Suite *suite);

#endif
