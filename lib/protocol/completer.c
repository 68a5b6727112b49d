/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completer: ACKs, NAKs and responses as the requester receives them. IBTA volume 1, 9.7.5, 9.8
 * and 9.9.2.
 *
 * Every response acknowledges all packets before its PSN. If these include a READ or atomic
 * without a response, that response was lost: an implied NAK.
 */
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

enum verdict {
	ANSWER_ACK,
	ANSWER_RESPONSE, /* to a READ or an atomic */
	ANSWER_SEQUENCE_NAK,
	ANSWER_RNR_NAK,
	ANSWER_FATAL_NAK,
	ANSWER_STALE,     /* PSN outside the window: delayed, duplicate or forged */
	ANSWER_MALFORMED, /* reserved syndrome, or one that does not match the opcode */
};

static enum verdict classify_nak(uint8_t code)
{
	switch (code) {
	case NAK_SEQUENCE: return ANSWER_SEQUENCE_NAK;
	case NAK_INVALID_REQUEST:
	case NAK_REMOTE_ACCESS:
	case NAK_REMOTE_OPERATIONAL:
	case NAK_INVALID_RD_REQUEST: return ANSWER_FATAL_NAK;
	default: return ANSWER_MALFORMED;
	}
}

static enum verdict classify(const struct qp *qp, const struct wire_packet *packet)
{
	const struct requester *r = &qp->requester;
	bool response = packet->op->operation != OPERATION_ACK;
	uint8_t syndrome = packet->op->headers & HEADER_AETH ? packet->h.aeth.syndrome : AETH_ACK;
	struct psn psn = packet->h.bth.psn;

	if ((syndrome & AETH_RESERVED) ||
		((packet->op->flags & OPCODE_NO_PAYLOAD) && packet->payload_len != 0))
		return ANSWER_MALFORMED;
	if (psn_diff(psn, r->una) < 0 || psn_diff(psn, r->sent_end) >= 0)
		return ANSWER_STALE;
	if ((syndrome & AETH_TYPE_MASK) == AETH_ACK)
		return response ? ANSWER_RESPONSE : ANSWER_ACK;
	if (response)
		return ANSWER_MALFORMED;
	switch (syndrome & AETH_TYPE_MASK) {
	case AETH_RNR_NAK: return ANSWER_RNR_NAK;
	case AETH_NAK: return classify_nak(syndrome & AETH_VALUE_MASK);
	default: return ANSWER_MALFORMED;
	}
}

/* Completes everything before `psn`. Returns false if the queue pair has failed. */
static bool advance(struct qp *qp, struct psn psn, uint64_t now_ns)
{
	bool moved = requester_acknowledge(qp, psn);

	if (!qp_sends(qp))
		return false;
	if (moved) {
		qp->stats->rx_acks++;
		recovery_on_progress(qp, now_ns);
	}
	return true;
}

static bool response_lost(const struct qp *qp, struct psn psn)
{
	return psn_diff(qp->requester.una, psn) < 0;
}

/* The missing response was lost (9.7.5.2.9). Later responses imply the same loss again. */
static void take_implied_nak(struct qp *qp, uint64_t now_ns)
{
	if (recovery_on_loss(qp, now_ns))
		qp->stats->implied_naks++;
}

static void take_ack(struct qp *qp, struct psn psn, uint64_t now_ns)
{
	struct psn executed = psn_next(psn);

	if (advance(qp, executed, now_ns) && response_lost(qp, executed))
		take_implied_nak(qp, now_ns);
}

static enum frl_wc_status fatal_status(uint8_t syndrome)
{
	switch (syndrome & AETH_VALUE_MASK) {
	case NAK_INVALID_REQUEST: return FRL_WC_REM_INV_REQ_ERR;
	case NAK_REMOTE_ACCESS: return FRL_WC_REM_ACCESS_ERR;
	case NAK_INVALID_RD_REQUEST: return FRL_WC_REM_INV_RD_REQ_ERR;
	default: return FRL_WC_REM_OP_ERR;
	}
}

/* Fails the request that the PSN belongs to. */
static void take_fatal_nak(struct qp *qp, struct psn psn, uint8_t syndrome, uint64_t now_ns)
{
	const struct requester *r = &qp->requester;
	uint32_t position;

	if (!advance(qp, psn, now_ns))
		return;
	for (position = r->head; position != r->tail; position++) {
		const struct send_wqe *wqe = send_wqe_at(r, position);

		if (psn_diff(psn, wqe->first_psn) < (int32_t)wqe->packets)
			break;
	}
	qp_fail_at(qp, position, fatal_status(syndrome));
}

/* Returns true if opcode and length match the position in the response. FIRST and MIDDLE are
 * equivalent, as are LAST and ONLY: implementations differ when a READ restarts in its middle. */
static bool is_read_response(
	const struct qp *qp, const struct send_wqe *wqe, const struct wire_packet *packet)
{
	uint32_t k = (uint32_t)psn_diff(qp->requester.una, wqe->first_psn);
	bool last = k + 1 == wqe->packets;
	bool ends = packet->op->flags & OPCODE_LAST;

	return packet->op->operation == OPERATION_READ_RESPONSE && ends == last &&
		packet->payload_len == (last ? wqe->length - k * qp->path_mtu : qp->path_mtu);
}

/* Handles the response with PSN una. */
static void take_expected(struct qp *qp, const struct wire_packet *packet,
	struct placements *placements, uint64_t now_ns)
{
	const struct requester *r = &qp->requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->head);
	bool read = wqe->opcode == FRL_WR_RDMA_READ;
	uint32_t offset = (uint32_t)psn_diff(r->una, wqe->first_psn) * qp->path_mtu;
	const uint8_t *payload = packet->payload;
	uint32_t length = packet->payload_len;

	if (!wr_has_response(wqe->opcode)) {
		qp->stats->drop_bad_aeth++;
		return;
	}
	if (read ? !is_read_response(qp, wqe, packet)
		 : packet->op->operation != OPERATION_ATOMIC_ACK) {
		qp_fail_at(qp, r->head, FRL_WC_BAD_RESP_ERR);
		return;
	}
	if (!read) {
		placements->value = packet->h.atomic_original;
		payload = (const uint8_t *)&placements->value;
		length = ATOMIC_SIZE;
	}
	if (!scatter(qp, wqe->sge, wqe->n_sge, placements, offset, payload, length)) {
		qp_fail_at(qp, r->head, FRL_WC_LOC_PROT_ERR);
		return;
	}
	if (psn_diff(r->una, wqe->first_psn) + 1 == (int32_t)wqe->packets) {
		placements->completes = COMPLETES_RESPONSE;
		return;
	}
	requester_response_taken(qp);
	recovery_on_progress(qp, now_ns);
}

static void take_response(struct qp *qp, const struct wire_packet *packet,
	struct placements *placements, uint64_t now_ns)
{
	struct psn psn = packet->h.bth.psn;

	if (!advance(qp, psn, now_ns))
		return;
	if (response_lost(qp, psn))
		take_implied_nak(qp, now_ns);
	else
		take_expected(qp, packet, placements, now_ns);
}

void completer_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns)
{
	uint8_t syndrome = packet->h.aeth.syndrome;
	struct psn psn = packet->h.bth.psn;

	switch (classify(qp, packet)) {
	case ANSWER_ACK: take_ack(qp, psn, now_ns); break;
	case ANSWER_RESPONSE: take_response(qp, packet, placements, now_ns); break;
	case ANSWER_SEQUENCE_NAK:
		qp->stats->naks_received_seq++;
		/* After an RNR NAK, rxe also sends sequence NAKs for the packets that follow. */
		if (!recovery_waits_for_receiver(qp) && advance(qp, psn, now_ns))
			recovery_on_nak(qp, psn, now_ns);
		break;
	case ANSWER_RNR_NAK:
		qp->stats->naks_received_rnr++;
		qp->counts.rnr_received++;
		if (advance(qp, psn, now_ns))
			recovery_on_rnr_nak(qp, psn, syndrome & AETH_VALUE_MASK, now_ns);
		break;
	case ANSWER_FATAL_NAK:
		qp->stats->naks_received_fatal++;
		take_fatal_nak(qp, psn, syndrome, now_ns);
		break;
	case ANSWER_STALE: qp->stats->stale_acks++; break;
	case ANSWER_MALFORMED: qp->stats->drop_bad_aeth++; break;
	}
}
