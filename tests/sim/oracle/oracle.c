/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/oracle/oracle.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/windows.h"

#include <string.h>

#include <ferrule/reduce.h>

enum { PROBE_PATIENCE_NS = 250000 }; /* how long one may */

void oracle_touch(
	struct endpoint *endpoint, struct sim_memory *memory, uint32_t offset, uint32_t length)
{
	SIM_CHECK(endpoint->n_touched < ENDPOINT_TOUCHED, "endpoint %u: more packets than a burst",
		endpoint->index);
	endpoint->touched[endpoint->n_touched++] = (struct touched){ memory, offset, length };
}

uint32_t oracle_walk(const struct layout *layout, uint32_t slot, uint32_t offset, uint32_t len,
	oracle_piece piece, void *arg)
{
	uint32_t skip = offset, done = 0;

	for (uint32_t i = 0; i < layout->n && done < len; i++) {
		uint32_t length = layout->length[i], n;

		if (skip >= length) {
			skip -= length;
			continue;
		}
		n = length - skip < len - done ? length - skip : len - done;
		piece(arg, slot + layout->offset[i] + skip, done, n);
		done += n;
		skip = 0;
	}
	return done;
}

struct receive_scatter {
	struct endpoint *endpoint;
	const struct inbox_slot *slot;
	const uint8_t *payload;
	uint32_t offset;
};

static void receive_piece(void *arg, uint32_t at, uint32_t done, uint32_t len)
{
	struct receive_scatter *scatter = arg;
	struct endpoint *endpoint = scatter->endpoint;
	struct inbox *inbox = endpoint->inbox;
	uint8_t *shadow = inbox->memory.shadow;
	const uint8_t *first = shadow + at;

	if (scatter->slot->reduce) {
		if (scatter->slot->reduce_src)
			first = shadow + inbox->operands + scatter->offset + done;
		frl_reduce_local_plain(
			shadow + at, first, scatter->payload + done, len / 4, FRL_FLOAT32, FRL_SUM);
		endpoint->node->reduced_bytes += len;
	} else {
		memcpy(shadow + at, scatter->payload + done, len);
		endpoint->node->placed_bytes += len;
	}
	oracle_touch(endpoint, &inbox->memory, at, len);
}

/* Copies through the elements of the receive request, as a plain loop over bytes. */
void oracle_scatter_receive(struct endpoint *endpoint, uint32_t request, uint32_t offset,
	const uint8_t *payload, uint32_t len)
{
	const struct inbox_slot *slot = inbox_slot(endpoint->inbox, request);
	struct receive_scatter scatter = { endpoint, slot, payload, offset };
	uint32_t done = oracle_walk(&slot->layout, inbox_offset(endpoint->inbox, request), offset,
		len, receive_piece, &scatter);

	SIM_CHECK(done == len, "endpoint %u: a message longer than its receive was accepted",
		endpoint->index);
}

void oracle_write(struct endpoint *endpoint, const struct message *message, uint32_t offset,
	const uint8_t *payload, uint32_t len)
{
	uint32_t at = MEMORY_GUARD + message->remote_offset + offset;

	memcpy(endpoint->target.shadow + at, payload, len);
	endpoint->node->placed_bytes += len;
	oracle_touch(endpoint, &endpoint->target, at, len);
}

static void check_range(struct endpoint *endpoint, const struct sim_memory *memory, uint32_t offset,
	uint32_t length)
{
	uint32_t at = memory->is_ignored || memory_is_due(memory, offset, length)
		? offset + length
		: memory_compare(memory, offset, length);
	const char *name = memory == &endpoint->target ? "target"
		: memory == &endpoint->source          ? "source"
		: memory == &endpoint->results         ? "results"
						       : "inbox";

	SIM_CHECK(at == offset + length,
		"endpoint %u: byte %u of its %s is %02x instead of %02x (message %u)",
		endpoint->index, at, name, memory->bytes[at], memory->shadow[at],
		endpoint->message);
}

void oracle_check_touched(struct endpoint *endpoint, bool gone, uint32_t first_gone)
{
	/* Memory that was placed last is undefined, as its region was taken away, and the
	 * connection ends. */
	SIM_CHECK(!gone || endpoint->qp->core.state == FRL_QPS_ERR,
		"endpoint %u: lives on without payload", endpoint->index);
	for (uint32_t i = gone ? first_gone : endpoint->n_touched; i < endpoint->n_touched; i++) {
		const struct touched *t = &endpoint->touched[i];

		memcpy(t->memory->shadow + t->offset, t->memory->bytes + t->offset, t->length);
	}
	for (uint32_t i = 0; i < endpoint->n_touched; i++)
		check_range(endpoint, endpoint->touched[i].memory, endpoint->touched[i].offset,
			endpoint->touched[i].length);
	endpoint->n_touched = 0;
}

void oracle_look_ahead(struct endpoint *endpoint)
{
	const struct sim_cq *cq = endpoint->recv_cq;

	endpoint->n_seen = 0;
	endpoint->n_expected = endpoint->n_met = 0;
	if (!endpoint->shares)
		return;
	for (uint32_t at = cq->scanned; at != cq->cq.head + cq_used(&cq->cq); at++) {
		const struct frl_wc *wc = oracle_completion_at(cq, at);

		if (!wc_is_recv(wc) || endpoint_of(endpoint->node, wc) != endpoint)
			continue;
		SIM_CHECK(endpoint->n_seen < ENDPOINT_EXPECTED, "endpoint %u: a flood",
			endpoint->index);
		endpoint->seen[endpoint->n_seen++] = wc_sequence(wc);
	}
}

/* The request of a shared queue that a queue pair got is only known afterwards. */
static uint32_t find_request(const struct endpoint *endpoint)
{
	const struct recv_wqe *recv = endpoint->qp->core.responder.recv;

	if (!endpoint->shares)
		return endpoint->inbox->taken < endpoint->inbox->posted ? endpoint->inbox->taken
									: ENDPOINT_NO_RECV;
	if (endpoint->n_expected < endpoint->n_seen)
		return endpoint->seen[endpoint->n_expected];
	return recv ? (uint32_t)recv->wr_id : ENDPOINT_NO_RECV;
}

uint32_t oracle_take_receive(struct endpoint *endpoint)
{
	struct inbox *inbox = endpoint->inbox;
	uint32_t request = endpoint->recv_request;
	struct inbox_slot *slot;

	if (request != ENDPOINT_NO_RECV)
		return request;
	request = find_request(endpoint);
	if (request == ENDPOINT_NO_RECV)
		return request;
	slot = inbox_slot(inbox, request);
	SIM_CHECK(slot->state == INBOX_POSTED && slot->request == request,
		"endpoint %u takes receive %u, which is not there", endpoint->index, request);
	slot->state = INBOX_TAKEN;
	inbox->taken++;
	endpoint->world->tally->srq_taken += endpoint->shares;
	endpoint->recv_request = request;
	return request;
}

struct expected *oracle_expect(struct endpoint *endpoint, const struct message *message)
{
	struct expected *expected = &endpoint->expected[endpoint->n_expected];

	SIM_CHECK(endpoint->n_expected < ENDPOINT_EXPECTED, "endpoint %u: too many receives",
		endpoint->index);
	*expected = (struct expected){
		.request = oracle_take_receive(endpoint),
		.byte_len = message->length,
		.solicited = message->flags & FRL_SEND_SOLICITED,
		.write = message_is_write(message),
	};
	if (message_has_imm(message)) {
		expected->flags = FRL_WC_WITH_IMM;
		expected->imm_data = message->imm_data;
	}
	endpoint->n_expected++;
	endpoint->recv_request = ENDPOINT_NO_RECV;
	return expected;
}

/* A sent request without an answer must not be forgotten; a probe may wait a little. */
static void check_timers(struct endpoint *endpoint)
{
	const struct qp *qp = &endpoint->qp->core;
	const struct engine *engine = &endpoint->node->engine;
	uint64_t deadline = qp_next_deadline(qp);

	if (!qp_sends(qp) || !endpoint_is_reliable(endpoint)) {
		SIM_CHECK(deadline == DEADLINE_NONE, "endpoint %u: timers for nothing",
			endpoint->index);
		return;
	}
	SIM_CHECK(engine_next_deadline(engine) <= qp_next_look(qp, engine->next_probes_ns),
		"endpoint %u: its deadline is forgotten", endpoint->index);
	SIM_CHECK(engine->next_probes_ns <= engine->now_ns + PROBE_PATIENCE_NS,
		"endpoint %u: probes wait for too long", endpoint->index);
	if (qp->attr.timeout && !psn_equal(qp->requester.una, qp->requester.next))
		SIM_CHECK(deadline != DEADLINE_NONE, "endpoint %u: unacknowledged and no timer",
			endpoint->index);
}

static void check_receives(const struct endpoint *endpoint)
{
	const struct recv_queue *queue = &endpoint->qp->core.responder.queue;

	SIM_CHECK(endpoint->n_met == endpoint->n_expected ||
			(endpoint->lost && endpoint->n_met + 1 == endpoint->n_expected),
		"endpoint %u: %u receives completed instead of %u", endpoint->index,
		endpoint->n_met, endpoint->n_expected);
	if (!endpoint->shares)
		SIM_CHECK(queue->head == endpoint->recv.checked &&
				queue->tail == endpoint->recv.posted,
			"endpoint %u: receive queue [%u, %u)", endpoint->index, queue->head,
			queue->tail);
}

/* No due completion may be missing, in any state. */
static void check_progress(struct endpoint *endpoint)
{
	const struct qp *qp = &endpoint->qp->core;

	if (endpoint->send_cq->cq.overrun || endpoint->recv_cq->cq.overrun)
		return;
	if (qp->state == FRL_QPS_ERR) {
		if (!endpoint->send.failed)
			oracle_skip_unsignaled(endpoint, endpoint->send.posted);
		SIM_CHECK(endpoint->send.checked == endpoint->send.posted &&
				(endpoint->shares || endpoint->lawless ||
					endpoint->recv.checked == endpoint->recv.posted),
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
	if (!endpoint->lawless)
		check_receives(endpoint);
}

/* For the flow that breaks the rules only guards and other memory are known. */
static void accept_lawless(struct endpoint *endpoint)
{
	memory_accept(&endpoint->target);
	memory_accept(&endpoint->results);
	memory_accept(&endpoint->inbox->memory);
	endpoint->node->miscounts = true;
}

static void check_shared(struct node *node)
{
	const struct srq *srq = node->inbox.srq;

	SIM_CHECK(node->counter == node->counter_due, "%s: its counter", node->name);
	if (srq)
		SIM_CHECK(srq->queue.head == node->inbox.taken &&
				srq->queue.tail == node->inbox.posted,
			"%s: shared receive queue [%u, %u), %u taken of %u", node->name,
			srq->queue.head, srq->queue.tail, node->inbox.taken, node->inbox.posted);
}

static void check_endpoint(struct endpoint *endpoint)
{
	if (qp_sends(&endpoint->qp->core))
		oracle_check_requester(endpoint);
	check_progress(endpoint);
	check_timers(endpoint);
	if (!endpoint->lawless)
		windows_check(endpoint);
}

typedef void (*endpoint_check)(struct endpoint *endpoint);

static void for_each(struct node *node, endpoint_check check)
{
	struct world *world = node->world;

	for (uint32_t i = 0; i < world->n_endpoints; i++)
		if (world->endpoints[i].node == node && !world->endpoints[i].removed)
			check(&world->endpoints[i]);
}

static void follow_receiving(struct endpoint *endpoint)
{
	oracle_look_ahead(endpoint);
	if (endpoint->qp->core.state < FRL_QPS_RTR)
		return;
	if (endpoint->lawless)
		accept_lawless(endpoint);
	else if (endpoint_is_reliable(endpoint))
		oracle_follow_responder(endpoint);
}

static void follow_sending(struct endpoint *endpoint)
{
	if (endpoint_is_reliable(endpoint) && !endpoint->lawless)
		oracle_follow_requester(endpoint);
}

void oracle_check_node(struct node *node)
{
	struct world *world = node->world;

	if (!node->ready)
		return;
	for_each(node, follow_receiving);
	for_each(node, oracle_follow_loop);
	for_each(node, oracle_follow_unreliable);
	for_each(node, follow_sending);
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		if (world->endpoints[i].node != node)
			continue;
		oracle_scan_cq(node, world->endpoints[i].send_cq);
		oracle_scan_cq(node, world->endpoints[i].recv_cq);
	}
	for_each(node, check_endpoint);
	check_shared(node);
	oracle_check_events(node);
}

static void check_guards(const struct endpoint *endpoint, const struct sim_memory *memory)
{
	uint32_t end = memory->size - MEMORY_GUARD;

	SIM_CHECK(memory_compare(memory, 0, MEMORY_GUARD) == MEMORY_GUARD &&
			memory_compare(memory, end, MEMORY_GUARD) == memory->size,
		"endpoint %u: written around its memory", endpoint->index);
}

void oracle_check_memory(struct endpoint *endpoint)
{
	check_guards(endpoint, &endpoint->source);
	check_range(endpoint, &endpoint->target, 0, endpoint->target.size);
	check_range(endpoint, &endpoint->inbox->memory, 0, endpoint->inbox->memory.size);
	check_range(endpoint, &endpoint->results, 0, endpoint->results.size);
}
