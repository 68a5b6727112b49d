/* SPDX-License-Identifier: BSD-3-Clause */
/* Every fast version bit for bit against plain C, and plain C against numbers. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/reduce/kernels.h"

enum {
	MAX_COUNT = 300,
	MAX_OFFSET = 72,
	GUARD = 64,
	ROOM = MAX_OFFSET + MAX_COUNT * 4 + GUARD,
	MAX_KERNELS = 8,
};

enum alias { APART, DST_IS_A, DST_IS_B, ALL_ONE, ALIASES };

/* NULL where this processor lacks the instructions or the list has ended. */
static const struct reduce_kernels *kernels_at(int index)
{
	for (int i = 0; reduce_all_kernels[i]; i++)
		if (i == index)
			return reduce_all_kernels[i]->supported() ? reduce_all_kernels[i] : NULL;
	return NULL;
}

/* Ordinary numbers, and one in eight that is not. */
static float random_float(struct random_state *random)
{
	static const float special[] = { 0.0f, -0.0f, INFINITY, -INFINITY, 1e-45f, -1.1754942e-38f,
		3.4028235e38f, -3.4028235e38f };
	uint64_t bits = random_u64(random);

	if (bits % 8 == 0)
		return special[(bits >> 8) % (sizeof(special) / sizeof(special[0]))];
	return ldexpf((float)(int32_t)(bits >> 32), (int)(bits >> 8 & 63) - 32);
}

static void fill(uint8_t *bytes, size_t offset, size_t count, struct random_state *random)
{
	for (size_t i = 0; i < ROOM; i++)
		bytes[i] = (uint8_t)random_u64(random);
	for (size_t i = 0; i < count; i++) {
		float value = random_float(random);

		memcpy(bytes + offset + 4 * i, &value, 4);
	}
}

/* Runs `kernels` and plain C on blocks that are the same, and compares all of each block. */
static void compare(const struct reduce_kernels *kernels, enum alias alias, const size_t offset[3],
	size_t count, struct random_state *random)
{
	static uint8_t fast[3][ROOM] __attribute__((aligned(64)));
	static uint8_t plain[3][ROOM] __attribute__((aligned(64)));
	int a = alias == DST_IS_A || alias == ALL_ONE ? 0 : 1;
	int b = alias == DST_IS_B || alias == ALL_ONE ? 0 : 2;
	const struct {
		const struct reduce_kernels *kernels;
		uint8_t (*block)[ROOM];
	} runs[] = { { kernels, fast }, { &reduce_plain, plain } };

	for (int i = 0; i < 3; i++)
		fill(fast[i], offset[i], count, random);
	memcpy(plain, fast, sizeof(plain));
	for (int i = 0; i < 2; i++)
		runs[i].kernels->fn[FRL_FLOAT32][FRL_SUM](runs[i].block[0] + offset[0],
			runs[i].block[a] + offset[a], runs[i].block[b] + offset[b], count);
	for (int i = 0; i < 3; i++)
		ck_assert_msg(memcmp(fast[i], plain[i], ROOM) == 0,
			"%s: block %d, alias %d, %zu elements, offsets %zu %zu %zu", kernels->name,
			i, (int)alias, count, offset[0], offset[1], offset[2]);
}

START_TEST(every_count)
{
	const struct reduce_kernels *kernels = kernels_at(_i);
	struct random_state random;

	random_seed(&random, 1);
	for (size_t count = 0; kernels && count <= MAX_COUNT; count++) {
		for (int alias = APART; alias < ALIASES; alias++) {
			const size_t offset[3] = { random_below(&random, MAX_OFFSET),
				random_below(&random, MAX_OFFSET),
				random_below(&random, MAX_OFFSET) };

			compare(kernels, (enum alias)alias, offset, count, &random);
		}
	}
}
END_TEST

START_TEST(every_alignment)
{
	static const size_t counts[] = { 1, 17, 130 };
	const struct reduce_kernels *kernels = kernels_at(_i);
	struct random_state random;

	random_seed(&random, 2);
	for (size_t at = 0; kernels && at < MAX_OFFSET; at++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			const size_t offsets[][3] = { { at, 0, 0 }, { 0, at, 0 }, { 0, 0, at },
				{ at, at, at } };

			for (size_t j = 0; j < 4; j++)
				compare(kernels, APART, offsets[j], counts[i], &random);
			compare(kernels, DST_IS_A, offsets[3], counts[i], &random);
		}
	}
}
END_TEST

/* Exactly allocated, so that the address sanitizer sees a load or store past the elements. */
START_TEST(no_byte_outside)
{
	const struct reduce_kernels *kernels = kernels_at(_i);

	for (size_t count = 1; kernels && count <= 140; count++) {
		float *dst = malloc(count * sizeof(float));
		float *a = malloc(count * sizeof(float));
		float *b = malloc(count * sizeof(float));

		ck_assert(dst && a && b);
		for (size_t i = 0; i < count; i++) {
			a[i] = (float)i;
			b[i] = 0.5f;
		}
		kernels->fn[FRL_FLOAT32][FRL_SUM](dst, a, b, count);
		for (size_t i = 0; i < count; i++)
			ck_assert_float_eq(dst[i], (float)i + 0.5f);
		free(dst);
		free(a);
		free(b);
	}
}
END_TEST

/* A NaN stays the NaN that it is; which of two wins is left open. */
START_TEST(not_a_number)
{
	static const uint32_t bits[] = { 0x7fc00000, 0x7fc12345, 0xffc54321, 0x7f812345 };
	const struct reduce_kernels *kernels = kernels_at(_i);
	uint32_t x[64], y[64], fast[64], plain[64];

	for (int swap = 0; kernels && swap < 2; swap++) {
		for (int i = 0; i < 64; i++) {
			x[i] = bits[i % 4];
			y[i] = i & 4 ? 0x3f800000 : 0x7f800000;
		}
		kernels->fn[FRL_FLOAT32][FRL_SUM](fast, swap ? y : x, swap ? x : y, 64);
		frl_reduce_plain(plain, swap ? y : x, swap ? x : y, 64, FRL_FLOAT32, FRL_SUM);
		ck_assert_mem_eq(fast, plain, sizeof(fast));
		for (int i = 0; i < 64; i++)
			ck_assert_uint_eq(fast[i], bits[i % 4] | 0x00400000);
	}
}
END_TEST

static const struct {
	float a, b, sum;
} sum_rows[] = {
	{ 1.0f, 2.0f, 3.0f },
	{ 0.1f, 0.2f, 0.3f },
	{ 16777216.0f, 1.0f, 16777216.0f }, /* rounds to even */
	{ 16777218.0f, 1.0f, 16777220.0f },
	{ 3.4028235e38f, 3.4028235e38f, INFINITY },
	{ 1e-45f, 1e-45f, 3e-45f }, /* not flushed to zero */
	{ -0.0f, 0.0f, 0.0f },
	{ -5.0f, 5.0f, 0.0f },
};

enum { N_SUMS = sizeof(sum_rows) / sizeof(sum_rows[0]) };

START_TEST(sum)
{
	float plain = 0, fast[20], a[20], b[20];

	frl_reduce_plain(&plain, &sum_rows[_i].a, &sum_rows[_i].b, 1, FRL_FLOAT32, FRL_SUM);
	ck_assert_mem_eq(&plain, &sum_rows[_i].sum, sizeof(plain));
	for (int i = 0; i < 20; i++) {
		a[i] = sum_rows[_i].a;
		b[i] = sum_rows[_i].b;
	}
	frl_reduce(fast, a, b, 20, FRL_FLOAT32, FRL_SUM);
	for (int i = 0; i < 20; i++)
		ck_assert_mem_eq(&fast[i], &sum_rows[_i].sum, sizeof(fast[i]));
}
END_TEST

START_TEST(names_and_sizes)
{
	ck_assert_uint_eq(frl_dtype_size(FRL_FLOAT32), 4);
	ck_assert_uint_eq(frl_dtype_size(FRL_DTYPES), 0);
	ck_assert_str_eq(frl_dtype_name(FRL_FLOAT32), "float32");
	ck_assert_ptr_null(frl_dtype_name(FRL_DTYPES));
	ck_assert_str_eq(frl_op_name(FRL_SUM), "sum");
	ck_assert_ptr_null(frl_op_name(FRL_OPS));
	ck_assert_ptr_null(frl_op_name((enum frl_op)(FRL_OPS + 100)));
	for (int i = 0; i < FRL_DTYPES; i++) {
		ck_assert_uint_gt(frl_dtype_size((enum frl_dtype)i), 0);
		ck_assert_ptr_nonnull(frl_dtype_name((enum frl_dtype)i));
	}
	for (int i = 0; i < FRL_OPS; i++)
		ck_assert_ptr_nonnull(frl_op_name((enum frl_op)i));
}
END_TEST

START_TEST(every_table_is_full)
{
	const struct reduce_kernels *last = NULL;

	for (int i = 0; reduce_all_kernels[i]; i++) {
		last = reduce_all_kernels[i];
		ck_assert_int_lt(i, MAX_KERNELS);
		for (int dtype = 0; dtype < FRL_DTYPES; dtype++)
			for (int op = 0; op < FRL_OPS; op++)
				ck_assert(last->fn[dtype][op] != NULL);
	}
	ck_assert_ptr_eq(last, &reduce_plain);
}
END_TEST

START_TEST(nonsense_does_nothing)
{
	float dst = 7, a = 1, b = 2;

	frl_reduce(&dst, &a, &b, 1, FRL_DTYPES, FRL_SUM);
	frl_reduce(&dst, &a, &b, 1, FRL_FLOAT32, FRL_OPS);
	frl_reduce_plain(&dst, &a, &b, 1, FRL_DTYPES, FRL_SUM);
	frl_reduce(NULL, NULL, NULL, 0, FRL_FLOAT32, FRL_SUM);
	ck_assert_float_eq(dst, 7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reduce");
	TCase *tcase = tcase_create("reduce");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, every_count, 0, MAX_KERNELS);
	tcase_add_loop_test(tcase, every_alignment, 0, MAX_KERNELS);
	tcase_add_loop_test(tcase, no_byte_outside, 0, MAX_KERNELS);
	tcase_add_loop_test(tcase, not_a_number, 0, MAX_KERNELS);
	tcase_add_loop_test(tcase, sum, 0, N_SUMS);
	tcase_add_test(tcase, names_and_sizes);
	tcase_add_test(tcase, every_table_is_full);
	tcase_add_test(tcase, nonsense_does_nothing);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
