/* SPDX-License-Identifier: BSD-3-Clause */
/* A completion queue: a ring, and what is to be noted when something is written to it. */
#ifndef FERRULE_PROTOCOL_CQ_H
#define FERRULE_PROTOCOL_CQ_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/queue.h>

#include "lib/base/event.h"

enum cq_armed {
	CQ_NOT_ARMED,
	CQ_ARMED_SOLICITED, /* for solicited receives and errors */
	CQ_ARMED,           /* for every completion */
};

/* Until when the bytes that an entry tells of are on their way: which transfers have to be done.
 * Those two are the engine's (lib/engine/transfers.h). */
struct cq_wait {
	uint64_t seq;
	uint32_t mask;
	bool urgent; /* as cq_notify() has it */
};

/* Entries [head, tail); head and tail run freely, modulo 2^32. */
struct cq {
	struct frl_wc *entries;
	uint32_t mask; /* entries - 1, a power of two minus one */
	uint32_t head;
	uint32_t tail;
	uint32_t hidden;    /* the last so many are there, but may not be taken yet */
	bool overrun;       /* a completion did not fit; nothing is written any more */
	uint8_t armed;      /* enum cq_armed */
	struct list notify; /* in queues->completions: the channel is to be told */
	struct event_source events;
	struct event_queues *queues;
	/* The engine's, where it works with memory that the processor does not reach. Entries are
	 * hidden then until it has looked at them: up to the position `marked` it has. */
	struct cq_wait *waits; /* one for each entry; NULL: none waits for anything */
	uint32_t marked;
	struct list waiting; /* in the engine's list while some are hidden */
};

/* `entries` has room for `count` completions, a power of two. */
static inline void cq_init(
	struct cq *cq, struct frl_wc *entries, uint32_t count, struct event_queues *queues)
{
	*cq = (struct cq){ .entries = entries, .mask = count - 1, .queues = queues };
	list_init(&cq->notify);
	list_init(&cq->waiting);
	event_source_init(&cq->events, EVENT_OF_CQ, NULL);
}

/* A completion is there, `urgent` or not: the channel is told if it asked for that. */
static inline void cq_notify(struct cq *cq, bool urgent)
{
	if (cq->armed != CQ_ARMED && !(cq->armed && urgent))
		return;
	cq->armed = CQ_NOT_ARMED;
	if (list_empty(&cq->notify))
		list_add_tail(&cq->queues->completions, &cq->notify);
}

/* The entry, or NULL when the queue is full, which it then remembers. `solicited`: a receive that
 * the sender has flagged so. */
static inline struct frl_wc *cq_push(struct cq *cq, const struct frl_wc *wc, bool solicited)
{
	struct frl_wc *entry = &cq->entries[cq->tail & cq->mask];

	if (cq->overrun || cq->tail - cq->head > cq->mask) {
		if (!cq->overrun)
			event_raise(cq->queues, &cq->events, FRL_EVENT_CQ_ERR);
		cq->overrun = true;
		return 0;
	}
	*entry = *wc;
	if (cq->waits) {
		cq->waits[cq->tail++ & cq->mask].urgent = solicited || wc->status != FRL_WC_SUCCESS;
		cq->hidden++;
		return entry;
	}
	cq->tail++;
	cq_notify(cq, solicited || wc->status != FRL_WC_SUCCESS);
	return entry;
}

/* The entry, which was written for the packet that is being taken in, has become an error. */
static inline void cq_hurry(struct cq *cq, const struct frl_wc *entry)
{
	if (cq->waits)
		cq->waits[entry - cq->entries].urgent = true;
	else
		cq_notify(cq, true);
}

/* The first of the hidden entries may be taken from now on, and is told of like a new one: who asks
 * to be told after it was written, and before this, has not seen it and must hear of it. */
static inline void cq_reveal(struct cq *cq)
{
	bool urgent = cq->waits[(cq->tail - cq->hidden) & cq->mask].urgent;

	cq->hidden--;
	cq_notify(cq, urgent);
}

/* Nothing that may be taken is there. */
static inline bool cq_is_empty(const struct cq *cq)
{
	return cq->head == cq->tail - cq->hidden;
}

static inline bool cq_pop(struct cq *cq, struct frl_wc *ret_wc)
{
	if (cq_is_empty(cq))
		return false;
	*ret_wc = cq->entries[cq->head++ & cq->mask];
	return true;
}

#endif
