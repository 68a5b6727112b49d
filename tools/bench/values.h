/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: inputs of the ranks for a collective, and its expected results.
 *
 * Each element of an input depends on its place, with a prime period. A shifted block is therefore
 * detected for every message length. By default inputs are chosen so that the result is exact in
 * any order of the ranks. A result that differs in one bit is then wrong:
 *
 * copies, MAX, MIN	any bits (MAX and MIN of floats: the only NaN is the canonical one).
 * integers		any bits, because they wrap. PROD: odd, because even products soon
 *			become 0.
 * SUM of floats	whole numbers whose absolute values sum up to at most 2^p, with the type's
 *			precision p.
 * AVG of floats	the same, times the number of ranks, if that is a number of the type.
 * PREMUL_SUM		the same, divided by the ranks' scalars, which are powers of two.
 * PROD of floats	powers of two, such that each partial product is in the type's range.
 *
 * In other cases (random numbers, wire types, AVG if n is not a number of the type) each element
 * has an error bound (bound.c).
 *
 * Pure functions, except that they allocate. They and the library visit the ranks in different
 * orders.
 */
#ifndef FERRULE_TOOLS_BENCH_VALUES_H
#define FERRULE_TOOLS_BENCH_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/reduce.h>

#include "tools/common/common.h"

enum { BENCH_PERIOD = 1021 }; /* elements; a prime */

struct bench_values {
	/* Set by the caller. */
	int ranks;
	enum frl_dtype dtype;
	enum frl_op redop; /* FRL_OPS: only copies */
	enum frl_wire wire;
	bool random; /* floats of all values, not only those with exact results */
	uint64_t seed;

	/* Set by bench_values_make(). */
	size_t elem_size;
	bool is_exact;
	uint64_t scalars[MAX_RANKS]; /* bits, for FRL_PREMUL_SUM */
	uint8_t *inputs;             /* BENCH_PERIOD elements per rank */
	uint8_t *result;             /* BENCH_PERIOD elements of the reduction, if exact */
	long double *expected;       /* otherwise; also of each rank's input, as is `bound` */
	long double *bound;
};

/* Computes inputs and results. Returns 0 or -ENOMEM. */
int bench_values_make(struct bench_values *values);
void bench_values_free(struct bench_values *values);

/* Returns a rank's input, or the exact result (source BENCH_REDUCED): BENCH_PERIOD elements. */
const uint8_t *bench_values_of(const struct bench_values *values, int source);

/*
 * Returns the error of the element `bits` from place `place` of `source`, divided by its bound: up
 * to 1 is right. For results that are not exact.
 */
double bench_values_error(
	const struct bench_values *values, int source, size_t place, uint64_t bits);

/* Computes `expected` and `bound`. */
void bench_bounds_make(struct bench_values *values);

#endif
