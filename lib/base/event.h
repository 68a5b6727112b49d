/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pending asynchronous events. The protocol calls no callbacks: it only records events. Each object
 * that can have events contains a source. A bit of the source stands for an event type, and the
 * source is queued while any bit is set. Events therefore need no memory of their own, and equal
 * events are merged.
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
	void *owner; /* the public handle, such as struct frl_cq; may be set later */
};

/* The queues of one device. The owner of the engine drains them before it releases the guard. */
struct event_queues {
	struct list completions; /* struct cq.notify: channels to notify */
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

/* Adds the event and removes the pending events that `type` makes obsolete. */
static inline void event_replace(struct event_queues *queues, struct event_source *source,
	enum frl_event_type untrue, enum frl_event_type type)
{
	source->pending &= ~(UINT32_C(1) << untrue);
	event_raise(queues, source, type);
}

/* Removes and returns the lowest pending event. The source must have one. */
static inline enum frl_event_type event_take(struct event_source *source)
{
	unsigned type = (unsigned)__builtin_ctz(source->pending);

	source->pending &= source->pending - 1;
	if (!source->pending)
		list_remove(&source->node);
	return (enum frl_event_type)type;
}

#endif
