/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/region.h"
#include "tests/unit/program.h"
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
		ck_assert_uint_eq(regions[i].key, 0xab0000c0 | i << 8 | i);
	}
	ck_assert(!region_add(&table, &regions[4], 7));
	region_table_extend(&table, more, 8);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_ptr_eq(region_find(&table, regions[i].key), &regions[i]);
	ck_assert_ptr_null(region_find(&table, 0xab0004c0));
	ck_assert_ptr_null(region_find(&table, 0xab0008c0));
	ck_assert_ptr_null(region_find(&table, 0xabffffc0));
	ck_assert_ptr_null(region_find(&table, regions[2].key ^ 0x1));
	ck_assert_ptr_null(region_find(&table, regions[2].key ^ 0x1000000));
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
		ck_assert_uint_eq(region.key >> 8 & 0xffff, 1 + i % 7);
		ck_assert_uint_ne(region.key >> 24, 0);
		region_remove(&table, &region);
	}
	ck_assert_ptr_eq(region_find(&table, fixed.key), &fixed);
}
END_TEST

/* A region of 1000 bytes at 4096, whatever memory is behind it. */
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

START_LOOP_TEST(bounds_access_and_domain, ROWS(bounds))
{
	const struct bounds_row *row = &bounds[_i];
	struct region region = { .addr = (uint8_t *)(uintptr_t)77,
		.iova = 4096,
		.length = 1000,
		.access = 1,
		.pd = &pd };

	ck_assert_int_eq(region_allows(&region, row->own_pd ? &pd : &other, row->addr, row->length,
				 row->access),
		row->allowed);
}
END_TEST

static uint8_t memory[4096];

enum {
	WRITE = FRL_ACCESS_REMOTE_WRITE,
	READ = FRL_ACCESS_REMOTE_READ,
	ATOMIC = FRL_ACCESS_REMOTE_ATOMIC,
	IOVA = 0x10000,
};

/* A region of `memory` at IOVA, and a window of the same domain. */
struct windows {
	struct region *slots[4];
	struct region_table table;
	struct region parent;
	struct region window;
	int qp, other_qp;
};

static void windows_init(struct windows *w, uint32_t access)
{
	*w = (struct windows){
		.parent = { .addr = memory,
			.length = sizeof(memory),
			.iova = IOVA,
			.access = access,
			.pd = &pd,
			.port_mem = memory },
		.window = { .is_window = true, .pd = &pd },
	};
	region_table_extend(&w->table, w->slots, 4);
	ck_assert(region_add(&w->table, &w->parent, 0x1234));
	ck_assert(region_add(&w->table, &w->window, 0x5678));
}

static const struct bind_row {
	uint32_t parent_access;
	uint32_t access;
	uint64_t addr;
	uint64_t length;
	uint32_t key_change; /* XORed */
	bool ok;
} binds[] = {
	{ FRL_ACCESS_MW_BIND, READ, IOVA, 4096, 1, true },
	{ FRL_ACCESS_MW_BIND, 0, IOVA + 4095, 1, 0xff, true },
	{ FRL_ACCESS_MW_BIND | FRL_ACCESS_LOCAL_WRITE, WRITE | ATOMIC, IOVA, 8, 1, true },
	{ 0, READ, IOVA, 4096, 1, false },
	{ FRL_ACCESS_MW_BIND, WRITE, IOVA, 4096, 1, false },
	{ FRL_ACCESS_MW_BIND, ATOMIC, IOVA, 4096, 1, false },
	{ FRL_ACCESS_MW_BIND, FRL_ACCESS_LOCAL_WRITE, IOVA, 4096, 1, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA, 0, 1, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA, 4097, 1, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA - 1, 2, 1, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA, UINT64_MAX, 1, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA, 1, 0, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA, 1, 0x100, false },
	{ FRL_ACCESS_MW_BIND, READ, IOVA, 1, 0x80000001, false },
};

START_LOOP_TEST(binding, ROWS(binds))
{
	const struct bind_row *row = &binds[_i];
	struct frl_mw_bind bind = {
		.addr = row->addr, .length = row->length, .access = row->access
	};
	struct region before;
	struct windows w;

	windows_init(&w, row->parent_access);
	bind.rkey = w.window.key ^ row->key_change;
	before = w.window;
	ck_assert_int_eq(region_bind(&w.table, &w.window, &w.parent, &bind, &w.qp), row->ok);
	if (!row->ok) {
		ck_assert_mem_eq(&before, &w.window, sizeof(before));
		ck_assert_uint_eq(w.parent.windows, 0);
		return;
	}
	ck_assert_uint_eq(w.parent.windows, 1);
	ck_assert_ptr_null(region_find(&w.table, before.key));
	ck_assert_ptr_eq(
		region_remote(&w.table, &pd, &w.qp, bind.rkey, row->addr, row->length, row->access),
		&w.window);
	ck_assert_ptr_eq(region_memory(&w.window, row->addr), memory + (row->addr - IOVA));
	/* Bound already. */
	bind.rkey ^= 2;
	ck_assert(!region_bind(&w.table, &w.window, &w.parent, &bind, &w.qp));
}
END_TEST

START_TEST(windows_are_one_queue_pairs)
{
	struct frl_mw_bind bind = { .addr = IOVA, .length = 64, .access = READ };
	struct frl_sge sge = { .addr = (void *)(uintptr_t)IOVA, .length = 8 };
	struct windows w;

	windows_init(&w, FRL_ACCESS_MW_BIND);
	/* Not bound, it allows nothing. */
	ck_assert_ptr_null(region_remote(&w.table, &pd, &w.qp, w.window.key, IOVA, 1, 0));
	ck_assert(!region_invalidate(&w.table, w.window.key, &w.qp));
	bind.rkey = frl_inc_rkey(w.window.key);
	ck_assert(region_bind(&w.table, &w.window, &w.parent, &bind, &w.qp));
	ck_assert_ptr_null(region_remote(&w.table, &pd, &w.other_qp, bind.rkey, IOVA, 8, READ));
	ck_assert_ptr_null(region_remote(&w.table, &other, &w.qp, bind.rkey, IOVA, 8, READ));
	ck_assert_ptr_null(region_remote(&w.table, &pd, &w.qp, bind.rkey, IOVA, 8, WRITE));
	ck_assert_ptr_null(region_remote(&w.table, &pd, &w.qp, bind.rkey, IOVA + 60, 5, READ));
	sge.lkey = bind.rkey;
	ck_assert_ptr_null(region_local(&w.table, &pd, &sge, 0));
	sge.lkey = w.parent.key;
	ck_assert_ptr_eq(region_local(&w.table, &pd, &sge, 0), &w.parent);
	ck_assert(!region_invalidate(&w.table, bind.rkey, &w.other_qp));
	ck_assert(!region_invalidate(&w.table, w.parent.key, &w.qp));
	ck_assert(region_invalidate(&w.table, bind.rkey, &w.qp));
	ck_assert(!region_invalidate(&w.table, bind.rkey, &w.qp));
	ck_assert_uint_eq(w.parent.windows, 0);
	/* Again, and removed while it is bound. */
	bind.rkey = frl_inc_rkey(bind.rkey);
	ck_assert(region_bind(&w.table, &w.window, &w.parent, &bind, &w.other_qp));
	region_remove(&w.table, &w.window);
	ck_assert_uint_eq(w.parent.windows, 0);
	ck_assert_ptr_null(region_find(&w.table, bind.rkey));
}
END_TEST

TEST_FILE(region)
