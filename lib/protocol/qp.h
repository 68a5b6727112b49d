/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reliable connected queue pair, without I/O: packets and time come in; packets, placements and
 * completions come out, and one deadline. No clock, no allocation, no log, no thread: whoever owns
 * the engine calls, with the time. IBTA volume 1, chapter 9.7.
 *
 *	post_send  -> [ send queue ] -> requester -> qp_output()  -> packets
 *	packets    -> qp_input() -> completer (acknowledgements)  -> completions
 *	                         -> responder (requests) -> placements, completions, answers
 *	post_recv  -> [ receive queue ] ------^
 *
 * Each part has a file: requester.c, completer.c, responder.c, recovery.c (every timer), qp.c
 * (posting, errors), qp_modify.c (states and attributes).
 */
#ifndef FERRULE_PROTOCOL_QP_H
#define FERRULE_PROTOCOL_QP_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/connect.h>
#include <ferrule/queue.h>
#include <ferrule/stats.h>

#include "lib/protocol/cq.h"
#include "lib/protocol/region.h"
#include "lib/wire/packet.h"

#define DEADLINE_NONE UINT64_MAX

/* A send request in the queue. Packet k of it has PSN first_psn + k and payload [k * mtu, ...). */
struct send_wqe {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm_data;
	uint32_t length;
	uint32_t packets;
	struct psn first_psn;
	uint8_t opcode; /* enum frl_wr_opcode */
	uint8_t flags;  /* enum frl_send_flags */
	uint8_t n_sge;
	struct frl_sge sge[FRL_MAX_SGE];
	uint8_t inline_data[FRL_MAX_INLINE];
};

struct recv_wqe {
	uint64_t wr_id;
	uint32_t length;
	uint8_t n_sge;
	struct frl_sge sge[FRL_MAX_SGE];
	struct frl_recv_action action;
};

/*
 * The requester's window over the send queue, in PSNs:
 *
 *	   una             next            sent_end         end
 *	----|---------------|----------------|---------------|----
 *	    | sent, unacked | to be sent     | never sent    |
 *	    |               | again          |               |
 *
 * Without loss next == sent_end; going back moves next towards una. [una, end) are the packets of
 * the requests in queue positions [head, tail).
 */
struct requester {
	struct send_wqe *wqes;
	uint32_t mask;
	uint32_t head;
	uint32_t tail;
	uint32_t current; /* position of the request that `next` belongs to */
	struct psn una;
	struct psn next;
	struct psn sent_end;
	struct psn end;
	uint32_t window; /* packets in flight at most, below 2^23 */
};

/* See recovery.h. */
struct recovery {
	uint64_t ack_deadline_ns;
	uint64_t rnr_deadline_ns;
	uint64_t ack_timeout_ns; /* 0: no timer */
	uint8_t retries;         /* left */
	uint8_t rnr_retries;     /* left */
	uint8_t backoff;         /* timeouts in a row */
	bool went_back;          /* since `una` last moved, because of a sequence NAK */
};

enum responder_message {
	MESSAGE_NONE, /* between messages */
	MESSAGE_SEND,
	MESSAGE_WRITE,
};

struct responder {
	struct recv_wqe *wqes;
	uint32_t mask; /* meaningless when there is no receive queue */
	uint32_t size;
	uint32_t head;
	uint32_t tail;
	struct psn epsn; /* the next PSN to accept */
	uint32_t msn;
	bool nak_sent; /* a NAK for epsn is out: later packets are dropped in silence (9.7.5.2.8) */
	enum responder_message message;
	uint32_t offset; /* MESSAGE_SEND, MESSAGE_WRITE: bytes of the message accepted so far */
	uint64_t write_va;
	uint32_t write_rkey;
	uint32_t write_length;
	/* The acknowledgement to send: a later one says all that an earlier one did. */
	bool ack_pending;
	uint8_t ack_syndrome;
	struct psn ack_psn;
};

struct qp {
	/* hot: looked at for every packet */
	enum frl_qp_state state;
	uint32_t qpn;
	uint32_t dest_qpn;
	uint32_t path_mtu;
	uint32_t capabilities;
	struct frl_ip remote_ip;
	const void *pd;
	struct cq *send_cq;
	struct cq *recv_cq;
	const struct region_table *regions;
	struct frl_stats *stats;
	struct requester requester;
	struct recovery recovery;
	struct responder responder;
	/* cold */
	struct frl_qp_attr attr; /* as set by qp_modify */
	bool unlimited_retry; /* the link reports a dead peer itself: never give up on time alone */
};

struct qp_config {
	uint32_t qpn;
	const void *pd;
	struct cq *send_cq;
	struct cq *recv_cq;
	const struct region_table *regions;
	struct frl_stats *stats;
	struct send_wqe *send_wqes; /* the engine's memory; counts are powers of two */
	uint32_t n_send;
	struct recv_wqe *recv_wqes;
	uint32_t n_recv; /* may be 0 */
	uint32_t window;
	bool unlimited_retry;
};

/* Starts in RESET. */
void qp_init(struct qp *qp, const struct qp_config *config);

/*
 * Changes state and attributes. -EINVAL with a sentence in *ret_why; then nothing was changed. To
 * ERR: flushes both queues.
 */
int qp_modify(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask, const char **ret_why);

/* The sentence that qp_modify() would refuse with, or NULL. */
const char *qp_check_modify(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/* -EINVAL with *ret_why, -ENOMEM when the queue is full. */
int qp_post_send(struct qp *qp, const struct frl_send_wr *wr, const char **ret_why);
int qp_post_recv(struct qp *qp, const struct frl_recv_wr *wr, const char **ret_why);

/*
 * "These bytes of the packet go there, in this way." To be carried out, in order, before anything
 * else is done with the queue pair: the completions that tell of them are in the queue already.
 */
struct placement {
	uint8_t *dst;
	const uint8_t *payload;
	uint32_t length;
	const struct region *region;
	const struct frl_recv_action *action; /* NULL: COPY */
	const uint8_t *src;                   /* REDUCE: the first operand */
};

struct placements {
	uint32_t count;
	struct frl_wc *completion; /* of a receive, written for this packet; NULL: none */
	struct placement list[FRL_MAX_SGE];
};

/*
 * Takes a packet that is trimmed, has a right ICRC and names this queue pair. Fills `placements`,
 * writes completions. Whatever is wrong with it is counted and answered as the protocol says.
 */
void qp_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns);

/*
 * To be called when payload turned out, after it was placed, not to have been the sender's any
 * more: the completion becomes an error and the queue pair fails.
 */
void qp_payload_lost(struct qp *qp, struct placements *placements);

struct packet_piece {
	const uint8_t *addr;
	uint32_t length;
	const struct region *region; /* NULL: inline data, valid until the next call on this qp */
};

struct packet_out {
	struct wire_headers h;
	uint32_t payload_len;
	uint32_t n_pieces;
	struct packet_piece pieces[FRL_MAX_SGE];
};

/* Writes up to `max` packets that may be sent now; returns how many. */
uint32_t qp_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns);

/* True when qp_output() would return at least one packet. */
bool qp_wants_output(const struct qp *qp);

/* When qp_on_deadline() has something to do: DEADLINE_NONE or a time. */
uint64_t qp_next_deadline(const struct qp *qp);
void qp_on_deadline(struct qp *qp, uint64_t now_ns);

/*
 * Moves the queue pair to ERR: the oldest send request completes with `status` (if there is one and
 * `status` is not WR_FLUSH_ERR), everything else in both queues as flushed.
 */
void qp_fail(struct qp *qp, enum frl_wc_status status);

/* A NAK with the code "remote operational error", for a request that no queue pair can take. */
void qp_refusal(struct packet_out *out, uint32_t dest_qpn, struct psn psn);

/* The time that a code of the RNR timer field of the AETH stands for. IBTA table 46. */
uint64_t rnr_timer_ns(uint8_t code);

#endif
