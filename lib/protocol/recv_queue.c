/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/srq.h"

#include "lib/wire/packet.h"

#include <errno.h>
#include <string.h>

enum { STORAGE_ALIGNMENT = 16 };

/* Returns the number of slots for `size` requests: a power of two. */
static uint32_t slots_for(uint32_t size)
{
	uint32_t slots = 1;

	if (size == 0)
		return 0;
	while (slots < size)
		slots *= 2;
	return slots;
}

size_t recv_queue_storage(uint32_t size, uint32_t max_sge)
{
	size_t bytes = slots_for(size) *
		(sizeof(struct recv_wqe) + (size_t)max_sge * sizeof(struct frl_sge));

	return (bytes + STORAGE_ALIGNMENT - 1) & ~(size_t)(STORAGE_ALIGNMENT - 1);
}

void recv_queue_init(struct recv_queue *queue, void *storage, uint32_t size, uint32_t max_sge,
	const void *pd, const struct region_table *regions)
{
	uint32_t slots = slots_for(size);
	struct frl_sge *sge;

	*queue = (struct recv_queue){
		.wqes = slots ? storage : 0,
		.mask = slots - 1,
		.size = size,
		.max_sge = max_sge,
		.pd = pd,
		.regions = regions,
	};
	if (!slots)
		return;
	sge = (struct frl_sge *)(queue->wqes + slots);
	for (uint32_t i = 0; i < slots; i++)
		queue->wqes[i].sge = sge + (size_t)i * max_sge;
}

static int refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EINVAL;
}

/* Elements of a reducing receive are always checked: see check_operands(). */
static bool checks_late(const struct recv_queue *queue, const struct frl_recv_wr *wr)
{
	return queue->as_hardware && wr->action.type == FRL_ACTION_COPY;
}

/* Checks the elements and sums their lengths. Empty ones need no region. */
static int check_sges(const struct recv_queue *queue, const struct frl_recv_wr *wr,
	uint32_t *ret_length, const char **ret_why)
{
	uint64_t total = 0;

	if (wr->n_sge < 0 || (uint32_t)wr->n_sge > queue->max_sge || (wr->n_sge && !wr->sge))
		return refuse(ret_why,
			"a receive has 0 to max_recv_sge (of a shared queue: max_sge) "
			"scatter/gather elements");
	for (int i = 0; i < wr->n_sge; i++) {
		const struct frl_sge *sge = &wr->sge[i];

		total += sge->length;
		if (sge->length == 0 || checks_late(queue, wr) ||
			region_local(queue->regions, queue->pd, sge, FRL_ACCESS_LOCAL_WRITE))
			continue;
		return refuse(ret_why, region_local_refusal(queue->regions, sge));
	}
	if (total > WIRE_MAX_MESSAGE)
		return refuse(ret_why, "a message has at most 2^31 bytes");
	*ret_length = (uint32_t)total;
	return 0;
}

/* The processor or device that reaches `src` must reach all elements. Their regions exist. */
static int check_operands(const struct recv_queue *queue, const struct frl_recv_wr *wr,
	const struct region *src, const char **ret_why)
{
	for (int i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].length &&
			!region_same_reach(region_find(queue->regions, wr->sge[i].lkey), src))
			return refuse(ret_why,
				"operand and elements of a reducing receive must all be in host "
				"memory, or all in memory of one accelerator");
	return 0;
}

static int check_action(const struct recv_queue *queue, const struct frl_recv_wr *wr,
	uint32_t length, const char **ret_why)
{
	const struct frl_recv_action *action = &wr->action;
	const struct frl_sge src = { (void *)(uintptr_t)action->src, length, action->src_lkey };
	const struct region *region;
	size_t size;

	if (action->type == FRL_ACTION_COPY)
		return 0;
	if (action->type != FRL_ACTION_REDUCE)
		return refuse(ret_why, "unknown receive action");
	size = frl_dtype_size(action->dtype);
	if (size == 0 || !frl_op_is_elementwise(action->op))
		return refuse(ret_why, "unknown element type, or no element-wise operation");
	for (int i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].length % size != 0)
			return refuse(ret_why, "a reducing receive must have whole elements");
	if (!action->src || !length)
		return 0;
	region = region_local(queue->regions, queue->pd, &src, 0);
	if (!region)
		return refuse(ret_why, "the action's src is not inside the region of src_lkey");
	return check_operands(queue, wr, region, ret_why);
}

int recv_queue_post(struct recv_queue *queue, const struct frl_recv_wr *wr, const char **ret_why)
{
	struct recv_wqe *wqe;
	uint32_t length;
	int rc;

	if (queue->tail - queue->head >= queue->size) {
		*ret_why = "the receive queue is full: poll for completions, then post again";
		return -ENOMEM;
	}
	rc = check_sges(queue, wr, &length, ret_why);
	if (!rc)
		rc = check_action(queue, wr, length, ret_why);
	if (rc)
		return rc;
	wqe = &queue->wqes[queue->tail & queue->mask];
	wqe->wr_id = wr->wr_id;
	wqe->length = length;
	wqe->action = wr->action;
	wqe->keep = wr->keep;
	if (length == 0 || wqe->action.type == FRL_ACTION_COPY)
		wqe->action.src = 0; /* not read */
	wqe->n_sge = 0;
	for (int i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].length)
			wqe->sge[wqe->n_sge++] = wr->sge[i];
	queue->tail++;
	return 0;
}

void srq_take(struct srq *srq, struct recv_wqe *wqe)
{
	const struct recv_wqe *front = recv_queue_front(&srq->queue);
	struct frl_sge *sge = wqe->sge;

	*wqe = *front;
	wqe->sge = sge;
	memcpy(sge, front->sge, front->n_sge * sizeof(*sge));
	srq->queue.head++;
	if (srq->queue.tail - srq->queue.head < srq->limit) {
		srq->limit = 0;
		event_raise(srq->queues, &srq->events, FRL_EVENT_SRQ_LIMIT_REACHED);
	}
}
