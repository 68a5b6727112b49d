/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbering of ring blocks. Each operation reserves consecutive block numbers, the same ones in all
 * rings and on all ranks. It reserves enough for run->count elements, even if it writes no ring.
 */
#include "collectives/shm/internal.h"

uint64_t shm_blocks_of(const struct run *run, uint32_t elem_size)
{
	return run->is_long ? (run->count * elem_size + SHM_BLOCK - 1) / SHM_BLOCK + 1 : 1;
}

/* Returns the first operation that another rank may still read, `number` at most. */
static uint64_t first_unread(struct shm *shm, uint64_t number)
{
	uint64_t first = number;

	for (uint32_t rank = 0; rank < shm->ranks; rank++) {
		uint64_t finished;

		if (rank == shm->me)
			continue;
		finished = shm_finished(&shm->peers[rank], number);
		if (finished < first)
			first = finished;
	}
	return first;
}

bool shm_ring_has_room(
	struct shm *shm, const struct shm_operation *operation, uint32_t round, size_t counter)
{
	uint64_t first = first_unread(shm, operation->number);
	uint64_t oldest = shm->operations[first % SHM_SLOTS].first_block;
	uint32_t blocks = shm_ring_blocks(shm->ranks);

	/* A rank that says so is faulty: a slot is reused later. */
	if (operation->number - first >= SHM_SLOTS)
		return false;
	if (operation->first_block + round < oldest + blocks)
		return true;
	return first == operation->number &&
		shm_have_reached(shm, operation, counter, round - blocks + 1);
}

void shm_ring_write(struct shm *shm, const struct shm_operation *operation, uint32_t ring,
	uint32_t round, const uint8_t *from, size_t bytes)
{
	uint64_t block = operation->first_block + round;

	store_times_copy(&shm->store_times[ring],
		shm->page->rings + shm_ring_at(shm->ranks, ring, block), from, bytes);
}
