/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/workload.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/oracle/oracle.h"
#include "tests/sim/world.h"

#include <errno.h>
#include <string.h>

enum {
	WAIT_LONGEST_NS = 1000000,
	SLOT_FILL = 0x41, /* four of them are a float that sums can be computed with */
};

static bool one_in(struct endpoint *endpoint, uint64_t n)
{
	return random_below(&endpoint->world->random, n) == 0;
}

static bool may_receive(const struct endpoint *endpoint)
{
	struct inbox *inbox = endpoint->inbox;
	struct inbox_slot *slot = inbox_slot(inbox, inbox->next);

	if (endpoint->silent || (!endpoint->shares && inbox->posted >= endpoint->n_recv_total))
		return false;
	if (endpoint->n_recv_total == UINT32_MAX && endpoint->qp->core.state == FRL_QPS_ERR)
		return false;
	/* An end that does not poll posts again as soon as a completion was written; its data is in
	 * memory then. */
	if (endpoint->lazy && slot->state == INBOX_COMPLETED &&
		!memory_is_due(&inbox->memory, inbox_offset(inbox, inbox->next), inbox->slot_size))
		slot->state = INBOX_FREE;
	return inbox_has_room(inbox);
}

/* A receive for the message that will take it, or for any message if that is not known. */
static void choose_shape(struct endpoint *endpoint, struct inbox_slot *slot, uint32_t request)
{
	const struct script *script = &endpoint->peer->script;
	uint32_t capacity = endpoint->world->config.longest;

	*slot = (struct inbox_slot){ .state = INBOX_POSTED, .request = request };
	if (endpoint->shares || !endpoint_is_reliable(endpoint)) {
		capacity += FRL_GRH_SIZE;
		/* Too small for most messages: unreliable ones are dropped then. */
		if (!endpoint->shares && one_in(endpoint, 16))
			capacity = (uint32_t)random_below(&endpoint->world->random, capacity);
		slot->capacity = capacity;
		layout_choose(&slot->layout, capacity, 1, &endpoint->world->random);
	} else if (request < script->n_recvs) {
		const struct message *message = &script->messages[script->recvs[request]];

		slot->layout = message->recv;
		slot->reduce = message->reduce;
		slot->reduce_src = message->reduce_src;
	}
}

static uint32_t make_sges(
	struct endpoint *endpoint, uint32_t request, struct frl_sge sges[FRL_MAX_SGE])
{
	const struct inbox *inbox = endpoint->inbox;
	const struct layout *layout = &inbox_slot(inbox, request)->layout;

	for (uint32_t i = 0; i < layout->n; i++) {
		struct memory_name name = memory_name(&inbox->memory,
			inbox_offset(inbox, request) + layout->offset[i], &endpoint->world->random);

		sges[i] = (struct frl_sge){ (void *)(uintptr_t)name.va, layout->length[i],
			name.key };
		if (sges[i].length == 0 && one_in(endpoint, 2)) {
			sges[i].addr = NULL;
			sges[i].lkey = 0xdead;
		}
	}
	return layout->n;
}

static bool post_receive(struct endpoint *endpoint)
{
	struct inbox *inbox = endpoint->inbox;
	uint32_t request = inbox->next;
	struct inbox_slot *slot = inbox_slot(inbox, request);
	struct frl_sge sges[FRL_MAX_SGE];
	struct frl_recv_wr wr = { .wr_id = endpoint_wr_id(endpoint, true, request), .sge = sges };
	const char *why = "";
	int rc;

	memory_fill(&inbox->memory, inbox_offset(inbox, request), SLOT_FILL, inbox->slot_size);
	choose_shape(endpoint, slot, request);
	wr.n_sge = (int)make_sges(endpoint, request, sges);
	if (slot->reduce) {
		wr.action.type = FRL_ACTION_REDUCE;
		wr.action.dtype = FRL_FLOAT32;
		wr.action.op = FRL_SUM;
	}
	if (slot->reduce_src) {
		struct memory_name name = memory_name(
			&inbox->memory, inbox->operands, &endpoint->world->random);

		wr.action.src = (void *)(uintptr_t)name.va;
		wr.action.src_lkey = name.key;
	}
	if (inbox->srq)
		rc = recv_queue_post(&inbox->srq->queue, &wr, &why);
	else
		rc = qp_post_recv(&endpoint->qp->core, &wr, &why);
	if (!inbox->srq)
		engine_update(&endpoint->node->engine, endpoint->qp);
	if (rc == -EINVAL && !inbox->memory.registered) {
		slot->state = INBOX_FREE;
		endpoint_to_error(endpoint); /* nothing more can be received */
		return false;
	}
	SIM_CHECK(rc == 0, "endpoint %u: receive %u: %s", endpoint->index, request, why);
	inbox->posted++;
	inbox->next++;
	if (!endpoint->shares)
		endpoint->recv.posted++;
	return true;
}

static bool post_receives(struct endpoint *endpoint)
{
	bool some = false;

	if (!one_in(endpoint, endpoint->world->config.late_receives))
		return false;
	while (may_receive(endpoint) && post_receive(endpoint) &&
		(endpoint->world->config.late_receives == 1 || !one_in(endpoint, 3)))
		some = true;
	return some;
}

/* As frl_srq_set_limit() does. */
static void arm_limit(struct endpoint *endpoint)
{
	struct inbox *inbox = endpoint->inbox;

	if (!inbox->srq || inbox->srq->limit || !one_in(endpoint, 4))
		return;
	inbox->limit = 1 + (uint32_t)random_below(&endpoint->world->random, inbox->n);
	inbox->srq->limit = inbox->limit;
	inbox->taken_when_armed = inbox->srq->queue.head;
}

/* As frl_req_notify_cq() does. */
static void arm_queue(struct endpoint *endpoint, struct sim_cq *cq)
{
	if (!one_in(endpoint, 3))
		return;
	cq->cq.armed = one_in(endpoint, 2) ? CQ_ARMED : CQ_ARMED_SOLICITED;
	cq->armed = cq->cq.armed;
}

static void look_around(struct endpoint *endpoint)
{
	struct world *world = endpoint->world;

	if (endpoint->qp->core.state == FRL_QPS_RTR && world->clock.now_ns >= endpoint->rts_at_ns)
		endpoint_start(endpoint);
	endpoint_drain(endpoint);
	arm_limit(endpoint);
	arm_queue(endpoint, endpoint->send_cq);
	arm_queue(endpoint, endpoint->recv_cq);
}

static bool look_in(struct endpoint *endpoint)
{
	struct world *world = endpoint->world;
	bool some = false;

	if (!endpoint->lazy)
		some = endpoint_poll(endpoint, 1 + (uint32_t)random_below(&world->random, 16));
	look_around(endpoint);
	some |= post_receives(endpoint);
	some |= workload_send(endpoint);
	oracle_check_node(endpoint->node);
	if (some)
		world_poll_at(endpoint->node,
			world->clock.now_ns +
				random_below(&world->random, world->config.poll_latency_ns + 1));
	if (!world->fault_done && world->config.fault != FAULT_NONE && endpoint->index == 0 &&
		endpoint->send.posted >= world->config.fault_after)
		scenario_break(world);
	return some;
}

static void act(void *owner, void *arg)
{
	struct endpoint *endpoint = owner;
	struct world *world = endpoint->world;
	bool some = false;

	if (world->closing || endpoint->removed)
		return;
	if (!endpoint->node->frozen)
		some = look_in(endpoint);
	if (some)
		endpoint->wait_ns = world->config.think_ns;
	else if (endpoint->wait_ns < WAIT_LONGEST_NS)
		endpoint->wait_ns *= 2;
	clock_at(&world->clock,
		world->clock.now_ns + 1 + random_below(&world->random, 2 * endpoint->wait_ns), act,
		endpoint, NULL);
}

void workload_start(struct endpoint *endpoint)
{
	endpoint->wait_ns = endpoint->world->config.think_ns;
	clock_at(&endpoint->world->clock, endpoint->world->clock.now_ns, act, endpoint, NULL);
}
