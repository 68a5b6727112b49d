/* SPDX-License-Identifier: BSD-3-Clause */
/* The one clock: monotonic nanoseconds. Read once a round, then handed down. Any thread. */
#ifndef FERRULE_BASE_CLOCK_H
#define FERRULE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

enum { CLOCK_COARSE_NS = 10000000 }; /* a tick of the kernel's is at most so long */

static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The same time as of the kernel's last tick: behind by up to CLOCK_COARSE_NS, but for a fourth of
 * the price. */
static inline uint64_t clock_coarse_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
