/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared declarations of mr_cache.c and mr_cache_gpu.c. */
#ifndef FERRULE_API_MEMORY_MR_CACHE_INTERNAL_H
#define FERRULE_API_MEMORY_MR_CACHE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/memory.h>

#include "lib/api/memory/mr_index.h"
#include "lib/base/memory/unmap_watch.h"

struct frl_mr_cache {
	struct unmap_listener listener;
	struct frl_pd *pd;
	uintptr_t page;
	bool can_watch;
	struct frl_mr_cache_config limit;
	struct mr_index index;     /* host memory, which is watched */
	struct mr_index gpu_index; /* GPU memory, whose driver is queried */
	uintptr_t checked;         /* address up to which gpu_index has been checked */
	unsigned gpu_hits;
	unsigned in_use, n_idle;
	uint64_t idle_bytes; /* host memory only */
	struct list idle, dead, registering;
	struct frl_mr_cache_stats stats;
	struct list node; /* all_caches */
};

/* ---- mr_cache.c; with the lock held */

/* Adds a user. */
void mr_cache_acquire(struct frl_mr_cache *cache, struct mr_entry *entry);
/* Removes a user. */
void mr_cache_release(struct frl_mr_cache *cache, struct mr_entry *entry);
/* Removes an entry from the index, because its memory has changed. An unused entry is dead then. */
void mr_cache_invalidate(struct frl_mr_cache *cache, struct mr_entry *entry);

/* ---- mr_cache_gpu.c; without the lock */

/*
 * Finds an entry of GPU memory for all of [start, end), with one more user. `buffer` is the
 * allocation's number, which the driver has just returned. Returns NULL if there is none. Some
 * entries may be dead afterwards.
 */
struct mr_entry *mr_cache_find_gpu(struct frl_mr_cache *cache, uintptr_t start, uintptr_t end,
	uint32_t access, uint64_t buffer);

#endif
