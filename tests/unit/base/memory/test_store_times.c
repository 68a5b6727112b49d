/* SPDX-License-Identifier: BSD-3-Clause */
/* The kind of stores follows the measured times, and both kinds are measured in any pattern. */
#include "lib/base/memory/store_times.h"

#include <check.h>
#include <string.h>

#include "tests/fixtures/program.h"

enum { UNIT = STORE_TIMES_UNIT_BYTES };

static const struct {
	uint64_t normal, nontemporal;
	bool is_nontemporal;
} preferences[] = {
	{ 0, 0, false },
	{ 9000, 0, false }, /* not known yet */
	{ 2500, 3500, false },
	{ 9000, 3000, false },
	{ 9001, 3000, true },
	{ 28000, 4000, true },
};

START_LOOP_TEST(prefers_above_factor, ROWS(preferences))
{
	struct store_times times = { .normal = preferences[_i].normal,
		.nontemporal = preferences[_i].nontemporal };

	ck_assert(store_times_prefer_nontemporal(&times) == preferences[_i].is_nontemporal);
}
END_TEST

START_TEST(averages)
{
	struct store_times times = { 0 };

	/* Half a block takes half the time. */
	store_times_add(&times, false, UNIT / 2, 1000);
	ck_assert_uint_eq(times.normal, 2001);
	ck_assert_uint_eq(times.nontemporal, 0);
	/* A block during which the process did not run. */
	store_times_add(&times, false, UNIT, 10000000);
	ck_assert_uint_eq(times.normal, 3002);
	store_times_add(&times, false, UNIT, 3999);
	ck_assert_uint_eq(times.normal, 3501);
	/* Nothing makes a copy shorter than it is. */
	store_times_add(&times, false, UNIT, 500);
	ck_assert_uint_eq(times.normal, 501);
	/* A coarse clock. */
	store_times_add(&times, true, UNIT, 0);
	ck_assert_uint_eq(times.nontemporal, 1);
	for (int i = 0; i < 100; i++)
		store_times_add(&times, true, UNIT, 500);
	ck_assert_uint_gt(times.nontemporal, 400);
}
END_TEST

/* The processors are near, far, and near again. */
START_TEST(adapts_to_placement)
{
	struct store_times times = { 0 };

	for (int i = 0; i < 300; i++) {
		bool is_far = i / 100 == 1;

		store_times_add(&times, true, UNIT, 4000);
		store_times_add(&times, false, UNIT, is_far ? 28000 : 2500);
		/* A few measurements later. */
		if (i % 100 >= 6)
			ck_assert(store_times_prefer_nontemporal(&times) == is_far);
	}
}
END_TEST

static const size_t patterns[][4] = {
	{ UNIT, UNIT, UNIT, UNIT },
	{ UNIT, 5000, UNIT, 5000 },
	{ UNIT, UNIT, 5000, 5000 },
	{ UNIT, 100, UNIT, 100 },
};

/* In each pattern, both kinds of stores are measured, and the copy is right with either. */
START_LOOP_TEST(copies, 2 * ROWS(patterns))
{
	static uint8_t from[UNIT + 1], to[UNIT + 1];
	struct store_times times = { 0 };

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 31 >> 3);
	for (size_t n = 0; n < 4 * STORE_TIMES_PERIOD; n++) {
		size_t bytes = patterns[_i / 2][n % 4];

		memset(to, 0, sizeof(to));
		if (_i % 2)
			times.normal = UINT32_MAX; /* far */
		store_times_copy(&times, to + n % 2, from + 1, bytes);
		ck_assert_mem_eq(to + n % 2, from + 1, bytes);
	}
	ck_assert_uint_gt(times.normal, 0);
	ck_assert_uint_gt(times.nontemporal, 0);
}
END_TEST

START_TEST(short_blocks_do_not_count)
{
	static uint8_t from[2 << 10], to[2 << 10];
	struct store_times times = { 0 };

	store_times_copy(&times, to, from, sizeof(from) - 1);
	ck_assert_uint_eq(times.blocks, 0);
	store_times_copy(&times, to, from, sizeof(from));
	ck_assert_uint_eq(times.blocks, 1);
}
END_TEST

TEST_FILE(store_times)
