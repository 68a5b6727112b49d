/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce in shared memory in which each rank reduces the whole vector for itself, out of what
 * all send: nobody waits for what another one makes, and nobody reads what another one has just
 * written. All ranks must be able to read what the others send where it lies, until the operation
 * is over.
 */
#include "collectives/shm_internal.h"
#include "lib/reduce/past_cache.h"

enum {
	/* Of more than two ranks parts mean less to read for each, which counts where vectors are
	 * longer than waiting takes; of two they mean less traffic with memory, which counts where
	 * vectors are longer than caches, and where results have to go through these. As measured;
	 * bytes. */
	FLAT_RANKS = 4,
	FLAT_MOST = 64 << 10,
	FLAT_MOST_OF_TWO = 8 << 20,
	CACHED = 4 << 20, /* bytes: of longer results the caches hold little when all is done */
	PIECE = 4 << 10,  /* bytes: a page */
	LINE = 64,
	LINES_AHEAD = 8, /* hardware fetches what follows, but does not begin with a page */
};

/* Those of two ranks write each line once, and read none of what they overwrite. Whether a process
 * has the function for that is its own matter (a debugger that hides instructions, another build),
 * so all have told: they come to the same. */
static bool passes_cache(const struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;

	return shm->ranks == 2 && run->bytes[PLAN_SEND] > CACHED && run->scaled != FRL_AVG &&
		operation->passing == shm_all(shm);
}

bool shm_flat_suits(const struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;

	return shape_is_shared_sum(run->coll) && operation->keeping == shm_all(shm) &&
		shm->ranks <= FLAT_RANKS &&
		(passes_cache(shm, operation) ||
			run->bytes[PLAN_SEND] <= (shm->ranks == 2 ? FLAT_MOST_OF_TWO : FLAT_MOST));
}

void shm_flat_begin(struct shm_operation *operation)
{
	size_t most = SHM_BLOCK / operation->elem_size;

	operation->is_flat = true;
	operation->rounds = (uint32_t)((operation->run->count + most - 1) / most);
	operation->staged = operation->rounds;
	operation->sources = 0;
}

/* Begins to fetch the piece behind this one. */
static void fetch_piece(const struct shm *shm, const uint8_t *const in[], const uint8_t *target)
{
	for (size_t at = PIECE; at < PIECE + LINES_AHEAD * LINE; at += LINE) {
		for (uint32_t rank = 0; rank < shm->ranks; rank++)
			__builtin_prefetch(in[rank] + at);
		__builtin_prefetch(target + at, 1);
	}
}

/* In the order of the ranks on all of them: results are the same to the last bit. Advances `in`. */
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
 * Every other operation begins at the end: of a vector that is longer than the cache, what was
 * touched last is still there, be it by the operation before or by who made the elements.
 */
static struct shm_span next_block(const struct shm_operation *operation)
{
	uint32_t round = operation->number % 2 ? operation->rounds - 1 - operation->made
					       : operation->made;

	return shm_block_of(operation, (struct shm_span){ 0, operation->run->count }, round);
}

bool shm_flat_make(struct shm *shm, struct shm_operation *operation)
{
	size_t piece = PIECE / operation->elem_size;
	const uint8_t *in[SHM_RANKS_MAX];
	struct shm_span block;
	uint8_t *target;

	if (operation->made == operation->rounds)
		return false;
	block = next_block(operation);
	target = shm_at(operation, PLAN_RECV, block.first);
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		in[rank] = rank == shm->me
			? shm_at(operation, PLAN_SEND, block.first)
			: operation->peer[rank].send + block.first * operation->elem_size;
	if (passes_cache(shm, operation)) {
		reduce_past_cache(target, in[0], in[1], block.count, operation->run->dtype,
			operation->run->op);
		block.count = 0;
	}
	while (block.count > 0) {
		size_t count = block.count < piece ? block.count : piece;

		block.count -= count;
		if (block.count > 0)
			fetch_piece(shm, in, target);
		reduce_piece(shm, operation, in, target, count);
		target += count * operation->elem_size;
	}
	shm_tell_made(shm, operation, operation->made + 1);
	return true;
}
