/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair (RC, UC, UD or GSI), without I/O. Input: packets and time. Output: packets,
 * placements, completions, events, and one deadline. No clock, allocation, log or threads; the
 * owner of the engine calls it. IBTA volume 1, chapter 9.
 *
 *	post_send  -> [ send queue ] -> requester -> qp_output()  -> packets
 *	packets    -> qp_input() -> completer (ACKs, responses) -> placements
 *	                         -> responder (requests) -> placements, responses
 *	placements are carried out -> qp_placed() -> completions
 *	post_recv  -> [ receive queue or SRQ ] ------^
 *
 * Files:
 * - send_queue.c: posting send requests
 * - requester.c: packets of requests
 * - completer.c: ACKs, NAKs and responses
 * - recovery.c: all timers, retransmission
 * - responder.c: requests of RC peers
 * - responder_resources.c: responder resources (READs and atomics)
 * - unreliable.c: receiving UC and UD
 * - message.c: received SENDs and WRITEs
 * - recv_request.c: the current receive request
 * - recv_queue.c: receive queues
 * - region.c: memory regions and windows
 * - qp.c: initialization, errors, dispatch
 * - qp_modify.c: states and attributes
 * - touch.c: the regions that a packet accesses
 * - qp_stats.c: state for operators
 * - fast_path.h: conditions of the fast paths
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
 * A send request in the queue. It has the PSNs [first_psn, first_psn + packets). Packet k carries
 * payload [k * mtu, ...); the PSNs of a READ are those of its responses. LOCAL_INV and BIND_MW
 * have no packets.
 */
struct send_wqe {
	uint64_t wr_id;
	uint64_t remote_addr; /* remote_addr, rkey and length as in the RETH */
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
	struct frl_sge *sge;  /* memory of the slot */
	uint8_t *inline_data; /* memory of the slot */
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
		struct datagram_target *target; /* UD, GSI: memory of the slot */
	};
};

/*
 * The requester's window over the send queue, in PSNs:
 *
 *	   una             next            sent_end         end
 *	----|---------------|----------------|---------------|----
 *	    | sent, unacked | to retransmit  | never sent    |
 *
 * Without loss next == sent_end. Going back moves next to una. The requests in queue positions
 * [head, tail) have the PSNs [una, end), without the acknowledged part of the first one. Sending a
 * READ request moves next past the PSNs of all its responses; una follows as they arrive.
 * UC, UD: `una` is the end of what the port has taken; there is no window.
 */
struct requester {
	struct send_wqe *wqes;
	uint32_t mask;
	uint32_t size; /* capacity of the queue */
	uint32_t head;
	uint32_t tail;
	uint32_t current; /* position of the request that `next` belongs to */
	struct psn una;
	struct psn next;
	struct psn sent_end;
	struct psn end;
	uint32_t window;      /* maximum of PSNs in flight, below 2^23 */
	uint32_t slack;       /* PSNs by which a batch may exceed the window */
	uint32_t outstanding; /* READs and atomics at positions [head, current) */
	bool blocked;  /* the request at `current` will fail once the earlier ones are done */
	bool draining; /* SQD: requests from `stop` on are not started */
	uint32_t stop;
};

/* See recovery.h. */
struct recovery {
	uint64_t ack_deadline_ns; /* next probe, or the timeout */
	uint64_t rnr_deadline_ns;
	uint64_t ack_timeout_ns; /* 0: no timer */
	uint64_t ack_expires_ns; /* time of the timeout while ack_deadline_ns is set */
	struct psn rnr_psn;      /* refused PSN while rnr_deadline_ns is set */
	struct psn probe_psn;    /* PSN of the probe while `probing` */
	struct psn probe_end;    /* sent_end when the probe was sent */
	bool probe_due;          /* the packet at `una` is to be sent as a probe */
	bool probing;            /* a probe is out, and `una` has not moved since */
	bool suspected;          /* the last ACK ended with a probe: later packets may be lost */
	uint8_t n_held;          /* such ACKs in a row (at most 2) while a response is awaited */
	uint8_t probes;          /* since the round trip time was last measured */
	uint8_t retries;         /* left */
	uint8_t rnr_retries;     /* left */
	uint8_t backoff;         /* timeouts in a row */
	bool went_back;          /* since `una` last moved; for a NAK (sent, implied or pending) */
	bool refused;            /* by an RNR NAK, since `una` last moved */
};

enum responder_message {
	MESSAGE_NONE, /* between messages */
	MESSAGE_SEND,
	MESSAGE_WRITE,
	MESSAGE_DROPPED, /* UC: the rest of a message that lost a packet */
};

/*
 * Responder resources of an accepted READ or atomic, kept to answer a duplicate request (9.4.4,
 * 9.4.5). While `pending`, the response is to be sent: packets [next, reply_end) of a READ, whose
 * bytes end at `reply_length`, or the ATOMIC ACKNOWLEDGE.
 */
struct responder_resource {
	struct psn first_psn;
	uint64_t first_ordinal; /* ordinal of first_psn, see struct responder */
	uint32_t packets;
	bool atomic;
	bool pending;
	bool answered; /* completely, once; a pending response is a replay */
	uint32_t msn;
	uint64_t va;
	uint32_t rkey;
	uint32_t length;
	uint64_t original; /* atomic: the original value; result of struct atomic_op */
	struct psn next;
	struct psn reply_first; /* start of the response or replay: FIRST or ONLY */
	struct psn reply_end;
	uint32_t reply_length; /* bytes from `va` */
};

struct responder {
	struct recv_queue queue; /* own receive requests; empty with an SRQ */
	struct srq *srq;
	struct recv_wqe *recv;   /* of the message being received, or NULL */
	struct recv_wqe srq_wqe; /* holds `recv` if it came from the SRQ */
	struct psn epsn;         /* the next PSN to accept */
	uint64_t ordinal;        /* RC: PSNs accepted so far; does not wrap */
	uint32_t msn;
	bool nak_sent; /* a NAK for epsn is sent or pending: later ones are dropped (9.7.5.2.8) */
	enum responder_message message;
	uint32_t offset; /* MESSAGE_SEND, MESSAGE_WRITE: bytes of the message accepted so far */
	uint64_t write_va;
	uint32_t write_rkey;
	uint32_t write_length;
	/* The ACK or NAK to send; a later ACK replaces an earlier one. It waits for the responses
	 * to earlier READs and atomics. */
	bool ack_pending;
	uint8_t ack_syndrome;
	struct psn ack_psn;
	uint32_t unacked; /* packets accepted since the last ACK was generated */
	/* READs and atomics at positions [resource_tail - FRL_MAX_RD_ATOMIC, resource_tail). */
	struct responder_resource *resources; /* RC: FRL_MAX_RD_ATOMIC entries */
	uint32_t n_resources;     /* max_dest_rd_atomic: how many may wait for a response */
	uint32_t resource_tail;   /* runs freely; unused slots have packets 0 */
	uint32_t resource_cursor; /* no entry before this position has a pending response */
	uint32_t n_pending;
};

struct qp {
	/* hot: used for every packet */
	enum frl_qp_state state;
	enum frl_qp_type type;
	uint32_t qpn;
	uint32_t dest_qpn;
	uint32_t path_mtu; /* UD, GSI: of the port */
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
	bool comm_est;        /* COMM_EST was raised */
	bool answers_turn;    /* if only one packet may be sent: the last one was a response */
	bool unlimited_retry; /* the link reports a dead peer, so retries are unlimited */
	bool as_hardware;     /* as in struct qp_config */
	/* as_hardware: slots of signaled send requests whose completions are not polled yet */
	uint32_t held_slots;
	/* Reason of the failure, as in struct qp_stats. */
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
	/* Elements are checked when a request is carried out, and a signaled send request keeps its
	 * slot until its completion is taken, as in the queues of hardware. */
	bool as_hardware;
	void *storage; /* zeroed, qp_storage_size() bytes, owned by the caller */
};

/* Returns the bytes of memory needed for these queues, aligned as by malloc(). */
size_t qp_storage_size(const struct qp_config *config);

/* Initializes the queue pair in RESET. */
void qp_init(struct qp *qp, const struct qp_config *config);

/*
 * Changes state and attributes. -EINVAL with a reason in *ret_why; nothing is changed then. A
 * change to ERR flushes both queues.
 */
int qp_modify(struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask, const char **ret_why);

/* Returns why qp_modify() would refuse, or NULL. */
const char *qp_check_modify(const struct qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/* Gets the attributes as a query returns them. */
void qp_query(const struct qp *qp, struct frl_qp_attr *ret_attr);

/* Objects that the handles of a send request name; NULL if absent. */
struct wr_objects {
	const struct address_handle *ah;
	struct region *window;
	struct region *parent;
};

/* -EINVAL with *ret_why; -ENOMEM if the queue is full. */
int qp_post_send(struct qp *qp, const struct frl_send_wr *wr, const struct wr_objects *objects,
	const char **ret_why);
int qp_post_recv(struct qp *qp, const struct frl_recv_wr *wr, const char **ret_why);

/* Removes the newest `n` send requests. Only what was posted since the last other call on the queue
 * pair may be removed; then the queue pair is as before these posts. Not for a queue pair that
 * flushes requests, which refuses none. */
void qp_undo_posts(struct qp *qp, uint32_t n);

/* Payload and its destination. Placements must be carried out in order, before any other call on
 * the queue pair. */
struct placement {
	uint8_t *dst;
	const uint8_t *payload; /* in the packet, or `grh` or `value` below */
	uint32_t length;
	const struct region *region;
	const struct frl_recv_action *action; /* NULL: COPY */
	const uint8_t *src;                   /* REDUCE: the first operand */
	uint64_t keep;  /* of struct frl_recv_wr if all payload goes there; else 0 */
	bool may_fault; /* `dst` or `src` is memory that may be unmapped */
};

/* An atomic operation on eight bytes. The original value is stored in *ret_original. */
struct atomic_op {
	uint64_t *addr;    /* aligned; NULL: none */
	bool compare_swap; /* otherwise fetch and add */
	uint64_t compare;
	uint64_t swap_add;
	const struct region *region;
	uint64_t *ret_original;
};

/* The kind of request that a packet completes. */
enum completed {
	COMPLETES_NONE,
	COMPLETES_MESSAGE,  /* a receive of RC or UC */
	COMPLETES_DATAGRAM, /* a receive of UD or GSI */
	COMPLETES_RESPONSE, /* the oldest send request: a READ or atomic */
};

struct placements {
	uint32_t count;
	enum completed completes; /* after the placements are carried out */
	struct atomic_op atomic;
	uint64_t value;            /* atomic response in host order: payload of a placement */
	uint8_t grh[WIRE_GRH_LEN]; /* datagrams: payload of the first placements */
	struct placement list[FRL_MAX_SGE + 1];
};

/*
 * Handles a received packet for this queue pair or one of its multicast groups. The packet must be
 * trimmed and have a correct ICRC. Fills `placements`, and completes requests that do not depend
 * on them. An invalid packet is counted and answered as the protocol requires.
 */
void qp_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns);

/* Completes the request that the packet completes. Call it after the placements are carried out,
 * before any other call on the queue pair. placements->completes must not be COMPLETES_NONE. */
void qp_placed(struct qp *qp, const struct wire_packet *packet, const struct placements *placements,
	uint64_t now_ns);

/*
 * Call it instead of qp_placed() if the sender had reclaimed the payload before it was placed. The
 * request that the payload is for completes with an error, and the queue pair fails.
 */
void qp_payload_lost(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);

/* The same for a WRITE whose payload cannot be placed, for the reason given: FRL_WC_LOC_PROT_ERR.
 */
void qp_payload_refused(struct qp *qp, struct placements *placements, const char *why);

/*
 * Call it instead of qp_placed() if a placement or the atomic failed, because its memory was
 * unmapped. The packet has the effect that it would have had if the region had been gone before:
 * the request fails, here and at the peer.
 */
void qp_memory_gone(struct qp *qp, const struct wire_packet *packet, struct placements *placements);

struct packet_piece {
	const uint8_t *addr;
	uint32_t length;
	/* No window. NULL: inline data, valid until the next call on this queue pair. */
	const struct region *region;
};

struct packet_out {
	struct wire_headers h;
	uint32_t payload_len;
	uint32_t n_pieces;
	bool response; /* payload is memory that the peer reads; it may change at any time */
	const struct datagram_target *target; /* datagrams: destination; valid as long as `pieces`
					       */
	/* Requests with payload: of struct frl_send_wr on the first transmission; else 0. */
	uint64_t keep;
	struct packet_piece pieces[FRL_MAX_SGE];
};

/*
 * Builds up to `max` packets that may be sent now. Returns how many. Executes local requests whose
 * turn it is. UC and UD: each packet must be reported with qp_transmitted(), in order, when the
 * port has taken it and holds no reference to its payload.
 */
uint32_t qp_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns);

/* UC, UD, GSI: reports that the port has taken `packets` more packets, which completes requests. */
void qp_transmitted(struct qp *qp, uint32_t packets);

/*
 * Takes back packets of requests whose payload cannot be read, because it was unmapped: the last
 * `packets` of those that qp_output() returned. UC, UD: they must not be reported. RC: more packets
 * may be sent again. The request fails when it is next output; the region must be gone by then.
 */
void qp_take_back(struct qp *qp, uint32_t packets, uint64_t now_ns);
/* The same for the response to a READ in the packet with this PSN: fails the queue pair, and
 * refuses the READ. */
void qp_response_gone(struct qp *qp, struct psn psn);

/*
 * Reports that the port took no packets. RC: starts the ACK timer as if they were sent. A port
 * that never takes packets then fails the queue pair like a peer that never answers.
 */
void qp_not_taken(struct qp *qp, uint64_t now_ns);

/* Restarts the local ACK timer if it runs. Called when a packet of a request leaves after a delay
 * at this end, while the peer could not answer. */
void qp_restart_timer(struct qp *qp, uint64_t now_ns);
/* A deadline has expired while this end keeps the peer from answering. Postpones a probe, or
 * restarts the timeout. */
void qp_hold_timer(struct qp *qp, uint64_t now_ns);

/* Predicate over regions. */
typedef bool (*qp_region_test)(const void *arg, const struct region *region);

/* Return true if the received packet may place bytes into a region that satisfies the predicate,
 * or if the next packet of qp_output() may have payload from one. If unknown, true. */
bool qp_input_touches(const struct qp *qp, const struct wire_packet *packet, qp_region_test test,
	const void *arg);
bool qp_output_touches(const struct qp *qp, qp_region_test test, const void *arg);
/*
 * Returns true if everything that the packet may place goes to regions that satisfy the predicate.
 * Payload can then be split at multiples of *ret_unit bytes from its start. If unknown, false.
 */
bool qp_input_within(const struct qp *qp, const struct wire_packet *packet, qp_region_test test,
	const void *arg, uint32_t *ret_unit);

/* Packets of a queue pair that were dropped before qp_input(). */
struct qp_loss {
	bool request;
	bool response;
	struct psn psn; /* of the request */
	struct psn response_psn;
};

/* Records a dropped packet for which qp_input_touches() is true. */
void qp_note_loss(struct qp *qp, const struct wire_packet *packet, struct qp_loss *loss);
/* Removes packets that have arrived again meanwhile. Returns false if none is missing any more.
 * Call it at least once every 2^23 PSNs, since PSNs wrap. */
bool qp_trim_loss(const struct qp *qp, struct qp_loss *loss);
/* RC: requests the missing packets again, without waiting for a timer or using up a retry. */
void qp_request_again(struct qp *qp, const struct qp_loss *loss, uint64_t now_ns);

/* Returns true if qp_output() has something to do. */
bool qp_wants_output(const struct qp *qp);

/* Call when a completion with CQ_WC_HOLDS_SLOT was taken out of its queue. */
static inline void qp_release_slot(struct qp *qp)
{
	/* A gate may have held the completion beyond a reset. */
	if (qp->held_slots)
		qp->held_slots--;
}

/* as_hardware: removes completions that were not taken, at the reset or end of the queue pair. */
void qp_forget_completions(struct qp *qp);

/* Returns the number of send requests that are posted and not completed. */
static inline uint32_t qp_n_requests(const struct qp *qp)
{
	return qp->requester.tail - qp->requester.head;
}

/* UD, GSI: returns the destination of the next packet, or NULL if there is none. */
const struct datagram_target *qp_next_target(const struct qp *qp);

static inline bool qp_is_datagram(const struct qp *qp)
{
	return qp->type == FRL_QPT_UD || qp->type == FRL_QPT_GSI;
}

/* Returns true if requests may be sent in this state. */
static inline bool qp_sends(const struct qp *qp)
{
	return qp->state == FRL_QPS_RTS || qp->state == FRL_QPS_SQD;
}

/* Returns when qp_on_deadline() must be called, or DEADLINE_NONE. */
uint64_t qp_next_deadline(const struct qp *qp);
/* The same, with probes delayed to `least_ns` or later. Timeouts (ACK, RNR) are not delayed. */
uint64_t qp_next_look(const struct qp *qp, uint64_t least_ns);
void qp_on_deadline(struct qp *qp, uint64_t now_ns);

/*
 * Moves the queue pair to ERR. The oldest send request completes with `status`, all other requests
 * as flushed. Raises QP_FATAL if no send request can report a `status` other than WR_FLUSH_ERR.
 * Raises LAST_WQE_REACHED with an SRQ. Has no effect in RESET and ERR.
 */
void qp_fail(struct qp *qp, enum frl_wc_status status);

/* Records why the queue pair is about to fail. The text must outlive the queue pair. The first
 * reason stays until RESET. */
void qp_explain(struct qp *qp, const char *sentence);

/* RC: returns the PSNs of the READs and atomics that the peer may repeat. */
uint32_t qp_resource_psns(const struct qp *qp);

/* Builds a NAK "remote operational error" for a request without a queue pair to take it. */
void qp_refusal(struct packet_out *out, uint32_t dest_qpn, struct psn psn);

/* Returns the time of an RNR timer code of the AETH (IBTA table 46). */
uint64_t rnr_timer_ns(uint8_t code);

#endif
