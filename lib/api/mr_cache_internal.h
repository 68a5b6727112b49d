/* SPDX-License-Identifier: BSD-3-Clause */
/* What mr_cache.c and mr_cache_gpu.c share. */
#ifndef FERRULE_API_MR_CACHE_INTERNAL_H
#define FERRULE_API_MR_CACHE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/memory.h>

#include "lib/api/mr_index.h"
#include "lib/base/unmap_watch.h"

struct frl_mr_cache {
	struct unmap_listener listener;
	struct frl_pd *pd;
	uintptr_t page;
	bool can_watch;
	struct frl_mr_cache_config limit;
	struct mr_index index;     /* memory of the processor, which is watched */
	struct mr_index gpu_index; /* of GPUs, which the driver is asked about */
	uintptr_t checked;         /* of the latter, those up to here, for now */
	unsigned gpu_hits;
	unsigned in_use, n_idle;
	uint64_t idle_bytes; /* without those of GPUs */
	struct list idle, dead, making;
	struct frl_mr_cache_stats stats;
	struct list node; /* all_caches */
};

/* ---- mr_cache.c; with the lock held */

/* One user more. */
void mr_cache_take(struct frl_mr_cache *cache, struct mr_entry *entry);
/* One less. */
void mr_cache_let_go(struct frl_mr_cache *cache, struct mr_entry *entry);
/* Its memory is not what it was: nobody finds it any more; if nobody has it, it is dead. */
void mr_cache_invalidate(struct frl_mr_cache *cache, struct mr_entry *entry);

/* ---- mr_cache_gpu.c; without the lock */

/*
 * A region of GPU memory for all of [start, end), of which the driver has just said what it is
 * (`buffer`); with one user more. NULL: there is none. Some may be dead after it.
 */
struct mr_entry *mr_cache_find_gpu(struct frl_mr_cache *cache, uintptr_t start, uintptr_t end,
	uint32_t access, uint64_t buffer);

#endif
