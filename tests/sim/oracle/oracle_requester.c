/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses at an RC queue pair, and the rules of sending. */
#include "tests/sim/oracle/oracle.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/windows.h"

#include <string.h>

struct result_scatter {
	struct endpoint *endpoint;
	const uint8_t *bytes;
};

static void result_piece(void *arg, uint32_t at, uint32_t done, uint32_t len)
{
	const struct result_scatter *scatter = arg;
	struct endpoint *endpoint = scatter->endpoint;

	memcpy(endpoint->results.shadow + at, scatter->bytes + done, len);
	endpoint->node->placed_bytes += len;
	oracle_touch(endpoint, &endpoint->results, at, len);
}

static void gather_piece(void *arg, uint32_t at, uint32_t done, uint32_t len)
{
	const struct result_scatter *scatter = arg;

	memcpy((uint8_t *)scatter->bytes + done, scatter->endpoint->results.bytes + at, len);
}

/* The original of a FETCH_ADD of a shared counter is known only from its answer. */
static void learn_shared(struct endpoint *endpoint, struct message *message, uint32_t k)
{
	struct world *world = endpoint->world;
	struct result_scatter gather = { endpoint, NULL };

	message->result = sim_alloc(1, SCRIPT_ATOMIC);
	gather.bytes = message->result;
	oracle_walk(
		&message->local, send_slot(endpoint, k), 0, SCRIPT_ATOMIC, gather_piece, &gather);
	for (uint32_t i = 0; i < world->n_shared_ops; i++) {
		struct shared_op *op = &world->shared_ops[i];

		if (op->from == endpoint && op->message == k) {
			memcpy(&op->found, message->result, sizeof(op->found));
			op->known = true;
			return;
		}
	}
	SIM_CHECK(false, "endpoint %u: an answer to request %u, which was not executed",
		endpoint->index, k);
}

/* Bytes [from, to) of the result have arrived. */
static void apply_result(struct endpoint *endpoint, uint32_t k, uint32_t from, uint32_t to)
{
	struct message *message = &endpoint->script.messages[k];
	struct result_scatter scatter = { .endpoint = endpoint };

	if (message->shared && !message->result)
		learn_shared(endpoint, message, k);
	SIM_CHECK(message->result, "endpoint %u: an answer to request %u, which was not executed",
		endpoint->index, k);
	scatter.bytes = message->result + from;
	oracle_walk(
		&message->local, send_slot(endpoint, k), from, to - from, result_piece, &scatter);
}

static uint32_t bytes_before(
	const struct endpoint *endpoint, const struct message *message, uint32_t packet)
{
	uint64_t bytes;

	if (packet <= message->first_packet)
		return 0;
	bytes = (packet - message->first_packet) * (uint64_t)endpoint->script.mtu;
	return bytes < message->length ? (uint32_t)bytes : message->length;
}

/* The messages up to `head` are over. */
static void advance_acked(struct endpoint *endpoint, uint32_t head)
{
	for (; endpoint->acked < head; endpoint->acked++) {
		struct message *message = &endpoint->script.messages[endpoint->acked];

		if (message_is_local(message))
			windows_executed(endpoint, message, endpoint->acked);
		else if (message->window && message->opcode != FRL_WR_SEND_WITH_INV)
			message->window->users--;
	}
}

static void follow_results(struct endpoint *endpoint, uint32_t una)
{
	for (uint32_t k = endpoint->acked; k < endpoint->send.posted; k++) {
		const struct message *message = &endpoint->script.messages[k];

		if (message->first_packet >= una)
			break;
		if (message_has_result(message) && message_end(message) > endpoint->una)
			apply_result(endpoint, k, bytes_before(endpoint, message, endpoint->una),
				bytes_before(endpoint, message, una));
	}
	endpoint->una = una;
	oracle_check_touched(endpoint, false, 0);
}

static void forgive_piece(void *arg, uint32_t at, uint32_t done, uint32_t len)
{
	const struct result_scatter *scatter = arg;
	struct sim_memory *results = &scatter->endpoint->results;

	if (memcmp(results->bytes + at, results->shadow + at, len) == 0)
		return;
	for (uint32_t i = 0; i < len; i++) {
		if (results->bytes[at + i] == results->shadow[at + i])
			continue;
		SIM_CHECK(!scatter->bytes || results->bytes[at + i] == scatter->bytes[done + i],
			"endpoint %u: byte %u of its results at the end", scatter->endpoint->index,
			at + i);
		results->shadow[at + i] = results->bytes[at + i];
	}
}

/* Results that arrived together with the end are there, or right. */
static void forgive_results(struct endpoint *endpoint)
{
	/* It may still be on its way for some time. */
	if (endpoint->results.mock) {
		endpoint->results.is_ignored = true;
		endpoint->node->miscounts = true;
		return;
	}
	for (uint32_t k = endpoint->acked; k < endpoint->send.posted; k++) {
		const struct message *message = &endpoint->script.messages[k];
		struct result_scatter scatter = { endpoint, message->result };

		if (!message_has_result(message) || (!message->result && !message->shared))
			continue;
		endpoint->node->miscounts = true;
		oracle_walk(&message->local, send_slot(endpoint, k), 0, message->length,
			forgive_piece, &scatter);
	}
}

void oracle_follow_requester(struct endpoint *endpoint)
{
	const struct requester *r = &endpoint->qp->core.requester;
	int32_t una = psn_diff(r->una, psn_make(endpoint->attr.sq_psn));

	if (!qp_sends(&endpoint->qp->core)) {
		if (endpoint->qp->core.state == FRL_QPS_ERR)
			forgive_results(endpoint);
		return;
	}
	SIM_CHECK(una >= 0 && (uint32_t)una >= endpoint->una, "endpoint %u: una went back",
		endpoint->index);
	follow_results(endpoint, (uint32_t)una);
}

static void check_order(
	const struct endpoint *endpoint, int32_t una, int32_t next, int32_t sent, int32_t end)
{
	const struct message *last = endpoint->send.posted
		? &endpoint->script.messages[endpoint->send.posted - 1]
		: NULL;

	SIM_CHECK(una >= 0 && una <= next && next <= sent && sent <= end,
		"endpoint %u: window una %d next %d sent_end %d end %d", endpoint->index, una, next,
		sent, end);
	SIM_CHECK((uint32_t)end == (last ? message_end(last) : 0),
		"endpoint %u: the window ends at %d", endpoint->index, end);
	if (endpoint->qp->core.state == FRL_QPS_SQD)
		SIM_CHECK((uint32_t)sent <= endpoint->drain.limit,
			"endpoint %u: starts a request while it drains", endpoint->index);
}

/* Requests [acked, head) are over, and the one at `head` is not. */
static void check_head(struct endpoint *endpoint, uint32_t una)
{
	const struct requester *r = &endpoint->qp->core.requester;
	const struct script *script = &endpoint->script;

	SIM_CHECK(r->head >= endpoint->acked && r->head <= endpoint->send.posted &&
			r->tail == endpoint->send.posted,
		"endpoint %u: send queue [%u, %u) instead of [%u, %u)", endpoint->index, r->head,
		r->tail, endpoint->acked, endpoint->send.posted);
	SIM_CHECK(
		endpoint->n_send >= r->tail - r->head, "endpoint %u: send queue", endpoint->index);
	for (uint32_t i = endpoint->acked; i < r->head; i++)
		SIM_CHECK(message_end(&script->messages[i]) <= una,
			"endpoint %u: request %u is over too early", endpoint->index, i);
	if (r->head < r->tail)
		SIM_CHECK(message_is_local(&script->messages[r->head]) ||
				message_end(&script->messages[r->head]) > una,
			"endpoint %u: request %u is not over", endpoint->index, r->head);
	if (endpoint->lawless)
		endpoint->acked = r->head;
	else
		advance_acked(endpoint, r->head);
}

/* At most a window is in flight, and a READ that was started inside it. */
static void check_window(const struct endpoint *endpoint, uint32_t una, uint32_t sent)
{
	const struct requester *r = &endpoint->qp->core.requester;
	uint32_t window = r->window;

	for (uint32_t i = r->head; i < r->tail; i++) {
		const struct message *message = &endpoint->script.messages[i];

		if (message->first_packet < sent && message->opcode == FRL_WR_RDMA_READ &&
			message->n_packets > 1 && message_end(message) == sent)
			window += message->n_packets - 1;
	}
	SIM_CHECK(sent - una <= window, "endpoint %u: %u packets in flight of %u", endpoint->index,
		sent - una, window);
}

/* Checks max_rd_atomic and fences. A request is started if it has a packet before `sent`. */
static void check_starts(const struct endpoint *endpoint, uint32_t sent)
{
	const struct requester *r = &endpoint->qp->core.requester;
	uint32_t outstanding = 0;

	for (uint32_t i = r->head; i < r->tail; i++) {
		const struct message *message = &endpoint->script.messages[i];

		if (message->n_packets == 0 || message->first_packet >= sent)
			continue;
		SIM_CHECK(!(message->flags & FRL_SEND_FENCE) || outstanding == 0,
			"endpoint %u: request %u has jumped a fence", endpoint->index, i);
		outstanding += message_has_result(message);
	}
	SIM_CHECK(outstanding <= endpoint->attr.max_rd_atomic,
		"endpoint %u: %u READs and atomics are outstanding", endpoint->index, outstanding);
}

static void check_acknowledged(const struct endpoint *endpoint, uint32_t una, uint32_t sent)
{
	const struct endpoint *peer = endpoint->peer;

	SIM_CHECK(una <= peer->accepted,
		"endpoint %u: %u packets are acknowledged, %u were accepted", endpoint->index, una,
		peer->accepted);
	SIM_CHECK(sent >= peer->accepted, "endpoint %u: %u packets were sent, %u accepted",
		endpoint->index, sent, peer->accepted);
}

void oracle_check_requester(struct endpoint *endpoint)
{
	const struct requester *r = &endpoint->qp->core.requester;
	struct psn first = psn_make(endpoint->attr.sq_psn);
	int32_t una = psn_diff(r->una, first), next = psn_diff(r->next, first);
	int32_t sent = psn_diff(r->sent_end, first), end = psn_diff(r->end, first);
	bool reliable = endpoint_is_reliable(endpoint);

	check_order(endpoint, una, next, sent, end);
	check_head(endpoint, (uint32_t)una);
	if (reliable) {
		check_window(endpoint, (uint32_t)una, (uint32_t)sent);
		check_starts(endpoint, (uint32_t)sent);
		if (!endpoint->lawless)
			check_acknowledged(endpoint, (uint32_t)una, (uint32_t)sent);
	}
}

static bool follows(const struct shared_op *op, const struct node *node, uint64_t value)
{
	return op->node == node && op->found == value && !op->linked;
}

/* Operations of one flow are in the order of the flow. */
static void check_chain(struct world *world, const struct node *node)
{
	uint32_t last[2 * WORLD_MAX_CONNECTIONS] = { 0 }, n = 0, linked = 0;
	uint64_t value = 0;

	for (uint32_t i = 0; i < world->n_shared_ops; i++) {
		n += world->shared_ops[i].node == node;
		if (world->shared_ops[i].node == node && !world->shared_ops[i].known)
			return;
	}
	for (uint32_t i = 0; i < world->n_shared_ops; i++) {
		struct shared_op *op = &world->shared_ops[i];

		if (!follows(op, node, value))
			continue;
		SIM_CHECK(op->message + 1 > last[op->from->index],
			"%s: atomics of one flow in "
			"another order",
			node->name);
		last[op->from->index] = op->message + 1;
		op->linked = true;
		linked++;
		value += op->add;
		i = UINT32_MAX; /* again from the start */
	}
	SIM_CHECK(linked == n && value == node->counter, "%s: %u of %u shared atomics form a chain",
		node->name, linked, n);
	world->tally->shared_chains += n > 1;
}

void oracle_check_chains(struct world *world)
{
	for (uint32_t i = 0; i < world->config.n_nodes; i++)
		check_chain(world, &world->nodes[i]);
}
