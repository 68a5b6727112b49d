/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Error bounds of results that are not exact. The unit roundoff u is half the distance from 1 to
 * the next number. k roundings of a sum have an error of at most ((1 + u)^k - 1) * sum |x_i|
 * (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, chapters 3 and 4).
 *
 * SUM			k = n - 1 roundings, in any order.
 * AVG			three more: one for the division, and two for n, which is rounded to the
 *			type, since 1 / (1 - u) < (1 + u)^2.
 * PROD			k = n - 1, of the product instead of the sum.
 * 16-bit wire types	n roundings to the wire type: n * u * sum |x_i| * (1 + n * u). MAX and
 *			MIN: one, because rounding keeps the order of numbers.
 * wire int8		one encoding of each input but one, and one of the result: (sum of
 *			amax_i + amax of the result) / 254 * (1 + 2^-7) * (1 + 2^-14), see
 *			<ferrule/reduce.h>. The block borders are unknown here, so amax is the
 *			largest value of all blocks that may contain the element. MAX and MIN: the
 *			largest error of an input, plus that of the result. PROD: each factor is
 *			larger by its error; plus the error of the result.
 *
 * Below the type's normal numbers errors are absolute.
 */
#include "tools/bench/values.h"

#include <math.h>
#include <string.h>

#include "tools/bench/layout.h"
#include "tools/common/number.h"

/* Returns an input as it enters the sum, multiplied with its scalar. */
static long double term(const struct bench_values *v, int rank, size_t place)
{
	const uint8_t *at = bench_values_of(v, rank) + place * v->elem_size;
	long double x = number_decode(v->dtype, number_load(at, v->elem_size));

	return v->redop == FRL_PREMUL_SUM ? x * number_decode(v->dtype, v->scalars[rank]) : x;
}

/*
 * Computes for each element the largest value of all blocks that may contain it; rows repeat. The
 * window doubles in each step.
 */
static void spread(const long double row[], long double largest[])
{
	long double of[BENCH_PERIOD];

	memcpy(of, row, sizeof(of));
	for (size_t width = 1; width < FRL_WIRE_BLOCK; width *= 2) {
		for (size_t i = 0; i < BENCH_PERIOD; i++)
			largest[i] = fmaxl(of[i], of[(i + width) % BENCH_PERIOD]);
		memcpy(of, largest, sizeof(of));
	}
	for (size_t i = 0; i < BENCH_PERIOD; i++)
		largest[i] = fmaxl(
			of[i], of[(i + BENCH_PERIOD - FRL_WIRE_BLOCK + 1) % BENCH_PERIOD]);
}

static long double roundoff(enum frl_wire wire)
{
	return wire == FRL_WIRE_FLOAT16 ? 0x1p-11L : 0x1p-8L;
}

/* Returns half of the smallest number of the wire type. */
static long double smallest(enum frl_wire wire)
{
	return wire == FRL_WIRE_FLOAT16 ? 0x1p-25L : 0x1p-134L;
}

/*
 * Returns the error of one encoding of an element, if the largest value of its block is `largest`.
 */
static long double block_error(long double largest)
{
	return largest / 254 * (1 + 0x1p-7L) * (1 + 0x1p-14L) + 0x1p-126L;
}

/* Sums up the ranks' terms. `size` is the size of the rounded values. */
static void sum_up(
	const struct bench_values *v, size_t place, long double *ret_result, long double *ret_size)
{
	long double result = term(v, 0, place), size = fabsl(result);

	for (int r = 1; r < v->ranks; r++) {
		long double x = term(v, r, place);

		switch (v->redop) {
		case FRL_PROD:
			result *= x;
			size *= fabsl(x);
			break;
		case FRL_MAX:
		case FRL_MIN:
			result = v->redop == FRL_MAX ? fmaxl(result, x) : fminl(result, x);
			size = fmaxl(size, fabsl(x));
			break;
		default:
			result += x;
			size += fabsl(x);
			break;
		}
	}
	*ret_result = result;
	*ret_size = size;
}

/* Returns the bound for wire type SAME. */
static long double plain_bound(const struct bench_values *v, long double size)
{
	/* Narrow types are rounded twice: to float32, then to the type. The factor covers the first
	 * rounding. */
	long double u = ldexpl(1 + 0x1p-10L, -number_precision(v->dtype));
	int roundings = v->ranks - 1 + (v->redop == FRL_AVG ? 3 : 0);

	return expm1l(roundings * log1pl(u)) * size +
		(roundings + v->ranks) * ldexpl(1, number_min_exponent(v->dtype));
}

/* Returns the bound for `n` encodings to a type with fewer bits, and additions in float32. */
static long double short_bound(const struct bench_values *v, long double size)
{
	long double n = v->ranks, u = roundoff(v->wire);

	if (v->redop == FRL_MAX || v->redop == FRL_MIN)
		return u * size + smallest(v->wire);
	return n * u * size * (1 + n * u) + n * smallest(v->wire) + n * 0x1p-23L * size;
}

/* int8: turns `row` into the errors of the sums, before the sums are encoded for distribution. */
static void fill_block_errors(const struct bench_values *v, long double row[])
{
	long double terms[BENCH_PERIOD], near[BENCH_PERIOD], most[BENCH_PERIOD] = { 0 };

	for (size_t i = 0; i < BENCH_PERIOD; i++)
		row[i] = 0;
	for (int r = 0; r < v->ranks; r++) {
		for (size_t i = 0; i < BENCH_PERIOD; i++)
			terms[i] = fabsl(term(v, r, i));
		spread(terms, near);
		for (size_t i = 0; i < BENCH_PERIOD; i++) {
			long double error = block_error(near[i]);

			row[i] += error + v->ranks * 0x1p-23L * terms[i];
			most[i] = r == 0 ? error : fminl(most[i], error);
		}
	}
	/* The rank that adds up does not encode its own input. It may be any rank. */
	for (size_t i = 0; i < BENCH_PERIOD; i++)
		row[i] -= most[i];
}

/* Does the same for results that are not sums. */
static void fill_other_errors(const struct bench_values *v, long double row[])
{
	long double terms[BENCH_PERIOD], near[BENCH_PERIOD];
	long double sizes[BENCH_PERIOD], products[BENCH_PERIOD];

	for (size_t i = 0; i < BENCH_PERIOD; i++) {
		row[i] = 0;
		sizes[i] = products[i] = 1;
	}
	for (int r = 0; r < v->ranks; r++) {
		for (size_t i = 0; i < BENCH_PERIOD; i++)
			terms[i] = fabsl(term(v, r, i));
		spread(terms, near);
		for (size_t i = 0; i < BENCH_PERIOD; i++) {
			long double error = block_error(near[i]);

			row[i] = fmaxl(row[i], error);
			sizes[i] *= terms[i] * (1 - 0x1p-23L);
			products[i] *= (terms[i] + error) * (1 + 0x1p-23L);
		}
	}
	for (size_t i = 0; i < BENCH_PERIOD && v->redop == FRL_PROD; i++)
		row[i] = products[i] - sizes[i];
}

static void bound_blocks(const struct bench_values *v)
{
	long double errors[BENCH_PERIOD], sums[BENCH_PERIOD], near[BENCH_PERIOD];
	bool is_sum = v->redop != FRL_PROD && v->redop != FRL_MAX && v->redop != FRL_MIN;

	if (is_sum)
		fill_block_errors(v, errors);
	else
		fill_other_errors(v, errors);
	for (size_t i = 0; i < BENCH_PERIOD; i++)
		sums[i] = fabsl(v->expected[i]) + errors[i];
	spread(sums, near);
	for (size_t i = 0; i < BENCH_PERIOD; i++)
		v->bound[i] = errors[i] + block_error(near[i]);
}

static void bound_copies(const struct bench_values *v, int rank)
{
	long double *expected = v->expected + (size_t)(rank + 1) * BENCH_PERIOD;
	long double *bound = v->bound + (size_t)(rank + 1) * BENCH_PERIOD;
	long double sizes[BENCH_PERIOD], near[BENCH_PERIOD];

	for (size_t i = 0; i < BENCH_PERIOD; i++) {
		expected[i] = term(v, rank, i);
		sizes[i] = fabsl(expected[i]);
	}
	spread(sizes, near);
	for (size_t i = 0; i < BENCH_PERIOD; i++) {
		if (v->wire == FRL_WIRE_INT8)
			bound[i] = block_error(near[i]);
		else
			bound[i] = roundoff(v->wire) * sizes[i] + smallest(v->wire);
	}
}

void bench_bounds_make(struct bench_values *v)
{
	for (int r = 0; r < v->ranks && v->redop == FRL_OPS; r++)
		bound_copies(v, r);
	if (v->redop == FRL_OPS)
		return;
	for (size_t i = 0; i < BENCH_PERIOD; i++) {
		long double size;

		sum_up(v, i, &v->expected[i], &size);
		v->bound[i] = v->wire == FRL_WIRE_SAME ? plain_bound(v, size)
						       : short_bound(v, size);
	}
	if (v->wire == FRL_WIRE_INT8)
		bound_blocks(v);
	for (size_t i = 0; i < BENCH_PERIOD && v->redop == FRL_AVG; i++) {
		v->expected[i] /= v->ranks;
		v->bound[i] = v->bound[i] / v->ranks + smallest(v->wire) +
			ldexpl(1, number_min_exponent(v->dtype)) +
			0x1p-23L * fabsl(v->expected[i]) * (v->wire != FRL_WIRE_SAME);
	}
}
