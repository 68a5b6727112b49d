/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies to memory that other threads poll, and copies with non-temporal stores. Any thread.
 *
 * copy_in_order() guarantees to a thread that reads with acquire order:
 * - An aligned word of 8, 4, 2 or 1 bytes that lies inside the copy is seen as it was or as it is
 *   after the copy, never as a mix.
 * - When the last word of a copy is seen, so is the whole copy, and what the copying thread has
 *   written before.
 * - When the last word of 8 bytes of an aligned line of 128 is seen, so is the part of the line in
 *   front of it (LL128 of NCCL).
 * On x86 lines of 128 become visible in ascending order, and in each line its last 16 bytes last.
 * memcpy() guarantees none of this.
 */
#ifndef FERRULE_BASE_COPY_H
#define FERRULE_BASE_COPY_H

#include <stddef.h>

/* The two do not overlap. Prefetches what lies behind `dst`. */
void copy_in_order(void *dst, const void *src, size_t n);

/*
 * A copy that leaves the caches alone where it writes: of memory that is longer than these, and
 * that will not be read again soon. What was written is visible before anything that is written
 * later, as with memcpy(). The two do not overlap.
 */
void copy_past_cache(void *dst, const void *src, size_t n);

/* Makes what this thread has written with non-temporal stores, by whatever means, visible before
 * anything that it writes later. */
static inline void copy_settle(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}

#endif
