/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous events. Each context has those of its own objects, and all of the port. */

#include "dropin/ibverbs/dropin.h"

void source_init(struct dropin_source *source, int kind, void *object)
{
	*source = (struct dropin_source){ .kind = kind, .object = object };
	list_init(&source->node);
}

/* ---- coming in, with Ferrule's lock held */

static void add_event(
	struct dropin_context *context, struct dropin_source *source, enum ibv_event_type type)
{
	bool is_new;

	pthread_mutex_lock(&context->mutex);
	is_new = !(source->pending & 1u << type);
	if (!source->pending)
		list_add_tail(&context->events, &source->node);
	source->pending |= 1u << type;
	pthread_mutex_unlock(&context->mutex);
	if (is_new)
		events_add(context->verbs.context.async_fd, 1);
}

static void add_port_event(struct dropin_device *device, enum ibv_event_type type)
{
	pthread_mutex_lock(&device->contexts_mutex);
	LIST_EACH(struct dropin_context, context, &device->contexts, node)
		add_event(context, &context->port_events, type);
	pthread_mutex_unlock(&device->contexts_mutex);
}

/* The program may have closed the context and left the object. */
static void add_object_event(struct dropin_device *device, const struct ibv_context *ibv,
	struct dropin_source *source, enum ibv_event_type type)
{
	pthread_mutex_lock(&device->contexts_mutex);
	LIST_EACH(struct dropin_context, context, &device->contexts, node)
		if (&context->verbs.context == ibv)
			add_event(context, source, type);
	pthread_mutex_unlock(&device->contexts_mutex);
}

void async_event(const struct frl_async_event *event, void *arg)
{
	enum ibv_event_type type = (enum ibv_event_type)event->type;

	if (event->qp) {
		struct dropin_qp *qp = frl_qp_context(event->qp);

		add_object_event(arg, qp->ex.qp_base.context, &qp->source, type);
	} else if (event->cq) {
		struct dropin_cq *cq = frl_cq_context(event->cq);

		add_object_event(arg, cq->ibv.context, &cq->source, type);
	} else if (event->srq) {
		struct dropin_srq *srq = frl_srq_context(event->srq);

		add_object_event(arg, srq->ibv.context, &srq->source, type);
	} else {
		add_port_event(arg, type);
	}
}

/* ---- going out */

static void describe(
	const struct dropin_source *source, enum ibv_event_type type, struct ibv_async_event *event)
{
	event->event_type = type;
	switch (source->kind) {
	case SOURCE_PORT: event->element.port_num = PORT_NUM; break;
	case SOURCE_CQ: event->element.cq = source->object; break;
	case SOURCE_QP: event->element.qp = source->object; break;
	case SOURCE_SRQ: event->element.srq = source->object; break;
	}
}

static bool take_event(struct dropin_context *context, struct ibv_async_event *event)
{
	struct dropin_source *source;
	enum ibv_event_type type;
	bool found;

	pthread_mutex_lock(&context->mutex);
	found = !list_empty(&context->events);
	if (found) {
		source = container_of(context->events.next, struct dropin_source, node);
		type = (enum ibv_event_type)__builtin_ctz(source->pending);
		source->pending &= source->pending - 1;
		source->reported++;
		list_remove(&source->node);
		if (source->pending)
			list_add_tail(&context->events, &source->node);
		describe(source, type, event);
	}
	pthread_mutex_unlock(&context->mutex);
	return found;
}

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
	do {
		if (events_wait(ibv->async_fd))
			return -1;
	} while (!take_event(dropin_context(ibv), event));
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *count)
{
	pthread_mutex_lock(mutex);
	++*count;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_srq *srq = event->element.srq;
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	default: break; /* of the port: nothing waits for it */
	}
}

static void unlock(void *mutex)
{
	pthread_mutex_unlock(mutex);
}

void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged,
	uint32_t reported)
{
	pthread_mutex_lock(mutex);
	/* A cancelled thread must not keep the mutex: acknowledgements take it. */
	pthread_cleanup_push(unlock, mutex);
	while (*acknowledged != reported)
		pthread_cond_wait(cond, mutex);
	pthread_cleanup_pop(1);
}

void async_forget(struct ibv_context *ibv, struct dropin_source *source, pthread_mutex_t *mutex,
	pthread_cond_t *cond, const uint32_t *acknowledged)
{
	struct dropin_context *context = dropin_context(ibv);
	uint32_t left, reported;

	pthread_mutex_lock(&context->mutex);
	left = (uint32_t)__builtin_popcount(source->pending);
	source->pending = 0;
	list_remove(&source->node);
	reported = source->reported;
	pthread_mutex_unlock(&context->mutex);
	events_take_back(ibv->async_fd, left);
	await_acknowledged(mutex, cond, acknowledged, reported);
}
