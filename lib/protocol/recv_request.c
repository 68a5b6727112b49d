/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive request of the message being received. A request of the queue pair's own queue stays
 * at the head of the queue until it completes. A request of a shared queue is copied when it is
 * taken, because other queue pairs take the next ones meanwhile.
 */
#include "lib/protocol/qp_internal.h"

#include <errno.h>

/* Scatter elements and the action on their bytes. */
struct elements {
	const void *pd;
	const struct region_table *regions;
	const struct frl_sge *sge;
	uint32_t n_sge;
	const struct frl_recv_action *action; /* NULL: COPY */
	const uint8_t *src;                   /* REDUCE: operand for byte 0; NULL: the destination
					       * itself */
	const struct region *src_region;
	uint64_t keep;
	/* All regions were checked for this packet. The memory of one may be gone since. */
	bool is_checked;
};

static const struct region *region_of(
	const struct elements *e, const struct frl_sge *sge, uint32_t access)
{
	return e->is_checked ? region_find(e->regions, sge->lkey)
			     : region_local(e->regions, e->pd, sge, access);
}

/*
 * Adds placements for bytes [offset, offset + length) of the elements. Only checks them if
 * `placements` is NULL. Returns false if the memory of an element is gone, or if there are too
 * few.
 */
static bool walk(const struct elements *e, struct placements *placements, uint32_t offset,
	const uint8_t *payload, uint32_t length)
{
	uint32_t skip = offset;
	uint32_t done = 0;

	for (uint32_t i = 0; i < e->n_sge && done < length; i++) {
		const struct frl_sge *sge = &e->sge[i];
		const struct region *region;
		uint8_t *dst;
		uint32_t n;

		if (skip >= sge->length) {
			skip -= sge->length;
			continue;
		}
		region = region_of(e, sge, FRL_ACCESS_LOCAL_WRITE);
		/* A region was replaced: neither the processor nor one device reaches both
		 * operands now. */
		if (!region || (e->src && !region_same_reach(region, e->src_region)))
			return false;
		dst = region_memory(region, (uintptr_t)sge->addr + skip);
		n = sge->length - skip < length - done ? sge->length - skip : length - done;
		if (placements)
			placements->list[placements->count++] = (struct placement){
				.dst = dst,
				.payload = payload + done,
				.length = n,
				.region = region,
				.action = e->action,
				.src = e->src ? e->src + offset + done : dst,
				.may_fault = region_may_unmap(region) ||
					(e->src_region && region_may_unmap(e->src_region)),
				.keep = n == length ? e->keep : 0,
			};
		done += n;
		skip = 0;
	}
	return done == length;
}

bool scatter(const struct qp *qp, const struct frl_sge sge[], uint32_t n_sge,
	struct placements *placements, uint32_t offset, const uint8_t *payload, uint32_t length)
{
	const struct elements elements = {
		.pd = qp->pd,
		.regions = qp->regions,
		.sge = sge,
		.n_sge = n_sge,
	};
	uint32_t count = placements->count;

	if (walk(&elements, placements, offset, payload, length))
		return true;
	placements->count = count;
	return false;
}

static const struct recv_queue *queue_of(const struct qp *qp)
{
	const struct responder *r = &qp->responder;

	return r->srq ? &r->srq->queue : &r->queue;
}

bool receive_available(const struct qp *qp)
{
	return qp->responder.recv || !recv_queue_empty(queue_of(qp));
}

const struct recv_wqe *receive_peek(const struct qp *qp)
{
	if (qp->responder.recv)
		return qp->responder.recv;
	return receive_available(qp) ? recv_queue_front(queue_of(qp)) : 0;
}

void receive_take(struct qp *qp)
{
	struct responder *r = &qp->responder;

	if (r->recv)
		return;
	if (r->srq) {
		srq_take(r->srq, &r->srq_wqe);
		r->recv = &r->srq_wqe;
	} else
		r->recv = recv_queue_front(&r->queue);
}

/* Returns false if the operand of a reducing request is gone. */
static bool elements_of(
	const struct qp *qp, const struct recv_wqe *wqe, bool is_checked, struct elements *ret)
{
	const struct recv_queue *queue = queue_of(qp);
	const struct frl_recv_action *action = &wqe->action;
	const struct frl_sge src = { (void *)(uintptr_t)action->src, wqe->length,
		action->src_lkey };
	const struct region *region;

	*ret = (struct elements){
		.pd = queue->pd,
		.regions = queue->regions,
		.sge = wqe->sge,
		.n_sge = wqe->n_sge,
		.keep = wqe->keep,
		.is_checked = is_checked,
	};
	if (action->type != FRL_ACTION_REDUCE)
		return true;
	ret->action = action;
	if (!action->src)
		return true;
	region = region_of(ret, &src, 0);
	if (!region)
		return false;
	ret->src = region_memory(region, (uintptr_t)action->src);
	ret->src_region = region;
	return true;
}

enum receive_verdict receive_check(
	const struct qp *qp, const struct recv_wqe *wqe, uint64_t offset, uint32_t length)
{
	const struct frl_recv_action *action = &wqe->action;
	struct elements elements;

	if (offset + length > wqe->length)
		return RECEIVE_TOO_LONG;
	if (action->type == FRL_ACTION_REDUCE && length % frl_dtype_size(action->dtype) != 0)
		return RECEIVE_TOO_LONG;
	if (!elements_of(qp, wqe, false, &elements) ||
		!walk(&elements, 0, (uint32_t)offset, 0, length))
		return RECEIVE_MEMORY_GONE;
	return RECEIVE_FITS;
}

void receive_place(struct qp *qp, struct placements *placements, uint32_t offset,
	const uint8_t *payload, uint32_t length)
{
	struct elements elements;

	/* receive_check() has checked all of it. */
	if (elements_of(qp, qp->responder.recv, true, &elements))
		walk(&elements, placements, offset, payload, length);
}

void receive_complete(struct qp *qp, struct frl_wc *wc, bool solicited)
{
	struct responder *r = &qp->responder;

	wc->wr_id = r->recv->wr_id;
	wc->qp_num = qp->qpn;
	/* Removes the request first: its completion may overrun the queue and flush the others. */
	if (!r->srq)
		r->queue.head++;
	r->recv = 0;
	qp_complete(qp, qp->recv_cq, wc, solicited);
}

uint32_t receive_placed(const struct qp *qp)
{
	const struct responder *r = &qp->responder;

	return qp->type == FRL_QPT_RC && r->recv ? r->offset : 0;
}

void receive_flush(struct qp *qp)
{
	struct responder *r = &qp->responder;
	const struct recv_wqe *recv = r->recv;
	uint32_t placed = receive_placed(qp);

	r->recv = 0;
	if (r->srq && recv)
		qp_flush_one(qp, qp->recv_cq, recv->wr_id, placed);
	/* Without an SRQ the current request is the first one here. */
	while (!recv_queue_empty(&r->queue)) {
		uint64_t wr_id = recv_queue_front(&r->queue)->wr_id;

		r->queue.head++;
		qp_flush_one(qp, qp->recv_cq, wr_id, placed);
		placed = 0;
	}
}

int qp_post_recv(struct qp *qp, const struct frl_recv_wr *wr, const char **ret_why)
{
	const char *why = 0;

	if (qp->responder.srq)
		why = "the queue pair receives from a shared receive queue: post there";
	else if (qp->state == FRL_QPS_RESET)
		why = "receive requests need another state than RESET";
	else if (wr->action.type == FRL_ACTION_REDUCE && qp->type != FRL_QPT_RC)
		why = "only receives of RC queue pairs can reduce";
	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	if (qp->state == FRL_QPS_ERR) {
		qp_flush_one(qp, qp->recv_cq, wr->wr_id, 0);
		return 0;
	}
	return recv_queue_post(&qp->responder.queue, wr, ret_why);
}
