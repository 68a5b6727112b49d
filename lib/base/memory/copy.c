/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The destination is divided into aligned blocks of 16 bytes (8 without vector instructions). Bytes
 * before the first block and after the last one are stored as aligned words.
 *
 * x86 makes stores visible in program order, so only the compiler must be kept from reordering
 * them. Other processors use a release store for the last word of each line and of the copy.
 * ThreadSanitizer uses the same code, because it would report vector stores that another thread
 * polls.
 */
#include "lib/base/memory/copy.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAS_VECTORS 1
#else
#define HAS_VECTORS 0
#endif

#if defined(__SANITIZE_THREAD__)
#undef HAS_VECTORS
#define HAS_VECTORS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef HAS_VECTORS
#define HAS_VECTORS 0
#endif
#endif

enum { LINE = 128 };

/* Prevents the compiler from merging or moving stores across this point. */
#define IN_ORDER() __asm__ volatile("" ::: "memory")

/* A single store to an aligned address. It becomes visible after all earlier stores. */
#define STORE_LAST(bits)                                                       \
	static inline void store_last_##bits(uint8_t *to, const uint8_t *from) \
	{                                                                      \
		typedef uint##bits##_t __attribute__((may_alias)) word;        \
		word value;                                                    \
		memcpy(&value, from, sizeof(value));                           \
		__atomic_store_n((word *)(void *)to, value, __ATOMIC_RELEASE); \
		IN_ORDER();                                                    \
	}

STORE_LAST(8)
STORE_LAST(16)
STORE_LAST(32)
STORE_LAST(64)

#if HAS_VECTORS

enum {
	BLOCK = 16,
	SHORT = 2 * LINE,
	FETCH_LEAST = 1024, /* shortest packet after which the next one is prefetched */
	FETCH_AHEAD = 4096, /* maximum: farther lines would be evicted before use */
};

static inline void copy_block(uint8_t *dst, const uint8_t *src)
{
	_mm_store_si128(
		(__m128i *)(void *)dst, _mm_loadu_si128((const __m128i *)(const void *)src));
	IN_ORDER();
}

#else

enum { BLOCK = 8, SHORT = 16 };

static inline void copy_block(uint8_t *dst, const uint8_t *src)
{
	store_last_64(dst, src);
}

#endif

/* `dst` is aligned to a block, or at least to the largest power of two that is at most `n`. */
static inline void copy_rest(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (; n >= BLOCK; n -= BLOCK, dst += BLOCK, src += BLOCK)
		copy_block(dst, src);
	if (n & 8) {
		store_last_64(dst, src);
		dst += 8;
		src += 8;
	}
	if (n & 4) {
		store_last_32(dst, src);
		dst += 4;
		src += 4;
	}
	if (n & 2) {
		store_last_16(dst, src);
		dst += 2;
		src += 2;
	}
	if (n & 1)
		store_last_8(dst, src);
}

#if HAS_VECTORS

#define AVX2 __attribute__((target("avx2,tune=haswell")))

AVX2 static inline __m256i load_32(const uint8_t *src)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

AVX2 static inline void store_32(uint8_t *dst, __m256i value)
{
	_mm256_store_si256((__m256i *)(void *)dst, value);
	IN_ORDER();
}

/* Stores the last 32 bytes of a line or a copy, whose second half holds a flag. Some processors
 * split 32-byte stores, in an undocumented order. */
AVX2 static inline void store_end(uint8_t *dst, __m256i value)
{
	_mm_store_si128((__m128i *)(void *)dst, _mm256_castsi256_si128(value));
	IN_ORDER();
	_mm_store_si128((__m128i *)(void *)(dst + 16), _mm256_extracti128_si256(value, 1));
	IN_ORDER();
}

/*
 * `dst` is aligned to a block. Loads run ahead of the stores because they may miss the cache.
 * Stores may miss as well: the next packet of a long message starts where this one ends, so that
 * memory is prefetched. Hardware prefetchers do not cross pages.
 */
AVX2 static void copy_long_avx2(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = 0, ahead = n < FETCH_LEAST ? 0 : n, head = -(uintptr_t)dst % LINE;

	if (ahead > FETCH_AHEAD)
		ahead = FETCH_AHEAD;
	if (head) {
		if (head % 32)
			copy_block(dst, src);
		for (at = head % 32; at + 32 < head; at += 32)
			store_32(dst + at, load_32(src + at));
		if (at < head)
			store_end(dst + at, load_32(src + at));
		at = head;
	}
	for (; n - at >= LINE; at += LINE) {
		__m256i a = load_32(src + at), b = load_32(src + at + 32);
		__m256i c = load_32(src + at + 64), d = load_32(src + at + 96);

		__builtin_prefetch(dst + at + ahead, 1);
		__builtin_prefetch(dst + at + ahead + 64, 1);
		store_32(dst + at, a);
		store_32(dst + at + 32, b);
		store_32(dst + at + 64, c);
		store_end(dst + at + 96, d);
	}
	for (; n - at >= 32; at += 32)
		store_end(dst + at, load_32(src + at));
	copy_rest(dst + at, src + at, n - at);
}

static void copy_long(uint8_t *dst, const uint8_t *src, size_t n)
{
	if (__builtin_cpu_supports("avx2"))
		copy_long_avx2(dst, src, n);
	else
		copy_rest(dst, src, n);
}

#else

/* `dst` is aligned to a block. */
static void copy_long(uint8_t *dst, const uint8_t *src, size_t n)
{
	typedef uint64_t __attribute__((may_alias)) word;
	size_t at = 0;

	for (; n - at >= 2 * BLOCK; at += BLOCK) {
		word value;

		if (((uintptr_t)dst + at) % LINE == LINE - BLOCK) {
			store_last_64(dst + at, src + at);
			continue;
		}
		memcpy(&value, src + at, sizeof(value));
		__atomic_store_n((word *)(void *)(dst + at), value, __ATOMIC_RELAXED);
	}
	copy_rest(dst + at, src + at, n - at);
}

#endif

/* Copies up to the first block, or `n` bytes if fewer. Returns the number of bytes copied. */
static inline size_t copy_head(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = 0;

	if ((uintptr_t)dst & 1 && n >= 1) {
		store_last_8(dst, src);
		at = 1;
	}
	if (((uintptr_t)dst + at) & 2 && n - at >= 2) {
		store_last_16(dst + at, src + at);
		at += 2;
	}
	if (((uintptr_t)dst + at) & 4 && n - at >= 4) {
		store_last_32(dst + at, src + at);
		at += 4;
	}
	if (((uintptr_t)dst + at) & (BLOCK - 1) && n - at >= 8) {
		store_last_64(dst + at, src + at);
		at += 8;
	}
	return at;
}

static __attribute__((noinline)) void copy_any(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = (uintptr_t)dst % BLOCK ? copy_head(dst, src, n) : 0;

	if (n - at < SHORT)
		copy_rest(dst + at, src + at, n - at);
	else
		copy_long(dst + at, src + at, n - at);
}

void copy_in_order(void *dst, const void *src, size_t n)
{
	const uint8_t *from = src;
	uint8_t *to = dst;

	if (n >= SHORT || ((uintptr_t)to % 8 != 0 && (n > 4 || (uintptr_t)to % 4 != 0))) {
		copy_any(to, from, n);
		return;
	}
	if ((uintptr_t)to % BLOCK != 0 && n >= 8) {
		store_last_64(to, from);
		to += 8;
		from += 8;
		n -= 8;
	}
	copy_rest(to, from, n);
}

#if defined(__x86_64__)

enum {
	PAGE = 4096,
	FIRST_BYTES = 512, /* with 2 KiB, copies take longer than without prefetching */
};

/* Hardware prefetches subsequent lines of a page, but not the first ones of the next page. Lines
 * after the end of the copy may be prefetched as well. */
static inline void fetch_next_page(const uint8_t *src)
{
	src += PAGE - (uintptr_t)src % PAGE;
	for (size_t at = 0; at < FIRST_BYTES; at += 64)
		__builtin_prefetch(src + at);
}

/* Returns whether a loop of steps of `step` bytes enters a page here that is not the last one. */
static inline bool enters_page(const uint8_t *src, size_t step, size_t rest)
{
	return (uintptr_t)src % PAGE < step && rest > PAGE;
}

#endif

#if HAS_VECTORS

enum { BULK = 1024 }; /* glibc uses vectors, too, for shorter copies */

/* `n` is at least a line. The first and the last stores overlap those of the loop. */
AVX2 static void copy_bulk_avx2(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at = -(uintptr_t)dst % 32;

	_mm256_storeu_si256((__m256i *)(void *)dst, load_32(src));
	for (; n - at >= LINE; at += LINE) {
		__m256i a = load_32(src + at), b = load_32(src + at + 32);
		__m256i c = load_32(src + at + 64), d = load_32(src + at + 96);

		if (enters_page(src + at, LINE, n - at))
			fetch_next_page(src + at);
		_mm256_store_si256((__m256i *)(void *)(dst + at), a);
		_mm256_store_si256((__m256i *)(void *)(dst + at + 32), b);
		_mm256_store_si256((__m256i *)(void *)(dst + at + 64), c);
		_mm256_store_si256((__m256i *)(void *)(dst + at + 96), d);
	}
	for (; n - at >= 32; at += 32)
		_mm256_store_si256((__m256i *)(void *)(dst + at), load_32(src + at));
	_mm256_storeu_si256((__m256i *)(void *)(dst + n - 32), load_32(src + n - 32));
}

void copy_bulk(void *dst, const void *src, size_t n)
{
	if (n < BULK || !__builtin_cpu_supports("avx2"))
		memcpy(dst, src, n);
	else
		copy_bulk_avx2(dst, src, n);
}

#else

void copy_bulk(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

#endif

#if defined(__x86_64__)

/* These lines are written completely, so they need not be fetched first. */
void copy_nontemporal(void *dst, const void *src, size_t n)
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

		if (enters_page(from, 64, n))
			fetch_next_page(from);
		_mm_stream_si128((__m128i *)(void *)to, a);
		_mm_stream_si128((__m128i *)(void *)to + 1, b);
		_mm_stream_si128((__m128i *)(void *)to + 2, c);
		_mm_stream_si128((__m128i *)(void *)to + 3, d);
	}
	memcpy(to, from, n);
	_mm_sfence();
}

#else

void copy_nontemporal(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

#endif
