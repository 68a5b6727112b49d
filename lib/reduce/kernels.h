/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of element-wise functions behind frl_reduce(), one for each instruction set: all give
 * bitwise the same. No state; any thread.
 */
#ifndef FERRULE_REDUCE_KERNELS_H
#define FERRULE_REDUCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/reduce.h>

/* dst[i] = op(a[i], b[i]) for `count` elements; any alignment; dst may be a or b. */
typedef void (*reduce_fn)(void *dst, const void *a, const void *b, size_t count);

struct reduce_kernels {
	const char *name;
	bool (*supported)(void); /* by this processor */
	reduce_fn fn[FRL_DTYPES][FRL_OPS];
};

extern const struct reduce_kernels reduce_plain;
extern const struct reduce_kernels reduce_avx2;
extern const struct reduce_kernels reduce_avx512;

/* Those that were built for this architecture, fastest first, up to NULL. The last is reduce_plain,
 * which is always supported. */
extern const struct reduce_kernels *const reduce_all_kernels[];

#endif
