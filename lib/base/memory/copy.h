/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies to memory that other threads poll, copies of many bytes, and copies with non-temporal
 * stores. Any thread.
 *
 * copy_in_order() guarantees to a thread that reads with acquire order:
 * - An aligned word of 8, 4, 2 or 1 bytes inside the copy has its old or its new value, never a
 *   mix.
 * - A reader that sees the last word of a copy also sees the whole copy, and everything that the
 *   copying thread wrote before.
 * - A reader that sees the last 8-byte word of an aligned 128-byte line also sees the part of the
 *   line before it (LL128 of NCCL).
 *
 * On x86, 128-byte lines become visible in ascending order, and the last 16 bytes of each line
 * last. memcpy() guarantees none of this.
 */
#ifndef FERRULE_BASE_COPY_H
#define FERRULE_BASE_COPY_H

#include <stddef.h>

/* The two buffers must not overlap. Prefetches the memory after the end of `dst`. */
void copy_in_order(void *dst, const void *src, size_t n);

/*
 * As memcpy(), for copies of many bytes, at the same speed for any two addresses. glibc's memcpy()
 * uses `rep movsb` for these, which some processors (AMD Zen 3) slow down to a tenth if
 * (dst - src) modulo 4096 is small and not 0. That is the case for most pairs of a large malloc()
 * block and a page-aligned buffer.
 */
void copy_bulk(void *dst, const void *src, size_t n);

/*
 * Copies with non-temporal stores. Use it for copies that exceed the caches and are not read again
 * soon, or that a processor without a shared cache reads (store_times.h). The data is visible
 * before anything written later, as with memcpy(). The two buffers must not overlap.
 */
void copy_nontemporal(void *dst, const void *src, size_t n);

/* Makes all non-temporal stores of this thread visible before anything that it writes later. */
static inline void copy_settle(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}

#endif
