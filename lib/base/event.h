/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events that wait to be told: no call goes out of the protocol, it only notes. Each object that
 * events are about has a source; what happened is a bit of it, and the source stands in a queue as
 * long as a bit is set. So events need no memory of their own, and the same event twice is one.
 */
#ifndef FERRULE_BASE_EVENT_H
#define FERRULE_BASE_EVENT_H

#include <stdint.h>

#include <ferrule/event.h>

#include "lib/base/list.h"

enum event_object {
	EVENT_OF_CQ,
	EVENT_OF_QP,
	EVENT_OF_SRQ,
	EVENT_OF_PORT,
};

struct event_source {
	struct list node; /* in event_queues.async while `pending` is not 0 */
	uint32_t pending; /* bit n: enum frl_event_type n */
	enum event_object object;
	void *owner; /* the public handle, struct frl_cq and so on; may be set later */
};

/* One device's. The owner of the engine empties them before it gives up the guard. */
struct event_queues {
	struct list completions; /* struct cq.notify: channels to be told */
	struct list async;       /* struct event_source.node */
};

static inline void event_queues_init(struct event_queues *queues)
{
	list_init(&queues->completions);
	list_init(&queues->async);
}

static inline void event_source_init(
	struct event_source *source, enum event_object object, void *owner)
{
	list_init(&source->node);
	source->pending = 0;
	source->object = object;
	source->owner = owner;
}

static inline void event_note(
	struct list *queue, struct event_source *source, enum frl_event_type type)
{
	source->pending |= UINT32_C(1) << type;
	if (list_empty(&source->node))
		list_add_tail(queue, &source->node);
}

static inline void event_raise(
	struct event_queues *queues, struct event_source *source, enum frl_event_type type)
{
	event_note(&queues->async, source, type);
}

/* The same, and what `type` makes untrue is not told any more. */
static inline void event_replace(struct event_queues *queues, struct event_source *source,
	enum frl_event_type untrue, enum frl_event_type type)
{
	source->pending &= ~(UINT32_C(1) << untrue);
	event_raise(queues, source, type);
}

/* Takes the lowest pending event; it must have one. */
static inline enum frl_event_type event_take(struct event_source *source)
{
	unsigned type = (unsigned)__builtin_ctz(source->pending);

	source->pending &= source->pending - 1;
	if (!source->pending)
		list_remove(&source->node);
	return (enum frl_event_type)type;
}

#endif
