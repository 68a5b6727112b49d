/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies to memory that another process reads, with the faster kind of stores. If the two
 * processors share a third-level cache ("near"), normal stores are faster, and the reader finds the
 * block in the cache. If they do not ("far": another core complex, another socket), each line must
 * first be invalidated in the reader's cache: a block of 64 KiB takes 28 us, and 4 us with
 * non-temporal stores. In virtual machines, the kernel's files do not tell which caches are shared,
 * and processes migrate. So writers measure one block of each kind in 61 blocks.
 *
 * Callers serialize access to a struct store_times.
 */
#ifndef FERRULE_BASE_STORE_TIMES_H
#define FERRULE_BASE_STORE_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	STORE_TIMES_LEAST_BYTES = 2 << 10, /* shorter blocks: normal stores, not counted */
	STORE_TIMES_UNIT_BYTES = 64 << 10, /* to which times are scaled */
	/* An odd period: a job may repeat a pattern of two or four blocks. */
	STORE_TIMES_PERIOD = 61,
};

/* Averages in ns of STORE_TIMES_UNIT_BYTES; 0: unknown. Zeroed at first. */
struct store_times {
	uint64_t normal, nontemporal;
	uint32_t blocks; /* copied so far */
};

/* Copies a block. The two buffers must not overlap. The data is visible before anything written
 * later, as with memcpy(). Sometimes reads the clock. */
void store_times_copy(struct store_times *times, void *to, const void *from, size_t bytes);

/* Returns whether blocks that are not measured are copied with non-temporal stores. */
bool store_times_prefer_nontemporal(const struct store_times *times);

/* Adds the time of a block. A longer time than the average may include an interruption: it counts
 * as twice the average at most, and half. Called by store_times_copy(), and by tests. */
void store_times_add(struct store_times *times, bool is_nontemporal, size_t bytes, uint64_t ns);

#endif
