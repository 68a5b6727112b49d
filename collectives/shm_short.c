/* SPDX-License-Identifier: BSD-3-Clause */
/* Short operations in shared memory: each rank puts what it brings into its slot, and takes what it
 * needs out of those of others. */
#include <string.h>

#include "collectives/shm_internal.h"

/* What a rank brings, in blocks of the operation's count; and who takes. */
struct shape {
	bool all_bring, root_brings, by_rank; /* by_rank: one block for each */
	bool all_take, root_takes;
};

static const struct shape shapes[FRL_COLLS] = {
	[FRL_ALLREDUCE] = { .all_bring = true, .all_take = true },
	[FRL_REDUCE_SCATTER] = { .all_bring = true, .by_rank = true, .all_take = true },
	[FRL_ALLGATHER] = { .all_bring = true, .all_take = true },
	[FRL_BROADCAST] = { .root_brings = true, .all_take = true },
	[FRL_REDUCE] = { .all_bring = true, .root_takes = true },
	[FRL_ALLTOALL] = { .all_bring = true, .by_rank = true, .all_take = true },
	[FRL_GATHER] = { .all_bring = true, .root_takes = true },
	[FRL_SCATTER] = { .root_brings = true, .by_rank = true, .all_take = true },
	[FRL_BARRIER] = { .all_bring = true, .all_take = true },
};

static uint32_t all_of(const struct shm *shm)
{
	return (uint32_t)((UINT64_C(1) << shm->ranks) - 1);
}

void shm_short_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot)
{
	const struct run *run = operation->run;
	const struct shape *shape = &shapes[run->coll];
	uint32_t root = run->signature.root;
	size_t bytes = run->bytes[PLAN_SEND];

	if (bytes > 0 && shm_scales_first(run))
		run_scale(run, slot->data, run->base[PLAN_SEND], bytes / operation->elem_size);
	else if (bytes > 0)
		memcpy(slot->data, run->base[PLAN_SEND], bytes);
	if (shape->all_take || (shape->root_takes && root == shm->me))
		operation->sources = shape->all_bring ? all_of(shm) : shm_bit(root);
	operation->awaited = operation->sources & ~shm_bit(shm->me);
}

/* In the order of the ranks on all of them: results are the same to the last bit. */
static void reduce(struct shm *shm, const struct shm_operation *operation, size_t from)
{
	const struct run *run = operation->run;
	uint8_t *target = run->base[PLAN_RECV];
	const uint8_t *sum = shm_slot_of(shm, 0, operation->number)->data + from;
	size_t count = run->count;

	for (uint32_t rank = 1; rank < shm->ranks; rank++) {
		frl_reduce_local(target, sum,
			shm_slot_of(shm, rank, operation->number)->data + from, count, run->dtype,
			run->op);
		sum = target;
	}
	if (run->scaled == FRL_AVG && !shm_scales_first(run))
		run_scale(run, target, target, count);
}

void shm_short_take(struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;
	size_t bytes = run->count * operation->elem_size;
	size_t from = shapes[run->coll].by_rank ? shm->me * bytes : 0;
	uint8_t *target = run->base[PLAN_RECV];

	if (run->bytes[PLAN_RECV] == 0)
		return;
	if (run->coll == FRL_ALLREDUCE || run->coll == FRL_REDUCE_SCATTER ||
		run->coll == FRL_REDUCE) {
		reduce(shm, operation, from);
		return;
	}
	for (uint32_t left = operation->sources; left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctz(left);

		memcpy(target, shm_slot_of(shm, rank, operation->number)->data + from, bytes);
		target += bytes;
	}
}
