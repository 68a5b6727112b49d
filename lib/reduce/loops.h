/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops over lib/reduce/element.h, which the compiler vectorizes for the instruction set that the
 * including file sets (default: the common one of all processors):
 *
 *	#define LOOP_TARGET __attribute__((target("avx2")))
 *
 * Only macros that define static functions, and rows for their tables.
 */
#ifndef FERRULE_REDUCE_LOOPS_H
#define FERRULE_REDUCE_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/reduce/element.h"

#ifndef LOOP_TARGET
#define LOOP_TARGET
#endif

/* Elements in buffers: any alignment, and any type of the caller. */
#define LOOP_ANY(name, type) typedef type any_##name __attribute__((aligned(1), may_alias));

LOOP_ANY(i8, int8_t)
LOOP_ANY(u8, uint8_t)
LOOP_ANY(i32, int32_t)
LOOP_ANY(u32, uint32_t)
LOOP_ANY(i64, int64_t)
LOOP_ANY(u64, uint64_t)
LOOP_ANY(f16, uint16_t)
LOOP_ANY(f32, float)
LOOP_ANY(f64, double)
LOOP_ANY(bf16, uint16_t)
LOOP_ANY(e4m3, uint8_t)
LOOP_ANY(e5m2, uint8_t)

/* Buffers are the same or do not overlap, so no element depends on an earlier one. */
#ifdef __clang__
#define LOOP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
/* With sanitizers or without optimization, clang warns about each loop that it does not vectorize.
 */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define LOOP_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define LOOP_REDUCE(name, op)                                                                      \
	LOOP_TARGET static void op##_##name(void *dst, const void *a, const void *b, size_t count) \
	{                                                                                          \
		any_##name *out = dst;                                                             \
		const any_##name *x = a, *y = b;                                                   \
		LOOP_INDEPENDENT                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			out[i] = element_##op##_##name(x[i], y[i]);                                \
	}

/* The scalar is read once, as it may be in dst. */
#define LOOP_SCALE(name)                                                      \
	LOOP_TARGET static void scale_##name(                                 \
		void *dst, const void *src, size_t count, const void *scalar) \
	{                                                                     \
		any_##name *out = dst;                                        \
		const any_##name *x = src, y = *(const any_##name *)scalar;   \
		LOOP_INDEPENDENT                                              \
		for (size_t i = 0; i < count; i++)                            \
			out[i] = element_prod_##name(x[i], y);                \
	}

#define LOOP_DIVIDE(name)                                             \
	LOOP_TARGET static void divide_##name(                        \
		void *dst, const void *src, size_t count, uint32_t n) \
	{                                                             \
		any_##name *out = dst;                                \
		const any_##name *x = src;                            \
		LOOP_INDEPENDENT                                      \
		for (size_t i = 0; i < count; i++)                    \
			out[i] = element_quotient_##name(x[i], n);    \
	}

#define LOOP_REDUCE_ALL(name)   \
	LOOP_REDUCE(name, sum)  \
	LOOP_REDUCE(name, prod) \
	LOOP_REDUCE(name, max)  \
	LOOP_REDUCE(name, min)

#define LOOP_ALL(name)        \
	LOOP_REDUCE_ALL(name) \
	LOOP_SCALE(name)      \
	LOOP_DIVIDE(name)

/* The entries of one type. */
#define LOOP_ROWS(dtype, name)                     \
	.reduce[dtype] = { [FRL_SUM] = sum_##name, \
		[FRL_PROD] = prod_##name,          \
		[FRL_MAX] = max_##name,            \
		[FRL_MIN] = min_##name },          \
	.scale[dtype] = scale_##name, .divide[dtype] = divide_##name

#endif
