/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring algorithm: allreduce is reduce-scatter and all-gather around a ring of all ranks in
 * topology order; each link carries 2(n-1)/n of the data. Broadcast and reduce use a chain. Large
 * operations of more than two ranks use two rings of opposite directions.
 */
#include "collectives/plan/algos.h"

#include <stdlib.h>

#include "collectives/plan/rings.h"

enum { RINGS_MAX = 2 };

static const char *why_not(const struct plan_job *job)
{
	switch (job->coll) {
	case FRL_ALLREDUCE:
	case FRL_REDUCE_SCATTER:
	case FRL_REDUCE:
		if (job->wire == FRL_WIRE_INT8)
			return "would round int8 again at every hop";
		return NULL;
	case FRL_ALLGATHER:
	case FRL_BROADCAST: return NULL;
	default: return "does not do this collective";
	}
}

uint32_t plan_ring_count(const struct plan_job *job)
{
	size_t bytes = job->count * job->elem_size;

	if (job->coll != FRL_ALLREDUCE)
		bytes *= (size_t)job->ranks;
	return job->ranks > 2 && bytes >= RINGS_BOTH_WAYS * job->segment_bytes ? 2 : 1;
}

/* Returns the elements that a step of the longest ring sends. */
static size_t part_elements(const struct plan_job *job)
{
	size_t count = job->count / plan_ring_count(job);

	return job->coll == FRL_ALLREDUCE ? count / (size_t)job->ranks : count;
}

/* Sets the elements that the ring works on: `count` from `first` on, of the vector or of each
 * block. */
static void set_parts(struct plan_ring *ring, size_t first, size_t count)
{
	struct plan_builder *b = ring->b;
	const struct plan_job *job = b->job;
	uint32_t n = ring->group->n;

	for (uint32_t i = 0; i < n; i++) {
		struct plan_part *part = &ring->parts[i];
		size_t block = ring->group->ranks[i] * job->count + first;
		size_t start = first + plan_chunk(count, n, i);

		part->ready = b->input_step;
		switch (job->coll) {
		case FRL_ALLREDUCE:
			part->count = first + plan_chunk(count, n, i + 1) - start;
			part->input = plan_input(b, start);
			part->output = plan_at(b, PLAN_RECV, start);
			part->ready_shift = (int64_t)start;
			break;
		case FRL_REDUCE_SCATTER:
			part->count = count;
			part->input = plan_input(b, block);
			part->output = plan_at(b, PLAN_RECV, first);
			part->ready_shift = (int64_t)block;
			break;
		default:
			part->count = count;
			part->output = plan_at(b, PLAN_RECV, block);
			part->input = job->in_place ? part->output : plan_at(b, PLAN_SEND, first);
			break;
		}
	}
}

/* Adds the steps of the collective: an allreduce reduces, then gathers the reduced parts. */
static void run_rings(struct plan_builder *b, struct plan_ring rings[], uint32_t n_rings)
{
	enum frl_coll coll = b->job->coll;

	if (coll != FRL_ALLGATHER)
		plan_rings_reduce(rings, n_rings);
	if (coll == FRL_REDUCE_SCATTER)
		return;
	for (uint32_t i = 0; i < n_rings && coll == FRL_ALLREDUCE; i++) {
		struct plan_part *own = &rings[i].parts[rings[i].group->me];

		/* This rank's part is reduced now, so the gather sends it from the output. */
		own->input = own->output;
	}
	plan_rings_gather(rings, n_rings);
}

/* Returns where ring number `i` begins, in the vector or in each block. Encoded blocks are
 * divided at wire blocks, so that the result does not depend on the number of rings. */
static size_t start_of(const struct plan_job *job, uint32_t n_rings, uint32_t i)
{
	size_t start = plan_chunk(job->count, n_rings, i);

	if (plan_is_encoded(job) && job->coll == FRL_ALLGATHER && i < n_rings)
		start -= start % PLAN_WIRE_BLOCK;
	return start;
}

static void make_rings(struct plan_builder *b, const struct plan_group *group)
{
	const struct plan_job *job = b->job;
	uint32_t n_rings = plan_ring_count(job);
	struct plan_part *parts = calloc(n_rings * (size_t)group->n, sizeof(parts[0]));
	struct plan_ring rings[RINGS_MAX];

	if (!parts) {
		b->failed = true;
		return;
	}
	if (job->coll == FRL_ALLREDUCE)
		plan_take_input(b, job->count, PLAN_RECV);
	else if (job->coll == FRL_REDUCE_SCATTER)
		plan_take_input(b, job->count * group->n, PLAN_BUFFERS);
	else if (!job->in_place && !plan_is_encoded(job))
		plan_add_local(b, PLAN_COPY, plan_at(b, PLAN_RECV, (size_t)job->rank * job->count),
			plan_at(b, PLAN_SEND, 0), job->count);
	for (uint32_t i = 0; i < n_rings; i++) {
		size_t first = start_of(job, n_rings, i);

		rings[i] = (struct plan_ring){ .b = b,
			.group = group,
			.parts = parts + i * group->n,
			.is_backward = i == 1,
			.also = PLAN_NOTHING,
			.has_slots = job->coll == FRL_REDUCE_SCATTER };
		set_parts(&rings[i], first, start_of(job, n_rings, i + 1) - first);
		plan_ring_start(&rings[i], b->plan->segment);
	}
	run_rings(b, rings, n_rings);
	free(parts);
}

static void make_chain(struct plan_builder *b, const struct plan_group *group)
{
	const struct plan_job *job = b->job;
	bool is_root = job->rank == job->root;
	struct plan_chain chain = { .b = b,
		.group = group,
		.count = job->count,
		.piece = b->plan->segment * PLAN_PIECE_SEGMENTS,
		.has_slots = true,
		.ready = PLAN_NOTHING,
		.also = PLAN_NOTHING,
		.output = plan_at(b, PLAN_RECV, 0) };

	if (job->coll == FRL_REDUCE) {
		plan_take_input(b, job->count, is_root ? PLAN_RECV : PLAN_BUFFERS);
		chain.input = b->input;
		chain.ready = b->input_step;
		plan_chain_reduce(&chain);
		return;
	}
	chain.input = plan_at(b, job->in_place ? PLAN_RECV : PLAN_SEND, 0);
	if (is_root && !job->in_place && !plan_is_encoded(job))
		plan_add_local(b, PLAN_COPY, chain.output, chain.input, job->count);
	plan_chain_broadcast(&chain);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	bool is_chain = shape_root_one_block(job->coll);
	/* A chain begins (or ends) at the root. */
	uint32_t start = is_chain ? plan_position(job, (uint32_t)job->root) : 0;
	uint32_t *ranks = calloc(n, sizeof(ranks[0]));
	struct plan_group group = { .ranks = ranks, .n = n };

	if (!ranks) {
		b->failed = true;
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		ranks[i] = plan_rank_at(job, (start + i) % n);
	group.me = (plan_position(job, (uint32_t)job->rank) + n - start) % n;
	b->plan->segment = plan_segment(job, is_chain ? job->count : part_elements(job));
	if (is_chain)
		make_chain(b, &group);
	else
		make_rings(b, &group);
	free(ranks);
}

const struct plan_algo plan_ring_algo = { why_not, make };
