/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Space in rings. Each operation reserves consecutive bytes, the same ones in all rings and on all
 * ranks. It reserves enough for run->count elements, even if it writes no ring.
 */
#include "collectives/shm/internal.h"

enum { LEAST = 4 << 10 }; /* bytes that an operation reserves at least */

/* Returns the bytes to reserve: a power of two up to a block, and whole blocks beyond. A short
 * operation reserves a block, and writes it only if a rank requests a copy. */
static uint64_t space_of(const struct run *run, uint32_t elem_size)
{
	uint64_t bytes = run->count * elem_size, space = LEAST;

	if (!run->is_long)
		return SHM_BLOCK;
	if (bytes > SHM_BLOCK)
		return (bytes + SHM_BLOCK - 1) / SHM_BLOCK * SHM_BLOCK;
	while (space < bytes)
		space *= 2;
	return space;
}

uint64_t shm_ring_reserve(struct shm *shm, const struct run *run, uint32_t elem_size)
{
	uint64_t space = space_of(run, elem_size);
	uint64_t align = space < SHM_BLOCK ? space : SHM_BLOCK;
	uint64_t at = (shm->ring_next + align - 1) / align * align;

	shm->ring_next = at + space;
	return at;
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
	uint64_t oldest = shm->operations[first % SHM_SLOTS].ring_at;
	uint32_t blocks = shm_ring_blocks(shm->ranks);
	uint64_t end = operation->ring_at + (uint64_t)(round + 1) * SHM_BLOCK;

	/* Counts a whole block, even if the operation has reserved less. A rank that is SHM_SLOTS
	 * behind is faulty. */
	if (operation->number - first >= SHM_SLOTS)
		return false;
	if (end <= oldest + (uint64_t)blocks * SHM_BLOCK)
		return true;
	return first == operation->number &&
		shm_have_reached(shm, operation, counter, round - blocks + 1);
}

void shm_ring_write(struct shm *shm, const struct shm_operation *operation, uint32_t ring,
	uint32_t round, const uint8_t *from, size_t bytes)
{
	size_t at = shm_ring_at(shm->ranks, ring, operation->ring_at, round);

	store_times_copy(&shm->store_times[ring], shm->page->rings + at, from, bytes);
}
