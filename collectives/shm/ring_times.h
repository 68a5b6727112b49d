/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times to write blocks of a ring, by the kind of stores. If the writer and the readers share a
 * cache, normal stores are faster, and the readers find the blocks in the cache. If they do not
 * (another core complex, another socket), each normal store waits until a reader's processor has
 * given up the line, and takes up to ten times as long as a non-temporal one. In virtual machines,
 * the kernel's files do not tell which caches are shared, and processes migrate. So ranks measure.
 *
 * Pure. One thread at a time.
 */
#ifndef FERRULE_COLLECTIVES_SHM_RING_TIMES_H
#define FERRULE_COLLECTIVES_SHM_RING_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RING_TIMES_LEAST = 4 << 10, /* bytes of a block that is measured */
	RING_TIMES_PER = 64 << 10,  /* bytes to which times are scaled */
	RING_TIMES_SKIPPED = 16,    /* blocks: their pages are new, and not measured */
	/* One of so many blocks is written with the other kind of stores. */
	RING_TIMES_PROBES = 64,
	RING_TIMES_PROBE_AT = 24,
	/* A block counts as one of this many. Slower ones may have been interrupted. */
	RING_TIMES_FASTER = 2,
	RING_TIMES_SLOWER = 4,
	/* Non-temporal stores must be faster by this factor: readers find the block in memory then,
	 * rather than in a cache. */
	RING_TIMES_FACTOR = 3,
};

/* Smoothed times in ns of RING_TIMES_PER bytes; 0: unknown. */
struct ring_times {
	uint64_t cached, nontemporal;
	uint32_t blocks; /* written so far */
};

/* Adds the time of a block. The process may have been preempted meanwhile, so a block counts as at
 * most twice the time so far. */
static inline void ring_times_add(
	struct ring_times *times, bool is_nontemporal, size_t bytes, uint64_t ns)
{
	uint64_t *smoothed = is_nontemporal ? &times->nontemporal : &times->cached;
	uint64_t now, weight;

	if (bytes < RING_TIMES_LEAST || times->blocks++ < RING_TIMES_SKIPPED)
		return;
	now = ns * RING_TIMES_PER / bytes + 1;
	if (*smoothed == 0)
		*smoothed = now;
	if (now > 2 * *smoothed)
		now = 2 * *smoothed;
	weight = now < *smoothed ? RING_TIMES_FASTER : RING_TIMES_SLOWER;
	*smoothed = (*smoothed * (weight - 1) + now + weight - 1) / weight;
}

static inline bool ring_times_prefer_nontemporal(const struct ring_times *times)
{
	return times->nontemporal > 0 && times->cached > times->nontemporal * RING_TIMES_FACTOR;
}

/* Returns the kind of stores for the next block: the better one, except for a probe. */
static inline bool ring_times_choose_nontemporal(const struct ring_times *times)
{
	bool is_probe = times->blocks % RING_TIMES_PROBES == RING_TIMES_PROBE_AT;

	return ring_times_prefer_nontemporal(times) != is_probe;
}

#endif
