/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Determines the regions that a packet accesses, before it is received or built. Also tracks
 * packets that were dropped before they were received.
 */
#include "lib/protocol/qp_internal.h"
#include "lib/protocol/recovery.h"

struct query {
	const struct region_table *regions;
	qp_region_test test;
	const void *arg;
};

static bool matches(const struct query *query, uint32_t key)
{
	const struct region *region = region_find(query->regions, key);

	return region && query->test(query->arg, region);
}

static bool any_matches(const struct query *query, const struct frl_sge sge[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (matches(query, sge[i].lkey))
			return true;
	return false;
}

static bool receive_touches(const struct qp *qp, const struct query *query)
{
	const struct recv_wqe *wqe = receive_peek(qp);

	return wqe && any_matches(query, wqe->sge, wqe->n_sge);
}

/* Returns the request that the next response belongs to, and its PSN. The response may acknowledge
 * earlier requests. Returns NULL if no response is missing. */
static const struct send_wqe *next_response(const struct qp *qp, struct psn *ret_psn)
{
	const struct requester *r = &qp->requester;

	for (uint32_t i = r->head; i != r->tail; i++) {
		const struct send_wqe *wqe = send_wqe_at(r, i);

		if (!wr_has_response(wqe->opcode))
			continue;
		*ret_psn = psn_diff(r->una, wqe->first_psn) > 0 ? r->una : wqe->first_psn;
		return wqe;
	}
	return NULL;
}

/* Returns false for duplicates and packets after a gap; they place nothing. */
static bool is_next(const struct qp *qp, const struct wire_packet *packet)
{
	struct psn psn = qp->responder.epsn;

	if (qp->type != FRL_QPT_RC)
		return true;
	if ((packet->op->flags & OPCODE_RESPONSE) && !next_response(qp, &psn))
		return false;
	return psn_equal(packet->h.bth.psn, psn);
}

static bool result_touches(const struct qp *qp, const struct query *query)
{
	struct psn psn;
	const struct send_wqe *wqe = next_response(qp, &psn);

	return wqe && any_matches(query, wqe->sge, wqe->n_sge);
}

bool qp_input_touches(
	const struct qp *qp, const struct wire_packet *packet, qp_region_test test, const void *arg)
{
	const struct query query = { qp->regions, test, arg };
	bool first = packet->op->flags & OPCODE_FIRST;

	/* Datagrams with another Q_Key are not received. */
	if (qp_is_datagram(qp) && packet->h.deth.qkey != qp->qkey)
		return false;
	if (!is_next(qp, packet))
		return false;
	switch (packet->op->operation) {
	case OPERATION_SEND: return receive_touches(qp, &query);
	case OPERATION_WRITE:
		return matches(&query, first ? packet->h.reth.rkey : qp->responder.write_rkey);
	case OPERATION_READ_RESPONSE:
	case OPERATION_ATOMIC_ACK: return result_touches(qp, &query);
	default: return false;
	}
}

/* Returns true if all elements match, and there is at least one. */
static bool all_match(const struct query *query, const struct frl_sge sge[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!matches(query, sge[i].lkey))
			return false;
	return n > 0;
}

static bool receive_within(const struct qp *qp, const struct query *query, uint32_t *ret_unit)
{
	const struct recv_wqe *wqe = receive_peek(qp);

	if (!wqe || !all_match(query, wqe->sge, wqe->n_sge))
		return false;
	if (wqe->action.type != FRL_ACTION_REDUCE)
		return true;
	*ret_unit = (uint32_t)frl_dtype_size(wqe->action.dtype);
	return wqe->n_sge == 1;
}

static bool result_within(const struct qp *qp, const struct query *query)
{
	struct psn psn;
	const struct send_wqe *wqe = next_response(qp, &psn);

	return wqe && all_match(query, wqe->sge, wqe->n_sge);
}

bool qp_input_within(const struct qp *qp, const struct wire_packet *packet, qp_region_test test,
	const void *arg, uint32_t *ret_unit)
{
	const struct query query = { qp->regions, test, arg };
	bool first = packet->op->flags & OPCODE_FIRST;

	*ret_unit = 1;
	if (qp->type != FRL_QPT_RC || !is_next(qp, packet))
		return false;
	switch (packet->op->operation) {
	case OPERATION_SEND: return receive_within(qp, &query, ret_unit);
	case OPERATION_WRITE:
		return matches(&query, first ? packet->h.reth.rkey : qp->responder.write_rkey);
	case OPERATION_READ_RESPONSE: return result_within(qp, &query);
	default: return false;
	}
}

static bool response_touches(const struct qp *qp, const struct query *query)
{
	for (uint32_t i = 0; qp->responder.n_pending && i < FRL_MAX_RD_ATOMIC; i++) {
		const struct responder_resource *resource = &qp->responder.resources[i];

		if (resource->pending && !resource->atomic && matches(query, resource->rkey))
			return true;
	}
	return false;
}

/* Returns true if a SEND or WRITE has payload from such a region. */
static bool request_touches(const struct send_wqe *wqe, const struct query *query)
{
	return !(wqe->flags & FRL_SEND_INLINE) && !wr_has_response(wqe->opcode) &&
		any_matches(query, wqe->sge, wqe->n_sge);
}

bool qp_output_touches(const struct qp *qp, qp_region_test test, const void *arg)
{
	const struct query query = { qp->regions, test, arg };
	const struct requester *r = &qp->requester;
	uint32_t next = r->current;

	if (response_touches(qp, &query))
		return true;
	/* Local requests have no packet. */
	while (next != r->tail && wr_is_local(send_wqe_at(r, next)->opcode))
		next++;
	if (!qp_sends(qp))
		return false;
	if (qp->recovery.probe_due && request_touches(send_wqe_at(r, r->head), &query))
		return true;
	return next != r->tail && request_touches(send_wqe_at(r, next), &query);
}

/* Suppresses NAKs and implied NAKs for later packets. The packet is requested again when there is
 * room for it. */
void qp_note_loss(struct qp *qp, const struct wire_packet *packet, struct qp_loss *loss)
{
	if (packet->op->flags & OPCODE_RESPONSE) {
		loss->response = true;
		loss->response_psn = packet->h.bth.psn;
		qp->recovery.went_back = true;
	} else {
		loss->request = true;
		loss->psn = packet->h.bth.psn;
		qp->responder.nak_sent = true;
	}
}

bool qp_trim_loss(const struct qp *qp, struct qp_loss *loss)
{
	bool receives = qp->state == FRL_QPS_RTR || qp_sends(qp);
	struct psn psn;

	if (qp->type != FRL_QPT_RC || !receives || psn_diff(loss->psn, qp->responder.epsn) < 0)
		loss->request = false;
	if (qp->type != FRL_QPT_RC || !qp_sends(qp) || !next_response(qp, &psn) ||
		psn_diff(loss->response_psn, psn) < 0)
		loss->response = false;
	return loss->request || loss->response;
}

void qp_request_again(struct qp *qp, const struct qp_loss *loss, uint64_t now_ns)
{
	/* If the network lost an earlier packet, that one is requested instead. */
	if (loss->request)
		responder_request_again(qp);
	if (loss->response)
		recovery_repeat(qp, now_ns);
}
