/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive queues: of a queue pair, and shared ones. */
#ifndef FERRULE_PROTOCOL_SRQ_H
#define FERRULE_PROTOCOL_SRQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/queue.h>

#include "lib/base/event.h"
#include "lib/protocol/region.h"

/* A receive request. `sge` points to memory of the slot; empty elements are omitted. */
struct recv_wqe {
	uint64_t wr_id;
	uint32_t length;
	uint32_t n_sge;
	struct frl_sge *sge;
	struct frl_recv_action action;
	uint64_t keep;
};

/* Requests [head, tail); both indices run freely, modulo 2^32. */
struct recv_queue {
	struct recv_wqe *wqes;
	uint32_t mask; /* of slots; undefined if there are none */
	uint32_t size; /* capacity: 0 to mask + 1 */
	uint32_t max_sge;
	uint32_t head;
	uint32_t tail;
	bool as_hardware; /* elements are checked when a message arrives */
	const void *pd;
	const struct region_table *regions;
};

/* Returns the bytes of memory, aligned as by malloc(), for a queue of this size. */
size_t recv_queue_storage(uint32_t size, uint32_t max_sge);

/* `storage` must be zeroed. pd and regions as in struct recv_queue. */
void recv_queue_init(struct recv_queue *queue, void *storage, uint32_t size, uint32_t max_sge,
	const void *pd, const struct region_table *regions);

/* -EINVAL with *ret_why; -ENOMEM if the queue is full. */
int recv_queue_post(struct recv_queue *queue, const struct frl_recv_wr *wr, const char **ret_why);

static inline bool recv_queue_empty(const struct recv_queue *queue)
{
	return queue->head == queue->tail;
}

static inline struct recv_wqe *recv_queue_front(const struct recv_queue *queue)
{
	return &queue->wqes[queue->head & queue->mask];
}

struct srq {
	struct recv_queue queue;
	uint32_t limit; /* 0: not armed */
	struct event_source events;
	struct event_queues *queues;
};

/* Takes the oldest request, which must exist: copies it to `wqe`, whose `sge` has room for
 * FRL_MAX_SGE. Raises the limit event. */
void srq_take(struct srq *srq, struct recv_wqe *wqe);

#endif
