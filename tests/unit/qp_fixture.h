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
	F_STORAGE = 128 * 1024,   /* of all queues */
	F_TIMEOUT_NS = 4096 << 4, /* of the default `timeout` */
	F_RD_ATOMIC = 4,          /* READs and atomics outstanding, each way; default */
	F_QKEY = 0x01234567,      /* datagrams */
	F_AH_LINK = 3,            /* likewise */
	F_ACCESS = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC,
};

/* The address of the region `moved` in requests. */
#define F_IOVA UINT64_C(0x7766554400001000)

/* Zero means the default that stands behind it. */
struct fixture_config {
	enum frl_qp_type type;      /* RC */
	uint32_t mtu;               /* 1024; datagrams: the port's */
	uint32_t sq_psn;            /* 0 */
	uint32_t rq_psn;            /* 0 */
	uint32_t window;            /* F_WINDOW */
	uint32_t slack;             /* 0 */
	uint32_t n_recv;            /* F_QUEUE; of the SRQ, if there is one */
	uint32_t n_send;            /* F_QUEUE */
	uint32_t n_cq;              /* F_CQ */
	uint32_t max_send_sge;      /* FRL_MAX_SGE */
	uint32_t max_recv_sge;      /* FRL_MAX_SGE */
	uint32_t max_inline;        /* FRL_MAX_INLINE */
	uint32_t deny;              /* what is missing in access_flags, which are F_ACCESS */
	uint32_t srq_limit;         /* not armed */
	uint8_t max_rd_atomic;      /* F_RD_ATOMIC */
	uint8_t max_dest_rd_atomic; /* F_RD_ATOMIC */
	bool no_rd_atomic;          /* both are 0 */
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	bool no_timeout; /* else `timeout` is 4 */
	bool unlimited_retry;
	bool srq; /* receives come from f->srq */
	bool sq_sig_all;
	enum frl_qp_state state; /* RTS */
};

struct fixture {
	struct qp qp;
	struct srq srq;
	struct cq send_cq;
	struct cq recv_cq;
	struct event_queues queues;
	struct frl_wc send_wc[F_CQ];
	struct frl_wc recv_wc[F_CQ];
	struct region_table table;
	struct region *slots[F_SLOTS];
	struct region local;      /* `memory`, all rights */
	struct region read_only;  /* `memory`, no right */
	struct region foreign;    /* `memory`, of another protection domain */
	struct region huge;       /* 4 GiB that do not exist */
	struct region moved;      /* `memory` at F_IOVA, all rights */
	struct region window;     /* not bound */
	struct address_handle ah; /* leads to the peer */
	struct frl_stats stats;
	struct wire_packet packet;    /* that came last */
	struct placements placements; /* of the last fixture_input() */
	struct packet_out out[F_OUT]; /* of the last fixture_output() */
	uint32_t n_out;
	uint64_t now_ns;
	_Alignas(64) uint8_t memory[F_MEMORY];
	uint8_t peer[8192];
	uint8_t l3[IPV4_LEN + UDP_LEN]; /* of the packets that arrive: IPv4 */
	_Alignas(64) uint8_t storage[F_STORAGE];
	_Alignas(64) uint8_t srq_storage[F_STORAGE];
};

/* The attributes, and the mask for the step to `state` from the one before it. */
void fixture_attr(const struct fixture_config *config, struct frl_qp_attr *ret_attr);
uint32_t fixture_mask(enum frl_qp_type type, enum frl_qp_state state);

/* Of static storage, one at a time. `config` NULL: all defaults. */
struct fixture *fixture_new(const struct fixture_config *config);
/* From RESET, towards config->state. */
void fixture_bring_up(struct fixture *f, const struct fixture_config *config);
/* qp_modify() with nothing but the state; must succeed. */
void fixture_move(struct fixture *f, enum frl_qp_state state);

/*
 * Posts; must succeed. Payload is f->memory, of receives from `offset`. fixture_send() is signaled
 * and knows every opcode: remote address 0x700000, rkey 0x55, immediate (or rkey to invalidate)
 * 0xabcd0000 + wr_id, compare or add 0x1111111111111111, swap 0x2222222222222222, and for datagrams
 * f->ah, F_PEER_QPN and F_QKEY. fixture_send_flags() posts a SEND. fixture_post() takes any
 * request; `objects` may be NULL.
 */
void fixture_send(struct fixture *f, uint64_t wr_id, enum frl_wr_opcode opcode, uint32_t length);
void fixture_send_flags(struct fixture *f, uint64_t wr_id, uint32_t length, uint32_t flags);
void fixture_post(
	struct fixture *f, const struct frl_send_wr *wr, const struct wr_objects *objects);
/* The same, but gives what qp_post_send() does. */
int fixture_try_post(
	struct fixture *f, const struct frl_send_wr *wr, const struct wr_objects *objects);
void fixture_recv(struct fixture *f, uint64_t wr_id, uint32_t offset, uint32_t length);

/* All packets that may go; returns how many. */
uint32_t fixture_output(struct fixture *f);
/* UC, datagrams: the port has taken so many. */
void fixture_transmitted(struct fixture *f, uint32_t packets);

/* A packet as the peer sends it, with `length` bytes of f->peer; its AETH is an ACK without
 * credits, its DETH the right one. */
struct wire_packet fixture_packet(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length);
/* qp_input() with a look at the invariants, and qp_placed(). */
void fixture_input(struct fixture *f, const struct wire_packet *packet);
/* Without qp_placed(). */
void fixture_input_unplaced(struct fixture *f, const struct wire_packet *packet);
/* fixture_packet() and fixture_input(). */
void fixture_arrive(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length);
void fixture_arrive_write(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length,
	uint64_t va, uint32_t rkey, uint32_t dma_length);
void fixture_ack(struct fixture *f, uint8_t syndrome, uint32_t psn);
void fixture_deadline(struct fixture *f); /* time jumps to the next one */

/* The next completion is this one; or there is none. */
void expect_wc(struct cq *cq, uint64_t wr_id, enum frl_wc_status status);
void expect_no_wc(struct cq *cq);
/* The next event of this object is this one, and is taken; or it has none. */
void expect_event(struct event_source *source, enum frl_event_type type);
void expect_no_event(const struct event_source *source);
/* qp_output() gives exactly one packet, an acknowledgement like this; or nothing. */
void expect_answer(struct fixture *f, uint8_t syndrome, uint32_t psn, uint32_t msn);
void expect_silence(struct fixture *f);
/* The last packet, `psn`, took the queue pair to ERR: one NAK, then silence. */
void expect_refused(struct fixture *f, uint8_t nak, uint32_t psn, uint32_t msn);
/* Packet `i` of the last output. */
void expect_out(const struct fixture *f, uint32_t i, uint8_t opcode, uint32_t psn, uint32_t length,
	bool ack_request);

/* f->memory + offset as an address. */
uint64_t fixture_va(const struct fixture *f, uint32_t offset);

/* Gives the peer a window to invalidate, over all of f->memory; its key. */
uint32_t fixture_bind_window(struct fixture *f);

/* Carries the placements out, as the engine does. */
void fixture_place(struct fixture *f);

/* Invariants of the queue pair. */
void check_invariants(const struct fixture *f);

#endif
