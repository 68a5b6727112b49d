/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of bytes in registers of x86, and their carry-less products, for lib/wire/icrc_fold.h.
 * The file that includes it chooses the instructions:
 *
 *	#define ICRC_BITS 512	AVX-512 and VPCLMULQDQ
 *	#define ICRC_BITS 256	AVX2 and VPCLMULQDQ
 *	#define ICRC_BITS 128	SSE4.1 and PCLMULQDQ; the default
 *
 * A block is a sequence of lanes of 128 bits. Private to lib/wire. Any thread.
 */
#ifndef FERRULE_WIRE_ICRC_LANES_H
#define FERRULE_WIRE_ICRC_LANES_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/wire/icrc_factors.h"

#ifndef ICRC_BITS
#define ICRC_BITS 128
#endif

#if ICRC_BITS == 512
#define ICRC_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,pclmul,vpclmulqdq")))
#elif ICRC_BITS == 256
#define ICRC_TARGET __attribute__((target("avx2,pclmul,vpclmulqdq")))
#else
#define ICRC_TARGET __attribute__((target("sse4.1,pclmul")))
#endif
#define ICRC_FN ICRC_TARGET static inline __attribute__((always_inline))

/* WIDE blocks are folded in parallel, since a product takes several cycles. */
#if ICRC_BITS == 512
enum { BLOCK = 64, WIDE = 8 };
typedef __m512i block;
#elif ICRC_BITS == 256
enum { BLOCK = 32, WIDE = 4 };
typedef __m256i block;
#else
enum { BLOCK = 32, WIDE = 4 };
typedef struct {
	__m128i lane[2];
} block;
#endif

ICRC_FN __m128i load_lane(const void *p)
{
	return _mm_loadu_si128(p);
}

ICRC_FN __m128i fold_lane(__m128i x, __m128i k, __m128i next)
{
	return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), next),
		_mm_clmulepi64_si128(x, k, 0x11));
}

#if ICRC_BITS == 512

ICRC_FN block load(const void *p)
{
	return _mm512_loadu_si512(p);
}

/* Loads `n` bytes, fewer than a block; the others are 0. */
ICRC_FN block load_part(const void *p, size_t n)
{
	return _mm512_maskz_loadu_epi8((UINT64_C(1) << n) - 1, p);
}

ICRC_FN void store(void *p, block x)
{
	_mm512_storeu_si512(p, x);
}

/* Adds the state of a CRC to the first bytes. */
ICRC_FN block add_state(block x, uint32_t state)
{
	return _mm512_xor_si512(x, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
}

/* Moves `x` by the distance of the factors `by` onto `next`. */
ICRC_FN block fold(block x, const uint64_t by[2], block next)
{
	__m512i k = _mm512_broadcast_i32x4(load_lane(by));

	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
		_mm512_clmulepi64_epi128(x, k, 0x11), next, 0x96);
}

/* Folds all lanes onto the last one. */
ICRC_FN __m128i fold_lanes(block x)
{
	const __m512i k = load(fold_by(48)); /* the factors of all lanes; the last one stays */
	__m512i moved = _mm512_xor_si512(
		_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11));
	__m256i half = _mm256_xor_si256(
		_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));

	return _mm_ternarylogic_epi64(_mm256_castsi256_si128(half),
		_mm256_extracti128_si256(half, 1), _mm512_extracti32x4_epi32(x, 3), 0x96);
}

#else

#if ICRC_BITS == 256

ICRC_FN block load(const void *p)
{
	return _mm256_loadu_si256(p);
}

ICRC_FN void store(void *p, block x)
{
	_mm256_storeu_si256(p, x);
}

ICRC_FN block add_state(block x, uint32_t state)
{
	return _mm256_xor_si256(x, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)state)));
}

ICRC_FN block fold(block x, const uint64_t by[2], block next)
{
	__m256i k = _mm256_broadcastsi128_si256(load_lane(by));

	return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), next),
		_mm256_clmulepi64_epi128(x, k, 0x11));
}

ICRC_FN __m128i fold_lanes(block x)
{
	return fold_lane(
		_mm256_castsi256_si128(x), load_lane(fold_by(16)), _mm256_extracti128_si256(x, 1));
}

#else

ICRC_FN block load(const void *p)
{
	return (block){ { load_lane(p), load_lane((const uint8_t *)p + 16) } };
}

ICRC_FN void store(void *p, block x)
{
	_mm_storeu_si128(p, x.lane[0]);
	_mm_storeu_si128((__m128i *)p + 1, x.lane[1]);
}

ICRC_FN block add_state(block x, uint32_t state)
{
	x.lane[0] = _mm_xor_si128(x.lane[0], _mm_cvtsi32_si128((int)state));
	return x;
}

ICRC_FN block fold(block x, const uint64_t by[2], block next)
{
	__m128i k = load_lane(by);

	return (block){ { fold_lane(x.lane[0], k, next.lane[0]),
		fold_lane(x.lane[1], k, next.lane[1]) } };
}

ICRC_FN __m128i fold_lanes(block x)
{
	return fold_lane(x.lane[0], load_lane(fold_by(16)), x.lane[1]);
}

#endif

ICRC_FN block load_part(const void *p, size_t n)
{
	uint8_t bytes[BLOCK] = { 0 };

	memcpy(bytes, p, n);
	return load(bytes);
}

#endif

#endif
