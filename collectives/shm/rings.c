/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Space in rings. An operation that may write a ring reserves consecutive bytes, the same ones in
 * all rings and on all ranks. Other operations reserve none.
 */
#include "collectives/shm/internal.h"
#include "lib/base/round.h"

/* Returns the bytes to reserve. They depend only on the operation and the number of ranks. All
 * ranks reserve the same, even those that write no ring. */
static uint64_t space_of(uint32_t ranks, const struct run *run, uint32_t elem_size)
{
	uint64_t count = run->count;

	if (!run->is_long && !shm_short_may_be_in_place(run, elem_size))
		return 0;
	/* Only two ranks put whole inputs of an allreduce into rings (flat.c), others parts. */
	if (run->is_long && shape_reduces_to_all(run->coll) && ranks > 2)
		count = (count + ranks - 1) / ranks;
	return round_up(count * elem_size, SHM_RING_UNIT);
}

uint64_t shm_ring_reserve(struct shm *shm, const struct run *run, uint32_t elem_size)
{
	const uint64_t ring = (uint64_t)shm_ring_blocks(shm->ranks) * SHM_BLOCK;
	uint64_t space = space_of(shm->ranks, run, elem_size), position = shm->ring_next;

	/* The end of a ring is at a multiple of SHM_BLOCK. Blocks that begin at such multiples do
	 * not cross it. */
	if (position % ring + space > ring)
		position = round_up(position, SHM_BLOCK);
	shm->ring_next = position + space;
	return position;
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
	/* No operation has been published that is SHM_SLOTS after it: its slot was not free. */
	uint64_t oldest = shm->operations[first % SHM_SLOTS].ring_position;
	uint32_t blocks = shm_ring_blocks(shm->ranks);
	uint64_t end = operation->ring_position + (uint64_t)(round + 1) * SHM_BLOCK;

	/* Counts a whole block, even if the operation has reserved less. */
	if (end <= oldest + (uint64_t)blocks * SHM_BLOCK)
		return true;
	return first == operation->number &&
		shm_have_reached(shm, operation, counter, round - blocks + 1);
}

void shm_ring_write(struct shm *shm, const struct shm_operation *operation, uint32_t ring,
	uint32_t round, const uint8_t *from, size_t bytes)
{
	size_t at = shm_ring_offset(shm->ranks, ring, operation->ring_position, round);

	store_times_copy(&shm->store_times[ring], shm->page->rings + at, from, bytes);
}
