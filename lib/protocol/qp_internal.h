/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that the parts of a queue pair share. Private to lib/protocol. */
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
	AETH_CREDITS_NONE = 0x1f, /* an ACK without credits */
};

enum nak_code {
	NAK_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATIONAL = 3,
	NAK_INVALID_RD_REQUEST = 4,
};

enum {
	/* PSNs in use must span less than half of the PSN space, so that they can be ordered. */
	MAX_QUEUED_PACKETS = (1 << 23) - 1,
	ATOMIC_SIZE = 8,
};

enum receive_verdict {
	RECEIVE_FITS,
	RECEIVE_TOO_LONG,    /* for the request, or not a multiple of its element size */
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

/* Returns true for opcodes with a response of their own; an ACK does not complete them. */
static inline bool wr_has_response(uint8_t opcode)
{
	return opcode == FRL_WR_RDMA_READ || wr_is_atomic(opcode);
}

/* Returns true for opcodes that are executed locally, without a packet. */
static inline bool wr_is_local(uint8_t opcode)
{
	return opcode == FRL_WR_LOCAL_INV || opcode == FRL_WR_BIND_MW;
}

/* qp.c */

/* As qp_fail(), but the request at `position` of the send queue completes with `status`; earlier
 * ones are flushed. */
void qp_fail_at(struct qp *qp, uint32_t position, enum frl_wc_status status);

/* Fails the queue pair because the peer's request is refused. Responses to earlier READs and
 * atomics are still sent, before the NAK. For responder_refuse(). */
void qp_fail_refused(struct qp *qp);

/*
 * Fails the oldest send request for a local reason. RC: as qp_fail(). UC, UD: completes it with
 * `status`, flushes the later ones, and enters SQE (10.3.1.7).
 */
void qp_fail_send(struct qp *qp, enum frl_wc_status status);

/* Raises COMM_EST: the first packet was accepted in RTR. */
void qp_established(struct qp *qp);

/* Counts an accepted packet of RC or UC. */
static inline void qp_accepted(struct qp *qp)
{
	qp->stats->rx_requests++;
	if (qp->state == FRL_QPS_RTR && !qp->comm_est)
		qp_established(qp);
}

/* RC: sets the current PSNs of both directions, if the state has them. */
void qp_note_psns(const struct qp *qp, struct frl_qp_attr *attr);

/* Writes a completion. A full queue moves the queue pair to ERR. */
void qp_complete(struct qp *qp, struct cq *cq, const struct frl_wc *wc, bool solicited);

/* Writes the completion of a request that leaves the send queue. */
static inline void qp_complete_send(struct qp *qp, struct frl_wc *wc)
{
	if (qp->as_hardware) {
		wc->flags |= CQ_WC_HOLDS_SLOT;
		qp->held_slots++;
	}
	qp_complete(qp, qp->send_cq, wc, false);
}

/* Completes a request as flushed. `placed` bytes of a message are in its memory. */
void qp_flush_one(struct qp *qp, struct cq *cq, uint64_t wr_id, uint32_t placed);

/* requester.c */

/* Retransmits everything from `una` on. */
void requester_go_back(struct requester *r);
/*
 * Completes requests before `psn`, up to the first READ or atomic without a response, and moves
 * una. Returns true if una moved. If una is still before `psn`, that response was lost.
 */
bool requester_acknowledge(struct qp *qp, struct psn psn);
/* Handles the response with PSN una, which is not the last of its request. */
void requester_response_taken(struct qp *qp);
/* COMPLETES_RESPONSE: the last response is placed; completes the request. */
void requester_response_placed(struct qp *qp, uint64_t now_ns);
uint32_t requester_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns);
bool requester_wants_output(const struct qp *qp);
/* Returns true if the next request must wait for earlier READs and atomics: it is fenced, or their
 * limit is reached. */
bool requester_held_back(const struct qp *qp);
/* Returns the position after the last request that was started. */
uint32_t requester_started(const struct requester *r);
/* Raises SQ_DRAINED, once and if enabled, when all started requests are done. */
void requester_check_drained(struct qp *qp);
/* Returns true if so, in SQD. */
bool requester_drained(const struct qp *qp);

/* completer.c: ACKs and responses of RC */
void completer_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns);

/* responder.c: RC. */
void responder_input(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);
/* The expected packet arrived and was dropped: sends a NAK as if a later packet had revealed the
 * loss. */
void responder_request_again(struct qp *qp);
/* Answers a request to a queue pair in ERR. */
void responder_refuse_late(struct qp *qp, const struct wire_packet *packet);
/* A placement or the atomic of the packet, which was accepted, has failed: refuses it. */
void responder_memory_gone(struct qp *qp, const struct wire_packet *packet);
/* Returns true if an ACK, NAK or response is to be sent. */
bool responder_wants_output(const struct qp *qp);
uint32_t responder_output(struct qp *qp, struct packet_out out[], uint32_t max);
/*
 * Fails the queue pair because of the packet at `psn`. If `recv_status` is not SUCCESS and there
 * is a receive request for the packet, it completes with that status. Otherwise QP_REQ_ERR or
 * QP_ACCESS_ERR is raised (9.9.3). Earlier responses are sent before the NAK.
 */
void responder_refuse(
	struct qp *qp, enum nak_code code, enum frl_wc_status recv_status, struct psn psn);

/* responder_resources.c: responder resources of READs and atomics, and their responses */

/* Returns true if fewer than max_dest_rd_atomic responses are pending. */
bool resource_has_room(const struct qp *qp);
/* Returns a slot for a new request, in place of the oldest; there must be room. */
struct responder_resource *resource_add(struct qp *qp);
/* Schedules the whole response. */
void resource_start(struct qp *qp, struct responder_resource *resource);
/* Removes the newest entry, which was just added. */
void resource_withdraw(struct qp *qp);
/* Answers a duplicate READ or atomic request from its PSN on, if it is known. */
void resource_replay(struct qp *qp, const struct wire_packet *packet);
/* Returns true if the newest entry came after `psn`, which must be within 2^23 of the expected
 * PSN. */
bool resource_newer(const struct qp *qp, struct psn psn);
/* Returns true if a response is pending whose next packet has `psn` or an older PSN; `psn` as for
 * resource_newer(). */
bool resource_pending_until(const struct qp *qp, struct psn psn);
/* Builds the next response packet; one must be pending. Returns false if a READ's memory is gone.
 * The queue pair has then failed, or the replay was dropped. */
bool resource_output(struct qp *qp, struct packet_out *out);
/* Drops all entries. */
void resource_reset(struct qp *qp);

/* message.c: SENDs and WRITEs of RC and UC */

/* Returns MESSAGE_NONE for other operations. */
enum responder_message message_kind(const struct wire_packet *packet);
/* Returns true if the payload has the length that its position in the message and the length of a
 * WRITE require. */
bool message_length_fits(const struct qp *qp, const struct wire_packet *packet);
/* Checks a SEND's payload against the receive request, which must exist. */
enum receive_verdict message_check_receive(const struct qp *qp, const struct wire_packet *packet);
/* Returns true if the peer may write the whole range of a WRITE. */
bool message_may_write(const struct qp *qp, const struct wire_packet *packet);
/* Accepts a packet that passed the checks above: adds its placements. */
void message_accept(struct qp *qp, const struct wire_packet *packet, struct placements *placements);
/* COMPLETES_MESSAGE: the last packet of a message is placed. */
void message_placed(struct qp *qp, const struct wire_packet *packet);

/* unreliable.c: UC, and UD or GSI. */
void unreliable_input(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);
void datagram_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements);
void datagram_placed(struct qp *qp, const struct wire_packet *packet);
/* A placement of the packet, which was accepted, has failed. */
void unreliable_memory_gone(struct qp *qp, const struct wire_packet *packet);

/* recv_request.c: the receive request of the message being received */

/* Returns true if there is a receive request in the queue or the SRQ. */
bool receive_available(const struct qp *qp);
/* Returns the current receive request, or the next one; NULL if there is none. */
const struct recv_wqe *receive_peek(const struct qp *qp);
/* Takes a receive request, unless one is taken. receive_available() must be true. */
void receive_take(struct qp *qp);
/* Checks `length` bytes at `offset` against a receive request. */
enum receive_verdict receive_check(
	const struct qp *qp, const struct recv_wqe *wqe, uint64_t offset, uint32_t length);
/* Adds placements for `length` bytes at `offset` of the current receive request. */
void receive_place(struct qp *qp, struct placements *placements, uint32_t offset,
	const uint8_t *payload, uint32_t length);
/* Adds placements for `length` bytes at `offset` of the elements, also for READs and atomics.
 * Returns false if a region is gone. */
bool scatter(const struct qp *qp, const struct frl_sge sge[], uint32_t n_sge,
	struct placements *placements, uint32_t offset, const uint8_t *payload, uint32_t length);
/* Completes the current receive request. `wc` has status, opcode, byte_len, immediate data or
 * invalidated key, flags and datagram fields; this sets the rest. */
void receive_complete(struct qp *qp, struct frl_wc *wc, bool solicited);
/* RC: returns the bytes of the message that are in the memory of the current receive request, or
 * will be after the placements. 0 without a request, and if the rest of the message is dropped. */
uint32_t receive_placed(const struct qp *qp);
/* Flushes the current receive request and, without an SRQ, all others. */
void receive_flush(struct qp *qp);

#endif
