/* SPDX-License-Identifier: BSD-3-Clause */
/* The fixture of the tests of lib/reduce: the instruction sets, and values of every type. */
#ifndef FERRULE_TESTS_REDUCE_FIXTURE_H
#define FERRULE_TESTS_REDUCE_FIXTURE_H

#include <stdint.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/reduce/kernels.h"

enum { MAX_KERNELS = 5 }; /* instruction sets */

/* NULL where this processor lacks the instructions or the list has ended. */
static inline const struct reduce_kernels *kernels_at(int index)
{
	for (int i = 0; reduce_all_kernels[i]; i++)
		if (i == index)
			return reduce_all_kernels[i]->supported() ? reduce_all_kernels[i] : NULL;
	return NULL;
}

/* The bits of an element that is at an edge: zeros, ones, largest, smallest, denormal, infinite,
 * NaN of several kinds, whatever the type calls them. */
static inline uint64_t edge_bits(enum frl_dtype dtype, uint64_t n)
{
	static const uint64_t f16[] = { 0, 0x8000, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 1, 0x8001, 0x3ff,
		0x400, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xffff };
	static const uint64_t bf16[] = { 0, 0x8000, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 1, 0x8001, 0x7f,
		0x80, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffff };
	static const uint64_t f64[] = { 0, 0x8000000000000000, 0x3ff0000000000000,
		0xbff0000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, 1, 0x8000000000000001,
		0x000fffffffffffff, 0x0010000000000000, 0x7ff0000000000000, 0xfff0000000000000,
		0x7ff8000000000000, 0xfff8000000000123, 0x7ff0000000000001, 0xffffffffffffffff };
	static const uint64_t integer[] = { 0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fffffff,
		0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
		0xfffffffffffffffe, 0xffffffffffffffff };

	n %= 16;
	switch (dtype) {
	case FRL_FLOAT16: return f16[n];
	case FRL_BFLOAT16: return bf16[n];
	case FRL_FLOAT32: return n == 15 ? 0x7f812345 : bf16[n] << 16 | (n == 13 ? 0x123 : 0);
	case FRL_FLOAT64: return f64[n];
	default: return integer[n];
	}
}

/* Fills `count` elements at p: one in four is at an edge, half of the others are near one. */
static inline void fill_elements(
	void *p, size_t count, enum frl_dtype dtype, struct random_state *random)
{
	size_t size = frl_dtype_size(dtype);

	for (size_t i = 0; i < count; i++) {
		uint64_t kind = random_u64(random), bits = random_u64(random);
		bool is_f32 = dtype == FRL_FLOAT32, is_f64 = dtype == FRL_FLOAT64;

		if (kind % 4 == 0)
			bits = edge_bits(dtype, kind >> 8);
		else if (kind % 4 == 1 && is_f32) /* exponents at which sums round */
			bits = (bits & 0x83ffffff) | 0x3c000000;
		else if (kind % 4 == 1 && is_f64)
			bits = (bits & 0x801fffffffffffff) | 0x3fe0000000000000;
		memcpy((uint8_t *)p + i * size, &bits, size);
	}
}

#endif
