/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving for UC, and UD or GSI, without answers. Errors of packets are counted.
 *
 * A UC message that loses a packet is dropped. Its receive request is used for the next message
 * or, if it came from a shared queue, completes with an error (9.9.3, classes D1 and E). IBTA
 * volume 1, 9.8.
 */
#include "lib/protocol/qp_internal.h"

#include <string.h>

/* The receive request does not fit the message. A request of the own queue stays for another
 * message unless it is unusable. A request of a shared queue completes with an error. */
static void refuse_receive(struct qp *qp, enum frl_wc_status status)
{
	bool useless = status == FRL_WC_LOC_PROT_ERR;

	if (!qp->responder.srq && !useless)
		return;
	receive_take(qp);
	receive_complete(qp, &(struct frl_wc){ .status = status }, false);
	if (!qp->responder.srq)
		qp_fail(qp, FRL_WC_WR_FLUSH_ERR);
}

/* Returns true if the bytes fit the receive request, else refuses the request. */
static bool receive_takes(struct qp *qp, uint32_t offset, uint32_t length)
{
	const struct recv_wqe *wqe = receive_peek(qp);

	/* Messages that may be incomplete or lost must not be reduced. */
	if (wqe->action.type == FRL_ACTION_REDUCE) {
		refuse_receive(qp, FRL_WC_LOC_QP_OP_ERR);
		return false;
	}
	switch (receive_check(qp, wqe, offset, length)) {
	case RECEIVE_FITS: return true;
	case RECEIVE_TOO_LONG: refuse_receive(qp, FRL_WC_LOC_LEN_ERR); break;
	case RECEIVE_MEMORY_GONE: refuse_receive(qp, FRL_WC_LOC_PROT_ERR); break;
	}
	return false;
}

/* Ends the message being received. */
static void give_up_message(struct qp *qp)
{
	struct responder *r = &qp->responder;

	if (r->recv && r->srq)
		refuse_receive(qp, FRL_WC_REM_INV_REQ_ERR);
	r->message = MESSAGE_DROPPED;
}

/* Checks a packet of a UC message without losses. Counts packets that it refuses. */
static bool may_accept(struct qp *qp, const struct wire_packet *packet)
{
	bool send = packet->op->operation == OPERATION_SEND;
	bool first = packet->op->flags & OPCODE_FIRST;

	if (!send && !(qp->attr.access_flags & FRL_ACCESS_REMOTE_WRITE)) {
		qp->stats->drop_message++;
		return false;
	}
	if ((packet->op->flags & OPCODE_TAKES_RECV) && !receive_available(qp)) {
		qp->stats->drop_no_recv++;
		return false;
	}
	if (!message_length_fits(qp, packet) || (!send && !message_may_write(qp, packet))) {
		qp->stats->drop_message++;
		return false;
	}
	if (send && !receive_takes(qp, first ? 0 : qp->responder.offset, packet->payload_len)) {
		qp->stats->drop_no_recv++;
		return false;
	}
	return true;
}

void unreliable_input(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	struct responder *r = &qp->responder;
	bool first = packet->op->flags & OPCODE_FIRST;
	bool in_order = psn_equal(packet->h.bth.psn, r->epsn);

	r->epsn = psn_next(packet->h.bth.psn);
	if (first) {
		/* The end of the previous message is lost. */
		if (r->message == MESSAGE_SEND || r->message == MESSAGE_WRITE)
			give_up_message(qp);
		if (qp->state == FRL_QPS_ERR) /* its completion queue has overrun */
			return;
	} else if (!in_order || r->message != message_kind(packet)) {
		qp->stats->drop_message++;
		give_up_message(qp);
		return;
	}
	if (may_accept(qp, packet))
		message_accept(qp, packet, placements);
	else
		give_up_message(qp);
}

void unreliable_memory_gone(struct qp *qp, const struct wire_packet *packet)
{
	if (qp->state == FRL_QPS_ERR)
		return;
	if (qp->responder.recv) {
		qp->stats->drop_no_recv++;
		refuse_receive(qp, FRL_WC_LOC_PROT_ERR);
	} else {
		qp->stats->drop_message++;
	}
	if (!(packet->op->flags & OPCODE_LAST) && qp->state != FRL_QPS_ERR)
		qp->responder.message = MESSAGE_DROPPED;
}

/* The IP header is in the 40 bytes before the payload; an IPv4 header is at their end (Annex A17).
 */
static void fill_grh(struct placements *placements, const struct wire_packet *packet)
{
	uint32_t length = ip_is_v4(&packet->src_ip) ? IPV4_LEN : IPV6_LEN;

	memset(placements->grh, 0, WIRE_GRH_LEN - length);
	memcpy(placements->grh + WIRE_GRH_LEN - length, packet->l3, length);
}

void datagram_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	uint32_t length = WIRE_GRH_LEN + packet->payload_len;

	if (packet->h.deth.qkey != qp->qkey) {
		qp->stats->drop_bad_qkey++;
		return;
	}
	if (!receive_available(qp) || !receive_takes(qp, 0, length)) {
		qp->stats->drop_no_recv++;
		return;
	}
	fill_grh(placements, packet);
	receive_take(qp);
	receive_place(qp, placements, 0, placements->grh, WIRE_GRH_LEN);
	receive_place(qp, placements, WIRE_GRH_LEN, packet->payload, packet->payload_len);
	qp->stats->rx_requests++;
	placements->completes = COMPLETES_DATAGRAM;
}

void datagram_placed(struct qp *qp, const struct wire_packet *packet)
{
	bool imm = packet->op->headers & HEADER_IMMDT;
	uint32_t family = ip_is_v4(&packet->src_ip) ? FRL_WC_IPV4 : 0;

	receive_complete(qp,
		&(struct frl_wc){
			.status = FRL_WC_SUCCESS,
			.opcode = FRL_WC_RECV,
			.byte_len = WIRE_GRH_LEN + packet->payload_len,
			.imm_data = imm ? packet->h.imm_data : 0,
			.src_qp = packet->h.deth.src_qpn,
			.flags = FRL_WC_GRH | (imm ? FRL_WC_WITH_IMM : 0) | family,
			.vlan = packet->vlan,
			.sl = packet->priority,
		},
		packet->h.bth.solicited);
}
