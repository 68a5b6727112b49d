/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/qp.h"
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

#include <errno.h>
#include <string.h>

enum {
	/* PSNs in use must stay below half of their circle, so that older and newer can be told. */
	MAX_QUEUED_PACKETS = (1 << 23) - 1,
};

void qp_init(struct qp *qp, const struct qp_config *config)
{
	*qp = (struct qp){
		.state = FRL_QPS_RESET,
		.qpn = config->qpn,
		.pd = config->pd,
		.send_cq = config->send_cq,
		.recv_cq = config->recv_cq,
		.regions = config->regions,
		.stats = config->stats,
		.unlimited_retry = config->unlimited_retry,
		.requester = {
			.wqes = config->send_wqes,
			.mask = config->n_send - 1,
			.window = config->window,
		},
		.responder = {
			.wqes = config->recv_wqes,
			.mask = config->n_recv - 1,
			.size = config->n_recv,
		},
	};
	recovery_stop(qp);
}

static int refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EINVAL;
}

/* Checks the elements of a request and adds them up. */
static int check_sges(const struct qp *qp, const struct frl_sge *sge, int n, uint32_t access,
	uint32_t *ret_length, const char **ret_why)
{
	uint64_t total = 0;

	if (n < 0 || n > FRL_MAX_SGE || (n && !sge))
		return refuse(ret_why, "a request has 0 to 4 scatter/gather elements");
	for (int i = 0; i < n; i++) {
		const struct region *region = region_find(qp->regions, sge[i].lkey);

		total += sge[i].length;
		if (sge[i].length == 0)
			continue;
		if (!region)
			return refuse(ret_why, "an element's lkey names no memory region");
		if (!region_allows(region, qp->pd, (uintptr_t)sge[i].addr, sge[i].length, access))
			return refuse(ret_why,
				"an element does not lie inside its memory region, or the "
				"region is of another protection domain or lacks local write");
	}
	if (total > WIRE_MAX_MESSAGE)
		return refuse(ret_why, "a message has at most 2^31 bytes");
	*ret_length = (uint32_t)total;
	return 0;
}

static int copy_inline(struct send_wqe *wqe, const struct frl_send_wr *wr, const char **ret_why)
{
	uint64_t total = 0;

	if (wr->n_sge < 0 || wr->n_sge > FRL_MAX_SGE || (wr->n_sge && !wr->sge))
		return refuse(ret_why, "a request has 0 to 4 scatter/gather elements");
	for (int i = 0; i < wr->n_sge; i++) {
		total += wr->sge[i].length;
		if (total > FRL_MAX_INLINE)
			return refuse(ret_why, "an inline request has at most 64 bytes");
		if (wr->sge[i].length)
			memcpy(wqe->inline_data + total - wr->sge[i].length, wr->sge[i].addr,
				wr->sge[i].length);
	}
	wqe->length = (uint32_t)total;
	return 0;
}

/* In ERR requests are taken and come back as flushed. */
static void flush_one(struct qp *qp, struct cq *cq, uint64_t wr_id)
{
	struct frl_wc wc = { .wr_id = wr_id, .status = FRL_WC_WR_FLUSH_ERR, .qp_num = qp->qpn };

	qp_complete(qp, cq, &wc);
}

/* From the start of the oldest request on, and not from `una`: every PSN of a queued request must
 * compare with every other. */
static uint32_t packets_queued(const struct requester *r)
{
	struct psn start = r->head == r->tail ? r->end : send_wqe_at(r, r->head)->first_psn;

	return (uint32_t)psn_diff(r->end, start);
}

int qp_post_send(struct qp *qp, const struct frl_send_wr *wr, const char **ret_why)
{
	struct requester *r = &qp->requester;
	struct send_wqe *wqe = send_wqe_at(r, r->tail);
	int rc;

	if (qp->state == FRL_QPS_ERR) {
		flush_one(qp, qp->send_cq, wr->wr_id);
		return 0;
	}
	if (qp->state != FRL_QPS_RTS)
		return refuse(ret_why, "send requests need the state RTS");
	if ((unsigned)wr->opcode > FRL_WR_RDMA_WRITE_WITH_IMM)
		return refuse(ret_why, "unknown opcode");
	if (wr->flags & ~(uint32_t)(FRL_SEND_SIGNALED | FRL_SEND_SOLICITED | FRL_SEND_INLINE))
		return refuse(ret_why, "unknown send flags");
	if (r->tail - r->head > r->mask) {
		*ret_why = "the send queue is full: poll for completions, then post again";
		return -ENOMEM;
	}
	if (wr->flags & FRL_SEND_INLINE)
		rc = copy_inline(wqe, wr, ret_why);
	else
		rc = check_sges(qp, wr->sge, wr->n_sge, 0, &wqe->length, ret_why);
	if (rc)
		return rc;
	wqe->packets = wqe->length ? (wqe->length - 1) / qp->path_mtu + 1 : 1;
	if (wqe->packets > MAX_QUEUED_PACKETS)
		return refuse(ret_why, "message too long for the path MTU: it needs 2^23 packets");
	if (wqe->packets + packets_queued(r) > MAX_QUEUED_PACKETS) {
		*ret_why = "2^23 packets are queued: poll for completions, then post again";
		return -ENOMEM;
	}
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->flags = (uint8_t)wr->flags;
	wqe->remote_addr = wr->remote_addr;
	wqe->rkey = wr->rkey;
	wqe->imm_data = wr->imm_data;
	wqe->n_sge = (uint8_t)wr->n_sge;
	if (!(wr->flags & FRL_SEND_INLINE) && wr->n_sge)
		memcpy(wqe->sge, wr->sge, (unsigned)wr->n_sge * sizeof(wqe->sge[0]));
	wqe->first_psn = r->end;
	r->end = psn_add(r->end, wqe->packets);
	r->tail++;
	return 0;
}

static int check_action(
	const struct qp *qp, const struct frl_recv_wr *wr, uint32_t length, const char **ret_why)
{
	const struct frl_recv_action *action = &wr->action;
	const struct region *region;
	size_t size;

	if (action->type == FRL_ACTION_COPY)
		return 0;
	if (action->type != FRL_ACTION_REDUCE)
		return refuse(ret_why, "unknown receive action");
	size = frl_dtype_size(action->dtype);
	if (size == 0 || (unsigned)action->op >= FRL_OPS)
		return refuse(ret_why, "unknown element type or operation");
	for (int i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].length % size != 0)
			return refuse(ret_why, "a reducing receive takes whole elements only");
	if (!action->src || length == 0)
		return 0;
	region = region_find(qp->regions, action->src_lkey);
	if (!region || !region_allows(region, qp->pd, (uintptr_t)action->src, length, 0))
		return refuse(
			ret_why, "the action's src does not lie inside the region of src_lkey");
	return 0;
}

int qp_post_recv(struct qp *qp, const struct frl_recv_wr *wr, const char **ret_why)
{
	struct responder *r = &qp->responder;
	struct recv_wqe *wqe;
	uint32_t length;
	int rc;

	if (qp->state == FRL_QPS_RESET)
		return refuse(ret_why, "receive requests need the state INIT, RTR or RTS");
	if (qp->state == FRL_QPS_ERR) {
		flush_one(qp, qp->recv_cq, wr->wr_id);
		return 0;
	}
	if (r->tail - r->head >= r->size) {
		*ret_why = "the receive queue is full: poll for completions, then post again";
		return -ENOMEM;
	}
	rc = check_sges(qp, wr->sge, wr->n_sge, FRL_ACCESS_LOCAL_WRITE, &length, ret_why);
	if (!rc)
		rc = check_action(qp, wr, length, ret_why);
	if (rc)
		return rc;
	wqe = recv_wqe_at(r, r->tail);
	wqe->wr_id = wr->wr_id;
	wqe->length = length;
	wqe->action = wr->action;
	if (length == 0 || wqe->action.type == FRL_ACTION_COPY)
		wqe->action.src = NULL; /* nothing is read from there */
	/* Empty elements need no region; they are left out here, so that none is looked for later.
	 */
	wqe->n_sge = 0;
	for (int i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].length)
			wqe->sge[wqe->n_sge++] = wr->sge[i];
	r->tail++;
	return 0;
}

struct frl_wc *qp_complete(struct qp *qp, struct cq *cq, const struct frl_wc *wc)
{
	struct frl_wc *entry = cq_push(cq, wc);

	if (!entry) {
		qp->stats->cq_overruns++;
		qp_fail(qp, FRL_WC_WR_FLUSH_ERR);
	}
	return entry;
}

void qp_fail_at(struct qp *qp, uint32_t position, enum frl_wc_status status)
{
	struct requester *r = &qp->requester;
	struct responder *q = &qp->responder;

	if (qp->state == FRL_QPS_RESET || qp->state == FRL_QPS_ERR)
		return;
	/* First the state: completions below may overrun their queue and come back here. */
	qp->state = FRL_QPS_ERR;
	qp->attr.state = FRL_QPS_ERR;
	q->ack_pending = false;
	q->message = MESSAGE_NONE;
	recovery_stop(qp);
	while (r->head != r->tail) {
		struct frl_wc wc = {
			.wr_id = send_wqe_at(r, r->head)->wr_id,
			.status = r->head == position ? status : FRL_WC_WR_FLUSH_ERR,
			.qp_num = qp->qpn,
		};

		r->head++;
		qp_complete(qp, qp->send_cq, &wc);
	}
	r->current = r->head;
	r->una = r->next = r->sent_end = r->end;
	while (q->head != q->tail)
		flush_one(qp, qp->recv_cq, recv_wqe_at(q, q->head++)->wr_id);
}

void qp_fail(struct qp *qp, enum frl_wc_status status)
{
	qp_fail_at(qp, qp->requester.head, status);
}

void qp_input(struct qp *qp, const struct wire_packet *packet, struct placements *placements,
	uint64_t now_ns)
{
	placements->count = 0;
	placements->completion = 0;
	if (qp->state != FRL_QPS_RTR && qp->state != FRL_QPS_RTS) {
		qp->stats->drop_qp_state++;
		if (qp->state == FRL_QPS_ERR && qp->unlimited_retry &&
			!(packet->op->flags & OPCODE_RESPONSE) &&
			ip_equal(&packet->src_ip, &qp->remote_ip))
			responder_refuse_late(qp, packet);
	} else if (opcode_transport(packet->h.bth.opcode) != TRANSPORT_RC)
		qp->stats->drop_bad_opcode++;
	else if ((packet->h.bth.pkey & 0x7fff) != (PKEY_DEFAULT & 0x7fff))
		qp->stats->drop_bad_pkey++;
	else if (!ip_equal(&packet->src_ip, &qp->remote_ip))
		qp->stats->drop_wrong_peer++;
	else if (packet->op->flags & OPCODE_RESPONSE)
		completer_input(qp, packet, now_ns);
	else
		responder_input(qp, packet, placements);
}

void qp_payload_lost(struct qp *qp, struct placements *placements)
{
	if (placements->completion)
		placements->completion->status = FRL_WC_REM_ABORT_ERR;
	qp_fail(qp, FRL_WC_REM_ABORT_ERR);
}

bool qp_wants_output(const struct qp *qp)
{
	return qp->responder.ack_pending || requester_wants_output(qp);
}

uint32_t qp_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns)
{
	uint32_t n = 0;

	if (qp->responder.ack_pending && max)
		responder_output(qp, &out[n++]);
	return n + requester_output(qp, out + n, max - n, now_ns);
}
