/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct exchange: each rank with each other rank at once, in one or two rounds. A rank begins with
 * the next rank, so that not all ranks send to the same one first. Reductions are in
 * direct_reduce.c.
 */
#include "collectives/plan/direct_reduce.h"

#include "collectives/plan/algos.h"

static const char *why_not(const struct plan_job *job)
{
	if (job->coll == FRL_BARRIER && plan_is_encoded(job))
		return "has nothing to encode";
	return NULL;
}

uint32_t plan_peer_after(const struct plan_job *job, uint32_t distance)
{
	return ((uint32_t)job->rank + distance) % (uint32_t)job->ranks;
}

uint32_t plan_peer_before(const struct plan_job *job, uint32_t distance)
{
	return ((uint32_t)job->rank + (uint32_t)job->ranks - distance) % (uint32_t)job->ranks;
}

/* In place, not encoded: blocks are copied to scratch before others overwrite them. */
static void alltoall_in_place(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct plan_range away = plan_scratch(b, job->count * (size_t)job->ranks);

	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		uint32_t peer = plan_peer_after(job, i);
		struct plan_range range = plan_plus(b, away, peer * job->count);
		struct plan_range block = plan_at(b, PLAN_RECV, peer * job->count);
		uint32_t copy = plan_add_local(b, PLAN_COPY, range, block, job->count);

		plan_wait(b, plan_add_send(b, peer, range, job->count), copy, 0);
		plan_wait(b, plan_add_receive(b, peer, block, job->count), copy, 0);
	}
}

/* Sends a block from each rank to each other rank. */
static void alltoall(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool is_v = shape_has_pieces(job->coll);
	uint32_t n = (uint32_t)job->ranks;

	plan_copy_own_block(b);
	if (job->in_place && !plan_is_encoded(job)) {
		alltoall_in_place(b);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t to = plan_peer_after(job, i), made;
		size_t count = is_v ? job->send_counts[to] : job->count;
		struct plan_range source = plan_at(b, job->in_place ? PLAN_RECV : PLAN_SEND,
			is_v ? job->send_displs[to] : to * job->count);

		source = plan_outgoing(b, source, count, &made);
		plan_wait(b, plan_add_send(b, to, source, count), made, 0);
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t from = plan_peer_before(job, i);

		plan_receive_block(b, from,
			plan_at(b, PLAN_RECV, is_v ? job->recv_displs[from] : from * job->count),
			is_v ? job->recv_counts[from] : job->count);
	}
}

static void send_to(struct plan_builder *b, uint32_t peer, struct plan_range source)
{
	uint32_t made;

	source = plan_outgoing(b, source, b->job->count, &made);
	plan_wait(b, plan_add_send(b, peer, source, b->job->count), made, 0);
}

/* All ranks get the data that was encoded once; the root decodes it, too. */
static void broadcast(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct plan_range recv = plan_at(b, PLAN_RECV, 0);
	struct plan_range source = job->in_place ? recv : plan_at(b, PLAN_SEND, 0);
	uint32_t made;

	source = plan_outgoing(b, source, job->count, &made);
	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++)
		plan_wait(
			b, plan_add_send(b, plan_peer_after(job, i), source, job->count), made, 0);
	if (plan_is_encoded(job))
		plan_wait(b, plan_add_local(b, PLAN_DECODE, recv, source, job->count), made, 0);
	else if (!job->in_place)
		plan_add_local(b, PLAN_COPY, recv, source, job->count);
}

/* One step per other rank at the root, and one step at each other rank. */
static void rooted(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t root = (uint32_t)job->root;

	if (job->rank != job->root) {
		if (job->coll == FRL_GATHER)
			send_to(b, root, plan_at(b, PLAN_SEND, 0));
		else
			plan_receive_block(b, root, plan_at(b, PLAN_RECV, 0), job->count);
		return;
	}
	if (job->coll == FRL_BROADCAST) {
		broadcast(b);
		return;
	}
	plan_copy_own_block(b);
	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		uint32_t peer = plan_peer_after(job, i);
		size_t block = peer * job->count;

		if (job->coll == FRL_GATHER)
			plan_receive_block(b, peer, plan_at(b, PLAN_RECV, block), job->count);
		else
			send_to(b, peer, plan_at(b, PLAN_SEND, block));
	}
}

/* Sends one element of undefined value from each rank to each other rank. */
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
		send_to(b, (uint32_t)job->root, plan_at(b, PLAN_SEND, 0));
	else
		plan_receive_block(b, (uint32_t)job->root, plan_at(b, PLAN_RECV, 0), job->count);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;

	/* Alltoallv: the segment must be the same on all ranks, as in pairwise.c. */
	b->plan->segment = plan_segment(
		job, shape_has_pieces(job->coll) ? job->segment_bytes : job->count);
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

const struct plan_algo plan_direct_algo = { why_not, make };
