/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that an RC queue pair has accepted from its peer. */
#include "tests/sim/oracle/oracle.h"

#include "tests/sim/common/fail.h"

#include <string.h>

static const struct message *next_message(struct endpoint *endpoint)
{
	const struct script *script = &endpoint->peer->script;

	while (endpoint->message < script->n_messages &&
		message_is_local(&script->messages[endpoint->message]))
		endpoint->message++;
	SIM_CHECK(endpoint->message < endpoint->peer->send.posted,
		"endpoint %u accepts what was never posted", endpoint->index);
	return &script->messages[endpoint->message];
}

/* The bytes at the time when the request is accepted. */
static void execute_read(struct endpoint *endpoint, struct message *message)
{
	message->result = sim_alloc(message->length, 1);
	memcpy(message->result, endpoint->target.shadow + MEMORY_GUARD + message->remote_offset,
		message->length);
}

static void note_shared(struct endpoint *endpoint, const struct message *message)
{
	struct world *world = endpoint->world;

	endpoint->node->counter_due += message->compare_add;
	SIM_CHECK(world->n_shared_ops < WORLD_MAX_SHARED_OPS, "too many shared atomics");
	world->shared_ops[world->n_shared_ops++] = (struct shared_op){
		.node = endpoint->node,
		.from = endpoint->peer,
		.message = endpoint->message,
		.add = message->compare_add,
	};
}

static void execute_atomic(struct endpoint *endpoint, struct message *message)
{
	uint32_t at = MEMORY_GUARD + message->remote_offset;
	uint64_t value, found;

	endpoint->node->atomics++;
	if (message->shared) {
		note_shared(endpoint, message);
		return;
	}
	memcpy(&value, endpoint->target.shadow + at, sizeof(value));
	found = value;
	if (message->opcode == FRL_WR_ATOMIC_FETCH_AND_ADD)
		value += message->compare_add;
	else if (value == message->compare_add)
		value = message->swap;
	message->result = sim_alloc(1, sizeof(found));
	memcpy(message->result, &found, sizeof(found));
	memcpy(endpoint->target.shadow + at, &value, sizeof(value));
	oracle_touch(endpoint, &endpoint->target, at, sizeof(value));
}

static void check_invalidated(struct endpoint *endpoint, const struct message *message)
{
	struct window *window = message->window;

	SIM_CHECK(window->state == WINDOW_INVALIDATING, "endpoint %u: a window invalidated twice",
		endpoint->index);
	window->state = WINDOW_UNBOUND;
}

static void finish_message(struct endpoint *endpoint, const struct message *message)
{
	struct expected *expected;

	endpoint->message++;
	if (!message_takes_recv(message))
		return;
	expected = oracle_expect(endpoint, message);
	SIM_CHECK(expected->request != ENDPOINT_NO_RECV, "endpoint %u accepts without a receive",
		endpoint->index);
	expected->end = message_end(message);
	if (message->opcode == FRL_WR_SEND_WITH_INV) {
		check_invalidated(endpoint, message);
		expected->flags = FRL_WC_WITH_INV;
		expected->imm_data = message->window_key;
	}
}

/* A packet of a SEND or WRITE: its bytes are there. */
static void apply_payload(struct endpoint *endpoint, const struct message *message)
{
	const struct script *script = &endpoint->peer->script;
	uint32_t offset = (endpoint->accepted - message->first_packet) * script->mtu;
	uint32_t len = message->length - offset;
	const struct sim_memory *memory;
	uint8_t payload[WIRE_MAX_MTU];
	uint32_t request;

	if (len > script->mtu)
		len = script->mtu;
	memory = message_is_write(message) ? &endpoint->target : &endpoint->inbox->memory;
	SIM_CHECK(len == 0 || memory->registered,
		"endpoint %u: payload for memory that is no region any more", endpoint->index);
	script_payload(script, endpoint->message, offset, payload, len);
	if (message_is_write(message)) {
		oracle_write(endpoint, message, offset, payload, len);
	} else {
		request = oracle_take_receive(endpoint);
		SIM_CHECK(request != ENDPOINT_NO_RECV, "endpoint %u accepts without a receive",
			endpoint->index);
		oracle_scatter_receive(endpoint, request, offset, payload, len);
	}
	endpoint->accepted++;
}

/* The next packet of the peer's flow has been accepted. Returns how many PSNs it has. */
static uint32_t apply_packet(struct endpoint *endpoint)
{
	const struct message *message = next_message(endpoint);
	struct message *result = &endpoint->peer->script.messages[endpoint->message];
	/* The key is in the last packet. */
	bool invalidates = message->opcode == FRL_WR_SEND_WITH_INV;
	uint32_t before = endpoint->accepted;

	SIM_CHECK(!message->vice || (invalidates && before + 1 < message_end(message)),
		"endpoint %u accepts message %u, which breaks the rules", endpoint->index,
		endpoint->message);
	if (message->opcode == FRL_WR_RDMA_READ) {
		execute_read(endpoint, result);
		endpoint->accepted += message->n_packets;
	} else if (message_is_atomic(message)) {
		execute_atomic(endpoint, result);
		endpoint->accepted++;
	} else {
		apply_payload(endpoint, message);
	}
	endpoint->node->rx_requests++;
	if (endpoint->accepted == message_end(message))
		finish_message(endpoint, message);
	return endpoint->accepted - before;
}

/* Every message arrives exactly once, in order, in its place. */
void oracle_follow_responder(struct endpoint *endpoint)
{
	struct psn known = psn_add(psn_make(endpoint->attr.rq_psn), endpoint->accepted);
	int32_t more = psn_diff(endpoint->qp->core.responder.epsn, known);
	uint32_t first = 0;

	SIM_CHECK(more >= 0, "endpoint %u: the expected PSN went back", endpoint->index);
	while (more > 0) {
		first = endpoint->n_touched;
		more -= (int32_t)apply_packet(endpoint);
	}
	SIM_CHECK(more == 0, "endpoint %u: part of a READ was accepted", endpoint->index);
	oracle_check_touched(endpoint, endpoint->lost, first);
}
