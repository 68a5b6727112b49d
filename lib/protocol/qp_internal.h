/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of a queue pair call of each other. Private to lib/protocol. */
#ifndef FERRULE_PROTOCOL_QP_INTERNAL_H
#define FERRULE_PROTOCOL_QP_INTERNAL_H

#include "lib/protocol/qp.h"

/* Types and codes of the AETH syndrome. IBTA volume 1, 9.7.5.2. */
enum aeth_syndrome {
	AETH_TYPE_MASK = 0x60,
	AETH_ACK = 0x00,
	AETH_RNR_NAK = 0x20,
	AETH_NAK = 0x60,
	AETH_VALUE_MASK = 0x1f,
	AETH_RESERVED = 0x80,
	AETH_CREDITS_NONE = 0x1f, /* an ACK that carries no credits */
};

enum nak_code {
	NAK_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATIONAL = 3,
	NAK_INVALID_RD_REQUEST = 4,
};

enum {
	/* PSNs in use must stay below half of their circle, so that older and newer can be told. */
	MAX_QUEUED_PACKETS = (1 << 23) - 1,
	ATOMIC_SIZE = 8,
};

enum receive_verdict {
	RECEIVE_FITS,
	RECEIVE_TOO_LONG,    /* for the request, or no whole number of its elements */
	RECEIVE_MEMORY_GONE, /* of the request, or of its action */
};

static inline struct send_wqe *send_wqe_at(const struct requester *r, uint32_t position)
{
	return &r->wqes[position & r->mask];
}

static inline uint32_t packets_for(uint32_t length, uint32_t mtu)
{
	return length ? (length - 1) / mtu + 1 : 1;
}

static inline bool wr_is_atomic(uint8_t opcode)
{
	return opcode == FRL_WR_ATOMIC_CMP_AND_SWP || opcode == FRL_WR_ATOMIC_FETCH_AND_ADD;
}

/* Answered by a response of its own: an ACK does not complete it. */
static inline bool wr_has_response(uint8_t opcode)
{
	return opcode == FRL_WR_RDMA_READ || wr_is_atomic(opcode);
}

/* Done here, without a packet. */
static inline bool wr_is_local(uint8_t opcode)
{
	return opcode == FRL_WR_LOCAL_INV || opcode == FRL_WR_BIND_MW;
}

/* qp.c */

/* As qp_fail(), but the request at `position` of the send queue is the one that completes with
 * `status`; those before it are flushed. */
void qp_fail_at(struct qp *qp, uint32_t position, enum frl_wc_status status);

/* The peer's request is refused: everything is flushed, but answers to earlier READs and atomics
 * go out still, before the NAK. For responder_refuse(). */
void qp_fail_refused(struct qp *qp);

/*
 * The oldest send request failed for a local reason. RC: as qp_fail(). UC, UD: it completes with
 * `status`, those behind it are flushed, and the state is SQE (10.3.1.7).
 */
void qp_fail_send(struct qp *qp, enum frl_wc_status status);

/* The first packet was accepted in RTR: raises COMM_EST. */
void qp_established(struct qp *qp);

/* A packet of RC or UC was accepted. */
static inline void qp_accepted(struct qp *qp)
{
	qp->stats->rx_requests++;
	if (qp->state == FRL_QPS_RTR && !qp->comm_est)
		qp_established(qp);
}

/* RC: where it is in both directions, unless it is in a state that has no such place. */
void qp_note_psns(const struct qp *qp, struct frl_qp_attr *attr);

/* Writes a completion; a full queue takes the queue pair to ERR. */
void qp_complete(struct qp *qp, struct cq *cq, const struct frl_wc *wc, bool solicited);

/* A request comes back flushed, `placed` bytes of a message being in its memory. */
void qp_flush_one(struct qp *qp, struct cq *cq, uint64_t wr_id, uint32_t placed);

/* requester.c */

/* Everything from `una` on is to be sent again. */
void requester_go_back(struct requester *r);
/*
 * The responder has executed everything before `psn`: completes requests up to the first READ or
 * atomic whose response is missing, and moves una so far. True when una moved. Then, if una is
 * before `psn` still, that response was lost.
 */
bool requester_acknowledge(struct qp *qp, struct psn psn);
/* The response to PSN una has come: it is not the last one of its request. */
void requester_response_taken(struct qp *qp);
/* COMPLETES_RESPONSE: the last one is placed, and its request completes. */
void requester_response_placed(struct qp *qp, uint64_t now_ns);
uint32_t requester_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns);
bool requester_wants_output(const struct qp *qp);
/* The next request may not start: READs and atomics before it are not done, and it is fenced, or
 * they are as many as may be. */
bool requester_held_back(const struct qp *qp);
/* The position behind the last request that was started. */
uint32_t requester_started(const struct requester *r);
/* Nothing that was started is unfinished: raises SQ_DRAINED when that is wanted, once. */
void requester_check_drained(struct qp *qp);
/* True when that is so, in SQD. */
bool requester_drained(const struct qp *qp);

/* completer.c: answers to RC requests. */
void completer_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns);

/* responder.c: RC. */
void responder_input(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);
/* The packet expected next has come and was thrown away: as if a later one told that it is lost. */
void responder_ask_again(struct qp *qp);
/* A request for a queue pair in ERR. */
void responder_refuse_late(struct qp *qp, const struct wire_packet *packet);
/* Something is to be answered: an acknowledgement, or a READ or atomic. */
bool responder_wants_output(const struct qp *qp);
uint32_t responder_output(struct qp *qp, struct packet_out out[], uint32_t max);
/*
 * The queue pair fails because of the packet at `psn`: the receive request that it was for, if
 * `recv_status` is not SUCCESS and there is one, completes with that; otherwise QP_REQ_ERR or
 * QP_ACCESS_ERR is raised (9.9.3). The NAK goes out after what was to be answered before it.
 */
void responder_refuse(
	struct qp *qp, enum nak_code code, enum frl_wc_status recv_status, struct psn psn);

/* saved.c: what the responder keeps of READs and atomics, and their answers. */

/* One more may wait for its answer: fewer than max_dest_rd_atomic do so. */
bool saved_has_room(const struct qp *qp);
/* A slot for a new one, there being room; the oldest goes. */
struct saved_request *saved_add(struct qp *qp);
/* The answer of this one is to be sent, from its start. */
void saved_start(struct qp *qp, struct saved_request *saved);
/* A repeated READ or atomic request: its answer is to be sent again, from there, if it is known. */
void saved_replay(struct qp *qp, const struct wire_packet *packet);
/* The newest of them came after `psn`, which is less than 2^23 away from the expected PSN. */
bool saved_newer(const struct qp *qp, struct psn psn);
/* An answer is pending whose next packet has `psn` or an older PSN; `psn` as for saved_newer(). */
bool saved_pending_until(const struct qp *qp, struct psn psn);
/* Fills `out` with the next response packet; one must be pending. False: a READ's memory is gone.
 * The queue pair has failed then, or, if this was a replay, gives the replay up. */
bool saved_output(struct qp *qp, struct packet_out *out);
/* Forgets all of them. */
void saved_reset(struct qp *qp);

/* message.c: SENDs and WRITEs, of RC and UC. */

/* MESSAGE_NONE: neither of them. */
enum responder_message message_kind(const struct wire_packet *packet);
/* The payload is as long as its place in the message and the length of a WRITE require. */
bool message_length_fits(const struct qp *qp, const struct wire_packet *packet);
/* Would a SEND's payload go into the receive request? There must be one. */
enum receive_verdict message_check_receive(const struct qp *qp, const struct wire_packet *packet);
/* A WRITE's bytes, from the first to the last, are memory that the peer may write to. */
bool message_may_write(const struct qp *qp, const struct wire_packet *packet);
/* Takes a packet to which all of the above applies: adds its placements. */
void message_accept(struct qp *qp, const struct wire_packet *packet, struct placements *placements);
/* COMPLETES_MESSAGE: the last packet of a message is placed. */
void message_placed(struct qp *qp, const struct wire_packet *packet);

/* unreliable.c: UC, and UD or GSI. */
void unreliable_input(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);
void datagram_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements);
void datagram_placed(struct qp *qp, const struct wire_packet *packet);

/* receive.c: the receive request of the message that is arriving. */

/* There is one in the queue or the SRQ. */
bool receive_available(const struct qp *qp);
/* The one that would be taken: the one taken already, or the next; NULL without. */
const struct recv_wqe *receive_peek(const struct qp *qp);
/* Takes one, unless one is taken already; receive_available() must be true. */
void receive_take(struct qp *qp);
/* Would `length` bytes at `offset` go into this request? */
enum receive_verdict receive_check(
	const struct qp *qp, const struct recv_wqe *wqe, uint64_t offset, uint32_t length);
/* Adds placements for `length` bytes at `offset` of the request that is taken. */
void receive_place(struct qp *qp, struct placements *placements, uint32_t offset,
	const uint8_t *payload, uint32_t length);
/* Adds placements for `length` bytes at `offset` of elements: also of READs and atomics. False: a
 * region is gone. */
bool scatter(const struct qp *qp, const struct frl_sge sge[], uint32_t n_sge,
	struct placements *placements, uint32_t offset, const uint8_t *payload, uint32_t length);
/* Completes the request that is taken; `wc` has what differs (status, opcode, byte_len, imm or
 * invalidated key, flags, datagram fields), and gets the rest. */
void receive_complete(struct qp *qp, struct frl_wc *wc, bool solicited);
/* RC: bytes of a message that are in the memory of the request that is taken, or will be as soon as
 * placements are carried out. 0 without one, and where a message that lost a packet is dropped. */
uint32_t receive_placed(const struct qp *qp);
/* Flushes the request that is taken and, without an SRQ, all others. */
void receive_flush(struct qp *qp);

#endif
