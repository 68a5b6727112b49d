/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of the element-wise functions behind ferrule/reduce.h, one for each instruction set. All
 * give bitwise the same results. No state; any thread.
 */
#ifndef FERRULE_REDUCE_KERNELS_H
#define FERRULE_REDUCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/reduce.h>

enum { REDUCE_OPS = FRL_MIN + 1 }; /* element-wise operations */

/* dst[i] = op(a[i], b[i]) for `count` elements; any alignment; dst may be a or b. */
typedef void (*reduce_fn)(void *dst, const void *a, const void *b, size_t count);

/* dst[i] = src[i] * *scalar, and dst[i] = src[i] / n. */
typedef void (*scale_fn)(void *dst, const void *src, size_t count, const void *scalar);
typedef void (*divide_fn)(void *dst, const void *src, size_t count, uint32_t n);

/* As frl_wire_encode() and the other functions of wire types. */
typedef size_t (*encode_fn)(void *dst, const void *src, size_t count);
typedef void (*decode_fn)(void *dst, const void *src, size_t count);
typedef void (*decode_add_fn)(void *dst, const void *a, const void *src, size_t count);

struct reduce_kernels {
	const char *name;
	bool (*supported)(void); /* by the processor */

	/* NULL: use the next slower instruction set. */
	reduce_fn reduce[FRL_DTYPES][REDUCE_OPS];
	scale_fn scale[FRL_DTYPES];
	divide_fn divide[FRL_DTYPES];
	/* Sums with non-temporal stores; dst is neither a nor b. Optional. */
	reduce_fn sum_nontemporal[FRL_DTYPES];
	encode_fn encode[FRL_WIRES];
	decode_fn decode[FRL_WIRES];
	decode_add_fn decode_add[FRL_WIRES];
};

extern const struct reduce_kernels reduce_plain; /* complete; always supported */
extern const struct reduce_kernels reduce_avx2;
extern const struct reduce_kernels reduce_avx512;
extern const struct reduce_kernels reduce_avx512_half; /* float16 only */

/* All tables built for this architecture, fastest first, then NULL. reduce_plain is the last one.
 */
extern const struct reduce_kernels *const reduce_all_kernels[];

/* Returns the fastest functions that this processor supports. */
const struct reduce_kernels *reduce_best_kernels(void);

#endif
