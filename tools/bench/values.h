/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: what the ranks put into a collective, and what must come out of it.
 *
 * Every element of a rank's input depends on its place, with a period that is a prime, so that no
 * length of a message hides that something was shifted. Where nothing else is asked for, inputs are
 * such that the result is exact in any order of the ranks, and one that differs in a single bit
 * is wrong:
 *
 * copies, MAX, MIN	any bits (MAX and MIN of floats: of NaNs the canonical one).
 * integers		any bits: they wrap. PROD: odd, or all would soon be 0.
 * SUM of floats	whole numbers, whose absolute values sum up to 2^p at most, p being the
 *			type's precision.
 * AVG of floats	those times the number of ranks, as long as that is a number of the type.
 * PREMUL_SUM		those divided by the ranks' scalars, which are powers of two.
 * PROD of floats	powers of two, such that no partial product leaves the type's range.
 *
 * Otherwise (random numbers, wire types, AVG where n is no number of the type) every element has a
 * bound of its own, see bound.c.
 *
 * Pure but for memory. The order in which ranks are visited here is none of the library's.
 */
#ifndef FERRULE_TOOLS_BENCH_VALUES_H
#define FERRULE_TOOLS_BENCH_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/reduce.h>

#include "tools/common/common.h"

enum { BENCH_PERIOD = 1021 }; /* elements */

struct bench_values {
	/* What it is for; the caller's. */
	int ranks;
	enum frl_dtype dtype;
	enum frl_op redop; /* FRL_OPS: copies only */
	enum frl_wire wire;
	bool random; /* floats with all their bits, not those whose result is exact */
	uint64_t seed;

	/* Set by bench_values_make(). */
	size_t elem_size;
	bool is_exact;
	uint64_t scalars[MAX_RANKS]; /* bits; FRL_PREMUL_SUM's */
	uint8_t *inputs;             /* BENCH_PERIOD elements for each rank */
	uint8_t *result;       /* BENCH_PERIOD elements: of the reduction, where it is exact */
	long double *expected; /* else; also of each rank's input, as `bound` */
	long double *bound;
};

/* Allocates; 0 or -ENOMEM. */
int bench_values_make(struct bench_values *values);
void bench_values_free(struct bench_values *values);

/* A rank's input, or the exact result (source BENCH_REDUCED): BENCH_PERIOD elements. */
const uint8_t *bench_values_of(const struct bench_values *values, int source);

/* How far off is the element `bits`, that came from place `place` of `source`? In units of its
 * bound: up to 1 is right. Where nothing is exact. */
double bench_values_error(
	const struct bench_values *values, int source, size_t place, uint64_t bits);

/* Fills in `expected` and `bound`. */
void bench_bounds_make(struct bench_values *values);

#endif
