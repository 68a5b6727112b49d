/* SPDX-License-Identifier: BSD-3-Clause */
/* Notifications of completion channels, and asynchronous events. */
#include "tests/sim/oracle/oracle.h"

#include "tests/sim/common/fail.h"

void oracle_note_completion(struct sim_cq *cq, bool urgent)
{
	if (cq->armed != CQ_ARMED && !(cq->armed && urgent))
		return;
	cq->armed = CQ_NOT_ARMED;
	cq->notifies = true;
}

void oracle_accept_notice(struct sim_cq *cq)
{
	cq->armed = cq->cq.armed;
	cq->notifies = !list_empty(&cq->cq.notify);
}

static void check_armed(struct node *node, struct sim_cq *cq)
{
	/* An overrun queue writes no completion, and one of a lawless flow is not checked. */
	if (!cq->cq.entries || cq->cq.overrun)
		return;
	SIM_CHECK(cq->armed == cq->cq.armed, "%s: a queue is armed %u instead of %u", node->name,
		cq->cq.armed, cq->armed);
	SIM_CHECK(list_empty(&cq->cq.notify) == !cq->notifies,
		"%s: a notification is missing, or too much", node->name);
}

static bool is_error_event(enum frl_event_type type)
{
	return type == FRL_EVENT_QP_FATAL || type == FRL_EVENT_QP_REQ_ERR ||
		type == FRL_EVENT_QP_ACCESS_ERR;
}

static void check_qp_event(struct endpoint *endpoint, enum frl_event_type type)
{
	const struct qp *qp = &endpoint->qp->core;

	endpoint->events |= 1u << type;
	trace_note(&endpoint->world->trace, "endpoint %u: %s", endpoint->index,
		frl_event_type_str(type));
	if (is_error_event(type))
		SIM_CHECK(endpoint->doomed && qp->state == FRL_QPS_ERR,
			"endpoint %u: %s for no reason", endpoint->index, frl_event_type_str(type));
	if (type == FRL_EVENT_QP_LAST_WQE_REACHED)
		SIM_CHECK(endpoint->shares && qp->state == FRL_QPS_ERR,
			"endpoint %u: %s for no reason", endpoint->index, frl_event_type_str(type));
	if (type == FRL_EVENT_SQ_DRAINED) {
		SIM_CHECK(endpoint->drain.notify && !endpoint->drain.notified &&
				endpoint->drain.started,
			"endpoint %u: %s for no reason", endpoint->index, frl_event_type_str(type));
		endpoint->drain.notified = true;
	}
}

/* The carrier may be back when its loss is reported. */
static void check_port_event(struct node *node, enum frl_event_type type)
{
	SIM_CHECK(node->world->config.flaps &&
			(type == FRL_EVENT_PORT_ERR || type == FRL_EVENT_PORT_ACTIVE) &&
			node->port_events != 1u << type,
		"%s: %s for no reason", node->name, frl_event_type_str(type));
	SIM_CHECK(node->port_events || type == FRL_EVENT_PORT_ERR, "%s: %s for no reason",
		node->name, frl_event_type_str(type));
	node->port_events = 1u << type;
	node->world->tally->port_events++;
}

static struct endpoint *endpoint_of_source(struct world *world, const struct event_source *source)
{
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		if (!world->endpoints[i].removed && &world->endpoints[i].qp->core.events == source)
			return &world->endpoints[i];
	SIM_CHECK(false, "an event about nobody");
	return NULL;
}

static void check_event(struct node *node, struct event_source *source)
{
	enum event_object object = source->object;
	enum frl_event_type type = event_take(source);

	switch (object) {
	case EVENT_OF_QP: check_qp_event(endpoint_of_source(node->world, source), type); break;
	case EVENT_OF_CQ:
		SIM_CHECK(type == FRL_EVENT_CQ_ERR &&
				container_of(source, struct cq, events)->overrun,
			"%s: an event about a completion queue", node->name);
		break;
	case EVENT_OF_SRQ:
		SIM_CHECK(type == FRL_EVENT_SRQ_LIMIT_REACHED && node->inbox.limit,
			"%s: a limit that was not set", node->name);
		node->inbox.limit = 0;
		node->world->tally->srq_limits++;
		break;
	case EVENT_OF_PORT: check_port_event(node, type); break;
	}
}

/* The limit is checked when a request is taken; others may have been posted since. */
static void check_limit(const struct node *node)
{
	const struct inbox *inbox = &node->inbox;

	if (!inbox->srq)
		return;
	SIM_CHECK(inbox->srq->limit == inbox->limit, "%s: limit %u instead of %u", node->name,
		inbox->srq->limit, inbox->limit);
	if (inbox->limit && inbox->srq->queue.head != inbox->taken_when_armed)
		SIM_CHECK(inbox->srq->queue.tail - inbox->srq->queue.head >= inbox->limit,
			"%s: the limit is passed, and nobody told", node->name);
}

void oracle_check_events(struct node *node)
{
	struct engine *engine = &node->engine;
	struct world *world = node->world;

	while (!list_empty(&engine->events.async))
		check_event(
			node, container_of(engine->events.async.next, struct event_source, node));
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint->node != node || endpoint->lawless)
			continue;
		check_armed(node, endpoint->send_cq);
		check_armed(node, endpoint->recv_cq);
		if (!endpoint->removed && endpoint->shares &&
			endpoint->qp->core.state == FRL_QPS_ERR)
			SIM_CHECK(endpoint->events >> FRL_EVENT_QP_LAST_WQE_REACHED & 1,
				"endpoint %u: its end with the shared queue was not told",
				endpoint->index);
	}
	check_limit(node);
	while (!list_empty(&engine->events.completions)) {
		struct cq *cq = container_of(engine->events.completions.next, struct cq, notify);

		list_remove(&cq->notify);
		container_of(cq, struct sim_cq, cq)->notifies = false;
		world->tally->notified++;
	}
}
