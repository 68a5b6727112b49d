/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings within and between hosts. With L ranks on each of H hosts:
 *
 *     allreduce        reduce parts 1/L within, allreduce the own part between, gather within
 *     reduce_scatter   H rings within, one for the blocks of each host; then between
 *     allgather        between, then H rings within
 */
#include "collectives/plan/hierarchical_rings.h"

#include <stdlib.h>

#include "collectives/plan/rings.h"

enum {
	/* pieces of a long vector: one is within the hosts while another is between them */
	PIECES = 4,
};

static struct plan_ring ring_over(
	struct plan_builder *b, const struct plan_group *group, struct plan_part *parts)
{
	return (struct plan_ring){ .b = b, .group = group, .parts = parts, .also = PLAN_NOTHING };
}

/* Sets the parts of `count` elements of the receive buffer from `first` on. The input is in
 * place and made by step `ready`, or it is this rank's input. */
static void set_chunks(struct plan_builder *b, struct plan_part parts[], uint32_t n, size_t first,
	size_t count, bool from_input, uint32_t ready)
{
	for (uint32_t i = 0; i < n; i++) {
		size_t start = plan_chunk(count, n, i);

		parts[i] = (struct plan_part){
			.count = plan_chunk(count, n, i + 1) - start,
			.output = plan_at(b, PLAN_RECV, first + start),
			.input = plan_at(b, PLAN_RECV, first + start),
			.ready = ready,
			.ready_shift = (int64_t)start,
		};
		if (from_input) {
			parts[i].input = plan_input(b, first + start);
			parts[i].ready = b->input_step;
			parts[i].ready_shift = (int64_t)(first + start);
		}
	}
}

/* Adds an allreduce between the hosts, of the receive buffer or the input. Sets the ring's steps
 * that complete it. */
static void allreduce_between(struct plan_ring *ring)
{
	struct plan_part *own = &ring->parts[ring->group->me];

	ring->is_in_turn = true;
	plan_ring_start(ring, 1);
	plan_rings_reduce(ring, 1);
	own->input = own->output;
	plan_rings_gather(ring, 1);
}

static void allreduce_even(struct plan_builder *b, const struct plan_hosts *h,
	struct plan_part parts[], size_t first, size_t count)
{
	uint32_t n = h->within.n;
	struct plan_part *own = &parts[h->within.me];
	struct plan_ring within = ring_over(b, &h->within, parts);
	struct plan_ring between = ring_over(b, &h->between, parts + n);
	size_t own_first = first + plan_chunk(count, n, h->within.me);

	set_chunks(b, parts, n, first, count, true, PLAN_NOTHING);
	within.is_partial = true;
	plan_ring_start(&within, 1);
	plan_rings_reduce(&within, 1);
	set_chunks(b, parts + n, h->between.n, own_first, own->count, false, within.made[0]);
	allreduce_between(&between);
	own->input = own->output;
	own->ready = between.received;
	own->ready_shift = PLAN_WHOLE;
	within.made[0] = PLAN_NOTHING;
	within.also = between.made[0];
	plan_rings_gather(&within, 1);
}

static void allreduce_leaders(
	struct plan_builder *b, const struct plan_hosts *h, struct plan_part parts[])
{
	size_t count = b->job->count;
	struct plan_ring between = ring_over(b, &h->between, parts);
	struct plan_chain chain = { .b = b,
		.group = &h->within,
		.count = count,
		.input = b->input,
		.ready = b->input_step,
		.also = PLAN_NOTHING,
		.output = plan_at(b, PLAN_RECV, 0),
		.is_partial = true };
	bool has_others = h->within.n > 1;
	uint32_t made = PLAN_NOTHING;

	if (has_others)
		made = plan_chain_reduce(&chain);
	if (h->is_leader) {
		set_chunks(b, parts, h->between.n, 0, count, !has_others, made);
		allreduce_between(&between);
		chain.ready = between.received;
		chain.ready_shift = PLAN_WHOLE;
		chain.also = between.made[0];
	}
	chain.input = chain.output;
	if (has_others)
		plan_chain_broadcast(&chain);
}

/* Returns the block of the rank at index `place` of host number `host`. */
static size_t block_of(
	const struct plan_builder *b, const struct plan_hosts *h, uint32_t host, uint32_t index)
{
	return plan_rank_at(b->job, host * h->size + index) * b->job->count;
}

static void reduce_scatter(struct plan_builder *b, const struct plan_hosts *h,
	struct plan_part parts[], struct plan_ring rings[])
{
	const struct plan_job *job = b->job;
	uint32_t n = h->within.n;
	uint32_t hosts = h->between.n;
	struct plan_ring between = ring_over(b, &h->between, parts + (size_t)n * hosts);

	plan_take_input(b, job->count * (size_t)job->ranks, PLAN_BUFFERS);
	for (uint32_t host = 0; host < hosts; host++) {
		struct plan_range sum = plan_scratch(b, job->count);

		rings[host] = ring_over(b, &h->within, parts + (size_t)n * host);
		rings[host].has_slots = true;
		rings[host].is_partial = true;
		for (uint32_t i = 0; i < n; i++) {
			size_t block = block_of(b, h, host, i);

			rings[host].parts[i] = (struct plan_part){ .count = job->count,
				.input = plan_input(b, block),
				.output = sum,
				.ready = b->input_step,
				.ready_shift = (int64_t)block };
		}
		plan_ring_start(&rings[host], 1);
	}
	plan_rings_reduce(rings, hosts);
	between.has_slots = true;
	for (uint32_t host = 0; host < hosts; host++)
		between.parts[host] = (struct plan_part){ .count = job->count,
			.input = rings[host].parts[0].output,
			.output = plan_at(b, PLAN_RECV, 0),
			.ready = rings[host].made[0] };
	plan_ring_start(&between, 1);
	plan_rings_reduce(&between, 1);
}

static void allgather(struct plan_builder *b, const struct plan_hosts *h, struct plan_part parts[],
	struct plan_ring rings[])
{
	const struct plan_job *job = b->job;
	uint32_t n = h->within.n;
	uint32_t hosts = h->between.n;
	struct plan_ring between = ring_over(b, &h->between, parts + (size_t)n * hosts);
	struct plan_range own = plan_at(b, job->in_place ? PLAN_RECV : PLAN_SEND,
		job->in_place ? (size_t)job->rank * job->count : 0);

	plan_copy_own_block(b);
	for (uint32_t host = 0; host < hosts; host++)
		between.parts[host] = (struct plan_part){ .count = job->count,
			.input = own,
			.output = plan_at(b, PLAN_RECV, block_of(b, h, host, h->within.me)),
			.ready = PLAN_NOTHING,
			.made = PLAN_NOTHING };
	plan_ring_start(&between, 1);
	plan_rings_gather(&between, 1);
	for (uint32_t host = 0; host < hosts; host++) {
		rings[host] = ring_over(b, &h->within, parts + (size_t)n * host);
		for (uint32_t i = 0; i < n; i++) {
			struct plan_range output = plan_at(b, PLAN_RECV, block_of(b, h, host, i));

			rings[host].parts[i] = (struct plan_part){ .count = job->count,
				.input = host == h->between.me ? own : output,
				.output = output,
				.ready = between.parts[host].made };
		}
		plan_ring_start(&rings[host], 1);
	}
	plan_rings_gather(rings, hosts);
}

static uint32_t piece_count(const struct plan_job *job)
{
	return job->count * job->elem_size >= HOSTS_PIECES_FROM * job->segment_bytes ? PIECES : 1;
}

void plan_hosts_rings(struct plan_builder *b, const struct plan_hosts *h)
{
	const struct plan_job *job = b->job;
	size_t n_parts = ((size_t)h->within.n + 1) * h->between.n + h->within.n;
	struct plan_part *parts = calloc(n_parts, sizeof(parts[0]));
	struct plan_ring *rings = calloc(h->between.n, sizeof(rings[0]));
	uint32_t pieces = piece_count(job);

	if (!parts || !rings) {
		b->failed = true;
	} else if (job->coll == FRL_REDUCE_SCATTER) {
		reduce_scatter(b, h, parts, rings);
	} else if (job->coll == FRL_ALLGATHER) {
		allgather(b, h, parts, rings);
	} else {
		plan_take_input(b, job->count, PLAN_RECV);
		b->plan->segment = plan_segment(job, job->count / pieces / (size_t)job->ranks);
		if (!h->is_even)
			allreduce_leaders(b, h, parts);
		for (uint32_t i = 0; i < pieces && h->is_even; i++) {
			size_t first = plan_chunk(job->count, pieces, i);

			allreduce_even(
				b, h, parts, first, plan_chunk(job->count, pieces, i + 1) - first);
		}
	}
	free(parts);
	free(rings);
}
