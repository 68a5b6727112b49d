/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receiving half: classifies a request packet, then acts on the verdict. The order of the
 * checks is that of IBTA volume 1, 9.7.4.1 (figure 89 and what follows).
 */
#include "lib/protocol/qp_internal.h"

enum verdict {
	ACCEPT,
	DUPLICATE,
	GAP,          /* the first packet ahead of the expected one: NAK */
	GAP_REPEATED, /* further ones: silence, 9.7.5.2.8 */
	NOT_READY,    /* no receive request */
	INVALID_REQUEST,
	TOO_LONG, /* for the receive request, or no whole number of its elements */
	ACCESS_ERROR,
	OPERATIONAL_ERROR, /* the receive request's memory is gone */
};

static enum responder_message message_of(const struct wire_packet *packet)
{
	switch (packet->op->operation) {
	case OPERATION_SEND: return MESSAGE_SEND;
	case OPERATION_WRITE: return MESSAGE_WRITE;
	default: return MESSAGE_NONE;
	}
}

/* C9-92 and following: first and middle packets carry exactly one MTU, last ones 1 byte to one. */
static bool payload_fits_position(const struct qp *qp, const struct wire_packet *packet)
{
	uint32_t length = packet->payload_len;

	if (!(packet->op->flags & OPCODE_LAST))
		return length == qp->path_mtu;
	if (packet->op->flags & OPCODE_FIRST)
		return length <= qp->path_mtu;
	return length >= 1 && length <= qp->path_mtu;
}

/* The payload of all packets together is what the RETH announced. */
static bool write_length_fits(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	bool first = packet->op->flags & OPCODE_FIRST;
	uint32_t total = first ? packet->h.reth.dma_length : r->write_length;
	uint32_t done = first ? 0 : r->offset;

	if (total > WIRE_MAX_MESSAGE)
		return false;
	if (packet->op->flags & OPCODE_LAST)
		return total - done == packet->payload_len;
	return total - done > packet->payload_len;
}

static enum verdict classify_send(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	const struct recv_wqe *wqe = recv_wqe_at(r, r->head);
	uint32_t offset = packet->op->flags & OPCODE_FIRST ? 0 : r->offset;
	const struct frl_recv_action *action = &wqe->action;

	if (packet->payload_len > wqe->length - offset)
		return TOO_LONG;
	if (action->type == FRL_ACTION_REDUCE) {
		if (packet->payload_len % frl_dtype_size(action->dtype) != 0)
			return TOO_LONG;
		if (action->src &&
			!region_holds(qp->regions, action->src_lkey, action->src, wqe->length))
			return OPERATIONAL_ERROR;
	}
	for (unsigned i = 0; i < wqe->n_sge; i++) {
		const struct frl_sge *sge = &wqe->sge[i];

		if (!region_holds(qp->regions, sge->lkey, sge->addr, sge->length))
			return OPERATIONAL_ERROR;
	}
	return ACCEPT;
}

/* The whole range is checked with the first packet; later ones may find the region gone. Without
 * payload the address means nothing (C9-88). */
static enum verdict classify_write(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	bool first = packet->op->flags & OPCODE_FIRST;
	uint64_t va = first ? packet->h.reth.va : r->write_va;
	uint32_t length = first ? packet->h.reth.dma_length : r->write_length;
	const struct region *region;

	if (length == 0)
		return ACCEPT;
	region = region_find(qp->regions, first ? packet->h.reth.rkey : r->write_rkey);
	if (!region || !region_allows(region, qp->pd, va, length, FRL_ACCESS_REMOTE_WRITE))
		return ACCESS_ERROR;
	return ACCEPT;
}

/* No side effects. */
static enum verdict classify(const struct qp *qp, const struct wire_packet *packet)
{
	const struct responder *r = &qp->responder;
	int32_t ahead = psn_diff(packet->h.bth.psn, r->epsn);
	enum responder_message message = message_of(packet);
	bool first = packet->op->flags & OPCODE_FIRST;

	if (ahead < 0)
		return DUPLICATE;
	if (ahead > 0)
		return r->nak_sent ? GAP_REPEATED : GAP;
	if (message == MESSAGE_NONE || (packet->op->headers & HEADER_IETH))
		return INVALID_REQUEST;
	if (r->message != (first ? MESSAGE_NONE : message))
		return INVALID_REQUEST;
	if (message == MESSAGE_WRITE && !(qp->attr.access_flags & FRL_ACCESS_REMOTE_WRITE))
		return INVALID_REQUEST;
	if ((packet->op->flags & OPCODE_TAKES_RECV) && r->head == r->tail)
		return NOT_READY;
	if (!payload_fits_position(qp, packet))
		return INVALID_REQUEST;
	if (message == MESSAGE_SEND)
		return classify_send(qp, packet);
	return write_length_fits(qp, packet) ? classify_write(qp, packet) : INVALID_REQUEST;
}

static void answer(struct qp *qp, uint8_t syndrome, struct psn psn)
{
	qp->responder.ack_pending = true;
	qp->responder.ack_syndrome = syndrome;
	qp->responder.ack_psn = psn;
}

static bool nak_pending(const struct responder *r)
{
	return r->ack_pending && (r->ack_syndrome & AETH_TYPE_MASK) != AETH_ACK;
}

static void place_send(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	const struct responder *r = &qp->responder;
	const struct recv_wqe *wqe = recv_wqe_at(r, r->head);
	const struct frl_recv_action *action = &wqe->action;
	const uint8_t *payload = packet->payload;
	const uint8_t *src = action->src;
	uint32_t left = packet->payload_len;
	uint32_t skip = r->offset;

	if (src)
		src += r->offset;
	for (unsigned i = 0; i < wqe->n_sge && left; i++) {
		const struct frl_sge *sge = &wqe->sge[i];
		uint8_t *dst = (uint8_t *)sge->addr + skip;
		uint32_t n;

		if (skip >= sge->length) {
			skip -= sge->length;
			continue;
		}
		n = sge->length - skip < left ? sge->length - skip : left;
		placements->list[placements->count++] = (struct placement){
			.dst = dst,
			.payload = payload,
			.length = n,
			.region = region_find(qp->regions, sge->lkey),
			.action = action->type == FRL_ACTION_REDUCE ? action : 0,
			.src = src ? src : dst,
		};
		payload += n;
		left -= n;
		skip = 0;
		if (src)
			src += n;
	}
}

static void place_write(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	const struct responder *r = &qp->responder;

	if (packet->payload_len == 0)
		return;
	placements->list[placements->count++] = (struct placement){
		.dst = (uint8_t *)(uintptr_t)(r->write_va + r->offset),
		.payload = packet->payload,
		.length = packet->payload_len,
		.region = region_find(qp->regions, r->write_rkey),
	};
}

static struct frl_wc *complete_recv(struct qp *qp, const struct wire_packet *packet, uint32_t bytes)
{
	struct responder *r = &qp->responder;
	const struct recv_wqe *wqe = recv_wqe_at(r, r->head);
	bool imm = packet->op->headers & HEADER_IMMDT;
	bool write = packet->op->operation == OPERATION_WRITE;
	struct frl_wc wc = {
		.wr_id = wqe->wr_id,
		.status = FRL_WC_SUCCESS,
		.opcode = write ? FRL_WC_RECV_RDMA_WITH_IMM : FRL_WC_RECV,
		.byte_len = bytes,
		.imm_data = imm ? packet->h.imm_data : 0,
		.qp_num = qp->qpn,
		.flags = imm ? FRL_WC_WITH_IMM : 0,
	};

	r->head++;
	return qp_complete(qp, qp->recv_cq, &wc);
}

static void accept_packet(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	struct responder *r = &qp->responder;
	bool last = packet->op->flags & OPCODE_LAST;

	if (packet->op->flags & OPCODE_FIRST) {
		r->message = message_of(packet);
		r->offset = 0;
		if (r->message == MESSAGE_WRITE) {
			r->write_va = packet->h.reth.va;
			r->write_rkey = packet->h.reth.rkey;
			r->write_length = packet->h.reth.dma_length;
		}
	}
	if (r->message == MESSAGE_SEND)
		place_send(qp, packet, placements);
	else
		place_write(qp, packet, placements);
	r->offset += packet->payload_len;
	r->epsn = psn_next(r->epsn);
	r->nak_sent = false;
	qp->stats->rx_requests++;
	if (last) {
		r->msn = (r->msn + 1) & PSN_MASK;
		if (r->message == MESSAGE_SEND || (packet->op->headers & HEADER_IMMDT))
			placements->completion = complete_recv(qp, packet, r->offset);
		r->message = MESSAGE_NONE;
	}
	/* A NAK that still waits refuses this very packet: it must not go out any more. */
	if ((packet->h.bth.ack_request || nak_pending(r)) && qp->state != FRL_QPS_ERR)
		answer(qp, AETH_ACK | AETH_CREDITS_NONE, packet->h.bth.psn);
}

/* 9.9.3: the receive request that the packet was for completes with the error, the rest is flushed.
 */
static void refuse(struct qp *qp, enum nak_code code, enum frl_wc_status recv_status)
{
	struct responder *r = &qp->responder;
	struct psn psn = r->epsn;

	if (recv_status != FRL_WC_SUCCESS && r->head != r->tail) {
		struct frl_wc wc = {
			.wr_id = recv_wqe_at(r, r->head)->wr_id,
			.status = recv_status,
			.qp_num = qp->qpn,
		};

		r->head++;
		qp_complete(qp, qp->recv_cq, &wc);
	}
	qp_fail(qp, FRL_WC_WR_FLUSH_ERR);
	answer(qp, AETH_NAK | code, psn);
	qp->stats->naks_sent_fatal++;
}

void responder_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements)
{
	struct responder *r = &qp->responder;

	switch (classify(qp, packet)) {
	case ACCEPT: accept_packet(qp, packet, placements); break;
	case DUPLICATE:
		qp->stats->duplicates++;
		/* A pending NAK acknowledges the same packets, and says more. */
		if (!r->ack_pending)
			answer(qp, AETH_ACK | AETH_CREDITS_NONE, psn_add(r->epsn, PSN_MASK));
		break;
	case GAP:
		r->nak_sent = true;
		qp->stats->out_of_sequence++;
		qp->stats->naks_sent_seq++;
		answer(qp, AETH_NAK | NAK_SEQUENCE, r->epsn);
		break;
	case GAP_REPEATED: qp->stats->out_of_sequence++; break;
	case NOT_READY:
		r->nak_sent = true;
		qp->stats->naks_sent_rnr++;
		answer(qp, AETH_RNR_NAK | qp->attr.min_rnr_timer, r->epsn);
		break;
	case INVALID_REQUEST: refuse(qp, NAK_INVALID_REQUEST, FRL_WC_SUCCESS); break;
	case TOO_LONG: refuse(qp, NAK_INVALID_REQUEST, FRL_WC_LOC_LEN_ERR); break;
	case ACCESS_ERROR: refuse(qp, NAK_REMOTE_ACCESS, FRL_WC_SUCCESS); break;
	case OPERATIONAL_ERROR: refuse(qp, NAK_REMOTE_OPERATIONAL, FRL_WC_LOC_PROT_ERR); break;
	}
}

/* On a link that tells of a dead peer, requests wait for as long as the peer lives: it must hear
 * that this end has failed. */
void responder_refuse_late(struct qp *qp, const struct wire_packet *packet)
{
	if (!qp->responder.ack_pending)
		answer(qp, AETH_NAK | NAK_REMOTE_OPERATIONAL, packet->h.bth.psn);
}

static void make_answer(
	struct packet_out *out, uint32_t dest_qpn, struct psn psn, uint8_t syndrome, uint32_t msn)
{
	*out = (struct packet_out){
		.h = {
			.bth = {
				.opcode = OP_ACKNOWLEDGE,
				.migrated = true,
				.pkey = PKEY_DEFAULT,
				.dest_qpn = dest_qpn,
				.psn = psn,
			},
			.aeth = { syndrome, msn },
		},
	};
}

void qp_refusal(struct packet_out *out, uint32_t dest_qpn, struct psn psn)
{
	make_answer(out, dest_qpn, psn, AETH_NAK | NAK_REMOTE_OPERATIONAL, 0);
}

void responder_output(struct qp *qp, struct packet_out *out)
{
	struct responder *r = &qp->responder;

	make_answer(out, qp->dest_qpn, r->ack_psn, r->ack_syndrome, r->msn);
	r->ack_pending = false;
	qp->stats->tx_acks++;
}
