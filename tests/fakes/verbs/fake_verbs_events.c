/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: asynchronous events and completion channels, and their files. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

bool fake_events_init(struct fake_events *events)
{
	events->fd = eventfd(0, EFD_CLOEXEC);
	return events->fd >= 0;
}

void fake_events_fini(struct fake_events *events)
{
	if (events->fd >= 0)
		close(events->fd);
	events->fd = -1;
	free(events->list);
	events->list = NULL;
	events->n = events->room = 0;
}

/* A thread that polls the old file is woken by it and then polls the new one. */
void fake_events_hang_up(struct fake_events *events)
{
	int flags = fcntl(events->fd, F_GETFL), old = dup(events->fd);
	uint64_t one = 1;
	int ends[2];

	if (old < 0 || pipe2(ends, O_CLOEXEC | (flags & O_NONBLOCK)) != 0 ||
		dup3(ends[0], events->fd, O_CLOEXEC) < 0)
		abort();
	events->has_hung_up = true;
	close(ends[0]);
	close(ends[1]);
	if (write(old, &one, sizeof(one)) != sizeof(one))
		abort();
	close(old);
}

/* The file mirrors the list. It has no other reader or writer, so neither call blocks. */
static void show(struct fake_events *events)
{
	uint64_t value = 1;
	ssize_t moved = sizeof(value);

	if (events->has_hung_up || events->is_readable == (events->n > 0))
		return;
	events->is_readable = events->n > 0;
	if (events->is_readable)
		moved = write(events->fd, &value, sizeof(value));
	else
		moved = read(events->fd, &value, sizeof(value));
	if (moved != sizeof(value))
		abort();
}

void fake_events_add(struct fake_events *events, const struct fake_event *event)
{
	if (events->fd < 0 || events->has_hung_up)
		return;
	if (events->n == events->room) {
		events->room = events->room ? 2 * events->room : 16;
		events->list = realloc(events->list, events->room * sizeof(*events->list));
		if (!events->list)
			abort();
	}
	events->list[events->n++] = *event;
	show(events);
}

void fake_events_forget(struct fake_events *events, const struct fake_object *object)
{
	size_t kept = 0;

	for (size_t i = 0; i < events->n; i++)
		if (events->list[i].object != object)
			events->list[kept++] = events->list[i];
	events->n = kept;
	if (events->fd >= 0)
		show(events);
}

static void take_first(struct fake_events *events, struct fake_event *event)
{
	*event = events->list[0];
	events->n--;
	memmove(events->list, events->list + 1, events->n * sizeof(*events->list));
	show(events);
	if (event->object)
		event->object->n_pending++;
}

/* Returns the oldest event. Waits for one unless the file is nonblocking. Returns 0, or -1 and
 * errno. */
static int take(const char *function, struct fake_events *events, struct fake_event *event)
{
	struct pollfd waits = { .events = POLLIN };
	int err = fake_enter_anyway(function, FAKE_CALL_LOOPS);

	while (err == 0 && events->n == 0) {
		waits.fd = events->fd;
		fake_leave();
		if (fcntl(waits.fd, F_GETFL) & O_NONBLOCK)
			err = EAGAIN;
		else if (poll(&waits, 1, -1) < 0)
			err = errno;
		else
			pthread_mutex_lock(&fake_world.lock);
	}
	if (err != 0) {
		errno = err;
		return -1;
	}
	take_first(events, event);
	fake_leave();
	return 0;
}

void fake_event_raise(struct fake_object *object, enum ibv_event_type type)
{
	struct fake_event event = { .object = object, .event.event_type = type };

	if (object->is_gone || object->is_orphan)
		return;
	if (object->kind == FAKE_VERBS_CQ)
		event.event.element.cq = &((struct fake_cq *)object)->ibv;
	else if (object->kind == FAKE_VERBS_SRQ)
		event.event.element.srq = &((struct fake_srq *)object)->ibv;
	else
		event.event.element.qp = &((struct fake_qp *)object)->ibv;
	fake_events_add(&object->context->events, &event);
}

void fake_event_raise_port(struct fake_device *device, enum ibv_event_type type, int port)
{
	struct fake_event event = { .event.event_type = type };
	struct fake_object *at = NULL;

	event.event.element.port_num = port;
	while ((at = fake_next(FAKE_VERBS_CONTEXT, at)) != NULL)
		if (at->device == device)
			fake_events_add(&((struct fake_context *)at)->events, &event);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fake_event taken;

	if (take(__func__, &fake_context_of(context)->events, &taken) != 0)
		return -1;
	*event = taken.event;
	return 0;
}

static struct fake_object *object_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: return &FAKE_OF(struct fake_cq, ibv, event->element.cq)->object;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &FAKE_OF(struct fake_srq, ibv, event->element.srq)->object;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &FAKE_OF(struct fake_qp, ibv, event->element.qp)->object;
	default: return NULL;
	}
}

static void acknowledge(struct fake_object *object, unsigned n)
{
	if (object->n_pending < n)
		abort();
	object->n_pending -= n;
	pthread_cond_broadcast(&fake_world.acknowledged);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct fake_object *object = object_of(event);

	fake_enter_always(__func__);
	if (object)
		acknowledge(object, 1);
	fake_leave();
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_context *of = fake_context_of(context);
	struct fake_channel *channel = fake_make(
		__func__, FAKE_VERBS_CHANNEL, sizeof(*channel), of->object.device, of);

	if (!channel)
		return NULL;
	if (!fake_events_init(&channel->events))
		return fake_unmake(&channel->object, errno);
	channel->ibv.context = context;
	channel->ibv.fd = channel->events.fd;
	fake_leave();
	return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct fake_channel *channel = FAKE_OF(struct fake_channel, ibv, ibv);
	int err = fake_destroy(__func__, &channel->object);

	return err != 0 ? err : fake_destroyed(&channel->object);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct fake_event taken;

	if (take(__func__, &FAKE_OF(struct fake_channel, ibv, channel)->events, &taken) != 0)
		return -1;
	*cq = taken.event.element.cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	fake_enter_always(__func__);
	acknowledge(&FAKE_OF(struct fake_cq, ibv, cq)->object, n);
	fake_leave();
}
