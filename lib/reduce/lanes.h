/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops over vectors of float32 that AVX2 and AVX-512 share: macros that define static functions,
 * and rows for their tables. The including file defines LANES (the number), the type `lanes`,
 * lanes_sum() and similar functions, canonical(), saturate(), load_f16(), store_f16() and so on.
 * Plain C handles the elements that do not fill a vector.
 */
#ifndef FERRULE_REDUCE_LANES_H
#define FERRULE_REDUCE_LANES_H

#include "lib/reduce/loops.h"

enum {
	LANES_OF_LINE = 16, /* float32 in a cache line */
	LANES_AHEAD = 256,  /* float32 */
};

#define LANES_REDUCE(dtype, name, op, capitals)                                                    \
	LOOP_TARGET static void op##_##name(void *dst, const void *a, const void *b, size_t count) \
	{                                                                                          \
		any_##name *out = dst;                                                             \
		const any_##name *x = a, *y = b;                                                   \
		size_t i = 0;                                                                      \
		for (; i + LANES <= count; i += LANES)                                             \
			store_##name(out + i, lanes_##op(load_##name(x + i), load_##name(y + i))); \
		if (i < count)                                                                     \
			reduce_plain.reduce[dtype][capitals](out + i, x + i, y + i, count - i);    \
	}

#define LANES_SCALE(dtype, name)                                                     \
	LOOP_TARGET static void scale_##name(                                        \
		void *dst, const void *src, size_t count, const void *scalar)        \
	{                                                                            \
		any_##name *out = dst;                                               \
		const any_##name *x = src, rest = *(const any_##name *)scalar;       \
		lanes y = lanes_all(element_from_##name(rest));                      \
		size_t i = 0;                                                        \
		for (; i + LANES <= count; i += LANES)                               \
			store_##name(out + i, lanes_prod(load_##name(x + i), y));    \
		if (i < count)                                                       \
			reduce_plain.scale[dtype](out + i, x + i, count - i, &rest); \
	}

#define LANES_DIVIDE(dtype, name)                                                     \
	LOOP_TARGET static void divide_##name(                                        \
		void *dst, const void *src, size_t count, uint32_t n)                 \
	{                                                                             \
		any_##name *out = dst;                                                \
		const any_##name *x = src;                                            \
		lanes y = lanes_all((float)n);                                        \
		size_t i = 0;                                                         \
		for (; i + LANES <= count; i += LANES)                                \
			store_##name(out + i, lanes_quotient(load_##name(x + i), y)); \
		if (i < count)                                                        \
			reduce_plain.divide[dtype](out + i, x + i, count - i, n);     \
	}

#define LANES_OTHERS(dtype, name)                 \
	LANES_REDUCE(dtype, name, prod, FRL_PROD) \
	LANES_REDUCE(dtype, name, max, FRL_MAX)   \
	LANES_REDUCE(dtype, name, min, FRL_MIN)   \
	LANES_SCALE(dtype, name)                  \
	LANES_DIVIDE(dtype, name)

#define LANES_ALL(dtype, name)                  \
	LANES_REDUCE(dtype, name, sum, FRL_SUM) \
	LANES_OTHERS(dtype, name)

/* Optimized for gradients: four vectors per iteration with one check for NaN, and stores that do
 * not cross a cache line, which would cost two. */
#define LANES_SUM_F32                                                                          \
	LANES_FN void sum_four(lanes s[4], const any_f32 *x, const any_f32 *y)                 \
	{                                                                                      \
		for (int j = 0; j < 4; j++)                                                    \
			s[j] = lanes_add(load_f32(x + j * LANES), load_f32(y + j * LANES));    \
		if (any_nan(s))                                                                \
			for (int j = 0; j < 4; j++)                                            \
				s[j] = canonical(s[j]);                                        \
	}                                                                                      \
	LOOP_TARGET static void sum_f32(void *dst, const void *a, const void *b, size_t count) \
	{                                                                                      \
		any_f32 *out = dst;                                                            \
		const any_f32 *x = a, *y = b;                                                  \
		size_t i = -(uintptr_t)dst / sizeof(float) % LANES;                            \
		i = i < count ? i : count;                                                     \
		if (i)                                                                         \
			sum_some(out, x, y, i);                                                \
		for (; i + 4 * LANES <= count; i += 4 * LANES) {                               \
			lanes s[4];                                                            \
			sum_four(s, x + i, y + i);                                             \
			for (int j = 0; j < 4; j++)                                            \
				store_f32(out + i + j * LANES, s[j]);                          \
		}                                                                              \
		for (; i + LANES <= count; i += LANES)                                         \
			store_f32(out + i, lanes_sum(load_f32(x + i), load_f32(y + i)));       \
		if (i < count)                                                                 \
			sum_some(out + i, x + i, y + i, count - i);                            \
	}

/* The same for vectors longer than the caches. Stores whole lines in sequence; incomplete lines
 * and unaligned elements take the plain way. Prefetches, since hardware does not prefetch beyond
 * the end of a page. */
#define LANES_SUM_NONTEMPORAL_F32                                                   \
	LOOP_TARGET static void sum_nontemporal_f32(                                \
		void *dst, const void *a, const void *b, size_t count)              \
	{                                                                           \
		any_f32 *out = dst;                                                 \
		const any_f32 *x = a, *y = b;                                       \
		size_t i = -(uintptr_t)dst / sizeof(float) % LANES_OF_LINE;         \
		i = i < count && (uintptr_t)dst % sizeof(float) == 0 ? i : count;   \
		sum_f32(out, x, y, i);                                              \
		for (; i + 4 * LANES <= count; i += 4 * LANES) {                    \
			lanes s[4];                                                 \
			for (size_t j = i; j < i + 4 * LANES; j += LANES_OF_LINE) { \
				__builtin_prefetch(x + j + LANES_AHEAD);            \
				__builtin_prefetch(y + j + LANES_AHEAD);            \
			}                                                           \
			sum_four(s, x + i, y + i);                                  \
			for (int j = 0; j < 4; j++)                                 \
				stream_f32(out + i + j * LANES, s[j]);              \
		}                                                                   \
		sum_f32(out + i, x + i, y + i, count - i);                          \
		_mm_sfence();                                                       \
	}

/* A vector has two vectors of bfloat16. Elements at odd positions are float32 after clearing the
 * others; elements at even positions after a shift. */
#define LANES_REDUCE_PAIRS(op, capitals)                                                         \
	LOOP_TARGET static void op##_bf16(void *dst, const void *a, const void *b, size_t count) \
	{                                                                                        \
		any_bf16 *out = dst;                                                             \
		const any_bf16 *x = a, *y = b;                                                   \
		size_t i = 0;                                                                    \
		for (; i + 2 * LANES <= count; i += 2 * LANES) {                                 \
			lanes p = load_f32(x + i), q = load_f32(y + i);                          \
			lanes even = lanes_##op(even_of(p), even_of(q));                         \
			lanes odd = lanes_##op(odd_of(p), odd_of(q));                            \
			store_pairs(out + i, even, odd);                                         \
		}                                                                                \
		if (i < count)                                                                   \
			reduce_plain.reduce[FRL_BFLOAT16][capitals](                             \
				out + i, x + i, y + i, count - i);                               \
	}

#define LANES_PAIRS                        \
	LANES_REDUCE_PAIRS(sum, FRL_SUM)   \
	LANES_REDUCE_PAIRS(prod, FRL_PROD) \
	LANES_REDUCE_PAIRS(max, FRL_MAX)   \
	LANES_REDUCE_PAIRS(min, FRL_MIN)   \
	LANES_SCALE(FRL_BFLOAT16, bf16)    \
	LANES_DIVIDE(FRL_BFLOAT16, bf16)

#define LANES_WIRE(wire, name, capitals)                                                      \
	LOOP_TARGET static size_t encode_##name(void *dst, const void *src, size_t count)     \
	{                                                                                     \
		any_##name *out = dst;                                                        \
		const any_f32 *x = src;                                                       \
		size_t i = 0, over = 0;                                                       \
		for (; i + LANES <= count; i += LANES)                                        \
			store_##name(out + i,                                                 \
				canonical(saturate(load_f32(x + i), ELEMENT_LIMIT_##capitals, \
					ELEMENT_LARGEST_##capitals, &over)));                 \
		if (i < count)                                                                \
			over += reduce_plain.encode[wire](out + i, x + i, count - i);         \
		return over;                                                                  \
	}                                                                                     \
	LOOP_TARGET static void decode_##name(void *dst, const void *src, size_t count)       \
	{                                                                                     \
		any_f32 *out = dst;                                                           \
		const any_##name *x = src;                                                    \
		size_t i = 0;                                                                 \
		for (; i + LANES <= count; i += LANES)                                        \
			store_f32(out + i, load_##name(x + i));                               \
		if (i < count)                                                                \
			reduce_plain.decode[wire](out + i, x + i, count - i);                 \
	}                                                                                     \
	LOOP_TARGET static void decode_add_##name(                                            \
		void *dst, const void *a, const void *src, size_t count)                      \
	{                                                                                     \
		any_f32 *out = dst;                                                           \
		const any_f32 *x = a;                                                         \
		const any_##name *y = src;                                                    \
		size_t i = 0;                                                                 \
		for (; i + LANES <= count; i += LANES)                                        \
			store_f32(out + i, lanes_sum(load_f32(x + i), load_##name(y + i)));   \
		if (i < count)                                                                \
			reduce_plain.decode_add[wire](out + i, x + i, y + i, count - i);      \
	}

#endif
