/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The references of ferrule-bench's checks. Its numbers and references are tested against the
 * library's element-wise code, in several orders; its error bounds against encodings that keep them
 * and others that do not; and the places of everything in the buffers of each operation.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/layout.h"
#include "tools/common/number.h"
#include "tools/bench/values.h"
#include "tests/fixtures/program.h"

enum { SIZE_MAX_ELEM = 8, MAX_COUNT = 1000 };

static const int rank_counts[] = { 1, 2, 3, 4, 5, 8, 33 };

static uint8_t result[BENCH_PERIOD * SIZE_MAX_ELEM];

static bool is_narrow(enum frl_dtype dtype)
{
	return number_is_float(dtype) && frl_dtype_size(dtype) < 4;
}

/* One rank's input, as the collectives put it into the sum. */
static void take_input(const struct bench_values *v, int rank, uint8_t *ret_elements)
{
	uint8_t scalar[SIZE_MAX_ELEM];

	memcpy(ret_elements, bench_values_of(v, rank), BENCH_PERIOD * v->elem_size);
	number_store(scalar, v->elem_size, v->scalars[rank]);
	if (v->redop == FRL_PREMUL_SUM)
		frl_scale_local(ret_elements, ret_elements, BENCH_PERIOD, v->dtype, scalar);
	if (v->redop == FRL_AVG && is_narrow(v->dtype))
		frl_divide_local(
			ret_elements, ret_elements, BENCH_PERIOD, v->dtype, (uint32_t)v->ranks);
}

/* Into `result`, from rank `first` on in steps of `step`. */
static void reduce_in_order(const struct bench_values *v, int first, int step)
{
	enum frl_op op = frl_op_is_elementwise(v->redop) ? v->redop : FRL_SUM;
	uint8_t other[sizeof(result)];

	take_input(v, first, result);
	for (int i = 1; i < v->ranks; i++) {
		take_input(v, (first + i * step) % v->ranks, other);
		frl_reduce_local(result, other, result, BENCH_PERIOD, v->dtype, op);
	}
	if (v->redop == FRL_AVG && !is_narrow(v->dtype))
		frl_divide_local(result, result, BENCH_PERIOD, v->dtype, (uint32_t)v->ranks);
}

static void make(struct bench_values *v, int ranks, enum frl_dtype dtype, enum frl_op redop)
{
	v->ranks = ranks;
	v->dtype = dtype;
	v->redop = redop;
	v->seed += 7;
	ck_assert_int_eq(bench_values_make(v), 0);
}

static uint64_t result_bits(const struct bench_values *v, size_t place)
{
	return number_load(result + place * v->elem_size, v->elem_size);
}

static void check_result(const struct bench_values *v)
{
	for (size_t i = 0; i < BENCH_PERIOD; i++) {
		uint64_t bits = result_bits(v, i);
		uint64_t right = number_load(
			bench_values_of(v, BENCH_REDUCED) + i * v->elem_size, v->elem_size);

		if (v->is_exact)
			ck_assert_msg(bits == right, "%s %s, %d ranks, place %zu: %#jx, not %#jx",
				frl_dtype_name(v->dtype), frl_op_name(v->redop), v->ranks, i,
				(uintmax_t)bits, (uintmax_t)right);
		else
			ck_assert_msg(bench_values_error(v, BENCH_REDUCED, i, bits) <= 1,
				"%s %s, %d ranks, place %zu: %Lg, not %Lg within %Lg",
				frl_dtype_name(v->dtype), frl_op_name(v->redop), v->ranks, i,
				number_decode(v->dtype, bits), v->expected[i], v->bound[i]);
	}
}

/* ---- numbers */

START_LOOP_TEST(all_short_numbers, 4)
{
	static const enum frl_dtype types[] = { FRL_FLOAT16, FRL_BFLOAT16, FRL_FLOAT8_E4M3,
		FRL_FLOAT8_E5M2 };
	enum frl_dtype dtype = types[_i];
	uint64_t n = (uint64_t)1 << 8 * frl_dtype_size(dtype);

	for (uint64_t bits = 0; bits < n; bits++) {
		long double value = number_decode(dtype, bits);

		if (isnan(value))
			continue;
		ck_assert_uint_eq(number_encode(dtype, value), bits);
		if (isfinite(value))
			ck_assert(number_truncate(dtype, value) == value);
	}
}
END_TEST

/* Two implementations of the same formats. */
START_TEST(as_the_wire_has_them)
{
	for (unsigned i = 0; i < 1 << 16; i++) {
		uint16_t bits = (uint16_t)i;
		float value;

		frl_wire_decode(&value, &bits, 1, FRL_WIRE_FLOAT16);
		if (!isnan(value))
			ck_assert(number_decode(FRL_FLOAT16, bits) == (long double)value);
		frl_wire_decode(&value, &bits, 1, FRL_WIRE_BFLOAT16);
		if (!isnan(value))
			ck_assert(number_decode(FRL_BFLOAT16, bits) == (long double)value);
	}
}
END_TEST

START_TEST(long_numbers)
{
	static const double values[] = { 0, -0.0, 1, -1.5, 0x1p-1074, 0x1.8p-1030, 0x1p-149,
		0x1.fffffep127, -0x1.fffffffffffffp1023, INFINITY, 3e-39 };

	for (size_t i = 0; i < ROWS(values); i++) {
		float single = (float)values[i];
		uint64_t bits = number_load(&values[i], 8), short_bits = number_load(&single, 4);

		ck_assert_uint_eq(number_encode(FRL_FLOAT64, values[i]), bits);
		ck_assert(number_decode(FRL_FLOAT64, bits) == (long double)values[i]);
		ck_assert_uint_eq(number_encode(FRL_FLOAT32, single), short_bits);
		ck_assert(number_decode(FRL_FLOAT32, short_bits) == (long double)single);
	}
	ck_assert_uint_eq(number_encode(FRL_FLOAT32, (long double)NAN), 0x7fc00000);
	ck_assert_uint_eq(number_encode(FRL_FLOAT8_E4M3, (long double)NAN), 0x7f);
	ck_assert_uint_eq(number_encode(FRL_FLOAT8_E5M2, (long double)NAN), 0x7e);
	ck_assert_int_eq(number_extend(FRL_INT8, 0xff), -1);
	ck_assert_int_eq(number_extend(FRL_UINT8, 0xff), 255);
	ck_assert_int_eq(number_extend(FRL_INT64, UINT64_MAX), -1);
}
END_TEST

/* ---- references */

START_LOOP_TEST(exact_in_any_order, FRL_DTYPES)
{
	struct bench_values v = { 0 };

	for (size_t k = 0; k < ROWS(rank_counts); k++) {
		for (int redop = 0; redop < FRL_OPS; redop++) {
			int n = rank_counts[k];

			make(&v, n, (enum frl_dtype)_i, (enum frl_op)redop);
			ck_assert(v.is_exact || redop == FRL_AVG);
			reduce_in_order(&v, 0, 1);
			check_result(&v);
			reduce_in_order(&v, n - 1, n - 1 ? n - 1 : 1);
			check_result(&v);
			reduce_in_order(&v, n / 2, 1);
			check_result(&v);
			bench_values_free(&v);
		}
	}
}
END_TEST

/* The values of all ranks differ: a forgotten rank would not be noticed otherwise. */
START_LOOP_TEST(every_rank_counts, FRL_DTYPES)
{
	struct bench_values v = { 0 };

	for (int redop = 0; redop < FRL_OPS; redop++) {
		size_t same = 0;

		make(&v, 3, (enum frl_dtype)_i, (enum frl_op)redop);
		v.ranks = 2;
		reduce_in_order(&v, 0, 1);
		v.ranks = 3;
		for (size_t i = 0; i < BENCH_PERIOD; i++)
			same += memcmp(result + i * v.elem_size,
					bench_values_of(&v, BENCH_REDUCED) + i * v.elem_size,
					v.elem_size) == 0;
		ck_assert_uint_lt(same, BENCH_PERIOD * 3 / 4);
		bench_values_free(&v);
	}
}
END_TEST

START_LOOP_TEST(random_within_bounds, FRL_DTYPES)
{
	struct bench_values v = { .random = true };

	for (size_t k = 0; k < ROWS(rank_counts); k++) {
		for (int redop = 0; redop < FRL_OPS; redop++) {
			make(&v, rank_counts[k], (enum frl_dtype)_i, (enum frl_op)redop);
			reduce_in_order(&v, 0, 1);
			check_result(&v);
			bench_values_free(&v);
		}
	}
}
END_TEST

/* A sum in float16 that is passed off as one in float32 is noticed; an exact one is not. */
START_TEST(lost_precision_is_wrong)
{
	struct bench_values v = { .random = true };
	size_t wrong = 0;

	make(&v, 4, FRL_FLOAT32, FRL_SUM);
	for (size_t i = 0; i < BENCH_PERIOD; i++) {
		long double shorter = number_truncate(FRL_FLOAT16, v.expected[i]);
		uint64_t bits = number_encode(FRL_FLOAT32, shorter);

		wrong += bench_values_error(&v, BENCH_REDUCED, i, bits) > 1;
		bits = number_encode(FRL_FLOAT32, number_truncate(FRL_FLOAT32, v.expected[i]));
		ck_assert(bench_values_error(&v, BENCH_REDUCED, i, bits) <= 1);
		ck_assert(bench_values_error(&v, BENCH_REDUCED, i, 0x7fc00000) > 1);
	}
	ck_assert_uint_gt(wrong, BENCH_PERIOD * 9 / 10);
	bench_values_free(&v);
}
END_TEST

/* ---- wire types */

static uint8_t encoded[BENCH_PERIOD * 4];
static float sums[BENCH_PERIOD];

static void pass(float *numbers, enum frl_wire wire)
{
	frl_wire_encode(encoded, numbers, BENCH_PERIOD, wire);
	frl_wire_decode(numbers, encoded, BENCH_PERIOD, wire);
}

/* Rank 0 adds up what the others encode, and encodes the sum; or every hop encodes the sum so far,
 * as a ring does. */
static void sum_over_wire(const struct bench_values *v, bool every_hop)
{
	float other[BENCH_PERIOD];

	take_input(v, 0, (uint8_t *)sums);
	for (int r = 1; r < v->ranks; r++) {
		take_input(v, r, (uint8_t *)other);
		pass(every_hop ? sums : other, v->wire);
		for (size_t i = 0; i < BENCH_PERIOD; i++)
			sums[i] += other[i];
	}
	pass(sums, v->wire);
	if (v->redop == FRL_AVG)
		frl_divide_local(sums, sums, BENCH_PERIOD, FRL_FLOAT32, (uint32_t)v->ranks);
}

static size_t count_wrong_sums(const struct bench_values *v)
{
	size_t wrong = 0;

	for (size_t i = 0; i < BENCH_PERIOD; i++)
		wrong += bench_values_error(v, BENCH_REDUCED, i, number_load(&sums[i], 4)) > 1;
	return wrong;
}

START_RANGE_TEST(wires_keep_their_bounds, FRL_WIRE_FLOAT16, FRL_WIRES)
{
	static const enum frl_op ops[] = { FRL_SUM, FRL_AVG, FRL_PREMUL_SUM };
	struct bench_values v = { .wire = (enum frl_wire)_i };

	for (size_t k = 0; k < ROWS(rank_counts); k++) {
		for (size_t o = 0; o < ROWS(ops); o++) {
			make(&v, rank_counts[k], FRL_FLOAT32, ops[o]);
			ck_assert(!v.is_exact);
			sum_over_wire(&v, false);
			ck_assert_uint_eq(count_wrong_sums(&v), 0);
			sum_over_wire(&v, true);
			/* int8 is not to be encoded again at every hop. */
			if (v.wire != FRL_WIRE_INT8)
				ck_assert_uint_eq(count_wrong_sums(&v), 0);
			else if (v.ranks > 4)
				ck_assert_uint_gt(count_wrong_sums(&v), 0);
			bench_values_free(&v);
		}
	}
}
END_TEST

START_RANGE_TEST(wires_copy_within_bounds, FRL_WIRE_FLOAT16, FRL_WIRES)
{
	struct bench_values v = { .wire = (enum frl_wire)_i };
	size_t twice = 0;

	make(&v, 3, FRL_FLOAT32, FRL_OPS);
	for (int r = 0; r < v.ranks; r++) {
		const long double *bound = v.bound + (size_t)(r + 1) * BENCH_PERIOD;

		take_input(&v, r, (uint8_t *)sums);
		pass(sums, v.wire);
		for (size_t i = 0; i < BENCH_PERIOD; i++) {
			uint64_t bits = number_load(&sums[i], 4);
			long double off = number_decode(FRL_FLOAT32, bits) + 3 * bound[i];

			ck_assert(bench_values_error(&v, r, i, bits) <= 1);
			bits = number_encode(FRL_FLOAT32, number_truncate(FRL_FLOAT32, off));
			twice += bench_values_error(&v, r, i, bits) > 1;
		}
	}
	ck_assert_uint_gt(twice, 3 * BENCH_PERIOD / 4);
	bench_values_free(&v);
}
END_TEST

/* ---- layouts */

static struct bench_layout layouts[MAX_RANKS];

static void check_segments(const struct bench_layout *l)
{
	size_t end = 0;

	for (int i = 0; i < l->n_segments; i++) {
		const struct bench_segment *s = &l->segments[i];

		ck_assert_uint_ge(s->at, end);
		end = s->at + s->count;
		ck_assert_int_ge(s->source, BENCH_REDUCED);
		if (s->source >= 0 && s->count)
			ck_assert_uint_le(s->from + s->count, layouts[s->source].send_count);
	}
	ck_assert_uint_le(end, l->recv_count);
}

static void check_pairs(int ranks)
{
	for (int i = 0; i < ranks; i++) {
		for (int k = 0; k < ranks; k++) {
			const struct bench_segment *s = &layouts[k].segments[ranks - 1 - i];

			ck_assert_uint_eq(layouts[i].send_counts[k], layouts[k].recv_counts[i]);
			ck_assert_int_eq(s->source, i);
			ck_assert_uint_eq(s->at, layouts[k].recv_displs[i]);
			ck_assert_uint_eq(s->from, layouts[i].send_displs[k]);
			ck_assert_uint_eq(s->count, layouts[i].send_counts[k]);
		}
	}
}

START_LOOP_TEST(layouts_fit, BENCH_OPS)
{
	static const size_t counts[] = { 0, 1, 7, MAX_COUNT };
	struct bench_case c = { .op = _i, .dtype = FRL_FLOAT32 };

	for (size_t k = 0; k < ROWS(rank_counts); k++) {
		for (size_t i = 0; i < 2 * ROWS(counts); i++) {
			int n = rank_counts[k];

			c.count = counts[i / 2];
			c.root = bench_op_has_root(c.op) ? n / 2 : -1;
			for (int r = 0; r < n; r++)
				bench_lay_out(&c, r, n, i % 2, &layouts[r]);
			for (int r = 0; r < n; r++)
				check_segments(&layouts[r]);
			if (c.op == FRL_ALLTOALLV)
				check_pairs(n);
		}
	}
}
END_TEST

static const struct {
	int op;
	double factor; /* of four ranks */
	size_t size;   /* of 1000 float32 */
	size_t count;  /* of 4096 bytes */
} definitions[] = {
	{ FRL_ALLREDUCE, 1.5, 4000, 1024 },
	{ FRL_REDUCE_SCATTER, 0.75, 16000, 256 },
	{ FRL_ALLGATHER, 0.75, 16000, 256 },
	{ FRL_BROADCAST, 1, 4000, 1024 },
	{ FRL_REDUCE, 1, 4000, 1024 },
	{ FRL_ALLTOALL, 0.75, 16000, 256 },
	{ FRL_GATHER, 0.75, 16000, 256 },
	{ FRL_SCATTER, 0.75, 16000, 256 },
	{ BENCH_SENDRECV, 1, 4000, 1024 },
};

START_LOOP_TEST(as_nccl_tests_define_them, ROWS(definitions))
{
	struct bench_case c = { .op = definitions[_i].op, .dtype = FRL_FLOAT32, .count = 1000 };

	ck_assert(bench_bus_factor(&c, 4) == definitions[_i].factor);
	ck_assert_uint_eq(bench_size(&c, 4), definitions[_i].size);
	ck_assert_uint_eq(bench_count(c.op, c.dtype, 4, 4096), definitions[_i].count);
	ck_assert_uint_eq(bench_count(c.op, c.dtype, 4, 1), 1);
}
END_TEST

START_TEST(what_combines)
{
	ck_assert(bench_combines(FRL_ALLREDUCE, FRL_INT8, FRL_MAX, FRL_WIRE_SAME));
	ck_assert(!bench_combines(FRL_ALLREDUCE, FRL_INT8, FRL_OPS, FRL_WIRE_SAME));
	ck_assert(!bench_combines(FRL_ALLGATHER, FRL_INT8, FRL_SUM, FRL_WIRE_SAME));
	ck_assert(bench_combines(FRL_ALLGATHER, FRL_FLOAT32, FRL_OPS, FRL_WIRE_INT8));
	ck_assert(!bench_combines(FRL_ALLGATHER, FRL_FLOAT16, FRL_OPS, FRL_WIRE_INT8));
	ck_assert(bench_combines(FRL_REDUCE, FRL_FLOAT32, FRL_MAX, FRL_WIRE_FLOAT16));
	ck_assert(!bench_combines(FRL_REDUCE, FRL_FLOAT16, FRL_MAX, FRL_WIRE_FLOAT16));
	ck_assert(!bench_combines(FRL_BARRIER, FRL_FLOAT32, FRL_OPS, FRL_WIRE_INT8));
}
END_TEST

TEST_FILE(bench)
