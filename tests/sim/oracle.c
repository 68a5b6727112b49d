/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/oracle.h"

#include "tests/sim/fail.h"

#include <ferrule/reduce.h>

#include <string.h>

static void touch(struct endpoint *endpoint, uint32_t offset, uint32_t length)
{
	SIM_CHECK(endpoint->n_touched < ENDPOINT_TOUCHED, "endpoint %u: more packets than a burst",
		endpoint->index);
	endpoint->touched[endpoint->n_touched++] = (struct touched){ offset, length };
}

static void apply_write(struct endpoint *endpoint, const struct message *message, uint32_t offset,
	const uint8_t *payload, uint32_t len)
{
	uint32_t at = endpoint->window_offset + message->write_offset + offset;

	memcpy(endpoint->target.shadow + at, payload, len);
	endpoint->node->placed_bytes += len;
	touch(endpoint, at, len);
}

/* Through the elements of the receive request, as a plain loop over bytes would do it. */
static void apply_send(struct endpoint *endpoint, const struct message *message, uint32_t offset,
	const uint8_t *payload, uint32_t len)
{
	uint32_t slot = recv_slot(endpoint, message->recv_index);
	uint8_t *shadow = endpoint->target.shadow;
	const struct layout *layout = &message->recv;
	uint32_t skip = offset, done = 0;

	for (uint32_t i = 0; i < layout->n && done < len; i++) {
		uint32_t length = layout->length[i], at = slot + layout->offset[i] + skip, n;

		if (skip >= length) {
			skip -= length;
			continue;
		}
		n = length - skip < len - done ? length - skip : len - done;
		if (message->reduce) {
			const uint8_t *first = shadow + at;

			if (message->reduce_src)
				first = shadow + endpoint->src_offset + offset + done;
			frl_reduce_plain(
				shadow + at, first, payload + done, n / 4, FRL_FLOAT32, FRL_SUM);
			endpoint->node->reduced_bytes += n;
		} else {
			memcpy(shadow + at, payload + done, n);
			endpoint->node->placed_bytes += n;
		}
		touch(endpoint, at, n);
		done += n;
		skip = 0;
	}
	SIM_CHECK(done == len, "endpoint %u: a message longer than its receive was accepted",
		endpoint->index);
}

/* The next packet of the peer's flow has been accepted: so these bytes are there. */
static void apply_packet(struct endpoint *endpoint)
{
	const struct script *script = &endpoint->peer->script;
	const struct message *message = &script->messages[endpoint->message];
	uint32_t k = endpoint->accepted - message->first_packet;
	uint32_t offset = k * script->mtu;
	uint32_t len = message->length - offset;
	uint8_t payload[WIRE_MAX_MTU];

	if (len > script->mtu)
		len = script->mtu;
	SIM_CHECK(endpoint->message < endpoint->peer->send.posted,
		"endpoint %u accepts what was never posted", endpoint->index);
	SIM_CHECK(!message->bad, "endpoint %u accepts message %u, which breaks the rules",
		endpoint->index, endpoint->message);
	SIM_CHECK(len == 0 || endpoint->target.registered,
		"endpoint %u: payload for memory that is no region any more", endpoint->index);
	script_payload(script, endpoint->message, offset, payload, len);
	if (message_is_write(message)) {
		apply_write(endpoint, message, offset, payload, len);
	} else {
		SIM_CHECK(message->recv_index < endpoint->recv.posted,
			"endpoint %u accepts without a receive", endpoint->index);
		apply_send(endpoint, message, offset, payload, len);
	}
	endpoint->accepted++;
	endpoint->node->rx_requests++;
	if (endpoint->accepted == message->first_packet + message->n_packets)
		endpoint->message++;
}

static void check_range(struct endpoint *endpoint, uint32_t offset, uint32_t length)
{
	const struct sim_memory *memory = &endpoint->target;

	if (memcmp(memory->bytes + offset, memory->shadow + offset, length) == 0)
		return;
	while (memory->bytes[offset] == memory->shadow[offset])
		offset++;
	SIM_CHECK(false, "endpoint %u: byte %u of the target is %02x instead of %02x (message %u)",
		endpoint->index, offset, memory->bytes[offset], memory->shadow[offset],
		endpoint->message);
}

/* What was placed last had been taken away: it may be anything, but only there, and it ends the
 * connection. */
static void forgive(struct endpoint *endpoint, uint32_t first)
{
	struct sim_memory *memory = &endpoint->target;

	SIM_CHECK(endpoint->qp->core.state == FRL_QPS_ERR, "endpoint %u: lives on without payload",
		endpoint->index);
	for (uint32_t i = first; i < endpoint->n_touched; i++) {
		const struct touched *t = &endpoint->touched[i];

		memcpy(memory->shadow + t->offset, memory->bytes + t->offset, t->length);
	}
}

/* Payload arrives exactly once, in order, where it should. */
static void follow_responder(struct endpoint *endpoint)
{
	struct psn known = psn_add(psn_make(endpoint->attr.rq_psn), endpoint->accepted);
	int32_t more = psn_diff(endpoint->qp->core.responder.epsn, known);
	uint32_t first = 0;

	SIM_CHECK(more >= 0, "endpoint %u: the expected PSN went back", endpoint->index);
	while (more--) {
		first = endpoint->n_touched;
		apply_packet(endpoint);
	}
	if (endpoint->lost)
		forgive(endpoint, first);
	for (uint32_t i = 0; i < endpoint->n_touched; i++)
		check_range(endpoint, endpoint->touched[i].offset, endpoint->touched[i].length);
	endpoint->n_touched = 0;
}

static void check_window(struct endpoint *endpoint)
{
	const struct requester *r = &endpoint->qp->core.requester;
	struct psn first = psn_make(endpoint->attr.sq_psn);
	int32_t una = psn_diff(r->una, first), next = psn_diff(r->next, first);
	int32_t sent = psn_diff(r->sent_end, first), end = psn_diff(r->end, first);
	const struct script *script = &endpoint->script;
	uint32_t posted = endpoint->send.posted;
	const struct message *last = posted ? &script->messages[posted - 1] : NULL;

	SIM_CHECK(una <= next && next <= sent && sent <= end,
		"endpoint %u: window una %d next %d sent_end %d end %d", endpoint->index, una, next,
		sent, end);
	SIM_CHECK((uint32_t)(sent - una) <= r->window, "endpoint %u: %d packets in flight of %u",
		endpoint->index, sent - una, r->window);
	SIM_CHECK((uint32_t)end == (last ? last->first_packet + last->n_packets : 0),
		"endpoint %u: the window ends at %d", endpoint->index, end);
	SIM_CHECK((uint32_t)una >= endpoint->una, "endpoint %u: una went back", endpoint->index);
	SIM_CHECK((uint32_t)una <= endpoint->peer->accepted,
		"endpoint %u: %d packets are acknowledged, %u were accepted", endpoint->index, una,
		endpoint->peer->accepted);
	SIM_CHECK((uint32_t)sent >= endpoint->peer->accepted,
		"endpoint %u: %d packets were sent, %u accepted", endpoint->index, sent,
		endpoint->peer->accepted);
	endpoint->una = (uint32_t)una;
	while (endpoint->acked < posted) {
		const struct message *message = &script->messages[endpoint->acked];

		if (message->first_packet + message->n_packets > endpoint->una)
			break;
		endpoint->acked++;
	}
	SIM_CHECK(r->head == endpoint->acked && r->tail == posted,
		"endpoint %u: send queue [%u, %u) instead of [%u, %u)", endpoint->index, r->head,
		r->tail, endpoint->acked, posted);
	SIM_CHECK(
		endpoint->n_send >= r->tail - r->head, "endpoint %u: send queue", endpoint->index);
	if (r->current != r->tail)
		SIM_CHECK((uint32_t)next >= script->messages[r->current].first_packet &&
				(uint32_t)next < script->messages[r->current].first_packet +
						script->messages[r->current].n_packets,
			"endpoint %u: packet %d is not of request %u", endpoint->index, next,
			r->current);
}

/* Something that was sent and not answered must not be forgotten. */
static void check_timers(struct endpoint *endpoint)
{
	const struct qp *qp = &endpoint->qp->core;
	uint64_t deadline = qp_next_deadline(qp);

	if (qp->state != FRL_QPS_RTS) {
		SIM_CHECK(deadline == DEADLINE_NONE, "endpoint %u: timers after its end",
			endpoint->index);
		return;
	}
	SIM_CHECK(engine_next_deadline(&endpoint->node->engine) <= deadline,
		"endpoint %u: its deadline is forgotten", endpoint->index);
	if (qp->attr.timeout && !psn_equal(qp->requester.una, qp->requester.next))
		SIM_CHECK(deadline != DEADLINE_NONE, "endpoint %u: unacknowledged and no timer",
			endpoint->index);
}

/* No completion that is due may be missing, whatever the state. */
static void check_progress(struct endpoint *endpoint)
{
	const struct qp *qp = &endpoint->qp->core;
	const struct responder *r = &qp->responder;
	uint32_t due = endpoint->message; /* messages taken; then receives */

	if (endpoint->send_cq->cq.overrun || endpoint->recv_cq->cq.overrun)
		return;
	if (qp->state == FRL_QPS_ERR) {
		if (!endpoint->send.failed)
			oracle_skip_unsignaled(endpoint, endpoint->send.posted);
		SIM_CHECK(endpoint->send.checked == endpoint->send.posted &&
				endpoint->recv.checked == endpoint->recv.posted,
			"endpoint %u: not everything was flushed: %u of %u, %u of %u",
			endpoint->index, endpoint->send.checked, endpoint->send.posted,
			endpoint->recv.checked, endpoint->recv.posted);
		return;
	}
	SIM_CHECK(!endpoint->send.failed && !endpoint->recv.failed,
		"endpoint %u: an error, but it lives on", endpoint->index);
	for (uint32_t i = endpoint->send.checked; i < endpoint->acked; i++)
		SIM_CHECK(!(endpoint->script.messages[i].flags & FRL_SEND_SIGNALED),
			"endpoint %u: no completion of request %u", endpoint->index, i);
	while (due && !endpoint->peer->script.messages[due - 1].takes_recv)
		due--;
	due = due ? endpoint->peer->script.messages[due - 1].recv_index + 1 : 0;
	SIM_CHECK(endpoint->recv.checked == due, "endpoint %u: %u receives completed instead of %u",
		endpoint->index, endpoint->recv.checked, due);
	SIM_CHECK(r->head == due && r->tail == endpoint->recv.posted,
		"endpoint %u: receive queue [%u, %u)", endpoint->index, r->head, r->tail);
}

void oracle_check_node(struct node *node)
{
	struct world *world = node->world;

	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint->node != node || endpoint->removed)
			continue;
		if (endpoint->qp->core.state >= FRL_QPS_RTR)
			follow_responder(endpoint);
	}
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		if (world->endpoints[i].node != node)
			continue;
		oracle_scan_cq(world, world->endpoints[i].send_cq);
		oracle_scan_cq(world, world->endpoints[i].recv_cq);
	}
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint->node != node || endpoint->removed)
			continue;
		if (endpoint->qp->core.state == FRL_QPS_RTS)
			check_window(endpoint);
		check_progress(endpoint);
		check_timers(endpoint);
	}
}

void oracle_check_memory(struct endpoint *endpoint)
{
	const struct sim_memory *source = &endpoint->source;
	uint32_t end = source->size - ENDPOINT_GUARD;

	check_range(endpoint, 0, endpoint->target.size);
	SIM_CHECK(memcmp(source->bytes, source->shadow, ENDPOINT_GUARD) == 0 &&
			memcmp(source->bytes + end, source->shadow + end, ENDPOINT_GUARD) == 0,
		"endpoint %u: written around the source", endpoint->index);
}
