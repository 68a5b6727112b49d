/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/region.h"
#include "tests/unit/qp_fixture.h"

static int pd, other;

START_TEST(keys_name_their_region)
{
	struct region *slots[4], *more[8];
	struct region regions[8] = { { 0 } }, stale;
	struct region_table table = { 0 };

	ck_assert_ptr_null(region_find(&table, 0));
	ck_assert(!region_add(&table, &regions[0], 1));
	region_table_extend(&table, slots, 4);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert(region_add(&table, &regions[i], 0xabc0 + i));
		ck_assert_uint_eq(regions[i].key, (0xabc0 + i) << 16 | i);
	}
	ck_assert(!region_add(&table, &regions[4], 7));
	region_table_extend(&table, more, 8);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_ptr_eq(region_find(&table, regions[i].key), &regions[i]);
	ck_assert_ptr_null(region_find(&table, 0xabc00000 | 4));
	ck_assert_ptr_null(region_find(&table, 0xabc00000 | 8));
	ck_assert_ptr_null(region_find(&table, 0xabc0ffff));
	ck_assert_ptr_null(region_find(&table, regions[2].key ^ 0x10000));
	stale = regions[1];
	region_remove(&table, &regions[1]);
	ck_assert_ptr_null(region_find(&table, stale.key));
	ck_assert_uint_eq(table.used, 3);
}
END_TEST

START_TEST(slots_are_reused_late)
{
	struct region *slots[8];
	struct region region = { 0 }, fixed = { 0 };
	struct region_table table = { 0 };

	region_table_extend(&table, slots, 8);
	ck_assert(region_add(&table, &fixed, 1));
	for (uint32_t i = 0; i < 20; i++) {
		ck_assert(region_add(&table, &region, i));
		ck_assert_uint_eq(region.key & 0xffff, 1 + i % 7);
		region_remove(&table, &region);
	}
	ck_assert_ptr_eq(region_find(&table, fixed.key), &fixed);
}
END_TEST

/* A region of 1000 bytes at 4096. */
static const struct bounds_row {
	uint64_t addr;
	uint64_t length;
	uint32_t access;
	bool own_pd;
	bool allowed;
} bounds[] = {
	{ 4096, 1000, 1, true, true },
	{ 4096, 1001, 1, true, false },
	{ 4095, 1, 1, true, false },
	{ 4095, 2, 1, true, false },
	{ 5095, 1, 1, true, true },
	{ 5095, 2, 1, true, false },
	{ 5096, 1, 1, true, false },
	{ 5096, 0, 1, true, true },
	{ 5097, 0, 1, true, false },
	{ 0, 0, 1, true, false },
	{ 4096, UINT64_MAX, 1, true, false },
	{ UINT64_MAX, 2, 1, true, false },
	{ UINT64_MAX - 10, 5000, 1, true, false },
	{ 4097, UINT64_MAX - 100, 1, true, false },
	{ 4096, 1000, 0, true, true },
	{ 4096, 1000, 2, true, false },
	{ 4096, 1000, 3, true, false },
	{ 4096, 1000, 1, false, false },
};

START_TEST(bounds_access_and_domain)
{
	const struct bounds_row *row = &bounds[_i];
	struct region region = {
		.addr = (uint8_t *)(uintptr_t)4096, .length = 1000, .access = 1, .pd = &pd
	};

	ck_assert_int_eq(region_allows(&region, row->own_pd ? &pd : &other, row->addr, row->length,
				 row->access),
		row->allowed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tc = tcase_create("region");

	tcase_add_test(tc, keys_name_their_region);
	tcase_add_test(tc, slots_are_reused_late);
	tcase_add_loop_test(tc, bounds_access_and_domain, 0, sizeof(bounds) / sizeof(bounds[0]));
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
