/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <stdlib.h>

#include "lib/wire/psn.h"

#include "tests/fixtures/program.h"

static const struct {
	uint32_t a, b;
	int32_t diff; /* a - b */
} diff_rows[] = {
	{ 0, 0, 0 },
	{ 1, 0, 1 },
	{ 0, 1, -1 },
	{ 0, 0xffffff, 1 },
	{ 0xffffff, 0, -1 },
	{ 0xfffff8, 0xfffff0, 8 },
	{ 4, 0xfffffc, 8 },
	{ 0xfffffc, 4, -8 },
	{ 0x7fffff, 0, 0x7fffff },
	{ 0, 0x7fffff, -0x7fffff },
	{ 0x800000, 1, 0x7fffff },
	{ 0x800001, 0, -0x7fffff },
	{ 0x000000, 0x800001, 0x7fffff },
	{ 0x7ffffe, 0xffffff, 0x7fffff },
	{ 0xabcdef, 0xabcdef, 0 },
	{ 0x900000, 0x700000, 0x200000 },
};

static const struct {
	uint32_t psn, n, sum;
} add_rows[] = {
	{ 0, 0, 0 },
	{ 0, 1, 1 },
	{ 0xfffffe, 1, 0xffffff },
	{ 0xffffff, 1, 0 },
	{ 0xffffff, 2, 1 },
	{ 0xfffff0, 0x20, 0x10 },
	{ 5, 0xffffff, 4 }, /* one back */
	{ 0, (uint32_t)-1, 0xffffff },
	{ 0x800000, 0x800000, 0 },
	{ 0x123456, 0x1000000, 0x123456 },
	{ 0x123456, 0xff000001, 0x123457 },
};

enum {
	N_DIFF = sizeof(diff_rows) / sizeof(diff_rows[0]),
	N_ADD = sizeof(add_rows) / sizeof(add_rows[0]),
};

START_LOOP_TEST(diff, N_DIFF)
{
	struct psn a = psn_make(diff_rows[_i].a);
	struct psn b = psn_make(diff_rows[_i].b);

	ck_assert_int_eq(psn_diff(a, b), diff_rows[_i].diff);
	ck_assert_int_eq(psn_diff(b, a), -diff_rows[_i].diff);
	ck_assert_int_eq(psn_equal(a, b), diff_rows[_i].diff == 0);
	ck_assert(psn_equal(psn_add(b, (uint32_t)diff_rows[_i].diff), a));
}
END_TEST

START_LOOP_TEST(add, N_ADD)
{
	struct psn psn = psn_make(add_rows[_i].psn);

	ck_assert_uint_eq(psn_add(psn, add_rows[_i].n).value, add_rows[_i].sum);
	if (add_rows[_i].n == 1)
		ck_assert_uint_eq(psn_next(psn).value, add_rows[_i].sum);
}
END_TEST

START_TEST(make_masks)
{
	ck_assert_uint_eq(psn_make(0xff123456).value, 0x123456);
	ck_assert_uint_eq(psn_make(0x1000000).value, 0);
}
END_TEST

TEST_FILE(psn)
