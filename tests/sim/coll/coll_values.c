/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations drawn from a seed, their inputs, and their results. */
#include "tests/sim/coll/coll_script.h"

#include "tests/sim/common/fail.h"

#include <math.h>
#include <string.h>

enum {
	EAGER = 4064,       /* bytes of the longest small message */
	SEGMENT = 16 << 10, /* as FRL_SEGMENT_KB says, see coll_main.c */
};

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	struct random_state state = { .counter = a ^ b * UINT64_C(0x9e3779b97f4a7c15) };

	state.counter = random_u64(&state) ^ c;
	return random_u64(&state);
}

static bool reduces(enum frl_coll coll)
{
	return coll == FRL_ALLREDUCE || coll == FRL_REDUCE_SCATTER || coll == FRL_REDUCE;
}

static bool is_narrow(enum frl_dtype dtype)
{
	return dtype == FRL_FLOAT16 || dtype == FRL_BFLOAT16 || dtype == FRL_FLOAT8_E4M3 ||
		dtype == FRL_FLOAT8_E5M2;
}

static bool is_float8(enum frl_dtype dtype)
{
	return dtype == FRL_FLOAT8_E4M3 || dtype == FRL_FLOAT8_E5M2;
}

static bool is_float(enum frl_dtype dtype)
{
	return dtype == FRL_FLOAT32 || dtype == FRL_FLOAT64 || is_narrow(dtype);
}

/* Sometimes, in some operations: NaN, or infinity if the type has one. Not with int8, where one
 * makes a whole block NaN. */
static bool draw_special(const struct coll_op *op, uint64_t bits, double *ret_value)
{
	if (!is_float(op->dtype) || op->wire == FRL_WIRE_INT8 || op->salt % 4 > 0 ||
		bits >> 32 & 31)
		return false;
	*ret_value = bits >> 37 & 1 || op->dtype == FRL_FLOAT8_E4M3 ? NAN : INFINITY;
	return true;
}

/* Sums of up to 8 are exact in e5m2, which has three bits. */
double coll_value(const struct coll_op *op, int rank, size_t i)
{
	uint64_t bits = mix(op->salt, (uint64_t)rank, i);
	double special;

	if (draw_special(op, bits, &special))
		return special;
	if (reduces(op->coll) && op->op == FRL_PROD)
		return (i + (size_t)rank) % 4 == 0 ? 2 : 1;
	if (reduces(op->coll) && op->op != FRL_MAX && op->op != FRL_MIN &&
		(is_float8(op->dtype) || (op->op == FRL_AVG && is_narrow(op->dtype))))
		return (double)(bits % 2);
	return (double)(bits % 8);
}

static double whole(double value, enum frl_dtype dtype)
{
	if (dtype == FRL_FLOAT32)
		return (float)value;
	return dtype == FRL_FLOAT64 || is_narrow(dtype) ? value : trunc(value);
}

double coll_reduced(const struct coll_op *op, int ranks, size_t i)
{
	double result = coll_value(op, 0, i);

	for (int rank = 1; rank < ranks; rank++) {
		double value = coll_value(op, rank, i);

		switch (op->op) {
		case FRL_PROD: result *= value; break;
		case FRL_MAX: result = fmax(result, value); break;
		case FRL_MIN: result = fmin(result, value); break;
		case FRL_SUM:
		case FRL_AVG:
		case FRL_PREMUL_SUM:
		case FRL_OPS: result += value; break;
		}
	}
	if (op->op == FRL_PREMUL_SUM)
		return 2 * result;
	return op->op == FRL_AVG ? whole(result / ranks, op->dtype) : result;
}

/* The encoding of a float that is exact in it, and normal or zero. */
static uint32_t encode(double value, int mantissa, int bias)
{
	int exponent;
	double fraction;
	uint32_t bits;

	if (value == 0)
		return 0;
	fraction = frexp(value, &exponent); /* from 0.5 to 1 */
	bits = (uint32_t)ldexp(fraction * 2 - 1, mantissa);
	SIM_CHECK(ldexp(bits, -mantissa) == fraction * 2 - 1 && exponent - 1 + bias > 0,
		"%g is not exact in %d bits", value, mantissa);
	return (uint32_t)(exponent - 1 + bias) << mantissa | bits;
}

/* NaN as in results (docs/reference/reductions.md), and infinity. */
static void put_special(void *element, enum frl_dtype dtype, bool is_nan)
{
	static const uint64_t nans[FRL_DTYPES] = { [FRL_FLOAT64] = UINT64_C(0x7ff8000000000000),
		[FRL_FLOAT32] = 0x7fc00000,
		[FRL_FLOAT16] = 0x7e00,
		[FRL_BFLOAT16] = 0x7fc0,
		[FRL_FLOAT8_E4M3] = 0x7f,
		[FRL_FLOAT8_E5M2] = 0x7e };
	static const uint64_t infinities[FRL_DTYPES] = {
		[FRL_FLOAT64] = UINT64_C(0x7ff0000000000000),
		[FRL_FLOAT32] = 0x7f800000,
		[FRL_FLOAT16] = 0x7c00,
		[FRL_BFLOAT16] = 0x7f80,
		[FRL_FLOAT8_E5M2] = 0x7c,
	};

	memcpy(element, is_nan ? &nans[dtype] : &infinities[dtype], frl_dtype_size(dtype));
}

void coll_put(void *element, enum frl_dtype dtype, double value)
{
	size_t size = frl_dtype_size(dtype);
	float f32 = (float)value;
	uint64_t bits;

	if (!isfinite(value)) {
		put_special(element, dtype, isnan(value));
		return;
	}
	bits = (uint64_t)(int64_t)value;
	switch (dtype) {
	case FRL_FLOAT64: memcpy(element, &value, sizeof(value)); return;
	case FRL_FLOAT32: memcpy(element, &f32, sizeof(f32)); return;
	case FRL_FLOAT16: bits = encode(value, 10, 15); break;
	case FRL_BFLOAT16: bits = encode(value, 7, 127); break;
	case FRL_FLOAT8_E4M3: bits = encode(value, 3, 7); break;
	case FRL_FLOAT8_E5M2: bits = encode(value, 2, 15); break;
	case FRL_INT8:
	case FRL_UINT8:
	case FRL_INT32:
	case FRL_UINT32:
	case FRL_INT64:
	case FRL_UINT64:
	case FRL_DTYPES: break;
	}
	memcpy(element, &bits, size); /* little-endian */
}

size_t coll_piece(const struct coll_op *op, int from, int to)
{
	return mix(op->salt + 1, (uint64_t)from, (uint64_t)to) % (op->count + 1);
}

/* Often near the sizes at which the implementation changes. */
static size_t draw_count(
	struct random_state *random, size_t elem_size, int ranks, uint64_t bytes_max)
{
	size_t near, most = bytes_max / elem_size;

	switch (random_below(random, 6)) {
	case 0: return random_below(random, 18);
	case 1: near = EAGER / elem_size; break;
	case 2: near = SEGMENT / elem_size; break;
	case 3: near = (size_t)ranks * (1 + random_below(random, 4)) * 128; break;
	case 4: near = (size_t)ranks * EAGER / elem_size; break;
	default: return random_below(random, most + 1);
	}
	near += random_below(random, 5);
	return near < 2 ? near : near - 2;
}

static void draw_reduction(struct random_state *random, int ranks, struct coll_op *op)
{
	op->op = (enum frl_op)random_below(random, FRL_OPS);
	if (op->dtype == FRL_FLOAT32 && random_below(random, 2)) {
		op->op = (enum frl_op)random_below(random, FRL_AVG);
		op->wire = (enum frl_wire)random_below(random, FRL_WIRES);
	}
	/* Narrow floats are divided before they are added, which is exact for powers of two. */
	if (op->op == FRL_AVG && is_narrow(op->dtype) && (ranks & (ranks - 1)))
		op->op = FRL_SUM;
}

void coll_draw(struct random_state *random, int ranks, uint64_t bytes_max, struct coll_op *ret_op)
{
	struct coll_op *op = ret_op;
	bool many;

	*op = (struct coll_op){ .coll = (enum frl_coll)random_below(random, FRL_RECV) };
	if (random_below(random, 4) == 0)
		op->coll = FRL_ALLREDUCE;
	op->dtype = (enum frl_dtype)random_below(random, FRL_DTYPES);
	if (random_below(random, 4) == 0)
		op->dtype = FRL_FLOAT32;
	if (reduces(op->coll))
		draw_reduction(random, ranks, op);
	else if (op->dtype == FRL_FLOAT32 && op->coll != FRL_BARRIER)
		op->wire = (enum frl_wire)random_below(random, FRL_WIRES);
	many = op->coll != FRL_ALLREDUCE && op->coll != FRL_REDUCE && op->coll != FRL_BROADCAST;
	op->count = draw_count(random, frl_dtype_size(op->dtype), ranks,
		many ? bytes_max / (unsigned)ranks : bytes_max);
	op->root = (int)random_below(random, (uint64_t)ranks);
	op->in_place = random_below(random, 2) && op->coll < FRL_BARRIER &&
		op->coll != FRL_ALLTOALLV;
	op->salt = random_u64(random);
}
