/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hierarchical algorithm: first within the hosts, then between them, so that data common to the
 * ranks of a host crosses the network once. It uses rings and chains at both levels.
 *
 * If all hosts have equally many ranks, all ranks take part between hosts: ranks with the same
 * index on their hosts form a ring for their part of the data. Otherwise one rank per host takes
 * part, the leader: the first rank of its host, or for broadcast and reduce the root on its host.
 */
#include "collectives/plan/algos.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/plan/hierarchical_rings.h"
#include "collectives/plan/rings.h"

static uint32_t host_at(const struct plan_job *job, uint32_t position)
{
	return job->topology->locations[plan_rank_at(job, position)].host;
}

/* Returns the number of ranks of the host that begins at this position. */
static uint32_t host_size(const struct plan_job *job, uint32_t position)
{
	uint32_t end = position + 1;

	while (end < (uint32_t)job->ranks && host_at(job, end) == host_at(job, position))
		end++;
	return end - position;
}

uint32_t plan_hosts_common(const struct plan_job *job, uint32_t *ret_largest)
{
	uint32_t first = host_size(job, 0);
	uint32_t common = first;
	uint32_t size;

	*ret_largest = first;
	for (uint32_t at = first; at < (uint32_t)job->ranks; at += size) {
		size = host_size(job, at);
		if (size != first)
			common = 0;
		if (size > *ret_largest)
			*ret_largest = size;
	}
	return common;
}

static const char *why_not(const struct plan_job *job)
{
	uint32_t hosts = job->topology->hosts;
	uint32_t largest;

	switch (job->coll) {
	case FRL_ALLREDUCE:
	case FRL_REDUCE_SCATTER:
	case FRL_ALLGATHER:
	case FRL_BROADCAST:
	case FRL_REDUCE:
	case FRL_BARRIER: break;
	default: return "does not do this collective";
	}
	if (plan_is_encoded(job))
		return "does not support a wire type";
	if (hosts < 2)
		return "needs several hosts";
	if (hosts == (uint32_t)job->ranks)
		return "needs several ranks on a host";
	if ((job->coll == FRL_REDUCE_SCATTER || job->coll == FRL_ALLGATHER) &&
		plan_hosts_common(job, &largest) == 0)
		return "does this for hosts with the same number of ranks only";
	return NULL;
}

/* Makes a group in `room`, which has space for `n` ranks. */
static struct plan_group group_of(const struct plan_job *job, uint32_t *room, uint32_t start,
	uint32_t stride, uint32_t n, uint32_t me)
{
	for (uint32_t i = 0; i < n; i++)
		room[i] = plan_rank_at(job, start + i * stride);
	return (struct plan_group){ .ranks = room, .n = n, .me = me };
}

/* Moves `rank`, if it is in the group, to the front; the others keep their order. */
static void put_first(uint32_t *ranks, uint32_t n, struct plan_group *group, uint32_t rank)
{
	for (uint32_t i = 1; i < n; i++) {
		if (ranks[i] != rank)
			continue;
		memmove(ranks + 1, ranks, i * sizeof(ranks[0]));
		ranks[0] = rank;
		if (group->me == i)
			group->me = 0;
		else if (group->me < i)
			group->me++;
		return;
	}
}

/* Finds the groups of a collective with leaders; `lead` is the rank that leads its host, or
 * PLAN_NOTHING. */
static void find_leaders(struct plan_hosts *h, const struct plan_job *job, uint32_t lead)
{
	uint32_t position = plan_position(job, (uint32_t)job->rank);
	uint32_t hosts = 0, first = 0, size;

	for (uint32_t at = 0; at < (uint32_t)job->ranks; at += size, hosts++) {
		uint32_t leader = plan_rank_at(job, at);

		size = host_size(job, at);
		if (position >= at && position < at + size) {
			h->between.me = hosts;
			h->within = group_of(job, h->room, at, 1, size, position - at);
			put_first(h->room, size, &h->within, lead);
		}
		for (uint32_t i = at; i < at + size; i++)
			if (plan_rank_at(job, i) == lead) {
				leader = lead;
				first = hosts;
			}
		h->room[job->ranks + hosts] = leader;
	}
	h->between.ranks = h->room + job->ranks;
	h->between.n = hosts;
	if (lead != PLAN_NOTHING)
		put_first(h->room + job->ranks, hosts, &h->between, h->between.ranks[first]);
	h->is_leader = h->within.me == 0;
}

static int find_groups(struct plan_hosts *h, const struct plan_job *job)
{
	uint32_t position = plan_position(job, (uint32_t)job->rank);
	bool has_root = shape_root_one_block(job->coll);
	uint32_t largest;

	h->room = calloc(2 * (size_t)job->ranks, sizeof(h->room[0]));
	if (!h->room)
		return -1;
	h->size = plan_hosts_common(job, &largest);
	h->is_even = h->size > 0 && !has_root && job->coll != FRL_BARRIER;
	if (!h->is_even) {
		find_leaders(h, job, has_root ? (uint32_t)job->root : PLAN_NOTHING);
		return 0;
	}
	h->within = group_of(
		job, h->room, position - position % h->size, 1, h->size, position % h->size);
	h->between = group_of(job, h->room + job->ranks, position % h->size, h->size,
		(uint32_t)job->ranks / h->size, position / h->size);
	return 0;
}

/* Sends one element from each rank to its leader, between the leaders, and back. */
static void barrier(struct plan_builder *b, const struct plan_hosts *h)
{
	struct plan_range out = plan_scratch(b, 1);
	const struct plan_group *g = &h->between;
	uint32_t entered = PLAN_NOTHING, step;

	if (!h->is_leader) {
		plan_add_send(b, h->within.ranks[0], out, 1);
		plan_add_receive(b, h->within.ranks[0], plan_scratch(b, 1), 1);
		return;
	}
	for (uint32_t i = 1; i < h->within.n; i++) {
		step = plan_add_receive(b, h->within.ranks[i], plan_scratch(b, 1), 1);
		plan_wait_whole(b, step, entered);
		entered = step;
	}
	for (uint32_t distance = 1; distance < g->n; distance *= 2) {
		step = plan_add_send(b, g->ranks[(g->me + distance) % g->n], out, 1);
		plan_wait_whole(b, step, entered);
		step = plan_add_receive(
			b, g->ranks[(g->me + g->n - distance) % g->n], plan_scratch(b, 1), 1);
		plan_wait_whole(b, step, entered);
		entered = step;
	}
	for (uint32_t i = 1; i < h->within.n; i++)
		plan_wait_whole(b, plan_add_send(b, h->within.ranks[i], out, 1), entered);
}

static void broadcast(struct plan_builder *b, const struct plan_hosts *h)
{
	const struct plan_job *job = b->job;
	struct plan_chain chain = { .b = b,
		.group = &h->between,
		.count = job->count,
		.ready = PLAN_NOTHING,
		.also = PLAN_NOTHING,
		.output = plan_at(b, PLAN_RECV, 0) };

	chain.input = plan_at(
		b, job->rank == job->root && !job->in_place ? PLAN_SEND : PLAN_RECV, 0);
	if (job->rank == job->root)
		plan_copy_own_block(b);
	if (h->is_leader)
		chain.ready = plan_chain_broadcast(&chain);
	chain.group = &h->within;
	if (job->rank == job->root)
		chain.ready = PLAN_NOTHING;
	if (h->within.n > 1)
		plan_chain_broadcast(&chain);
}

static void reduce(struct plan_builder *b, const struct plan_hosts *h)
{
	const struct plan_job *job = b->job;
	bool is_root = job->rank == job->root;
	struct plan_chain chain = { .b = b,
		.group = &h->within,
		.count = job->count,
		.also = PLAN_NOTHING,
		.is_partial = true };

	plan_take_input(b, job->count, is_root ? PLAN_RECV : PLAN_BUFFERS);
	chain.input = b->input;
	chain.ready = b->input_step;
	chain.output = is_root ? plan_at(b, PLAN_RECV, 0) : plan_scratch(b, job->count);
	if (h->within.n > 1) {
		uint32_t made = plan_chain_reduce(&chain);

		if (!h->is_leader)
			return;
		chain.ready = made;
		chain.input = chain.output;
	}
	chain.group = &h->between;
	chain.is_partial = false;
	plan_chain_reduce(&chain);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct plan_hosts h = { .size = 0 };

	if (find_groups(&h, job) < 0) {
		b->failed = true;
		return;
	}
	b->plan->segment = plan_segment(job, job->count);
	switch (job->coll) {
	case FRL_BARRIER: barrier(b, &h); break;
	case FRL_BROADCAST: broadcast(b, &h); break;
	case FRL_REDUCE: reduce(b, &h); break;
	default: plan_hosts_rings(b, &h); break;
	}
	free(h.room);
}

const struct plan_algo plan_hosts_algo = { why_not, make };
