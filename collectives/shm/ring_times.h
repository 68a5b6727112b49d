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
	RING_TIMES_WEIGHT = 4,      /* a measurement counts as one of these many */
	RING_TIMES_FACTOR = 3,      /* non-temporal stores must be faster by this factor: readers
				       find the block in memory then, rather than in a cache */
};

/* Smoothed times in ns of RING_TIMES_PER bytes; 0: unknown. */
struct ring_times {
	uint64_t cached, nontemporal;
};

/* Adds the time of a block. The process may have been preempted meanwhile, so a block counts as at
 * most twice the time so far. */
static inline void ring_times_add(
	struct ring_times *times, bool is_nontemporal, size_t bytes, uint64_t ns)
{
	uint64_t *smoothed = is_nontemporal ? &times->nontemporal : &times->cached;
	uint64_t now;

	if (bytes < RING_TIMES_LEAST)
		return;
	now = ns * RING_TIMES_PER / bytes + 1;
	if (*smoothed == 0)
		*smoothed = now;
	if (now > 2 * *smoothed)
		now = 2 * *smoothed;
	*smoothed = (*smoothed * (RING_TIMES_WEIGHT - 1) + now) / RING_TIMES_WEIGHT;
}

static inline bool ring_times_prefer_nontemporal(const struct ring_times *times)
{
	return times->nontemporal > 0 && times->cached > times->nontemporal * RING_TIMES_FACTOR;
}

#endif
