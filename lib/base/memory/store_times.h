/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times to copy blocks to memory that another process reads, by the kind of stores. If the two
 * processors share a cache, normal stores are faster, and the reader finds the block in the cache.
 * If they do not (another core complex, another socket), each normal store waits until the reader's
 * processor has given up the line, and takes up to ten times as long as a non-temporal one. In
 * virtual machines, the kernel's files do not tell which caches are shared, and processes migrate.
 * So writers measure.
 *
 * store_times_copy() reads the clock and copies. The rest is pure. One thread at a time.
 */
#ifndef FERRULE_COLLECTIVES_SHM_STORE_TIMES_H
#define FERRULE_COLLECTIVES_SHM_STORE_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/clock.h"
#include "lib/base/memory/copy.h"

enum {
	STORE_TIMES_LEAST = 4 << 10, /* bytes of a block that is measured */
	STORE_TIMES_PER = 64 << 10,  /* bytes to which times are scaled */
	STORE_TIMES_SKIPPED = 16,    /* blocks: their pages are new, and not measured */
	/* One of so many blocks is written with the other kind of stores. */
	STORE_TIMES_PROBES = 64,
	STORE_TIMES_PROBE_AT = 24,
	/* A block counts as one of this many. Slower ones may have been interrupted. */
	STORE_TIMES_FASTER = 2,
	STORE_TIMES_SLOWER = 4,
	/* Non-temporal stores must be faster by this factor: readers find the block in memory then,
	 * rather than in a cache. */
	STORE_TIMES_FACTOR = 3,
};

/* Smoothed times in ns of STORE_TIMES_PER bytes; 0: unknown. */
struct store_times {
	uint64_t cached, nontemporal;
	uint32_t blocks; /* written so far */
};

/* Adds the time of a block. The process may have been preempted meanwhile, so a block counts as at
 * most twice the time so far. */
static inline void store_times_add(
	struct store_times *times, bool is_nontemporal, size_t bytes, uint64_t ns)
{
	uint64_t *smoothed = is_nontemporal ? &times->nontemporal : &times->cached;
	uint64_t now, weight;

	if (bytes < STORE_TIMES_LEAST || times->blocks++ < STORE_TIMES_SKIPPED)
		return;
	now = ns * STORE_TIMES_PER / bytes + 1;
	if (*smoothed == 0)
		*smoothed = now;
	if (now > 2 * *smoothed)
		now = 2 * *smoothed;
	weight = now < *smoothed ? STORE_TIMES_FASTER : STORE_TIMES_SLOWER;
	*smoothed = (*smoothed * (weight - 1) + now + weight - 1) / weight;
}

static inline bool store_times_prefer_nontemporal(const struct store_times *times)
{
	return times->nontemporal > 0 && times->cached > times->nontemporal * STORE_TIMES_FACTOR;
}

/* Returns the kind of stores for the next block: the better one, except for a probe. */
static inline bool store_times_choose_nontemporal(const struct store_times *times)
{
	bool is_probe = times->blocks % STORE_TIMES_PROBES == STORE_TIMES_PROBE_AT;

	return store_times_prefer_nontemporal(times) != is_probe;
}

/* Copies a block with the better kind of stores. The two buffers must not overlap. */
static inline void store_times_copy(
	struct store_times *times, void *to, const void *from, size_t bytes)
{
	bool is_nontemporal;
	uint64_t start_ns;

	if (bytes < STORE_TIMES_LEAST) {
		copy_bulk(to, from, bytes);
		return;
	}
	is_nontemporal = store_times_choose_nontemporal(times);
	start_ns = clock_now_ns();
	if (is_nontemporal)
		copy_nontemporal(to, from, bytes);
	else
		copy_bulk(to, from, bytes);
	store_times_add(times, is_nontemporal, bytes, clock_now_ns() - start_ns);
}

#endif
