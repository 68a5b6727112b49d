/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of rings. All operations use the blocks of all rings in the order of the operations, so
 * a block has the same number on all ranks. An operation uses as many blocks as its whole vector
 * has, even if it needs none.
 */
#include "collectives/shm/internal.h"
#include "lib/base/clock.h"
#include "lib/base/memory/copy.h"

/* One of PROBE_EVERY blocks is written with the other kind of stores, so that readers know the time
 * of both kinds. */
enum { PROBE_EVERY = 64, PROBE_AT = 8 };

uint64_t shm_blocks_of(const struct run *run, uint32_t elem_size)
{
	return run->is_long ? (run->count * elem_size + SHM_BLOCK - 1) / SHM_BLOCK + 1 : 1;
}

bool shm_ring_has_room(
	struct shm *shm, const struct shm_operation *operation, uint32_t round, size_t counter)
{
	uint64_t block = operation->first_block + round, oldest;

	while (shm->unread < operation->number && shm_is_read_by_all(shm, shm->unread))
		shm->unread++;
	oldest = shm->operations[shm->unread % SHM_SLOTS].first_block;
	if (block < oldest + shm_ring_blocks(shm->ranks))
		return true;
	return shm->unread == operation->number &&
		shm_have_reached(shm, operation, counter, round - shm_ring_blocks(shm->ranks) + 1);
}

/* ---- kinds of stores */

void shm_ring_write(struct shm *shm, const struct shm_operation *operation, uint32_t ring,
	uint32_t round, const uint8_t *from, size_t bytes)
{
	uint64_t block = operation->first_block + round, start_ns = clock_now_ns();
	uint8_t *to = shm->page->rings + shm_ring_at(shm->ranks, ring, block);
	struct ring_times *times = &shm->ring_times[ring];
	bool passes = ring_times_prefer_nontemporal(times) != (block % PROBE_EVERY == PROBE_AT);

	if (passes)
		copy_nontemporal(to, from, bytes);
	else
		copy_bulk(to, from, bytes);
	ring_times_add(times, passes, bytes, clock_now_ns() - start_ns);
}
