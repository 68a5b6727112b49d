/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's algorithms: ceil(log2 n) rounds. In round k a rank sends to the position 2^k before it
 * and receives from the position 2^k after it (all-to-all and barrier: the other way).
 *
 *  - all-gather: sends the blocks that it has, those of the 2^k positions from its own on.
 *  - all-to-all: block i, which has to move i positions, moves in the rounds of the bits of i. The
 *    blocks of a round are packed, sent as one message, and unpacked: half of all blocks each time.
 *  - barrier: a message means that 2^k ranks have entered.
 *  - int8 reductions: contributions are encoded once and exchanged by all-to-all; their owners sum
 *    them up and encode the sums once; an all-gather distributes the sums.
 */
#include "collectives/plan/algos.h"

#include <stdlib.h>

#include "collectives/plan/direct_reduce.h"

static const char *why_not(const struct plan_job *job)
{
	switch (job->coll) {
	case FRL_ALLREDUCE:
	case FRL_REDUCE_SCATTER:
	case FRL_REDUCE:
		if (job->wire != FRL_WIRE_INT8)
			return "reduces in the int8 wire format only";
		return NULL;
	case FRL_ALLTOALL:
	case FRL_ALLGATHER:
	case FRL_BARRIER: return NULL;
	default: return "does not do this collective";
	}
}

/* Positions in topology order, relative to this rank. */
struct bruck {
	struct plan_builder *b;
	uint32_t n;
	uint32_t position;
};

static struct bruck bruck_of(struct plan_builder *b)
{
	return (struct bruck){ .b = b,
		.n = (uint32_t)b->job->ranks,
		.position = plan_position(b->job, (uint32_t)b->job->rank) };
}

/* Return the rank a number of positions after or before this one; at most n. */
static uint32_t rank_after(const struct bruck *k, uint32_t places)
{
	return plan_rank_at(k->b->job, (k->position + places) % k->n);
}

static uint32_t rank_before(const struct bruck *k, uint32_t places)
{
	return plan_rank_at(k->b->job, (k->position + k->n - places) % k->n);
}

/* Blocks in one buffer, one for each rank, in rank order. */
struct blocks {
	struct plan_range start;
	size_t count;   /* elements of a block */
	size_t spacing; /* elements from one block to the next */
};

static struct plan_range block_of(
	const struct plan_builder *b, const struct blocks *blocks, uint32_t rank)
{
	return plan_plus(b, blocks->start, rank * blocks->spacing);
}

/* Returns how many blocks from position `places` on are contiguous, at most `most`. */
static uint32_t run_of(
	const struct bruck *k, const struct blocks *blocks, uint32_t places, uint32_t most)
{
	uint32_t length = 1;

	if (blocks->spacing != blocks->count)
		return 1;
	while (length < most && rank_after(k, places + length) == rank_after(k, places) + length)
		length++;
	return length;
}

/*
 * All-gather of blocks at their destinations. `own` is the source of this rank's block in the first
 * round, valid when `ready` is complete; `placed` copies it to its destination. Returns the last
 * receive; each receive waits for those before it.
 */
static uint32_t gather(const struct bruck *k, const struct blocks *blocks, struct plan_range own,
	uint32_t ready, uint32_t placed)
{
	struct plan_builder *b = k->b;
	uint32_t received = PLAN_NOTHING;

	for (uint32_t distance = 1; distance < k->n; distance *= 2) {
		uint32_t count = distance < k->n - distance ? distance : k->n - distance;
		uint32_t before = received;
		uint32_t run, step;

		for (uint32_t i = 0; i < count; i += run) {
			run = run_of(k, blocks, i, count - i);
			step = plan_add_send(b, rank_before(k, distance),
				distance == 1 ? own : block_of(b, blocks, rank_after(k, i)),
				run * blocks->count);
			plan_wait_whole(b, step, distance == 1 ? ready : placed);
			plan_wait_whole(b, step, before);
		}
		for (uint32_t i = distance; i < distance + count; i += run) {
			run = run_of(k, blocks, i, distance + count - i);
			step = plan_add_receive(b, rank_after(k, distance),
				block_of(b, blocks, rank_after(k, i)), run * blocks->count);
			plan_wait_whole(b, step, received);
			received = step;
		}
	}
	return received;
}

/* Copies between packed blocks and the blocks whose index has the bit `distance`. */
static uint32_t pack(const struct bruck *k, struct plan_range blocks, struct plan_range packed,
	size_t count, uint32_t distance, bool unpacks, uint32_t after)
{
	struct plan_builder *b = k->b;
	uint32_t step = PLAN_NOTHING;

	for (uint32_t i = distance; i < k->n; i += 2 * distance) {
		uint32_t run = distance < k->n - i ? distance : k->n - i;
		struct plan_range some = plan_plus(b, blocks, i * count);

		step = plan_add_local(b, PLAN_COPY, unpacks ? some : packed,
			unpacks ? packed : some, run * count);
		plan_wait_whole(b, step, after);
		packed = plan_plus(b, packed, run * count);
	}
	return step;
}

static uint32_t with_bit(uint32_t n, uint32_t distance)
{
	uint32_t count = 0;

	for (uint32_t i = distance; i < n; i++)
		count += (i & distance) != 0;
	return count;
}

/*
 * All-to-all of blocks in scratch: block i is for the rank i positions after this one, and
 * afterwards from the rank i positions before. Blocks have `count` elements, encoded or not, and
 * are ready when the local step `made` is complete. Returns the last step.
 */
static uint32_t exchange(
	const struct bruck *k, struct plan_range blocks, size_t count, uint32_t made)
{
	struct plan_builder *b = k->b;
	size_t half = (k->n + 1) / 2 * count;
	uint32_t sent = PLAN_NOTHING, unpacked = PLAN_NOTHING;
	struct plan_range out, in;

	out = blocks.encoded ? plan_scratch_encoded(b, half) : plan_scratch(b, half);
	in = blocks.encoded ? plan_scratch_encoded(b, half) : plan_scratch(b, half);
	for (uint32_t distance = 1; distance < k->n; distance *= 2) {
		size_t elements = with_bit(k->n, distance) * count;
		uint32_t packed = pack(k, blocks, out, count, distance, false, sent);
		uint32_t received;

		sent = plan_add_send(b, rank_after(k, distance), out, elements);
		plan_wait_whole(b, sent, packed);
		received = plan_add_receive(b, rank_before(k, distance), in, elements);
		plan_wait_whole(b, received, unpacked);
		unpacked = pack(k, blocks, in, count, distance, true, received);
	}
	return unpacked;
}

/* Copies or encodes the blocks into scratch, starting with the rank `i` positions after this
 * one. Returns the last step. */
static uint32_t put_blocks(const struct bruck *k, struct plan_range blocks, size_t spacing)
{
	struct plan_builder *b = k->b;
	const struct plan_job *job = b->job;
	bool encodes = plan_is_encoded(job);
	struct blocks places = { .count = job->count, .spacing = job->count };
	uint32_t step = PLAN_NOTHING, run;

	for (uint32_t i = encodes ? 0 : 1; i < k->n; i += run) {
		run = encodes ? 1 : run_of(k, &places, i, k->n - i);
		step = plan_add_local(b, encodes ? PLAN_ENCODE : PLAN_COPY,
			plan_plus(b, blocks, i * spacing),
			plan_at(b, job->in_place ? PLAN_RECV : PLAN_SEND,
				rank_after(k, i) * job->count),
			run * job->count);
	}
	return step;
}

static void alltoall(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool encodes = plan_is_encoded(job);
	struct bruck k = bruck_of(b);
	size_t spacing = plan_spacing(job, job->count);
	struct plan_range blocks = encodes ? plan_scratch_encoded(b, spacing * k.n)
					   : plan_scratch(b, spacing * k.n);

	if (!encodes)
		plan_copy_own_block(b);
	exchange(&k, blocks, spacing, put_blocks(&k, blocks, spacing));
	for (uint32_t i = encodes ? 0 : 1; i < k.n; i++)
		plan_add_local(b, encodes ? PLAN_DECODE : PLAN_COPY,
			plan_at(b, PLAN_RECV, rank_before(&k, i) * job->count),
			plan_plus(b, blocks, i * spacing), job->count);
}

static void barrier(struct plan_builder *b)
{
	struct bruck k = bruck_of(b);
	struct plan_range out = plan_scratch(b, 1);
	uint32_t received = PLAN_NOTHING;

	for (uint32_t distance = 1; distance < k.n; distance *= 2) {
		uint32_t send = plan_add_send(b, rank_after(&k, distance), out, 1);
		uint32_t step;

		plan_wait_whole(b, send, received);
		step = plan_add_receive(b, rank_before(&k, distance), plan_scratch(b, 1), 1);
		plan_wait_whole(b, step, received);
		received = step;
	}
}

/* The blocks of an int8 reduction. Allreduce and reduce cut the vector into chunks of whole wire
 * blocks; the last chunks may be shorter or empty. */
static size_t chunk_elements(const struct plan_job *job)
{
	size_t n = (size_t)job->ranks;
	size_t count = job->count;

	if (job->coll != FRL_REDUCE_SCATTER)
		count = (count + n - 1) / n;
	count += PLAN_WIRE_BLOCK - 1;
	return count - count % PLAN_WIRE_BLOCK;
}

static size_t chunk_start(const struct plan_job *job, uint32_t rank)
{
	size_t start = rank * chunk_elements(job);

	if (job->coll == FRL_REDUCE_SCATTER)
		return rank * job->count;
	return start < job->count ? start : job->count;
}

static size_t chunk_count(const struct plan_job *job, uint32_t rank)
{
	if (job->coll == FRL_REDUCE_SCATTER)
		return job->count;
	return chunk_start(job, rank + 1) - chunk_start(job, rank);
}

/* Sums up the contributions in rank order. */
static uint32_t add_up(const struct bruck *k, struct plan_range blocks, struct plan_range target,
	struct plan_addend addends[])
{
	struct plan_builder *b = k->b;
	uint32_t me = (uint32_t)b->job->rank;
	size_t count = chunk_count(b->job, me);

	for (uint32_t i = 0; i < k->n; i++)
		addends[rank_before(k, i)] = (struct plan_addend){
			.range = i == 0 ? plan_input(b, chunk_start(b->job, me))
					: plan_plus(b, blocks, i * chunk_elements(b->job)),
			.ready = PLAN_NOTHING,
		};
	return plan_add_up(b, addends, k->n, plan_scratch(b, count), target, count);
}

/* Gathers the encoded sums. Ranks that need the result decode all sums, including their own. */
static void share(const struct bruck *k, struct plan_range sum, uint32_t made)
{
	struct plan_builder *b = k->b;
	const struct plan_job *job = b->job;
	uint32_t me = (uint32_t)job->rank;
	size_t chunk = chunk_elements(job);
	struct blocks blocks = {
		.start = plan_scratch_encoded(b, chunk * k->n), .count = chunk, .spacing = chunk
	};
	struct plan_range own = block_of(b, &blocks, me);
	uint32_t encode = plan_add_local(b, PLAN_ENCODE, own, sum, chunk_count(job, me));
	uint32_t received;

	plan_wait(b, encode, made, 0);
	received = gather(k, &blocks, own, encode, encode);
	for (uint32_t rank = 0; rank < k->n; rank++) {
		struct plan_range output = plan_at(b, PLAN_RECV, chunk_start(job, rank));

		if (job->coll == FRL_REDUCE && job->rank != job->root)
			break;
		plan_wait_whole(b,
			plan_add_local(b, PLAN_DECODE, output, block_of(b, &blocks, rank),
				chunk_count(job, rank)),
			rank == me ? encode : received);
	}
}

static void reduce(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct bruck k = bruck_of(b);
	bool keeps = job->coll != FRL_REDUCE || job->rank == job->root;
	size_t all = job->coll == FRL_REDUCE_SCATTER ? job->count * k.n : job->count;
	size_t chunk = chunk_elements(job);
	struct plan_range blocks = plan_scratch_encoded(b, chunk * k.n);
	struct plan_addend *addends = calloc(k.n, sizeof(addends[0]));
	uint32_t made = PLAN_NOTHING, step;
	struct plan_range sum;

	if (!addends) {
		b->failed = true;
		return;
	}
	plan_take_input(
		b, all, keeps && job->coll != FRL_REDUCE_SCATTER ? PLAN_RECV : PLAN_BUFFERS);
	for (uint32_t i = 1; i < k.n; i++) {
		uint32_t rank = rank_after(&k, i);
		size_t first = chunk_start(job, rank);

		step = plan_add_local(b, PLAN_ENCODE, plan_plus(b, blocks, i * chunk),
			plan_input(b, first), chunk_count(job, rank));
		plan_wait_input(b, step, first);
		if (step != PLAN_NOTHING)
			made = step;
	}
	exchange(&k, blocks, chunk, made);
	sum = job->coll == FRL_REDUCE_SCATTER
		? plan_at(b, PLAN_RECV, 0)
		: plan_scratch(b, chunk_count(job, (uint32_t)job->rank));
	step = add_up(&k, blocks, sum, addends);
	if (job->coll != FRL_REDUCE_SCATTER)
		share(&k, sum, step);
	free(addends);
}

/* Each block is encoded once by its source. All ranks decode it, so results are identical. */
static void allgather_encoded(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct bruck k = bruck_of(b);
	uint32_t me = (uint32_t)job->rank;
	size_t chunk = plan_spacing(job, job->count);
	struct blocks blocks = {
		.start = plan_scratch_encoded(b, chunk * k.n), .count = chunk, .spacing = chunk
	};
	struct plan_range own = block_of(b, &blocks, me);
	uint32_t encode = plan_add_local(b, PLAN_ENCODE, own,
		job->in_place ? plan_at(b, PLAN_RECV, me * job->count) : plan_at(b, PLAN_SEND, 0),
		job->count);
	uint32_t received = gather(&k, &blocks, own, encode, encode);

	for (uint32_t rank = 0; rank < k.n; rank++)
		plan_wait_whole(b,
			plan_add_local(b, PLAN_DECODE, plan_at(b, PLAN_RECV, rank * job->count),
				block_of(b, &blocks, rank), job->count),
			rank == me ? encode : received);
}

static void allgather(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct bruck k = bruck_of(b);
	struct blocks blocks = {
		.start = plan_at(b, PLAN_RECV, 0), .count = job->count, .spacing = job->count
	};
	uint32_t placed = plan_copy_own_block(b);
	struct plan_range own = job->in_place ? block_of(b, &blocks, (uint32_t)job->rank)
					      : plan_at(b, PLAN_SEND, 0);

	gather(&k, &blocks, own, PLAN_NOTHING, placed);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;

	b->plan->segment = plan_segment(job, job->count * ((size_t)job->ranks / 2));
	switch (job->coll) {
	case FRL_ALLGATHER:
		if (plan_is_encoded(job))
			allgather_encoded(b);
		else
			allgather(b);
		break;
	case FRL_ALLTOALL: alltoall(b); break;
	case FRL_BARRIER: barrier(b); break;
	default: reduce(b); break;
	}
}

const struct plan_algo plan_bruck_algo = { why_not, make };
