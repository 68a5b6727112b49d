/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce in shared memory in which each rank reduces the whole vector from all inputs: no rank
 * waits for another's result. Inputs must be readable in place until the operation is complete. If
 * there are two ranks, each can copy its input to its ring instead, and may overwrite it.
 */
#include "collectives/shm/internal.h"
#include "lib/base/round.h"
#include "lib/reduce/nontemporal.h"

enum {
	PIECE = 4 << 10, /* bytes: one page */
	LINE = 64,
	LINES_AHEAD = 8,  /* hardware prefetches subsequent lines, but not the first of a page */
	STAGED_AHEAD = 2, /* blocks: they are still cached when they are reduced */
};

/* Two ranks write each line of a long result once, and do not read what they overwrite. */
static bool may_use_nontemporal(size_t ranks, size_t bytes, enum frl_op op)
{
	return ranks == 2 && bytes > SHM_STREAM_BYTES && op != FRL_AVG;
}

static bool is_whole(size_t ranks, size_t bytes, bool has_nontemporal)
{
	size_t most = ranks == 2 ? SHM_WHOLE_BYTES_OF_TWO : SHM_WHOLE_BYTES;

	return ranks <= SHM_WHOLE_RANKS && (has_nontemporal || bytes <= most);
}

/* Whether a process has the function may differ (a debugger that hides instructions, another
 * build), so all ranks publish it and get the same result. */
static bool all_have_nontemporal(const struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;

	return may_use_nontemporal(shm->ranks, run->bytes[PLAN_SEND], run->scaled) &&
		operation->nontemporal == shm_all(shm);
}

/* Returns whether the result is written with non-temporal stores. Not in place: the lines are
 * cached since the input was copied to the ring. */
static bool writes_nontemporal(const struct shm *shm, const struct shm_operation *operation)
{
	return all_have_nontemporal(shm, operation) &&
		operation->run->base[PLAN_SEND] != operation->run->base[PLAN_RECV];
}

bool shm_flat_suits(const struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;
	uint32_t readable = operation->keeping | (shm->ranks == 2 ? operation->staging : 0);

	return shape_reduces_to_all(run->coll) && readable == shm_all(shm) &&
		is_whole(shm->ranks, run->bytes[PLAN_SEND], all_have_nontemporal(shm, operation));
}

bool shm_may_be_flat(const struct frl_comm *comm, const struct operation *operation)
{
	const struct schedule_key *key = &operation->key;
	size_t ranks = (size_t)comm->ranks, bytes = operation->bytes[PLAN_SEND];
	bool has_nontemporal = may_use_nontemporal(ranks, bytes, key->op) &&
		reduce_has_nontemporal(key->dtype, operation->op);

	return shape_reduces_to_all(key->coll) && is_whole(ranks, bytes, has_nontemporal);
}

void shm_flat_begin(struct shm_operation *operation)
{
	size_t most = SHM_BLOCK / operation->elem_size;

	operation->is_flat = true;
	operation->rounds = (uint32_t)((operation->run->count + most - 1) / most);
	operation->staged = operation->rings_in ? 0 : operation->rounds;
	operation->sources = 0;
	/* No rank maps these buffers, so completion need not wait for readers. */
	if (operation->rings_in && operation->rings_out)
		operation->is_read = false;
}

/* Prefetches the begin of the next piece. */
static void fetch_piece(const struct shm *shm, const uint8_t *const in[], const uint8_t *target)
{
	for (size_t at = PIECE; at < PIECE + LINES_AHEAD * LINE; at += LINE) {
		for (uint32_t rank = 0; rank < shm->ranks; rank++)
			__builtin_prefetch(in[rank] + at);
		__builtin_prefetch(target + at, 1);
	}
}

/* Reduces in rank order on all ranks, so results are bitwise identical. Advances `in`. */
static void reduce_piece(const struct shm *shm, const struct shm_operation *operation,
	const uint8_t *in[], uint8_t *target, size_t count)
{
	const struct run *run = operation->run;
	const uint8_t *sum = in[0];

	for (uint32_t rank = 1; rank < shm->ranks; rank++) {
		frl_reduce_local(target, sum, in[rank], count, run->dtype, run->op);
		sum = target;
	}
	if (run->scaled == FRL_AVG)
		run_scale(run, target, target, count);
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		in[rank] += count * operation->elem_size;
}

/*
 * Every other operation begins at the end: if the vector exceeds the cache, the end was touched
 * last, by the previous operation or by the producer of the elements, and is still cached. In both
 * directions, a short block comes last, as shm_ring_reserve() requires. From the end, it is rounded
 * up to SHM_RING_UNIT, so that the others begin at a page if the vector does. The first block is
 * shorter by that.
 */
static struct shm_span block_of_round(const struct shm_operation *operation, uint32_t round)
{
	size_t most = SHM_BLOCK / operation->elem_size, count = operation->run->count;
	uint32_t after = operation->rounds - 1 - round; /* rounds after this one */
	size_t last, first, end;

	if (operation->number % 2 == 0)
		return shm_block_of(operation, (struct shm_span){ 0, count }, round);
	last = round_up(
		count - (operation->rounds - 1) * most, SHM_RING_UNIT / operation->elem_size);
	first = after ? last + (after - 1) * most : 0;
	end = last + after * most;
	return (struct shm_span){ first, (end < count ? end : count) - first };
}

bool shm_flat_stage(struct shm *shm, struct shm_operation *operation)
{
	uint32_t round = operation->staged;
	struct shm_span block;

	if (round == operation->rounds || round == operation->made + STAGED_AHEAD ||
		!shm_ring_has_room(shm, operation, round, offsetof(struct shm_progress, made)))
		return false;
	block = block_of_round(operation, round);
	shm_ring_write(shm, operation, shm->ranks, round, shm_at(operation, PLAN_SEND, block.first),
		block.count * operation->elem_size);
	shm_publish_staged(shm, operation, round + 1);
	return true;
}

/* Returns a rank's input of the next block to reduce, which begins at element `first`, or NULL if
 * the block has not been staged yet. */
static const uint8_t *input_of(
	const struct shm *shm, const struct shm_operation *operation, uint32_t rank, size_t first)
{
	const uint8_t *send = operation->peer[rank].send;
	uint32_t round = operation->made;

	/* This rank's block must be in its ring before the result overwrites it. */
	if (rank == shm->me)
		return operation->staged > round ? shm_at(operation, PLAN_SEND, first) : NULL;
	if (send)
		return send + first * operation->elem_size;
	return SHM_ROUNDS_OF(shm, operation, rank, staged) > round
		? shm_ring_of(shm, operation, rank, shm->ranks, round)
		: NULL;
}

/* Reduces all inputs of a block. */
static void reduce_block(const struct shm *shm, const struct shm_operation *operation,
	const uint8_t *in[], struct shm_span block)
{
	size_t piece = PIECE / operation->elem_size;
	uint8_t *target = shm_at(operation, PLAN_RECV, block.first);

	if (writes_nontemporal(shm, operation)) {
		reduce_nontemporal(target, in[0], in[1], block.count, operation->run->dtype,
			operation->run->op);
		return;
	}
	while (block.count > 0) {
		size_t count = block.count < piece ? block.count : piece;

		block.count -= count;
		if (block.count > 0)
			fetch_piece(shm, in, target);
		reduce_piece(shm, operation, in, target, count);
		target += count * operation->elem_size;
	}
}

bool shm_flat_make(struct shm *shm, struct shm_operation *operation)
{
	uint32_t round = operation->made;
	const uint8_t *in[SHM_RANKS_MAX];
	struct shm_span block;

	if (round == operation->rounds)
		return false;
	block = block_of_round(operation, round);
	for (uint32_t rank = 0; rank < shm->ranks; rank++) {
		in[rank] = input_of(shm, operation, rank, block.first);
		if (!in[rank])
			return false;
	}
	reduce_block(shm, operation, in, block);
	shm_publish_made(shm, operation, round + 1);
	return true;
}
