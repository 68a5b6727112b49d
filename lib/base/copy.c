/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * x86 makes stores visible in program order, so it is enough that the compiler leaves them alone.
 * Other processors need a fence in front of what may be a flag: the last 8 bytes of 16.
 */
#include "lib/base/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
	FETCH_LEAST = 1024, /* bytes of a packet that another one may follow */
	FETCH_AHEAD = 4096, /* at most: farther on it would be gone again before it is needed */
};

/* The compiler neither joins nor moves the stores around it. */
#define IN_ORDER() __asm__ volatile("" ::: "memory")

#if defined(__x86_64__)

static inline void copy_16(uint8_t *dst, const uint8_t *src)
{
	_mm_storeu_si128(
		(__m128i *)(void *)dst, _mm_loadu_si128((const __m128i *)(const void *)src));
}

static size_t copy_blocks_sse(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = 0;

	for (; n - at >= 16; at += 16) {
		copy_16(dst + at, src + at);
		IN_ORDER();
	}
	return at;
}

/*
 * Loads ahead of the stores: they may miss. So may stores: the next packet of a long message goes
 * where this one ends, which is fetched meanwhile. Beyond a page hardware does not guess that.
 */
__attribute__((target("avx2"))) static size_t copy_blocks_avx2(
	uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = 0, ahead = n < FETCH_LEAST ? 0 : n;

	if (ahead > FETCH_AHEAD)
		ahead = FETCH_AHEAD;
	for (; n - at >= 128; at += 128) {
		const __m256i *from = (const void *)(src + at);
		__m256i *to = (void *)(dst + at);
		__m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
		__m256i c = _mm256_loadu_si256(from + 2), d = _mm256_loadu_si256(from + 3);

		__builtin_prefetch(dst + at + ahead, 1);
		__builtin_prefetch(dst + at + ahead + 64, 1);
		_mm256_storeu_si256(to, a);
		IN_ORDER();
		_mm256_storeu_si256(to + 1, b);
		IN_ORDER();
		_mm256_storeu_si256(to + 2, c);
		IN_ORDER();
		/* Where a processor makes two of a store, the flag must be in the second one. */
		_mm_storeu_si128((__m128i *)(void *)(to + 3), _mm256_castsi256_si128(d));
		IN_ORDER();
		_mm_storeu_si128((__m128i *)(void *)(to + 3) + 1, _mm256_extracti128_si256(d, 1));
		IN_ORDER();
	}
	return at;
}

static size_t copy_blocks(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = 0;

	if (n >= 128 && __builtin_cpu_supports("avx2"))
		at = copy_blocks_avx2(dst, src, n);
	return at + copy_blocks_sse(dst + at, src + at, n - at);
}

#else

static size_t copy_blocks(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = 0;

	for (; n - at >= 16; at += 16) {
		uint64_t half[2];

		memcpy(half, src + at, sizeof(half));
		memcpy(dst + at, &half[0], sizeof(half[0]));
		__atomic_thread_fence(__ATOMIC_RELEASE);
		memcpy(dst + at + 8, &half[1], sizeof(half[1]));
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	return at;
}

#endif

void copy_in_order(void *dst, const void *src, size_t n)
{
	const uint8_t *from = src;
	uint8_t *to = dst;
	size_t at = copy_blocks(to, from, n);

	if (n - at >= 8) {
		memcpy(to + at, from + at, 8);
		at += 8;
		IN_ORDER();
	}
	for (; at < n; at++) {
		to[at] = from[at];
		IN_ORDER();
	}
}

#if defined(__x86_64__)

/* Lines that are written whole, and so need not be fetched first. */
void copy_past_cache(void *dst, const void *src, size_t n)
{
	const uint8_t *from = src;
	uint8_t *to = dst;
	size_t head = -(uintptr_t)to % 64;

	if (head > n)
		head = n;
	memcpy(to, from, head);
	for (n -= head, to += head, from += head; n >= 64; n -= 64, to += 64, from += 64) {
		const __m128i *line = (const void *)from;
		__m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
		__m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);

		_mm_stream_si128((__m128i *)(void *)to, a);
		_mm_stream_si128((__m128i *)(void *)to + 1, b);
		_mm_stream_si128((__m128i *)(void *)to + 2, c);
		_mm_stream_si128((__m128i *)(void *)to + 3, d);
	}
	memcpy(to, from, n);
	_mm_sfence();
}

#else

void copy_past_cache(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

#endif
