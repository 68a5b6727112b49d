/* SPDX-License-Identifier: BSD-3-Clause */
/* Locations of this rank's buffers. A rank remembers those that it has looked up, since finding an
 * allocation takes locks. */
#include "collectives/shm/internal.h"
#include "lib/base/memory/share.h"

enum {
	AGAIN = 256, /* uses after which a buffer without a known location is looked up again */
	GRAIN = 64,  /* bytes: buffers are rarely closer to each other */
};

static struct shm_seen *entry_of(struct shm *shm, const uint8_t *addr)
{
	uint64_t hash = (uint64_t)(uintptr_t)addr / GRAIN * UINT64_C(0x9e3779b97f4a7c15);

	return &shm->seen[(hash >> 32) % SHM_SEEN];
}

/* Returns whether an entry describes this buffer. After a free, another allocation may have the
 * address. */
static bool is_of(const struct shm_seen *seen, const uint8_t *addr, size_t bytes)
{
	return seen->addr == addr && bytes <= seen->bytes && seen->frees == share_frees();
}

/* Returns whether the location of such a buffer is known. Another buffer may have displaced its
 * export. */
static bool is_exported(const struct shm *shm, const struct shm_seen *seen)
{
	return seen->is_shared &&
		atomic_load_explicit(&shm->page->exports[seen->export_at], memory_order_relaxed) ==
		seen->location.export.id;
}

const struct shm_location *shm_locate_again(struct shm *shm, const uint8_t *addr, size_t bytes)
{
	struct shm_seen *seen = entry_of(shm, addr);

	if (!is_of(seen, addr, bytes)) {
		*seen = (struct shm_seen){ .addr = addr, .bytes = bytes, .frees = share_frees() };
		return NULL;
	}
	if (seen->is_shared && !is_exported(shm, seen)) {
		seen->is_shared = false;
		seen->uses = 0;
	}
	if (!seen->is_shared && seen->uses++ % AGAIN == 0)
		seen->is_shared = shm_export_if_room(
			shm->page, addr, seen->bytes, &seen->location, &seen->export_at);
	return seen->is_shared ? &seen->location : NULL;
}

bool shm_locate(
	struct shm *shm, const uint8_t *addr, size_t bytes, struct shm_location *ret_location)
{
	struct shm_seen *seen = entry_of(shm, addr);
	struct shm_seen found = { .addr = addr, .bytes = bytes, .frees = share_frees() };

	if (!is_of(seen, addr, bytes) || !is_exported(shm, seen)) {
		found.is_shared = shm_export(
			shm->page, addr, bytes, &found.location, &found.export_at);
		/* Private buffers displace no entry. */
		if (!found.is_shared)
			return false;
		*seen = found;
	}
	*ret_location = seen->location;
	return true;
}
