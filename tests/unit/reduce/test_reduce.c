/* SPDX-License-Identifier: BSD-3-Clause */
/* Every type, operation and instruction set bit for bit against plain C: all counts, alignments and
 * ways in which operands may be the same; and plain C against numbers. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/fixtures/program.h"
#include "tests/fixtures/reduce_fixture.h"

enum {
	MAX_COUNT = 200,
	MAX_OFFSET = 72,
	GUARD = 64,
	ROOM = MAX_OFFSET + MAX_COUNT * 8 + GUARD,
	N_LOOPS = MAX_KERNELS * FRL_DTYPES,
};

enum alias { APART, DST_IS_A, DST_IS_B, ALL_ONE, ALIASES };

/* The operations, and then these. */
enum { SCALE = REDUCE_OPS, DIVIDE, NONTEMPORAL, KINDS };

static const struct reduce_kernels *loop_kernels(int i)
{
	return kernels_at(i / FRL_DTYPES);
}

static enum frl_dtype loop_dtype(int i)
{
	return (enum frl_dtype)(i % FRL_DTYPES);
}

/* False: it has none of its own. */
static bool has(const struct reduce_kernels *kernels, enum frl_dtype dtype, int kind)
{
	if (kind == SCALE)
		return kernels->scale[dtype];
	if (kind == DIVIDE)
		return kernels->divide[dtype];
	if (kind == NONTEMPORAL)
		return kernels->sum_nontemporal[dtype];
	return kernels->reduce[dtype][kind];
}

static void run(const struct reduce_kernels *kernels, enum frl_dtype dtype, int kind, void *dst,
	const void *a, const void *b, size_t count)
{
	uint64_t scalar = 0;

	memcpy(&scalar, b, count ? frl_dtype_size(dtype) : 0);
	if (kind == SCALE)
		kernels->scale[dtype](dst, a, count, &scalar);
	else if (kind == DIVIDE)
		kernels->divide[dtype](dst, a, count, 3);
	else if (kind == NONTEMPORAL && kernels->sum_nontemporal[dtype])
		kernels->sum_nontemporal[dtype](dst, a, b, count);
	else if (kind == NONTEMPORAL)
		kernels->reduce[dtype][FRL_SUM](dst, a, b, count);
	else
		kernels->reduce[dtype][kind](dst, a, b, count);
}

/* Runs `kernels` and plain C on blocks that are the same, and compares all of each block. */
static void compare(const struct reduce_kernels *kernels, enum frl_dtype dtype, int kind,
	enum alias alias, const size_t offset[3], size_t count, struct random_state *random)
{
	static uint8_t fast[3][ROOM] __attribute__((aligned(64)));
	static uint8_t plain[3][ROOM] __attribute__((aligned(64)));
	int a = alias == DST_IS_A || alias == ALL_ONE ? 0 : 1;
	int b = alias == DST_IS_B || alias == ALL_ONE ? 0 : 2;

	if (!has(kernels, dtype, kind) || (kind == NONTEMPORAL && alias != APART))
		return;
	for (int i = 0; i < 3; i++) {
		memset(fast[i], 0xa5, ROOM);
		fill_elements(fast[i] + offset[i], count, dtype, random);
	}
	memcpy(plain, fast, sizeof(plain));
	run(kernels, dtype, kind, fast[0] + offset[0], fast[a] + offset[a], fast[b] + offset[b],
		count);
	run(&reduce_plain, dtype, kind, plain[0] + offset[0], plain[a] + offset[a],
		plain[b] + offset[b], count);
	for (int i = 0; i < 3; i++)
		ck_assert_msg(memcmp(fast[i], plain[i], ROOM) == 0,
			"%s: %s, kind %d, block %d, alias %d, %zu elements, offsets %zu %zu %zu",
			kernels->name, frl_dtype_name(dtype), kind, i, (int)alias, count, offset[0],
			offset[1], offset[2]);
}

START_LOOP_TEST(every_count, N_LOOPS)
{
	const struct reduce_kernels *kernels = loop_kernels(_i);
	struct random_state random;

	random_seed(&random, 1);
	for (size_t count = 0; kernels && count <= MAX_COUNT; count++) {
		for (int kind = 0; kind < KINDS; kind++) {
			const size_t offset[3] = { random_below(&random, MAX_OFFSET),
				random_below(&random, MAX_OFFSET),
				random_below(&random, MAX_OFFSET) };

			for (int alias = APART; alias < ALIASES; alias++)
				compare(kernels, loop_dtype(_i), kind, (enum alias)alias, offset,
					count, &random);
		}
	}
}
END_TEST

START_LOOP_TEST(every_alignment, N_LOOPS)
{
	static const size_t counts[] = { 1, 17, 130 };
	const struct reduce_kernels *kernels = loop_kernels(_i);
	struct random_state random;

	random_seed(&random, 2);
	for (size_t at = 0; kernels && at < MAX_OFFSET; at++) {
		for (int kind = 0; kind < KINDS; kind++) {
			const size_t offsets[][3] = { { at, 0, 0 }, { 0, at, 0 }, { 0, 0, at },
				{ at, at, at } };
			size_t count = counts[at % 3];

			for (size_t j = 0; j < 4; j++)
				compare(kernels, loop_dtype(_i), kind, APART, offsets[j], count,
					&random);
			compare(kernels, loop_dtype(_i), kind, DST_IS_A, offsets[3], count,
				&random);
		}
	}
}
END_TEST

/* Exactly allocated, so that the address sanitizer sees a load or store past the elements. */
START_LOOP_TEST(no_byte_outside, N_LOOPS)
{
	const struct reduce_kernels *kernels = loop_kernels(_i);
	enum frl_dtype dtype = loop_dtype(_i);

	for (size_t count = 1; kernels && count <= 140; count += 1 + count / 20) {
		size_t bytes = count * frl_dtype_size(dtype);
		uint8_t *dst = calloc(1, bytes), *a = calloc(1, bytes), *b = calloc(1, bytes);

		ck_assert(dst && a && b);
		for (int kind = 0; kind < KINDS; kind++)
			if (has(kernels, dtype, kind))
				run(kernels, dtype, kind, dst, a, b, count);
		for (size_t i = 0; i < bytes; i++)
			ck_assert_uint_eq(dst[i], 0);
		free(dst);
		free(a);
		free(b);
	}
}
END_TEST

/* The order of the operands makes no difference, NaN and the two zeros included. */
START_LOOP_TEST(operands_swapped, N_LOOPS)
{
	const struct reduce_kernels *kernels = loop_kernels(_i);
	enum frl_dtype dtype = loop_dtype(_i);
	size_t size = frl_dtype_size(dtype);
	uint8_t a[256 * 8], b[256 * 8], one[256 * 8], other[256 * 8];

	for (size_t i = 0; i < 256; i++) {
		uint64_t x = edge_bits(dtype, i), y = edge_bits(dtype, i >> 4);

		memcpy(a + i * size, &x, size);
		memcpy(b + i * size, &y, size);
	}
	for (int op = 0; kernels && op < REDUCE_OPS; op++) {
		if (!has(kernels, dtype, op))
			continue;
		run(kernels, dtype, op, one, a, b, 256);
		run(kernels, dtype, op, other, b, a, 256);
		ck_assert_mem_eq(one, other, 256 * size);
		frl_reduce_local(other, a, b, 256, dtype, (enum frl_op)op);
		ck_assert_mem_eq(one, other, 256 * size);
	}
}
END_TEST

static const struct {
	float a, b, sum, prod, max, min;
} float_rows[] = {
	{ 1.0f, 2.0f, 3.0f, 2.0f, 2.0f, 1.0f },
	{ 0.1f, 0.2f, 0.3f, 0.0200000014f, 0.2f, 0.1f },
	{ 16777216.0f, 1.0f, 16777216.0f, 16777216.0f, 16777216.0f, 1.0f }, /* to even */
	{ 16777218.0f, 1.0f, 16777220.0f, 16777218.0f, 16777218.0f, 1.0f },
	{ 3.4028235e38f, 3.4028235e38f, INFINITY, INFINITY, 3.4028235e38f, 3.4028235e38f },
	{ 1e-45f, 1e-45f, 3e-45f, 0.0f, 1e-45f, 1e-45f }, /* not flushed to zero */
	{ -0.0f, 0.0f, 0.0f, -0.0f, 0.0f, -0.0f },
	{ -0.0f, -0.0f, -0.0f, 0.0f, -0.0f, -0.0f },
	{ -5.0f, 5.0f, 0.0f, -25.0f, 5.0f, -5.0f },
	{ -INFINITY, 5.0f, -INFINITY, -INFINITY, 5.0f, -INFINITY },
	{ -INFINITY, INFINITY, NAN, -INFINITY, INFINITY, -INFINITY },
	{ INFINITY, 0.0f, INFINITY, NAN, INFINITY, 0.0f },
	{ NAN, 5.0f, NAN, NAN, 5.0f, 5.0f },
	{ NAN, -INFINITY, NAN, NAN, -INFINITY, -INFINITY },
	{ -NAN, NAN, NAN, NAN, NAN, NAN },
};

static void check_float(enum frl_op op, float a, float b, float expected)
{
	float plain, fast[70], x[70], y[70];
	double expected_64, x_64 = (double)a, y_64 = (double)b;
	uint32_t nan = 0x7fc00000;

	if (isnan(expected))
		memcpy(&expected, &nan, 4); /* the canonical one */
	frl_reduce_local_plain(&plain, &a, &b, 1, FRL_FLOAT32, op);
	ck_assert_mem_eq(&plain, &expected, 4);
	for (int i = 0; i < 70; i++) {
		x[i] = a;
		y[i] = b;
	}
	frl_reduce_local(fast, x, y, 70, FRL_FLOAT32, op);
	for (int i = 0; i < 70; i++)
		ck_assert_mem_eq(&fast[i], &expected, 4);
	if (op == FRL_MAX || op == FRL_MIN) {
		frl_reduce_local(&x_64, &x_64, &y_64, 1, FRL_FLOAT64, op);
		expected_64 = (double)expected;
		ck_assert_mem_eq(&x_64, &expected_64, 8);
	}
}

START_LOOP_TEST(floats, ROWS(float_rows))
{
	check_float(FRL_SUM, float_rows[_i].a, float_rows[_i].b, float_rows[_i].sum);
	check_float(FRL_PROD, float_rows[_i].a, float_rows[_i].b, float_rows[_i].prod);
	check_float(FRL_MAX, float_rows[_i].a, float_rows[_i].b, float_rows[_i].max);
	check_float(FRL_MIN, float_rows[_i].a, float_rows[_i].b, float_rows[_i].min);
}
END_TEST

static const struct {
	enum frl_dtype dtype;
	int64_t a, b, sum, prod, max, min, third; /* third: a / 3 */
} integer_rows[] = {
	{ FRL_INT8, 127, 2, -127, -2, 127, 2, 42 },
	{ FRL_INT8, -128, -1, 127, -128, -1, -128, -42 },
	{ FRL_UINT8, 255, 2, 1, 254, 255, 2, 85 },
	{ FRL_INT32, INT32_MAX, 2, INT32_MIN + 1, -2, INT32_MAX, 2, 715827882 },
	{ FRL_INT32, INT32_MIN, -1, INT32_MAX, INT32_MIN, -1, INT32_MIN, -715827882 },
	{ FRL_INT32, -8, 3, -5, -24, 3, -8, -2 },
	{ FRL_UINT32, UINT32_MAX, 2, 1, 0xfffffffe, UINT32_MAX, 2, 1431655765 },
	{ FRL_INT64, INT64_MAX, 2, INT64_MIN + 1, -2, INT64_MAX, 2, 3074457345618258602 },
	{ FRL_INT64, INT64_MIN, -1, INT64_MAX, INT64_MIN, -1, INT64_MIN, -3074457345618258602 },
	{ FRL_UINT64, -1, 2, 1, -2, -1, 2, 6148914691236517205 },
};

static void check_integer(enum frl_dtype dtype, int kind, int64_t a, int64_t b, int64_t expected)
{
	size_t size = frl_dtype_size(dtype);
	uint8_t x[70 * 8], y[70 * 8], dst[70 * 8];

	for (size_t i = 0; i < 70; i++) { /* the lowest bytes are the element */
		memcpy(x + i * size, &a, size);
		memcpy(y + i * size, &b, size);
	}
	if (kind == SCALE)
		frl_scale_local(dst, x, 70, dtype, &b);
	else if (kind == DIVIDE)
		frl_divide_local(dst, x, 70, dtype, 3);
	else
		frl_reduce_local(dst, x, y, 70, dtype, (enum frl_op)kind);
	for (size_t i = 0; i < 70; i++)
		ck_assert_msg(memcmp(dst + i * size, &expected, size) == 0, "%s, kind %d",
			frl_dtype_name(dtype), kind);
}

START_LOOP_TEST(integers, ROWS(integer_rows))
{
	enum frl_dtype dtype = integer_rows[_i].dtype;
	int64_t a = integer_rows[_i].a, b = integer_rows[_i].b;

	check_integer(dtype, FRL_SUM, a, b, integer_rows[_i].sum);
	check_integer(dtype, FRL_PROD, a, b, integer_rows[_i].prod);
	check_integer(dtype, FRL_MAX, a, b, integer_rows[_i].max);
	check_integer(dtype, FRL_MIN, a, b, integer_rows[_i].min);
	check_integer(dtype, SCALE, a, b, integer_rows[_i].prod);
	check_integer(dtype, DIVIDE, a, b, integer_rows[_i].third);
}
END_TEST

/* a / n as C has it. */
static uint64_t quotient(enum frl_dtype dtype, uint64_t a, uint32_t n)
{
	switch (dtype) {
	case FRL_INT8: return (uint64_t)((int64_t)(int8_t)a / (int64_t)n);
	case FRL_UINT8: return (uint8_t)a / n;
	case FRL_INT32: return (uint64_t)((int64_t)(int32_t)a / (int64_t)n);
	case FRL_UINT32: return (uint32_t)a / n;
	case FRL_INT64: return (uint64_t)((int64_t)a / (int64_t)n);
	default: return a / n;
	}
}

/* The first quotients after a whole number, and the last ones before. */
START_RANGE_TEST(integer_quotients, FRL_INT8, FRL_UINT64 + 1)
{
	enum frl_dtype dtype = (enum frl_dtype)_i;
	size_t size = frl_dtype_size(dtype);
	uint8_t x[64 * 8], got[64 * 8];
	struct random_state random;

	random_seed(&random, 8);
	for (uint32_t round = 0; round < 20000; round++) {
		uint32_t n = round < 300 ? round + 1 : (uint32_t)random_u64(&random) >> round % 32;
		uint64_t a[64];

		n = n ? n : 1;
		for (size_t i = 0; i < 64; i++) {
			a[i] = random_u64(&random) >> i % 64;
			a[i] = i % 3 ? a[i] / n * n - i % 2 : a[i];
			a[i] = i % 5 ? a[i] : (uint64_t) - (int64_t)a[i];
			memcpy(x + i * size, &a[i], size);
		}
		frl_divide_local(got, x, 64, dtype, n);
		for (size_t i = 0; i < 64; i++) {
			uint64_t expected = quotient(dtype, a[i], n);

			if (memcmp(got + i * size, &expected, size) != 0)
				ck_abort_msg("%s: %#lx / %u", frl_dtype_name(dtype),
					(unsigned long)a[i], n);
		}
	}
}
END_TEST

START_TEST(nonsense_does_nothing)
{
	float dst = 7, a = 1, b = 2;

	frl_reduce_local(&dst, &a, &b, 1, FRL_DTYPES, FRL_SUM);
	frl_reduce_local(&dst, &a, &b, 1, FRL_FLOAT32, FRL_AVG);
	frl_reduce_local(&dst, &a, &b, 1, FRL_FLOAT32, FRL_OPS);
	frl_reduce_local_plain(&dst, &a, &b, 1, FRL_DTYPES, FRL_SUM);
	frl_reduce_local_plain(&dst, &a, &b, 1, FRL_FLOAT32, FRL_PREMUL_SUM);
	frl_scale_local(&dst, &a, 1, FRL_DTYPES, &b);
	frl_divide_local(&dst, &a, 1, FRL_DTYPES, 2);
	frl_divide_local(&dst, &a, 1, FRL_FLOAT32, 0);
	frl_reduce_local(NULL, NULL, NULL, 0, FRL_FLOAT32, FRL_SUM);
	ck_assert_float_eq(dst, 7);
}
END_TEST

/* The best table consists of fast functions where there are some, and plain C otherwise. */
START_TEST(tables)
{
	const struct reduce_kernels *best = reduce_best_kernels(), *last = NULL;

	for (int i = 0; reduce_all_kernels[i]; i++) {
		last = reduce_all_kernels[i];
		ck_assert_int_lt(i, MAX_KERNELS);
	}
	ck_assert_ptr_eq(last, &reduce_plain);
	for (int dtype = 0; dtype < FRL_DTYPES; dtype++)
		for (int kind = 0; kind < KINDS; kind++) {
			if (kind == NONTEMPORAL)
				continue;
			ck_assert(has(&reduce_plain, (enum frl_dtype)dtype, kind));
			ck_assert(has(best, (enum frl_dtype)dtype, kind));
		}
	for (int wire = 0; wire < FRL_WIRES; wire++) {
		ck_assert(reduce_plain.encode[wire] && reduce_plain.decode[wire]);
		ck_assert(reduce_plain.decode_add[wire] && best->encode[wire]);
		ck_assert(best->decode[wire] && best->decode_add[wire]);
	}
	for (int i = 0; kernels_at(i); i++) /* the fastest one that has it */
		if (kernels_at(i)->reduce[FRL_FLOAT32][FRL_SUM]) {
			ck_assert(best->reduce[FRL_FLOAT32][FRL_SUM] ==
				kernels_at(i)->reduce[FRL_FLOAT32][FRL_SUM]);
			break;
		}
}
END_TEST

TEST_FILE(reduce)
