/* SPDX-License-Identifier: BSD-3-Clause */
/* Locations of this rank's buffers. A rank remembers those that it has looked up, since finding an
 * allocation takes locks. */
#include "collectives/shm/internal.h"
#include "lib/base/memory/share.h"

enum {
	AGAIN = 256, /* uses after which a buffer without a known location is looked up again */
	GRAIN = 64,  /* bytes: buffers are rarely closer to each other */
};

/* Returns the entry of a buffer. It is empty if the buffer is new, or if anything was freed since:
 * the address could belong to another allocation. */
static struct shm_seen *find(struct shm *shm, const uint8_t *addr, size_t bytes)
{
	uint64_t hash = (uint64_t)(uintptr_t)addr / GRAIN * UINT64_C(0x9e3779b97f4a7c15);
	struct shm_seen *seen = &shm->seen[(hash >> 32) % SHM_SEEN];
	uint64_t frees = share_frees();

	if (seen->addr != addr || bytes > seen->bytes || seen->frees != frees)
		*seen = (struct shm_seen){ .addr = addr, .bytes = bytes, .frees = frees };
	/* Another allocation may have displaced the export. */
	if (seen->is_shared &&
		atomic_load_explicit(&shm->page->exports[seen->export_at], memory_order_relaxed) !=
			seen->location.export.id)
		seen->is_shared = false;
	return seen;
}

const struct shm_location *shm_locate_again(struct shm *shm, const uint8_t *addr, size_t bytes)
{
	struct shm_seen *seen = find(shm, addr, bytes);

	if (!seen->is_shared && seen->uses > 0 && (seen->uses - 1) % AGAIN == 0)
		seen->is_shared = shm_export_if_room(
			shm->page, addr, seen->bytes, &seen->location, &seen->export_at);
	if (!seen->is_shared)
		seen->uses++;
	return seen->is_shared ? &seen->location : NULL;
}

bool shm_locate(
	struct shm *shm, const uint8_t *addr, size_t bytes, struct shm_location *ret_location)
{
	struct shm_seen *seen = find(shm, addr, bytes);

	if (!seen->is_shared)
		seen->is_shared = shm_export(
			shm->page, addr, seen->bytes, &seen->location, &seen->export_at);
	if (seen->is_shared)
		*ret_location = seen->location;
	return seen->is_shared;
}
