/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory in a cache of registrations. Frees of GPU memory are not reported, but the driver
 * gives each allocation a number that it never reuses. A lookup queries the number of the entry's
 * memory before it returns the entry. Entries without lookups would keep freed GPU memory
 * allocated: a few entries are checked at each registration, and after a number of hits.
 *
 * The driver is never called with the lock held: it may be unmapping memory that is watched.
 */
#include "lib/api/memory/mr_cache_internal.h"

#include "lib/api/memory/memory_gpu.h"

enum {
	CHECKS = 16, /* entries per check; each costs about one system call */
	HITS = 64,   /* hits until the next check */
};

struct seen {
	uintptr_t start, end;
	uint64_t buffer;
};

static bool is_stale(const struct seen *seen)
{
	uint64_t buffer;

	mr_gpu_buffer((const void *)seen->start, seen->end - seen->start, &buffer);
	return buffer != seen->buffer;
}

/* Returns an entry that covers the range, for any allocation, with one more user. */
static struct mr_entry *take_candidate(
	struct frl_mr_cache *cache, uintptr_t start, uintptr_t end, uint32_t access)
{
	struct mr_entry *entry;

	unmap_watch_lock();
	entry = mr_index_find(&cache->gpu_index, start, end, access);
	if (entry)
		mr_cache_acquire(cache, entry);
	unmap_watch_unlock();
	return entry;
}

/* Returns true if a check is due. */
static bool count_hit(struct frl_mr_cache *cache)
{
	bool is_time;

	unmap_watch_lock();
	cache->stats.hits++;
	is_time = ++cache->gpu_hits % HITS == 0;
	unmap_watch_unlock();
	return is_time;
}

static void put_back(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	unmap_watch_lock();
	if (entry->is_indexed)
		mr_cache_invalidate(cache, entry);
	mr_cache_release(cache, entry);
	unmap_watch_unlock();
}

/* Chooses unused entries, others each time. */
static unsigned choose(struct frl_mr_cache *cache, struct seen seen[CHECKS])
{
	const struct mr_index *index = &cache->gpu_index;
	uint32_t first = 0;
	unsigned n = 0;

	unmap_watch_lock();
	while (first < index->n && index->slots[first].entry->start <= cache->checked)
		first++;
	for (uint32_t i = 0; i < index->n && n < CHECKS; i++) {
		const struct mr_entry *entry = index->slots[(first + i) % index->n].entry;

		cache->checked = entry->start;
		if (!entry->users)
			seen[n++] = (struct seen){ entry->start, entry->end, entry->buffer };
	}
	unmap_watch_unlock();
	return n;
}

static struct mr_entry *find_idle(struct frl_mr_cache *cache, const struct seen *seen)
{
	for (uint32_t i = 0; i < cache->gpu_index.n; i++) {
		struct mr_entry *entry = cache->gpu_index.slots[i].entry;

		if (!entry->users && entry->start == seen->start && entry->end == seen->end &&
			entry->buffer == seen->buffer)
			return entry;
	}
	return NULL;
}

static void check_some(struct frl_mr_cache *cache)
{
	struct seen seen[CHECKS];
	unsigned n = choose(cache, seen);

	for (unsigned i = 0; i < n; i++) {
		struct mr_entry *entry;

		if (!is_stale(&seen[i]))
			continue;
		unmap_watch_lock();
		while ((entry = find_idle(cache, &seen[i])))
			mr_cache_invalidate(cache, entry);
		unmap_watch_unlock();
	}
}

struct mr_entry *mr_cache_find_gpu(struct frl_mr_cache *cache, uintptr_t start, uintptr_t end,
	uint32_t access, uint64_t buffer)
{
	struct mr_entry *entry;

	while ((entry = take_candidate(cache, start, end, access))) {
		struct seen seen = { entry->start, entry->end, entry->buffer };
		bool is_same = entry->start == start && entry->end == end ? entry->buffer == buffer
									  : !is_stale(&seen);

		if (is_same) {
			if (count_hit(cache))
				check_some(cache);
			return entry;
		}
		put_back(cache, entry);
	}
	check_some(cache);
	return NULL;
}
