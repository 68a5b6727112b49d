/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy whose bytes become visible in ascending order, for programs that watch memory which a peer
 * writes: of 8 aligned bytes all at once, and of a line of 128 no flag before what lies in front of
 * it. memcpy() promises neither, and stores the first bytes of some sizes last. And one for memory
 * that is longer than the caches. Any thread.
 */
#ifndef FERRULE_BASE_COPY_H
#define FERRULE_BASE_COPY_H

#include <stddef.h>

/* The two do not overlap. May fetch (and no more than that) what lies behind `dst`. */
void copy_in_order(void *dst, const void *src, size_t n);

/*
 * A copy that leaves the caches alone where it writes: of memory that is longer than these, and
 * that will not be read again soon. What was written is visible before anything that is written
 * later, as with memcpy(). The two do not overlap.
 */
void copy_past_cache(void *dst, const void *src, size_t n);

/* What this thread has written past the caches, by whatever means, is visible before anything that
 * it writes later. */
static inline void copy_settle(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}

#endif
