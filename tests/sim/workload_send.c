/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting the messages of a script. */
#include "tests/sim/workload.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/windows.h"
#include "tests/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	POSTS_IN_ERROR = 3, /* in ERR requests are taken and flushed; this many are tried */
	WRONG_QKEY = 0x0bad0bad,
	OWN_QKEY = INT32_MIN, /* bit 31 */
	FOREIGN_RKEY = 7,
};

static bool one_in(struct endpoint *endpoint, uint64_t n)
{
	return random_below(&endpoint->world->random, n) == 0;
}

/* Elements without bytes may have any key. */
static void make_sges(struct endpoint *endpoint, const struct sim_memory *memory, uint32_t slot,
	const struct layout *layout, struct frl_sge sges[FRL_MAX_SGE])
{
	for (uint32_t i = 0; i < layout->n; i++) {
		struct memory_name name = memory_name(
			memory, slot + layout->offset[i], &endpoint->world->random);

		sges[i] = (struct frl_sge){ (void *)(uintptr_t)name.va, layout->length[i],
			name.key };
		if (sges[i].length == 0 && one_in(endpoint, 2)) {
			sges[i].addr = NULL;
			sges[i].lkey = 0xdead;
		}
	}
}

static bool takes_sends(enum frl_qp_state state)
{
	return state == FRL_QPS_RTS || state == FRL_QPS_SQD;
}

/* Half of the requests are first posted, up to three times, and taken back. */
static int post(struct endpoint *endpoint, const struct frl_send_wr *wr,
	const struct wr_objects *objects, const char **ret_why)
{
	struct qp *qp = &endpoint->qp->core;
	uint32_t n = 0, most = endpoint->send.posted % 8;

	if (takes_sends(qp->state) && most < 4) {
		while (n < most && !qp_post_send(qp, wr, objects, ret_why))
			n++;
		qp_undo_posts(qp, n);
		*ret_why = NULL;
	}
	return qp_post_send(qp, wr, objects, ret_why);
}

/* Posts from memory that is freed and changed right after the call. */
static int post_inline(struct endpoint *endpoint, struct frl_send_wr *wr,
	const struct wr_objects *objects, const uint8_t *payload, const char **ret_why)
{
	const struct message *message = &endpoint->script.messages[endpoint->send.posted];
	struct frl_sge sges[FRL_MAX_SGE];
	uint8_t *copy = sim_alloc(FRL_MAX_INLINE, 1);
	uint32_t done = 0;
	int rc;

	memcpy(copy, payload, message->length);
	for (uint32_t i = 0; i < message->local.n; i++) {
		sges[i] = (struct frl_sge){ copy + done, message->local.length[i], 0 };
		done += message->local.length[i];
	}
	wr->sge = sges;
	rc = post(endpoint, wr, objects, ret_why);
	memset(copy, 0, FRL_MAX_INLINE);
	free(copy);
	return rc;
}

static int post_from_slot(struct endpoint *endpoint, struct frl_send_wr *wr,
	const struct wr_objects *objects, const uint8_t *payload, const char **ret_why)
{
	const struct message *message = &endpoint->script.messages[endpoint->send.posted];
	uint32_t slot = send_slot(endpoint, endpoint->send.posted), done = 0;
	struct sim_memory *memory = message_has_result(message) ? &endpoint->results
								: &endpoint->source;
	struct frl_sge sges[FRL_MAX_SGE];

	for (uint32_t i = 0; i < message->local.n && !message_has_result(message); i++) {
		memcpy(memory->bytes + slot + message->local.offset[i], payload + done,
			message->local.length[i]);
		done += message->local.length[i];
	}
	make_sges(endpoint, memory, slot, &message->local, sges);
	wr->sge = sges;
	return post(endpoint, wr, objects, ret_why);
}

static bool overlaps(const struct message *a, const struct message *b)
{
	return a->remote_offset < b->remote_offset + b->length &&
		b->remote_offset < a->remote_offset + a->length;
}

/*
 * A READ that is repeated reads the bytes at that time. So that its result is known, an operation
 * that changes its bytes or its key does not start before it is over.
 */
static bool needs_fence(const struct endpoint *endpoint, const struct message *message,
	const struct window *invalidated)
{
	bool changes = (message_is_write(message) || message_is_atomic(message)) &&
		!message->shared;
	bool needs = false;

	if (!changes && !invalidated)
		return false;
	for (uint32_t i = endpoint->acked; i < endpoint->send.posted; i++) {
		const struct message *earlier = &endpoint->script.messages[i];

		if (earlier->flags & FRL_SEND_FENCE)
			needs = false;
		if (earlier->opcode != FRL_WR_RDMA_READ)
			continue;
		needs |= changes && overlaps(earlier, message);
		needs |= invalidated && earlier->window == invalidated;
	}
	return needs;
}

static uint32_t right_of(const struct message *message)
{
	if (message_is_write(message))
		return FRL_ACCESS_REMOTE_WRITE;
	return message_is_atomic(message) ? FRL_ACCESS_REMOTE_ATOMIC : FRL_ACCESS_REMOTE_READ;
}

/* Returns a region of another flow on the node, if there is one. */
static struct memory_name name_foreign(struct endpoint *endpoint, const struct message *message)
{
	struct world *world = endpoint->world;
	struct endpoint *peer = endpoint->peer;

	for (uint32_t i = 2; i < world->n_endpoints; i++) {
		struct endpoint *other = &world->endpoints[i];

		if (other->node == peer->node && other->pd != peer->pd &&
			message->length <= other->window_size)
			return memory_name(&other->target, MEMORY_GUARD, &world->random);
	}
	return (struct memory_name){ 64, FOREIGN_RKEY };
}

/* The target of a message that breaks the rules. */
static struct memory_name name_vice(struct endpoint *endpoint, const struct message *message)
{
	struct endpoint *peer = endpoint->peer;
	struct random_state *random = &endpoint->world->random;
	uint32_t end = peer->target.size - MEMORY_GUARD;
	struct memory_name name = memory_name(
		&peer->target, MEMORY_GUARD + message->remote_offset, random);

	switch (message->vice) {
	case VICE_PAST_END:
		return memory_name(&peer->target,
			message_is_atomic(message) ? end : end - message->length + 1, random);
	case VICE_FOREIGN_KEY: return name_foreign(endpoint, message);
	case VICE_NO_RIGHT: return memory_name(&peer->source, MEMORY_GUARD, random);
	case VICE_STALE_WINDOW:
		name.key = peer->windows[0].state == WINDOW_UNBOUND ? peer->windows[0].key
								    : FOREIGN_RKEY;
		break;
	case VICE_NONE:
	case N_VICES: break;
	}
	return name;
}

static void name_remote(struct endpoint *endpoint, struct message *message, struct frl_send_wr *wr)
{
	struct endpoint *peer = endpoint->peer;
	struct random_state *random = &endpoint->world->random;
	struct memory_name name = memory_name(
		&peer->target, MEMORY_GUARD + message->remote_offset, random);
	struct window *window = windows_for(
		endpoint, message->remote_offset, message->length, right_of(message));

	if (message->shared) {
		name = (struct memory_name){ peer->counter.iova, peer->counter.key };
	} else if (message->vice) {
		name = name_vice(endpoint, message);
		endpoint->world->tally->vices[message->vice]++;
	} else if (message->length == 0 && one_in(endpoint, 2)) {
		name = (struct memory_name){ 7, 7 }; /* C9-88: the address means nothing */
	} else if (window && !one_in(endpoint, 4)) {
		/* The address of a window is that of its region. */
		name.va = window->region.iova + message->remote_offset - window->offset;
		name.key = window->key;
		message->window = window;
		window->users++;
	}
	wr->remote_addr = name.va;
	wr->rkey = name.key;
}

static void name_datagram(struct endpoint *endpoint, const struct message *message,
	struct frl_send_wr *wr, struct wr_objects *objects)
{
	objects->ah = message->group ? &endpoint->group_ah.core : &endpoint->ah.core;
	wr->remote_qpn = message->group ? QPN_MULTICAST : endpoint->peer->qpn;
	wr->remote_qkey = endpoint->world->qkey;
	if (message->wrong_qkey)
		wr->remote_qkey = WRONG_QKEY;
	if (message->own_qkey)
		wr->remote_qkey = (uint32_t)OWN_QKEY;
}

static void prepare_invalidate(
	struct endpoint *endpoint, struct message *message, struct frl_send_wr *wr)
{
	struct window *window = windows_to_invalidate(endpoint);

	if (message->vice) {
		wr->invalidate_rkey = endpoint->peer->target.regions[0].key;
		return;
	}
	if (!window) {
		wr->opcode = message->opcode = FRL_WR_SEND;
		return;
	}
	if (needs_fence(endpoint, message, window))
		wr->flags |= FRL_SEND_FENCE;
	window->state = WINDOW_INVALIDATING;
	window->request = endpoint->send.posted;
	message->window = window;
	message->window_key = wr->invalidate_rkey = window->key;
}

static int post_message(struct endpoint *endpoint, const char **ret_why)
{
	static uint8_t payload[SCRIPT_LONGEST];
	uint32_t k = endpoint->send.posted;
	struct message *message = &endpoint->script.messages[k];
	struct wr_objects objects = { 0 };
	struct frl_send_wr wr = {
		.wr_id = endpoint_wr_id(endpoint, false, k),
		.opcode = message->opcode,
		.flags = message->flags,
		.n_sge = (int)message->local.n,
		.imm_data = message->imm_data,
		.compare_add = message->compare_add,
		.swap = message->swap,
	};

	if (message_is_local(message)) {
		windows_prepare_local(endpoint, message, &wr, &objects);
		return post(endpoint, &wr, &objects, ret_why);
	}
	if (endpoint->type == FRL_QPT_UD)
		name_datagram(endpoint, message, &wr, &objects);
	else if (!message_is_send(message))
		name_remote(endpoint, message, &wr);
	if (message->opcode == FRL_WR_SEND_WITH_INV)
		prepare_invalidate(endpoint, message, &wr);
	if (needs_fence(endpoint, message, NULL))
		wr.flags |= FRL_SEND_FENCE;
	message->flags = wr.flags;
	if (message_has_result(message))
		return post_from_slot(endpoint, &wr, &objects, payload, ret_why);
	script_payload(&endpoint->script, k, 0, payload, message->length);
	if (wr.flags & FRL_SEND_INLINE)
		return post_inline(endpoint, &wr, &objects, payload, ret_why);
	return post_from_slot(endpoint, &wr, &objects, payload, ret_why);
}

/* The queue is full: a request is refused and changes nothing (the oracle checks). */
static void try_full_queue(struct endpoint *endpoint)
{
	struct wr_objects objects = { .ah = &endpoint->ah.core };
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .remote_qpn = endpoint->peer->qpn };
	const char *why = NULL;

	if (!takes_sends(endpoint->qp->core.state) ||
		endpoint->send.posted - endpoint->acked < endpoint->n_send)
		return;
	SIM_CHECK(post(endpoint, &wr, &objects, &why) == -ENOMEM && why,
		"endpoint %u: the send queue has more room than it should", endpoint->index);
}

static bool may_send(struct endpoint *endpoint)
{
	enum frl_qp_state state = endpoint->qp->core.state;
	uint32_t retired = endpoint->lazy ? endpoint->acked : endpoint->send.polled;

	if (!takes_sends(state) && state != FRL_QPS_ERR)
		return false;
	if (state == FRL_QPS_ERR && endpoint->posted_in_error >= POSTS_IN_ERROR)
		return false;
	if (endpoint->send.posted == endpoint->script.n_messages)
		return false;
	/* Results of an end that does not poll may still be on their way. */
	if (memory_is_due(&endpoint->results, send_slot(endpoint, endpoint->send.posted),
		    endpoint->slot_size))
		return false;
	if (endpoint->send.posted - retired < endpoint->n_send)
		return true;
	try_full_queue(endpoint);
	return false;
}

static bool post_next(struct endpoint *endpoint)
{
	struct message *message = &endpoint->script.messages[endpoint->send.posted];
	uint32_t used = endpoint->send.posted - endpoint->send.polled;
	const char *why = "";
	int rc;

	/* An application without any signaled request could not tell when it may continue. */
	if (endpoint->sig_all || used + 1 >= endpoint->n_send ||
		endpoint->send.posted + 1 == endpoint->script.n_messages)
		message->flags |= FRL_SEND_SIGNALED;
	rc = post_message(endpoint, &why);
	if (rc == -EINVAL && (!endpoint->source.registered || !endpoint->results.registered)) {
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

bool workload_send(struct endpoint *endpoint)
{
	bool some = false;

	while (may_send(endpoint) && post_next(endpoint)) {
		some = true;
		if (one_in(endpoint, 3))
			break;
	}
	return some;
}
