/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending half: cuts requests into packets and keeps the window. IBTA volume 1, 9.7.2. */
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

enum {
	/* An acknowledgement is asked for at least this often inside a long message, so that the
	 * window moves before it is used up. */
	ACK_REQUEST_INTERVAL = 32,
};

static uint32_t packets_in_flight(const struct requester *r)
{
	return (uint32_t)psn_diff(r->next, r->una);
}

void requester_go_back(struct requester *r, struct psn psn)
{
	r->next = psn;
	r->current = r->head;
	while (r->current != r->tail) {
		const struct send_wqe *wqe = send_wqe_at(r, r->current);

		if (psn_diff(psn, wqe->first_psn) < (int32_t)wqe->packets)
			break;
		r->current++;
	}
}

bool requester_acknowledge(struct qp *qp, struct psn psn)
{
	struct requester *r = &qp->requester;

	if (psn_diff(psn, r->una) <= 0)
		return false;
	r->una = psn;
	while (r->head != r->tail) {
		const struct send_wqe *wqe = send_wqe_at(r, r->head);
		bool write = wqe->opcode >= FRL_WR_RDMA_WRITE;
		struct frl_wc wc = {
			.wr_id = wqe->wr_id,
			.status = FRL_WC_SUCCESS,
			.opcode = write ? FRL_WC_RDMA_WRITE : FRL_WC_SEND,
			.byte_len = wqe->length,
			.qp_num = qp->qpn,
		};

		if (psn_diff(psn, wqe->first_psn) < (int32_t)wqe->packets)
			break;
		r->head++;
		if (wqe->flags & FRL_SEND_SIGNALED)
			qp_complete(qp, qp->send_cq, &wc);
		if (qp->state == FRL_QPS_ERR)
			return true;
	}
	/* The peer has what was about to be sent again. */
	if (psn_diff(r->next, psn) < 0)
		requester_go_back(r, psn);
	return true;
}

bool requester_wants_output(const struct qp *qp)
{
	const struct requester *r = &qp->requester;

	return qp->state == FRL_QPS_RTS && !psn_equal(r->next, r->end) &&
		!recovery_waits_for_receiver(qp) && packets_in_flight(r) < r->window;
}

/* Position in the message, opcode and immediate: [SEND or WRITE][first, middle, last, only]. */
static uint8_t choose_opcode(const struct send_wqe *wqe, bool first, bool last)
{
	static const uint8_t opcodes[2][2][2] = {
		{ { OP_SEND_MIDDLE, OP_SEND_LAST }, { OP_SEND_FIRST, OP_SEND_ONLY } },
		{ { OP_WRITE_MIDDLE, OP_WRITE_LAST }, { OP_WRITE_FIRST, OP_WRITE_ONLY } },
	};
	bool write = wqe->opcode >= FRL_WR_RDMA_WRITE;
	bool imm = wqe->opcode == FRL_WR_SEND_WITH_IMM || wqe->opcode == FRL_WR_RDMA_WRITE_WITH_IMM;

	/* In the table of opcodes "with immediate" follows its plain one. */
	return opcodes[write][first][last] + (last && imm);
}

/* Names the payload [offset, offset + length) of the request. False: a region is gone. */
static bool gather(const struct qp *qp, const struct send_wqe *wqe, uint32_t offset,
	uint32_t length, struct packet_out *out)
{
	out->n_pieces = 0;
	if (wqe->flags & FRL_SEND_INLINE) {
		if (length)
			out->pieces[out->n_pieces++] = (struct packet_piece){
				wqe->inline_data + offset, length, 0
			};
		return true;
	}
	for (unsigned i = 0; i < wqe->n_sge && length; i++) {
		const struct frl_sge *sge = &wqe->sge[i];
		const struct region *region;
		uint32_t n;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		region = region_holds(qp->regions, sge->lkey, sge->addr, sge->length);
		if (!region)
			return false;
		n = sge->length - offset < length ? sge->length - offset : length;
		out->pieces[out->n_pieces++] = (struct packet_piece){ (uint8_t *)sge->addr + offset,
			n, region };
		length -= n;
		offset = 0;
	}
	return true;
}

/* Packet `k` of a message asks for an acknowledgement although more follow. */
static bool asks_inside(const struct requester *r, uint32_t k)
{
	return k % ACK_REQUEST_INTERVAL == ACK_REQUEST_INTERVAL - 1 ||
		packets_in_flight(r) + 1 == r->window;
}

static bool build_packet(struct qp *qp, struct packet_out *out)
{
	struct requester *r = &qp->requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->current);
	uint32_t k = (uint32_t)psn_diff(r->next, wqe->first_psn);
	uint32_t offset = k * qp->path_mtu;
	bool first = k == 0, last = k + 1 == wqe->packets;
	uint32_t length = last ? wqe->length - offset : qp->path_mtu;

	if (!gather(qp, wqe, offset, length, out))
		return false;
	out->payload_len = length;
	out->h = (struct wire_headers){
		.bth = {
			.opcode = choose_opcode(wqe, first, last),
			.migrated = true,
			.solicited = last && (wqe->flags & FRL_SEND_SOLICITED) &&
				wqe->opcode != FRL_WR_RDMA_WRITE,
			.ack_request = last || asks_inside(r, k),
			.pkey = PKEY_DEFAULT,
			.dest_qpn = qp->dest_qpn,
			.psn = r->next,
		},
		.reth = {wqe->remote_addr, wqe->rkey, wqe->length},
		.imm_data = wqe->imm_data,
	};
	if (psn_equal(r->next, r->sent_end))
		r->sent_end = psn_next(r->sent_end);
	else
		qp->stats->retransmits++;
	r->next = psn_next(r->next);
	if (last)
		r->current++;
	return true;
}

uint32_t requester_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns)
{
	uint32_t n = 0;

	while (n < max && requester_wants_output(qp)) {
		if (!build_packet(qp, &out[n])) {
			qp_fail_at(qp, qp->requester.current, FRL_WC_LOC_PROT_ERR);
			break;
		}
		n++;
	}
	if (n && qp->state == FRL_QPS_RTS)
		recovery_on_sent(qp, now_ns);
	return n;
}
