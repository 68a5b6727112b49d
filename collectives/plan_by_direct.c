/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct exchange: everybody with everybody at once, one or two rounds. Ranks begin with the one
 * after them, so that not all send to the same one first. Reductions are in plan_direct.c.
 */
#include "collectives/plan_direct.h"

#include "collectives/plan_algos.h"

static const char *why_not(const struct plan_job *job)
{
	switch (job->coll) {
	case FRL_SEND:
	case FRL_RECV: return plan_is_encoded(job) ? "sends elements as they are only" : NULL;
	case FRL_ALLTOALL:
	case FRL_ALLTOALLV:
	case FRL_GATHER:
	case FRL_SCATTER:
	case FRL_BROADCAST:
	case FRL_BARRIER:
		if (plan_is_encoded(job))
			return "sends elements as they are only";
		break;
	default: break;
	}
	return plan_why_not_all(job);
}

uint32_t plan_peer_after(const struct plan_job *job, uint32_t distance)
{
	return ((uint32_t)job->rank + distance) % (uint32_t)job->ranks;
}

uint32_t plan_peer_before(const struct plan_job *job, uint32_t distance)
{
	return ((uint32_t)job->rank + (uint32_t)job->ranks - distance) % (uint32_t)job->ranks;
}

/* Each rank's block for each other one. */
static void alltoall(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	bool moves_away = job->coll == FRL_ALLTOALL && job->in_place;
	struct plan_range away = plan_scratch(b, moves_away ? job->count * n : 0);

	plan_copy_own_block(b);
	for (uint32_t i = 1; i < n && moves_away; i++) {
		uint32_t peer = plan_peer_after(job, i);
		struct plan_range range = plan_plus(b, away, peer * job->count);
		struct plan_range block = plan_at(b, PLAN_RECV, peer * job->count);
		uint32_t copy = plan_add_local(b, PLAN_COPY, range, block, job->count);

		plan_wait(b, plan_add_send(b, peer, range, job->count), copy, 0);
		plan_wait(b, plan_add_receive(b, peer, block, job->count), copy, 0);
	}
	for (uint32_t i = 1; i < n && !moves_away; i++) {
		uint32_t to = plan_peer_after(job, i);
		uint32_t from = plan_peer_before(job, i);

		if (job->coll == FRL_ALLTOALLV) {
			plan_add_send(b, to, plan_at(b, PLAN_SEND, job->send_displs[to]),
				job->send_counts[to]);
			plan_add_receive(b, from, plan_at(b, PLAN_RECV, job->recv_displs[from]),
				job->recv_counts[from]);
			continue;
		}
		plan_add_send(b, to, plan_at(b, PLAN_SEND, to * job->count), job->count);
		plan_add_receive(b, from, plan_at(b, PLAN_RECV, from * job->count), job->count);
	}
}

/* A step for each other rank at the root, and one at each of them. */
static void rooted(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool gathers = job->coll == FRL_GATHER;
	size_t stride = job->coll == FRL_BROADCAST ? 0 : job->count;
	enum plan_buffer from = job->coll == FRL_BROADCAST && job->in_place ? PLAN_RECV : PLAN_SEND;

	if (job->rank != job->root) {
		if (gathers)
			plan_add_send(b, (uint32_t)job->root, plan_at(b, PLAN_SEND, 0), job->count);
		else
			plan_add_receive(
				b, (uint32_t)job->root, plan_at(b, PLAN_RECV, 0), job->count);
		return;
	}
	plan_copy_own_block(b);
	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		uint32_t peer = plan_peer_after(job, i);

		if (gathers)
			plan_add_receive(b, peer, plan_at(b, PLAN_RECV, peer * stride), job->count);
		else
			plan_add_send(b, peer, plan_at(b, from, peer * stride), job->count);
	}
}

/* An element, whatever it holds, from everybody to everybody. */
static void barrier(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct plan_range out = plan_scratch(b, 1);

	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		plan_add_send(b, plan_peer_after(job, i), out, 1);
		plan_add_receive(b, plan_peer_before(job, i), plan_scratch(b, 1), 1);
	}
}

static void to_one(struct plan_builder *b)
{
	const struct plan_job *job = b->job;

	if (job->root == job->rank)
		return;
	if (job->coll == FRL_SEND)
		plan_add_send(b, (uint32_t)job->root, plan_at(b, PLAN_SEND, 0), job->count);
	else
		plan_add_receive(b, (uint32_t)job->root, plan_at(b, PLAN_RECV, 0), job->count);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;

	b->plan->segment = plan_segment(
		job, job->coll == FRL_ALLTOALLV ? job->segment_bytes : job->count);
	switch (job->coll) {
	case FRL_ALLTOALL:
	case FRL_ALLTOALLV: alltoall(b); break;
	case FRL_GATHER:
	case FRL_SCATTER:
	case FRL_BROADCAST: rooted(b); break;
	case FRL_BARRIER: barrier(b); break;
	case FRL_SEND:
	case FRL_RECV: to_one(b); break;
	default: plan_direct_reduce(b); break;
	}
}

static void cost(const struct plan_job *job, struct plan_cost *ret_cost)
{
	double n = job->ranks;
	double bytes = plan_block_bytes(job);
	struct plan_cost cost = { .rounds = 1, .bytes = (n - 1) * bytes, .reduced = bytes };

	switch (job->coll) {
	case FRL_ALLREDUCE:
		cost.reduced = (n - 1) * bytes;
		if (!plan_direct_is_small(job))
			cost = (struct plan_cost){ .rounds = 2,
				.bytes = 2 * (n - 1) / n * bytes,
				.reduced = (n - 1) / n * bytes };
		break;
	case FRL_REDUCE_SCATTER:
	case FRL_REDUCE: cost.reduced = (n - 1) * bytes; break;
	case FRL_BARRIER: cost = (struct plan_cost){ .rounds = 1, .bytes = n - 1 }; break;
	case FRL_SEND:
	case FRL_RECV: cost = (struct plan_cost){ .rounds = 1, .bytes = bytes }; break;
	default: break;
	}
	*ret_cost = cost;
}

const struct plan_algo plan_direct_algo = { why_not, make, cost };
