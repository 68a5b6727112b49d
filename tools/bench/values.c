/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/bench/values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tools/bench/layout.h"
#include "tools/common/number.h"
#include "tools/common/random.h"

enum {
	SPECIAL_PLACES = 64, /* one of this many has an infinity or a NaN */
	MAX_FACTOR = 3,      /* log2 of the largest factor of PROD */
	SHARED = -2,         /* instead of a rank: a number that all ranks draw */
};

static uint64_t draw(const struct bench_values *v, int rank, size_t place)
{
	return train_mix(
		train_mix(v->seed * 131 + (uint64_t)(rank + 3)) + place * 0x9e3779b97f4a7c15u);
}

static uint64_t mask(const struct bench_values *v)
{
	return v->elem_size == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * v->elem_size) - 1;
}

/* Returns a whole number. The absolute values of all ranks sum up to `limit` at most. */
static long double whole(
	const struct bench_values *v, int rank, size_t place, uint64_t limit, uint64_t most)
{
	uint64_t n = (uint64_t)v->ranks, each = limit / n, random = draw(v, rank, place);

	if (each > most)
		each = most;
	if (each)
		return (long double)(random % (2 * each + 1)) - (long double)each;
	/*
	 * The limit is below the number of ranks: some ranks have 1 or -1, different ones at each
	 * place.
	 */
	if (((uint64_t)rank + draw(v, SHARED, place)) % n >= limit)
		return 0;
	return random & 1 ? 1 : -1;
}

/* Returns a special value, which exact results of floats may contain. */
static long double special(const struct bench_values *v, uint64_t random)
{
	if (v->dtype == FRL_FLOAT8_E4M3 || random % 3 == 0)
		return (long double)NAN;
	return random % 3 == 1 ? (long double)INFINITY : -(long double)INFINITY;
}

static bool is_special(const struct bench_values *v, int rank, size_t place)
{
	uint64_t random = draw(v, SHARED, place + BENCH_PERIOD);

	/* One rank, or two, so that infinities can meet. */
	return random % SPECIAL_PLACES == 0 &&
		((random >> 8) % (uint64_t)v->ranks == (uint64_t)rank ||
			(random >> 32) % (uint64_t)v->ranks == (uint64_t)rank);
}

/* Give the blocks of the wire type different scales. */
static long double random_number(const struct bench_values *v, int rank, size_t place)
{
	uint64_t random = draw(v, rank, place);
	long double uniform = (long double)(int64_t)random * 0x1p-63L, value;
	double step = v->ranks > 8 ? 2.0 / v->ranks : 0.25;

	if (v->redop == FRL_PROD)
		value = (random & 1 ? 1 : -1) * (1 + uniform * (long double)step);
	else if (v->wire != FRL_WIRE_SAME)
		value = ldexpl(uniform, (int)(place / 97 % 8) - 4);
	else
		value = ldexpl(uniform, -(int)(random % 8));
	return number_truncate(v->dtype, value);
}

static long double exact_number(const struct bench_values *v, int rank, size_t place)
{
	uint64_t limit = (uint64_t)1 << number_precision(v->dtype), n = (uint64_t)v->ranks;
	bool is_wide = v->elem_size >= 4;

	if (is_special(v, rank, place))
		return special(v, draw(v, rank, place));
	switch (v->redop) {
	case FRL_AVG:
		/*
		 * Narrow types are divided before summing, so twice n is the largest value; wide
		 * types after it.
		 */
		return (long double)n *
			whole(v, rank, place, is_wide ? limit / n : limit, is_wide ? limit : 2);
	case FRL_PREMUL_SUM:
		return whole(v, rank, place, limit, limit) /
			number_decode(v->dtype, v->scalars[rank]);
	case FRL_PROD:
		/* The exponents of small numbers reach further than those of large ones. */
		limit = (uint64_t)number_max_exponent(v->dtype);
		return ldexpl(draw(v, rank, place) >> 63 ? -1 : 1,
			(int)whole(v, rank, place, limit, MAX_FACTOR));
	default: return whole(v, rank, place, limit, limit);
	}
}

/* MAX and MIN: returns any number, with more zeros and infinities than random bits have. */
static uint64_t any_number(const struct bench_values *v, int rank, size_t place)
{
	uint64_t random = draw(v, rank, place), bits = random >> 8 & mask(v);
	long double zero = random & 16 ? 0.0L : -0.0L;

	if (random % 16 == 0)
		bits = number_encode(v->dtype, special(v, random >> 32));
	else if (random % 16 == 1)
		bits = number_encode(v->dtype, zero);
	if (isnan(number_decode(v->dtype, bits)))
		return number_encode(v->dtype, (long double)NAN);
	return bits;
}

static uint64_t input_bits(const struct bench_values *v, int rank, size_t place)
{
	uint64_t random = draw(v, rank, place) >> 3;

	if (v->redop == FRL_OPS && v->wire == FRL_WIRE_SAME)
		return random & mask(v);
	if (!number_is_float(v->dtype))
		return (v->redop == FRL_PROD ? random | 1 : random) & mask(v);
	if ((v->redop == FRL_MAX || v->redop == FRL_MIN) && v->wire == FRL_WIRE_SAME)
		return any_number(v, rank, place);
	return number_encode(v->dtype,
		v->is_exact ? exact_number(v, rank, place) : random_number(v, rank, place));
}

static void choose_scalars(struct bench_values *v)
{
	for (int r = 0; r < v->ranks; r++) {
		uint64_t random = draw(v, r, 2 * BENCH_PERIOD);

		if (number_is_float(v->dtype))
			v->scalars[r] = number_encode(
				v->dtype, ldexpl(random & 1 ? 1 : -1, (int)(random >> 8) % 3 - 1));
		else
			v->scalars[r] = (random | 1) & mask(v);
	}
}

static uint64_t input_at(const struct bench_values *v, int rank, size_t place)
{
	return number_load(bench_values_of(v, rank) + place * v->elem_size, v->elem_size);
}

/* Returns the larger number, as fmax() does, with -0 below +0. */
static long double larger(long double a, long double b)
{
	if (isnan(a) || isnan(b))
		return isnan(a) ? b : a;
	if (a == b)
		return signbit(a) ? b : a;
	return a > b ? a : b;
}

static uint64_t exact_float(const struct bench_values *v, size_t place)
{
	long double result = number_decode(v->dtype, input_at(v, 0, place));

	if (v->redop == FRL_PREMUL_SUM)
		result *= number_decode(v->dtype, v->scalars[0]);
	for (int r = 1; r < v->ranks; r++) {
		long double x = number_decode(v->dtype, input_at(v, r, place));

		switch (v->redop) {
		case FRL_PROD: result *= x; break;
		case FRL_MAX: result = larger(result, x); break;
		case FRL_MIN: result = -larger(-result, -x); break;
		case FRL_PREMUL_SUM: result += x * number_decode(v->dtype, v->scalars[r]); break;
		default: result += x; break;
		}
	}
	if (v->redop == FRL_AVG)
		result /= v->ranks;
	return number_encode(v->dtype, result);
}

static bool is_below(enum frl_dtype dtype, uint64_t a, uint64_t b)
{
	return number_is_signed(dtype) ? number_extend(dtype, a) < number_extend(dtype, b) : a < b;
}

static uint64_t exact_integer(const struct bench_values *v, size_t place)
{
	uint64_t result = v->redop == FRL_PROD, n = (uint64_t)v->ranks;

	for (int r = 0; r < v->ranks; r++) {
		uint64_t x = input_at(v, r, place);
		bool replaces = r == 0 ||
			is_below(v->dtype, v->redop == FRL_MIN ? x : result,
				v->redop == FRL_MIN ? result : x);

		switch (v->redop) {
		case FRL_PROD: result *= x; break;
		case FRL_MAX:
		case FRL_MIN: result = replaces ? x : result; break;
		case FRL_PREMUL_SUM: result += x * v->scalars[r]; break;
		default: result += x; break;
		}
	}
	result &= mask(v);
	if (v->redop != FRL_AVG)
		return result;
	if (number_is_signed(v->dtype))
		return (uint64_t)(number_extend(v->dtype, result) / (int64_t)n) & mask(v);
	return result / n;
}

/*
 * Returns whether results are exact. An average of floats is exact only if n is a number of the
 * type.
 */
static bool is_exact(const struct bench_values *v)
{
	if (v->wire != FRL_WIRE_SAME)
		return false;
	if (v->redop == FRL_OPS || v->redop == FRL_MAX || v->redop == FRL_MIN ||
		!number_is_float(v->dtype))
		return true;
	return !v->random &&
		(v->redop != FRL_AVG || number_truncate(v->dtype, v->ranks) == v->ranks);
}

int bench_values_make(struct bench_values *v)
{
	size_t n = (size_t)v->ranks * BENCH_PERIOD, rows = n + BENCH_PERIOD;

	v->elem_size = frl_dtype_size(v->dtype);
	v->is_exact = is_exact(v);
	v->inputs = calloc(n, v->elem_size);
	v->result = calloc(BENCH_PERIOD, v->elem_size);
	v->expected = v->is_exact ? NULL : calloc(rows, sizeof(*v->expected));
	v->bound = v->is_exact ? NULL : calloc(rows, sizeof(*v->bound));
	if (!v->inputs || !v->result || (!v->is_exact && (!v->expected || !v->bound)))
		return -ENOMEM;
	choose_scalars(v);
	for (size_t i = 0; i < n; i++)
		number_store(v->inputs + i * v->elem_size, v->elem_size,
			input_bits(v, (int)(i / BENCH_PERIOD), i % BENCH_PERIOD));
	if (!v->is_exact) {
		bench_bounds_make(v);
		return 0;
	}
	for (size_t i = 0; i < BENCH_PERIOD && v->redop != FRL_OPS; i++)
		number_store(v->result + i * v->elem_size, v->elem_size,
			number_is_float(v->dtype) ? exact_float(v, i) : exact_integer(v, i));
	return 0;
}

void bench_values_free(struct bench_values *v)
{
	free(v->inputs);
	free(v->result);
	free(v->expected);
	free(v->bound);
	v->inputs = v->result = NULL;
	v->expected = v->bound = NULL;
}

const uint8_t *bench_values_of(const struct bench_values *v, int source)
{
	if (source == BENCH_REDUCED)
		return v->result;
	return v->inputs + (size_t)source * BENCH_PERIOD * v->elem_size;
}

double bench_values_error(const struct bench_values *v, int source, size_t place, uint64_t bits)
{
	size_t i = (size_t)(source + 1) * BENCH_PERIOD + place;
	long double error = fabsl(number_decode(v->dtype, bits) - v->expected[i]);

	if (error == 0)
		return 0;
	/* An error that is not a number cannot be compared. */
	return isfinite(error) ? (double)(error / v->bound[i]) : (double)INFINITY;
}
