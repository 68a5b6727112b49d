/* SPDX-License-Identifier: BSD-3-Clause */
/* The applications: they poll, post receives and post sends, each time some and at random times. */
#include "tests/sim/world.h"

#include "tests/sim/fail.h"
#include "tests/sim/oracle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	WAIT_LONGEST_NS = 1000000,
	POSTS_IN_ERROR = 3, /* in ERR requests are taken and flushed; this many are tried */
	SLOT_FILL = 0x41,   /* four of them are a float that sums can be computed with */
};

static bool one_in(struct endpoint *endpoint, uint64_t n)
{
	return random_below(&endpoint->world->random, n) == 0;
}

static uint32_t any_key(struct endpoint *endpoint, const struct sim_memory *memory)
{
	return memory->regions[random_below(&endpoint->world->random, memory->n_keys)].key;
}

/* Elements without bytes may name anything. */
static void make_sges(struct endpoint *endpoint, const struct sim_memory *memory, uint32_t slot,
	const struct layout *layout, struct frl_sge sges[FRL_MAX_SGE])
{
	for (uint32_t i = 0; i < layout->n; i++) {
		sges[i].addr = memory_at(memory, slot + layout->offset[i]);
		sges[i].length = layout->length[i];
		sges[i].lkey = any_key(endpoint, memory);
		if (sges[i].length == 0 && one_in(endpoint, 2)) {
			sges[i].addr = NULL;
			sges[i].lkey = 0xdead;
		}
	}
}

/* Posts from memory that is gone, and changed, right after the call. */
static int post_inline(struct endpoint *endpoint, struct frl_send_wr *wr,
	const struct layout *layout, const uint8_t *payload, const char **ret_why)
{
	struct frl_sge sges[FRL_MAX_SGE];
	uint8_t *copy = sim_alloc(FRL_MAX_INLINE, 1);
	uint32_t done = 0;
	int rc;

	memcpy(copy, payload, endpoint->script.messages[endpoint->send.posted].length);
	for (uint32_t i = 0; i < layout->n; i++) {
		sges[i] = (struct frl_sge){ copy + done, layout->length[i], 0 };
		done += layout->length[i];
	}
	wr->sge = sges;
	rc = qp_post_send(&endpoint->qp->core, wr, ret_why);
	memset(copy, 0, FRL_MAX_INLINE);
	free(copy);
	return rc;
}

static int post_from_slot(struct endpoint *endpoint, struct frl_send_wr *wr,
	const struct layout *layout, const uint8_t *payload, const char **ret_why)
{
	uint32_t slot = send_slot(endpoint, endpoint->send.posted), done = 0;
	struct frl_sge sges[FRL_MAX_SGE];

	for (uint32_t i = 0; i < layout->n; i++) {
		memcpy(memory_at(&endpoint->source, slot + layout->offset[i]), payload + done,
			layout->length[i]);
		done += layout->length[i];
	}
	make_sges(endpoint, &endpoint->source, slot, layout, sges);
	wr->sge = sges;
	return qp_post_send(&endpoint->qp->core, wr, ret_why);
}

static int post_message(struct endpoint *endpoint, const char **ret_why)
{
	static uint8_t payload[SCRIPT_LONGEST];
	uint32_t k = endpoint->send.posted;
	const struct message *message = &endpoint->script.messages[k];
	const struct endpoint *peer = endpoint->peer;
	struct frl_send_wr wr = {
		.wr_id = endpoint_wr_id(endpoint, false, k),
		.opcode = message->opcode,
		.flags = message->flags,
		.n_sge = (int)message->send.n,
		.imm_data = message->imm_data,
	};

	if (message_is_write(message)) {
		uint32_t at = peer->window_offset + message->write_offset;

		if (message->bad)
			at = peer->target.size - ENDPOINT_GUARD - message->length + 1;
		wr.remote_addr = (uintptr_t)memory_at(&peer->target, at);
		wr.rkey = any_key(endpoint, &peer->target);
	}
	/* C9-88: without payload the address means nothing. */
	if (message->length == 0 && one_in(endpoint, 2))
		wr.remote_addr = wr.rkey = 7;
	script_payload(&endpoint->script, k, 0, payload, message->length);
	if (wr.flags & FRL_SEND_INLINE)
		return post_inline(endpoint, &wr, &message->send, payload, ret_why);
	return post_from_slot(endpoint, &wr, &message->send, payload, ret_why);
}

/* The queue is full: a request is refused and changes nothing (the oracle looks). */
static void try_full_queue(struct endpoint *endpoint)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND };
	const char *why = NULL;

	if (endpoint->qp->core.state != FRL_QPS_RTS ||
		endpoint->send.posted - endpoint->acked < endpoint->n_send)
		return;
	SIM_CHECK(qp_post_send(&endpoint->qp->core, &wr, &why) == -ENOMEM && why,
		"endpoint %u: the send queue has more room than it should", endpoint->index);
}

static bool may_send(struct endpoint *endpoint)
{
	enum frl_qp_state state = endpoint->qp->core.state;
	uint32_t retired = endpoint->lazy ? endpoint->acked : endpoint->send.polled;

	if (state != FRL_QPS_RTS && state != FRL_QPS_ERR)
		return false;
	if (state == FRL_QPS_ERR && endpoint->posted_in_error >= POSTS_IN_ERROR)
		return false;
	if (endpoint->send.posted == endpoint->script.n_messages)
		return false;
	if (endpoint->send.posted - retired < endpoint->n_send)
		return true;
	try_full_queue(endpoint);
	return false;
}

static bool post_send(struct endpoint *endpoint)
{
	struct message *message = &endpoint->script.messages[endpoint->send.posted];
	uint32_t used = endpoint->send.posted - endpoint->send.polled;
	const char *why = "";
	int rc;

	/* An application that never has a request signaled could not tell when it may go on. */
	if (used + 1 >= endpoint->n_send ||
		endpoint->send.posted + 1 == endpoint->script.n_messages)
		message->flags |= FRL_SEND_SIGNALED;
	rc = post_message(endpoint, &why);
	if (rc == -EINVAL && !endpoint->source.registered) {
		endpoint_to_error(endpoint); /* nothing more can be sent */
		return false;
	}
	SIM_CHECK(rc == 0, "endpoint %u: request %u: %s", endpoint->index, endpoint->send.posted,
		why);
	endpoint->send.posted++;
	if (endpoint->qp->core.state == FRL_QPS_ERR)
		endpoint->posted_in_error++;
	engine_update(&endpoint->node->engine, endpoint->qp);
	return true;
}

static bool may_receive(const struct endpoint *endpoint)
{
	const struct progress *recv = &endpoint->recv;
	uint32_t free_from = endpoint->lazy ? recv->checked : recv->polled;

	return !endpoint->silent && recv->posted < endpoint->n_recv_total &&
		recv->posted - free_from < endpoint->n_recv;
}

static bool post_receive(struct endpoint *endpoint)
{
	const struct script *script = &endpoint->peer->script;
	uint32_t k = endpoint->recv.posted, slot = recv_slot(endpoint, k);
	struct frl_sge sges[FRL_MAX_SGE];
	struct frl_recv_wr wr = { .wr_id = endpoint_wr_id(endpoint, true, k), .sge = sges };
	const char *why = "";
	int rc;

	memset(endpoint->target.bytes + slot, SLOT_FILL, endpoint->slot_size);
	memset(endpoint->target.shadow + slot, SLOT_FILL, endpoint->slot_size);
	if (k < script->n_recvs) {
		const struct message *message = &script->messages[script->recvs[k]];

		make_sges(endpoint, &endpoint->target, slot, &message->recv, sges);
		wr.n_sge = (int)message->recv.n;
		if (message->reduce) {
			wr.action.type = FRL_ACTION_REDUCE;
			wr.action.dtype = FRL_FLOAT32;
			wr.action.op = FRL_SUM;
		}
		if (message->reduce_src) {
			wr.action.src = memory_at(&endpoint->target, endpoint->src_offset);
			wr.action.src_lkey = any_key(endpoint, &endpoint->target);
		}
	}
	rc = qp_post_recv(&endpoint->qp->core, &wr, &why);
	if (rc == -EINVAL && !endpoint->target.registered) {
		endpoint_to_error(endpoint); /* nothing more can be received */
		return false;
	}
	SIM_CHECK(rc == 0, "endpoint %u: receive %u: %s", endpoint->index, k, why);
	endpoint->recv.posted++;
	return true;
}

static bool post_some(struct endpoint *endpoint)
{
	bool some = false;

	if (one_in(endpoint, endpoint->world->config.late_receives))
		while (may_receive(endpoint) && post_receive(endpoint) &&
			(endpoint->world->config.late_receives == 1 || !one_in(endpoint, 3)))
			some = true;
	while (may_send(endpoint) && post_send(endpoint)) {
		some = true;
		if (one_in(endpoint, 3))
			break;
	}
	return some;
}

static bool look_in(struct endpoint *endpoint)
{
	struct world *world = endpoint->world;
	bool some = false;

	if (!endpoint->lazy)
		some = endpoint_poll(endpoint, 1 + (uint32_t)random_below(&world->random, 16));
	if (endpoint->qp->core.state == FRL_QPS_RTR && world->clock.now_ns >= endpoint->rts_at_ns)
		endpoint_start(endpoint);
	some |= post_some(endpoint);
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
