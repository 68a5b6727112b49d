/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queue: a ring of completions, and the notification when one is written. An optional
 * gate holds completions back.
 */
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

/* In frl_wc.flags while the completion is in its queue: it holds a slot of its queue pair's send
 * queue (qp_config.as_hardware), which the thread that takes it releases (qp_release_slot()). */
enum { CQ_WC_HOLDS_SLOT = 1 << 30 };

struct cq;

/* Holds completions back until the memory that they report on is written. Its owner embeds this
 * struct, and passes completions on with cq_put() in their order. */
struct cq_gate {
	void (*take)(struct cq *cq, const struct frl_wc *wc, bool urgent);
	uint32_t held; /* completions held; each has a free entry in the queue */
};

/* Entries [head, tail); both indices run freely, modulo 2^32. */
struct cq {
	struct frl_wc *entries;
	uint32_t mask; /* number of entries - 1; entries are a power of two */
	uint32_t head;
	uint32_t tail;
	bool overrun;       /* a completion did not fit; no more are written */
	uint8_t armed;      /* enum cq_armed */
	struct list notify; /* in queues->completions while a notification is pending */
	struct event_source events;
	struct event_queues *queues;
	struct cq_gate *gate; /* or NULL */
};

/* `entries` has room for `count` completions, a power of two. */
static inline void cq_init(
	struct cq *cq, struct frl_wc *entries, uint32_t count, struct event_queues *queues)
{
	*cq = (struct cq){ .entries = entries, .mask = count - 1, .queues = queues };
	list_init(&cq->notify);
	event_source_init(&cq->events, EVENT_OF_CQ, NULL);
}

/* Moves the entries to an array for `count` completions, a power of two and at least cq_used().
 * Returns the previous array. */
static inline struct frl_wc *cq_move(struct cq *cq, struct frl_wc *entries, uint32_t count)
{
	struct frl_wc *before = cq->entries;

	for (uint32_t i = cq->head; i != cq->tail; i++)
		entries[i & (count - 1)] = before[i & cq->mask];
	cq->entries = entries;
	cq->mask = count - 1;
	return before;
}

/* Notifies the completion channel if the queue is armed for this completion. */
static inline void cq_notify(struct cq *cq, bool urgent)
{
	if (cq->armed != CQ_ARMED && !(cq->armed && urgent))
		return;
	cq->armed = CQ_NOT_ARMED;
	if (list_empty(&cq->notify))
		list_add_tail(&cq->queues->completions, &cq->notify);
}

/* Writes an entry; one must be free. */
static inline void cq_put(struct cq *cq, const struct frl_wc *wc, bool urgent)
{
	cq->entries[cq->tail++ & cq->mask] = *wc;
	cq_notify(cq, urgent);
}

/* Returns the number of entries that are written or reserved by a gate. */
static inline uint32_t cq_used(const struct cq *cq)
{
	return cq->tail - cq->head + (cq->gate ? cq->gate->held : 0);
}

/* Returns false if the queue is full; it is then marked as overrun. `solicited` is the sender's
 * flag of a receive. */
static inline bool cq_push(struct cq *cq, const struct frl_wc *wc, bool solicited)
{
	bool urgent = solicited || wc->status != FRL_WC_SUCCESS;

	if (cq->overrun || cq_used(cq) > cq->mask) {
		if (!cq->overrun)
			event_raise(cq->queues, &cq->events, FRL_EVENT_CQ_ERR);
		cq->overrun = true;
		return false;
	}
	if (cq->gate)
		cq->gate->take(cq, wc, urgent);
	else
		cq_put(cq, wc, urgent);
	return true;
}

/* Removes the completions of a queue pair that are written. */
static inline void cq_remove(struct cq *cq, uint32_t qpn)
{
	uint32_t to = cq->head;

	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (cq->entries[i & cq->mask].qp_num != qpn)
			cq->entries[to++ & cq->mask] = cq->entries[i & cq->mask];
	cq->tail = to;
}

static inline bool cq_is_empty(const struct cq *cq)
{
	return cq->head == cq->tail;
}

static inline bool cq_pop(struct cq *cq, struct frl_wc *ret_wc)
{
	if (cq_is_empty(cq))
		return false;
	*ret_wc = cq->entries[cq->head++ & cq->mask];
	return true;
}

#endif
