/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair (RC, UC, UD or GSI), without I/O: packets and time come in; packets, placements,
 * completions and events come out, and one deadline. No clock, no allocation, no log, no thread:
 * whoever owns the engine calls, with the time. IBTA volume 1, chapter 9.
 *
 *	post_send  -> [ send queue ] -> requester -> qp_output()  -> packets
 *	packets    -> qp_input() -> completer (acks, responses) -> placements
 *	                         -> responder (requests) -> placements, answers
 *	placements are carried out -> qp_placed() -> completions
 *	post_recv  -> [ receive queue or SRQ ] ------^
 *
 * Each part has a file: send_queue.c (posting send requests), requester.c (packets of requests),
 * completer.c (what answers mean), recovery.c (every timer), responder.c (RC requests), saved.c
 * (READs and atomics as the responder keeps them), unreliable.c (receiving UC and UD), message.c
 * (SENDs and WRITEs, for both), receive.c (receive requests: take, place, complete), recv_queue.c,
 * region.c, qp.c (init, errors, dispatch), qp_modify.c (states and attributes), touch.c (which
 * regions a packet touches), qp_stats.c (what it tells about itself). fast_path.h says what takes a
 * fast path.
 */
#ifndef FERRULE_PROTOCOL_QP_H
#define FERRULE_PROTOCOL_QP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/connect.h>
#include <ferrule/queue.h>
#include <ferrule/stats.h>

#include "lib/protocol/cq.h"
#include "lib/protocol/datagram.h"
#include "lib/base/event.h"
#include "lib/protocol/qp_stats.h"
#include "lib/protocol/region.h"
#include "lib/protocol/srq.h"
#include "lib/wire/packet.h"

#define DEADLINE_NONE UINT64_MAX

/*
 * A send request in the queue. It has PSNs [first_psn, first_psn + packets): those of its packets,
 * packet k with payload [k * mtu, ...); of a READ, those of the responses. LOCAL_INV and BIND_MW
 * have none.
 */
struct send_wqe {
	uint64_t wr_id;
	uint64_t remote_addr; /* this, rkey and length: as the RETH has them */
	uint32_t rkey;
	uint32_t length;
	union {
		uint32_t imm_data;
		uint32_t invalidate_rkey;
	};
	uint32_t packets;
	struct psn first_psn;
	uint8_t opcode; /* enum frl_wr_opcode */
	uint8_t flags;  /* enum frl_send_flags */
	uint8_t n_sge;
	bool fast;            /* posted on the fast path */
	struct frl_sge *sge;  /* the slot's own room */
	uint8_t *inline_data; /* likewise */
	uint64_t keep;        /* of struct frl_send_wr */
	union {
		struct {
			uint64_t compare_add;
			uint64_t swap;
		};
		struct {
			struct frl_mw_bind bind;
			struct region *window;
			uint32_t parent_key;
		};
		struct datagram_target *target; /* UD, GSI: the slot's own room */
	};
};

/*
 * The requester's window over the send queue, in PSNs:
 *
 *	   una             next            sent_end         end
 *	----|---------------|----------------|---------------|----
 *	    | sent, unacked | to be sent     | never sent    |
 *	    |               | again          |               |
 *
 * Without loss next == sent_end; going back moves next towards una. [una, end) are the PSNs of
 * the requests in queue positions [head, tail), less what of the first one is done. Sending a READ
 * request moves next over the PSNs of all its responses; una moves through them as they come.
 * UC, UD: `una` is what the port has taken; there is no window.
 */
struct requester {
	struct send_wqe *wqes;
	uint32_t mask;
	uint32_t size; /* requests that may be in the queue */
	uint32_t head;
	uint32_t tail;
	uint32_t current; /* position of the request that `next` belongs to */
	struct psn una;
	struct psn next;
	struct psn sent_end;
	struct psn end;
	uint32_t window;      /* PSNs in flight at most, below 2^23 */
	uint32_t slack;       /* PSNs by which a batch may exceed the window */
	uint32_t outstanding; /* READs and atomics at positions [head, current) */
	bool blocked;  /* the request at `current` will fail, when those before it are done */
	bool draining; /* SQD: requests from `stop` on are not started */
	uint32_t stop;
};

/* See recovery.h. */
struct recovery {
	uint64_t ack_deadline_ns; /* of the next probe or what follows it, or of the timeout */
	uint64_t rnr_deadline_ns;
	uint64_t ack_timeout_ns; /* 0: no timer */
	uint64_t ack_expires_ns; /* while ack_deadline_ns is set: when the timeout is */
	struct psn rnr_psn;      /* while rnr_deadline_ns is set: what was refused */
	struct psn probe_psn;    /* while `probing`: what was sent as a probe */
	struct psn probe_end;    /* ... and what had been sent until then */
	bool probe_due;          /* the packet at `una` is to be sent as a probe */
	bool probing;            /* a probe is out, and `una` has not moved since */
	bool suspected;  /* the last acknowledgement ended with a probe: the rest may be lost */
	uint8_t n_held;  /* acknowledgements in a row, up to 2, that did, with a response awaited */
	uint8_t probes;  /* since the round trip time was last measured */
	uint8_t retries; /* left */
	uint8_t rnr_retries; /* left */
	uint8_t backoff;     /* timeouts in a row */
	bool went_back;      /* since `una` last moved; for a NAK, sent, implied or to be */
	bool refused;        /* by an RNR NAK, since `una` last moved */
};

enum responder_message {
	MESSAGE_NONE, /* between messages */
	MESSAGE_SEND,
	MESSAGE_WRITE,
	MESSAGE_DROPPED, /* UC: the rest of a message that lost a packet */
};

/*
 * A READ or atomic that was accepted, kept for when the request comes again (9.4.4, 9.4.5). While
 * `pending`, its answer is to be sent: response packets [next, reply_end) of a READ, whose bytes
 * end at `reply_length`, or the ATOMIC ACKNOWLEDGE.
 */
struct saved_request {
	struct psn first_psn;
	uint64_t first_ordinal; /* of first_psn, see struct responder */
	uint32_t packets;
	bool atomic;
	bool pending;
	bool answered; /* completely, once: what is pending is a replay */
	uint32_t msn;
	uint64_t va;
	uint32_t rkey;
	uint32_t length;
	uint64_t original; /* atomic: what was there before; the result of struct atomic_op */
	struct psn next;
	struct psn reply_first; /* where the answer (or this replay of it) starts: FIRST or ONLY */
	struct psn reply_end;
	uint32_t reply_length; /* bytes from `va` */
};

struct responder {
	struct recv_queue queue; /* own receive requests; empty with an SRQ */
	struct srq *srq;
	struct recv_wqe *recv;   /* taken for the message that is arriving, or NULL */
	struct recv_wqe srq_wqe; /* where it is when it came from the SRQ */
	struct psn epsn;         /* the next PSN to accept */
	uint64_t ordinal;        /* RC: PSNs accepted so far. Unlike PSNs these never wrap. */
	uint32_t msn;
	bool nak_sent; /* a NAK for epsn is out, or will be: later ones are dropped (9.7.5.2.8) */
	enum responder_message message;
	uint32_t offset; /* MESSAGE_SEND, MESSAGE_WRITE: bytes of the message accepted so far */
	uint64_t write_va;
	uint32_t write_rkey;
	uint32_t write_length;
	/* The acknowledgement to send: a later one says all that an earlier one did. It waits for
	 * answers to READs and atomics before it. */
	bool ack_pending;
	uint8_t ack_syndrome;
	struct psn ack_psn;
	uint32_t unacked; /* packets accepted since the last acknowledgement was made up */
	/* READs and atomics at positions [saved_tail - FRL_MAX_RD_ATOMIC, saved_tail). */
	struct saved_request *saved; /* RC: FRL_MAX_RD_ATOMIC of them */
	uint32_t n_saved;            /* max_dest_rd_atomic: so many may wait for an answer */
	uint32_t saved_tail;         /* runs freely; slots never used have packets 0 */
	uint32_t saved_cursor;       /* no position before this one has an answer pending */
	uint32_t n_pending;
};

struct qp {
	/* hot: looked at for every packet */
	enum frl_qp_state state;
	enum frl_qp_type type;
	uint32_t qpn;
	uint32_t dest_qpn;
	uint32_t path_mtu; /* UD, GSI: the port's */
	uint32_t capabilities;
	struct frl_ip remote_ip;
	uint16_t pkey;
	uint8_t transport; /* enum wire_transport */
	uint32_t qkey;
	const void *pd;
	struct cq *send_cq;
	struct cq *recv_cq;
	struct region_table *regions;
	struct frl_stats *stats;
	struct requester requester;
	struct recovery recovery;
	struct responder responder;
	struct qp_counts counts;
	/* cold */
	struct frl_qp_attr attr; /* as set by qp_modify */
	struct event_source events;
	struct event_queues *queues;
	uint32_t max_send_sge;
	uint32_t max_inline;
	bool sq_sig_all;
	bool comm_est;        /* the event was raised */
	bool answers_turn;    /* of the last packet that only one half could send */
	bool unlimited_retry; /* the link reports a dead peer itself: never give up on time alone */
	/* Why it failed, as struct qp_stats has it. */
	const char *error;
	enum frl_wc_status error_status;
};

struct qp_config {
	enum frl_qp_type type;
	uint32_t qpn;
	uint16_t pkey;     /* PKEY_DEFAULT */
	uint32_t port_mtu; /* of datagrams */
	const void *pd;
	struct cq *send_cq;
	struct cq *recv_cq;
	struct srq *srq; /* or NULL */
	struct region_table *regions;
	struct frl_stats *stats;
	struct event_queues *queues;
	uint32_t max_send_wr;
	uint32_t max_recv_wr; /* may be 0 */
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;
	bool sq_sig_all;
	uint32_t window;
	uint32_t slack;
	bool unlimited_retry;
	void *storage; /* zeroed, qp_storage_size() bytes; stays the caller's */
};

/* Bytes of memory, aligned as malloc does, for queues like these. */
size_t qp_storage_size(const struct qp_config *config);

/* Starts in RESET. */
void qp_init(struct qp *qp, const struct qp_config *config);

/*
 * Changes state and attributes. -EINVAL with a sentence in *ret_why; then nothing was changed. To
 * ERR: flushes both queues.
 */
int qp_modify(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask, const char **ret_why);

/* The sentence that qp_modify() would refuse with, or NULL. */
const char *qp_check_modify(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/* The attributes as a query gives them. */
void qp_query(const struct qp *qp, struct frl_qp_attr *ret_attr);

/* What the handles in a send request stand for; NULL where it has none. */
struct wr_objects {
	const struct address_handle *ah;
	struct region *window;
	struct region *parent;
};

/* -EINVAL with *ret_why, -ENOMEM when the queue is full. */
int qp_post_send(struct qp *qp, const struct frl_send_wr *wr, const struct wr_objects *objects,
	const char **ret_why);
int qp_post_recv(struct qp *qp, const struct frl_recv_wr *wr, const char **ret_why);

/* "These bytes go there, in this way." To be carried out, in order, before anything else is done
 * with the queue pair. */
struct placement {
	uint8_t *dst;
	const uint8_t *payload; /* of the packet, or `grh` or `value` below */
	uint32_t length;
	const struct region *region;
	const struct frl_recv_action *action; /* NULL: COPY */
	const uint8_t *src;                   /* REDUCE: the first operand */
	uint64_t keep; /* of struct frl_recv_wr, if all of the payload goes there; else 0 */
};

/* "Do this to the eight bytes there, atomically, and note what was there before." */
struct atomic_op {
	uint64_t *addr;    /* aligned; NULL: none */
	bool compare_swap; /* else add */
	uint64_t compare;
	uint64_t swap_add;
	const struct region *region;
	uint64_t *ret_original;
};

/* A request that the packet completes. */
enum completed {
	COMPLETES_NONE,
	COMPLETES_MESSAGE,  /* a receive, of RC or UC */
	COMPLETES_DATAGRAM, /* a receive, of UD or GSI */
	COMPLETES_RESPONSE, /* the oldest send request: a READ or atomic */
};

struct placements {
	uint32_t count;
	enum completed completes; /* once the placements are carried out */
	struct atomic_op atomic;
	uint64_t value;            /* atomic response, in host order: payload of a placement */
	uint8_t grh[WIRE_GRH_LEN]; /* datagrams: payload of the first placements */
	struct placement list[FRL_MAX_SGE + 1];
};

/*
 * Takes a packet that is trimmed, has a right ICRC and names this queue pair (or a group that it is
 * attached to). Fills `placements`. Completes the requests that do not wait for them. Whatever is
 * wrong with the packet is counted and answered as the protocol says.
 */
void qp_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns);

/* Completes what the packet completes (`placements->completes`, not COMPLETES_NONE): to be called
 * when the placements have been carried out, before anything else is done with the queue pair. */
void qp_placed(struct qp *qp, const struct wire_packet *packet, const struct placements *placements,
	uint64_t now_ns);

/*
 * To be called instead of qp_placed() when payload turned out, after it was placed, not to have
 * been the sender's any more: the request that the payload is for completes with an error, and the
 * queue pair fails. The packet completes nothing then.
 */
void qp_payload_lost(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);

/* The same of a WRITE whose payload has no place at this end, for the reason given:
 * FRL_WC_LOC_PROT_ERR. */
void qp_payload_refused(struct qp *qp, struct placements *placements, const char *why);

struct packet_piece {
	const uint8_t *addr;
	uint32_t length;
	/* No window; NULL: inline data, valid until the next call on this queue pair. */
	const struct region *region;
};

struct packet_out {
	struct wire_headers h;
	uint32_t payload_len;
	uint32_t n_pieces;
	bool response; /* payload is memory that the peer reads: it may change at any time */
	const struct datagram_target *target; /* datagrams: where to; valid as long as `pieces` */
	/* Requests with payload: of struct frl_send_wr, of the first time that it is sent; else 0.
	 */
	uint64_t keep;
	struct packet_piece pieces[FRL_MAX_SGE];
};

/*
 * Writes up to `max` packets that may be sent now; returns how many. Executes local requests whose
 * turn it is. UC and UD: each packet is to be reported with qp_transmitted(), in order, when the
 * port has taken it and holds no reference to its payload.
 */
uint32_t qp_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns);

/* UC, UD, GSI: the port has taken `packets` more packets; requests complete by that. */
void qp_transmitted(struct qp *qp, uint32_t packets);

/*
 * The port took nothing of what qp_output() has to say. RC: from now on it counts as sent, so that
 * a port that takes nothing ever again makes the queue pair fail as a peer that never answers does.
 */
void qp_not_taken(struct qp *qp, uint64_t now_ns);

/* A packet of a request that waited at this end, for bytes that were being fetched, leaves: the
 * peer had no chance to answer before. A local ACK timer that runs starts again. */
void qp_restart_timer(struct qp *qp, uint64_t now_ns);
/* A deadline is due, and this end keeps the peer from answering: a probe is put off, and a timeout
 * as qp_restart_timer() has it. */
void qp_hold_timer(struct qp *qp, uint64_t now_ns);

/* Whether a region is one of those that the caller means. */
typedef bool (*qp_region_test)(const void *arg, const struct region *region);

/* True when taking this packet in may place bytes into such a region; and when the next packet of
 * qp_output() may have payload from one. In doubt it is true. */
bool qp_input_touches(const struct qp *qp, const struct wire_packet *packet, qp_region_test test,
	const void *arg);
bool qp_output_touches(const struct qp *qp, qp_region_test test, const void *arg);
/*
 * True when everything that taking this packet in may place goes to such regions; and payload may
 * be cut in two there at multiples of *ret_unit bytes, counted from its beginning. In doubt it is
 * false.
 */
bool qp_input_within(const struct qp *qp, const struct wire_packet *packet, qp_region_test test,
	const void *arg, uint32_t *ret_unit);

/* What was thrown away of a queue pair before qp_input() could see it. */
struct qp_loss {
	bool request;
	bool response;
	struct psn psn; /* of the request */
	struct psn response_psn;
};

/* Notes that this packet, which qp_input_touches() is true of, is thrown away. */
void qp_note_loss(struct qp *qp, const struct wire_packet *packet, struct qp_loss *loss);
/* Forgets what has come again by itself. False: nothing is missing any more. PSNs wrap: to be
 * called again before 2^23 of them are over. */
bool qp_trim_loss(const struct qp *qp, struct qp_loss *loss);
/* RC: has the rest, which qp_trim_loss() has left, sent again, without waiting for a timer, and
 * without using up a retry of this end. */
void qp_ask_again(struct qp *qp, const struct qp_loss *loss, uint64_t now_ns);

/* True when qp_output() has something to do. */
bool qp_wants_output(const struct qp *qp);

/* Send requests that are in the queue: posted and not done. */
static inline uint32_t qp_n_requests(const struct qp *qp)
{
	return qp->requester.tail - qp->requester.head;
}

/* UD, GSI: where the next packet of qp_output() goes; NULL when there is none. */
const struct datagram_target *qp_next_target(const struct qp *qp);

static inline bool qp_is_datagram(const struct qp *qp)
{
	return qp->type == FRL_QPT_UD || qp->type == FRL_QPT_GSI;
}

/* Packets of requests may leave in this state. */
static inline bool qp_sends(const struct qp *qp)
{
	return qp->state == FRL_QPS_RTS || qp->state == FRL_QPS_SQD;
}

/* When qp_on_deadline() has something to do: DEADLINE_NONE or a time. */
uint64_t qp_next_deadline(const struct qp *qp);
/* The same, but a probe, which may wait a little, is not due before `least_ns`. */
uint64_t qp_next_look(const struct qp *qp, uint64_t least_ns);
void qp_on_deadline(struct qp *qp, uint64_t now_ns);

/*
 * Moves the queue pair to ERR: the oldest send request completes with `status`, everything else in
 * both queues as flushed. If there is no send request to tell of `status`, and it is not
 * WR_FLUSH_ERR, QP_FATAL does. With an SRQ raises LAST_WQE_REACHED. Nothing in RESET and ERR.
 */
void qp_fail(struct qp *qp, enum frl_wc_status status);

/* Notes why it is about to fail: a sentence that lives as long as the queue pair. The first one
 * stays, until RESET. */
void qp_explain(struct qp *qp, const char *sentence);

/* RC: PSNs of the READs and atomics that the peer may ask for again. */
uint32_t qp_saved_psns(const struct qp *qp);

/* A NAK with the code "remote operational error", for a request that no queue pair can take. */
void qp_refusal(struct packet_out *out, uint32_t dest_qpn, struct psn psn);

/* The time that a code of the RNR timer field of the AETH stands for. IBTA table 46. */
uint64_t rnr_timer_ns(uint8_t code);

#endif
