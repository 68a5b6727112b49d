/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A completion queue: a ring of work completions. Written by queue pairs and read by whoever polls,
 * both under the engine's guard, so it has no atomics. IBTA volume 1, 11.4.2.
 */
#ifndef FERRULE_PROTOCOL_CQ_H
#define FERRULE_PROTOCOL_CQ_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/queue.h>

/* Entries [head, tail) modulo 2^32 are unread; full when tail - head == mask + 1. */
struct cq {
	struct frl_wc *entries;
	uint32_t mask; /* entries - 1, a power of two minus one */
	uint32_t head;
	uint32_t tail;
	bool overrun; /* a completion did not fit; nothing is written any more */
};

/* `entries` has room for `count` completions, a power of two. */
static inline void cq_init(struct cq *cq, struct frl_wc *entries, uint32_t count)
{
	*cq = (struct cq){ .entries = entries, .mask = count - 1 };
}

/* The entry, or NULL when the queue is full, which it then remembers. */
static inline struct frl_wc *cq_push(struct cq *cq, const struct frl_wc *wc)
{
	struct frl_wc *entry = &cq->entries[cq->tail & cq->mask];

	if (cq->overrun || cq->tail - cq->head > cq->mask) {
		cq->overrun = true;
		return 0;
	}
	*entry = *wc;
	cq->tail++;
	return entry;
}

static inline bool cq_pop(struct cq *cq, struct frl_wc *ret_wc)
{
	if (cq->head == cq->tail)
		return false;
	*ret_wc = cq->entries[cq->head++ & cq->mask];
	return true;
}

#endif
