/* SPDX-License-Identifier: BSD-3-Clause */
/* The only clock: monotonic nanoseconds. Callers read it once a round and pass the time down. Any
 * thread. */
#ifndef FERRULE_BASE_CLOCK_H
#define FERRULE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

enum { CLOCK_COARSE_NS = 10000000 }; /* the longest kernel tick */

static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Returns the time of the last kernel tick. It lags by up to CLOCK_COARSE_NS and costs a fourth. */
static inline uint64_t clock_coarse_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
