/* SPDX-License-Identifier: BSD-3-Clause */
/* Acknowledgements, as the requester takes them. IBTA volume 1, 9.7.5 and 9.8. */
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

enum verdict {
	ANSWER_ACK,
	ANSWER_SEQUENCE_NAK,
	ANSWER_RNR_NAK,
	ANSWER_FATAL_NAK,
	ANSWER_STALE,     /* of a PSN outside the window: delayed, duplicated or made up */
	ANSWER_MALFORMED, /* a reserved syndrome, or an answer to what was never asked */
};

static enum verdict classify(const struct qp *qp, const struct wire_packet *packet)
{
	const struct requester *r = &qp->requester;
	uint8_t syndrome = packet->h.aeth.syndrome;
	struct psn psn = packet->h.bth.psn;

	if (packet->op->operation != OPERATION_ACK || packet->payload_len != 0 ||
		(syndrome & AETH_RESERVED))
		return ANSWER_MALFORMED;
	if (psn_diff(psn, r->una) < 0 || psn_diff(psn, r->sent_end) >= 0)
		return ANSWER_STALE;
	switch (syndrome & AETH_TYPE_MASK) {
	case AETH_ACK: return ANSWER_ACK;
	case AETH_RNR_NAK: return ANSWER_RNR_NAK;
	case AETH_NAK: break;
	default: return ANSWER_MALFORMED;
	}
	switch (syndrome & AETH_VALUE_MASK) {
	case NAK_SEQUENCE: return ANSWER_SEQUENCE_NAK;
	case NAK_INVALID_REQUEST:
	case NAK_REMOTE_ACCESS:
	case NAK_REMOTE_OPERATIONAL: return ANSWER_FATAL_NAK;
	default: return ANSWER_MALFORMED;
	}
}

/* Everything before `psn` has arrived. */
static void advance(struct qp *qp, struct psn psn, uint64_t now_ns)
{
	if (!requester_acknowledge(qp, psn) || qp->state == FRL_QPS_ERR)
		return;
	qp->stats->rx_acks++;
	recovery_on_progress(qp, psn_equal(qp->requester.una, qp->requester.sent_end), now_ns);
}

static enum frl_wc_status fatal_status(uint8_t syndrome)
{
	switch (syndrome & AETH_VALUE_MASK) {
	case NAK_INVALID_REQUEST: return FRL_WC_REM_INV_REQ_ERR;
	case NAK_REMOTE_ACCESS: return FRL_WC_REM_ACCESS_ERR;
	default: return FRL_WC_REM_OP_ERR;
	}
}

void completer_input(struct qp *qp, const struct wire_packet *packet, uint64_t now_ns)
{
	uint8_t syndrome = packet->h.aeth.syndrome;
	struct psn psn = packet->h.bth.psn;

	switch (classify(qp, packet)) {
	case ANSWER_ACK: advance(qp, psn_next(psn), now_ns); break;
	case ANSWER_SEQUENCE_NAK:
		qp->stats->naks_received_seq++;
		/* rxe refuses what follows a packet that found no receive request a second time. */
		if (recovery_waits_for_receiver(qp))
			break;
		advance(qp, psn, now_ns);
		if (qp->state != FRL_QPS_ERR)
			recovery_on_sequence_nak(qp, now_ns);
		break;
	case ANSWER_RNR_NAK:
		qp->stats->naks_received_rnr++;
		advance(qp, psn, now_ns);
		if (qp->state != FRL_QPS_ERR)
			recovery_on_rnr_nak(qp, syndrome & AETH_VALUE_MASK, now_ns);
		break;
	case ANSWER_FATAL_NAK:
		qp->stats->naks_received_fatal++;
		advance(qp, psn, now_ns);
		if (qp->state != FRL_QPS_ERR)
			qp_fail(qp, fatal_status(syndrome));
		break;
	case ANSWER_STALE: qp->stats->stale_acks++; break;
	case ANSWER_MALFORMED: qp->stats->drop_bad_aeth++; break;
	}
}
