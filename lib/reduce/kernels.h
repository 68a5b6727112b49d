/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of element-wise functions behind ferrule/reduce.h, one for each instruction set: all
 * give bitwise the same. No state; any thread.
 */
#ifndef FERRULE_REDUCE_KERNELS_H
#define FERRULE_REDUCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/reduce.h>

enum { REDUCE_OPS = FRL_MIN + 1 }; /* those that exist element by element */

/* dst[i] = op(a[i], b[i]) for `count` elements; any alignment; dst may be a or b. */
typedef void (*reduce_fn)(void *dst, const void *a, const void *b, size_t count);

/* dst[i] = src[i] * *scalar, and dst[i] = src[i] / n. */
typedef void (*scale_fn)(void *dst, const void *src, size_t count, const void *scalar);
typedef void (*divide_fn)(void *dst, const void *src, size_t count, uint32_t n);

/* As frl_wire_encode() and so on. */
typedef size_t (*encode_fn)(void *dst, const void *src, size_t count);
typedef void (*decode_fn)(void *dst, const void *src, size_t count);
typedef void (*decode_add_fn)(void *dst, const void *a, const void *src, size_t count);

struct reduce_kernels {
	const char *name;
	bool (*supported)(void); /* by this processor */

	/* NULL: as the next slower instruction set has it. */
	reduce_fn reduce[FRL_DTYPES][REDUCE_OPS];
	scale_fn scale[FRL_DTYPES];
	divide_fn divide[FRL_DTYPES];
	/* Sums that leave the caches alone where they write; dst is neither a nor b. No set needs
	 * to have them. */
	reduce_fn sum_past_cache[FRL_DTYPES];
	encode_fn encode[FRL_WIRES];
	decode_fn decode[FRL_WIRES];
	decode_add_fn decode_add[FRL_WIRES];
};

extern const struct reduce_kernels reduce_plain; /* complete, and always supported */
extern const struct reduce_kernels reduce_avx2;
extern const struct reduce_kernels reduce_avx512;
extern const struct reduce_kernels reduce_avx512_half; /* of float16 alone */

/* Those that were built for this architecture, fastest first, up to NULL. The last is
 * reduce_plain. */
extern const struct reduce_kernels *const reduce_all_kernels[];

/* The fastest of each function that this processor has. */
const struct reduce_kernels *reduce_best_kernels(void);

#endif
