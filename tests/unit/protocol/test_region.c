/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/region.h"
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

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

START_TEST(posted_binds_outlive_what_they_name)
{
	struct frl_mw_bind bind = { .addr = IOVA, .length = 64, .access = READ };
	struct region next = { .is_window = true, .pd = &pd };
	struct windows w;
	uint32_t parent;

	windows_init(&w, FRL_ACCESS_MW_BIND);
	bind.rkey = frl_inc_rkey(w.window.key);
	parent = w.parent.key;
	/* All of it is another domain's. */
	ck_assert(!region_bind_posted(&w.table, &other, &w.window, parent, &bind, &w.qp));
	ck_assert(!region_bind_posted(&w.table, &pd, &w.window, parent ^ 1, &bind, &w.qp));
	bind.rkey = UINT32_MAX; /* outside of the table */
	ck_assert(!region_bind_posted(&w.table, &pd, &w.window, parent, &bind, &w.qp));
	bind.rkey = frl_inc_rkey(w.window.key);
	region_remove(&w.table, &w.window);
	ck_assert(!region_bind_posted(&w.table, &pd, &w.window, parent, &bind, &w.qp));
	/* Its slot is that of another window. */
	w.table.cursor = region_index(bind.rkey);
	ck_assert(region_add(&w.table, &next, 0x5678));
	ck_assert_uint_eq(next.key, w.window.key);
	ck_assert(!region_bind_posted(&w.table, &pd, &w.window, parent, &bind, &w.qp));
	ck_assert(region_bind_posted(&w.table, &pd, &next, parent, &bind, &w.qp));
	ck_assert_ptr_eq(next.parent, &w.parent);
}
END_TEST

/* ---- each kind of region, with each set of rights, asked for each operation */

enum operation {
	LOCAL_READ,
	HOST_READ,
	LOCAL_WRITE,
	INLINE,
	REMOTE_WRITE,
	REMOTE_READ,
	REMOTE_ATOMIC,
	BIND_READ,
	BIND_WRITE,
	BIND_ATOMIC,
	OPERATIONS,
};

enum {
	REMOTE = 1 << REMOTE_WRITE | 1 << REMOTE_READ | 1 << REMOTE_ATOMIC,
	BIND = 1 << BIND_READ | 1 << BIND_WRITE | 1 << BIND_ATOMIC,
	ALL_RIGHTS = 1 << 5, /* sets of them */
	ASKED = 8,           /* bytes */
};

/* The rights that an operation needs, where it is possible at all. */
static const uint32_t rights[OPERATIONS] = {
	[LOCAL_WRITE] = FRL_ACCESS_LOCAL_WRITE,
	[REMOTE_WRITE] = WRITE,
	[REMOTE_READ] = READ,
	[REMOTE_ATOMIC] = ATOMIC,
	[BIND_READ] = FRL_ACCESS_MW_BIND,
	[BIND_WRITE] = FRL_ACCESS_MW_BIND | FRL_ACCESS_LOCAL_WRITE,
	[BIND_ATOMIC] = FRL_ACCESS_MW_BIND | FRL_ACCESS_LOCAL_WRITE,
};

enum kind_flags {
	OF_OFFLOAD = 1 << 0,
	OF_FRAGMENTS = 1 << 1,
	FOREIGN = 1 << 2, /* of another protection domain */
	REMOVED = 1 << 3,
	WINDOW = 1 << 4,
	OTHER_QP = 1 << 5,
	UNBOUND = 1 << 6,
	INVALIDATED = 1 << 7,
	OLD_KEY = 1 << 8, /* of the window, before it was bound */
};

/* Inline data is refused only where its lkey is that of memory that the processor does not reach.
 */
static const struct kind_row {
	const char *name;
	uint64_t iova;
	uint32_t flags;
	uint32_t key_change; /* XORed; ~0: the key is 0 */
	uint32_t possible;   /* a bit for each operation */
} kinds[] = {
	{ "region", IOVA, 0, 0,
		1 << LOCAL_READ | 1 << HOST_READ | 1 << LOCAL_WRITE | 1 << INLINE | REMOTE | BIND },
	{ "zero-based region", 0, 0, 0,
		1 << LOCAL_READ | 1 << HOST_READ | 1 << LOCAL_WRITE | 1 << INLINE | REMOTE | BIND },
	{ "region of an offload", IOVA, OF_OFFLOAD, 0,
		1 << LOCAL_READ | 1 << LOCAL_WRITE | (REMOTE & ~(1 << REMOTE_ATOMIC)) |
			(BIND & ~(1 << BIND_ATOMIC)) },
	{ "region of fragments", IOVA, OF_FRAGMENTS, 0, 1 << REMOTE_WRITE },
	{ "region of another domain", IOVA, FOREIGN, 0, 1 << INLINE },
	{ "offload's region of another domain", IOVA, FOREIGN | OF_OFFLOAD, 0, 1 << INLINE },
	{ "region that is gone", IOVA, REMOVED, 0, 1 << INLINE },
	{ "offload's region that is gone", IOVA, REMOVED | OF_OFFLOAD, 0, 1 << INLINE },
	{ "key with another tag", IOVA, 0, 1, 1 << INLINE },
	{ "key with other random bits", IOVA, 0, 0x1000000, 1 << INLINE },
	{ "key of an empty slot", IOVA, 0, 0x300, 1 << INLINE },
	{ "key outside of the table", IOVA, 0, 0x400, 1 << INLINE },
	{ "reserved key", IOVA, 0, UINT32_MAX, 1 << INLINE },
	{ "window", IOVA, WINDOW, 0, 1 << INLINE | REMOTE },
	{ "zero-based region's window", 0, WINDOW, 0, 1 << INLINE | REMOTE },
	{ "window of an offload's region", IOVA, WINDOW | OF_OFFLOAD, 0,
		REMOTE & ~(1 << REMOTE_ATOMIC) },
	{ "window with the key from before", IOVA, WINDOW | OLD_KEY, 0, 1 << INLINE },
	{ "window of another queue pair", IOVA, WINDOW | OTHER_QP, 0, 1 << INLINE },
	{ "window of another domain", IOVA, WINDOW | FOREIGN, 0, 1 << INLINE },
	{ "window that was never bound", IOVA, WINDOW | UNBOUND, 0, 1 << INLINE },
	{ "window that was invalidated", IOVA, WINDOW | INVALIDATED, 0, 1 << INLINE },
	{ "window that is gone", IOVA, WINDOW | REMOVED, 0, 1 << INLINE },
};

static bool may_bind(struct windows *w, struct region *second, uint32_t key, uint64_t va,
	uint64_t length, uint32_t access)
{
	const struct frl_mw_bind bind = {
		.addr = va, .length = length, .rkey = frl_inc_rkey(second->key), .access = access
	};

	if (!region_bind_posted(&w->table, &pd, second, key, &bind, &w->qp))
		return false;
	ck_assert(region_invalidate(&w->table, bind.rkey, &w->qp));
	return true;
}

static bool may_access(
	const struct windows *w, uint32_t key, uint64_t va, uint64_t length, uint32_t access)
{
	return region_remote(&w->table, &pd, &w->qp, key, va, length, access);
}

static bool is_allowed(struct windows *w, struct region *second, enum operation operation,
	uint32_t key, uint64_t va, uint32_t length)
{
	const struct frl_sge sge = { (void *)(uintptr_t)va, length, key };
	const struct region *region = region_local(&w->table, &pd, &sge, 0);
	struct region last = w->parent;

	switch (operation) {
	case LOCAL_READ:
		ck_assert_ptr_eq(region_local_read(&w->table, &pd, &sge, NULL), region);
		ck_assert_ptr_eq(region_local_read(&w->table, &pd, &sge, region), region);
		last.key = key ^ 1;
		ck_assert_ptr_eq(region_local_read(&w->table, &pd, &sge, &last), region);
		return region;
	case HOST_READ: return region_local(&w->table, &pd, &sge, REGION_HOST_READ);
	case LOCAL_WRITE: return region_local(&w->table, &pd, &sge, FRL_ACCESS_LOCAL_WRITE);
	case INLINE: return region_allows_inline(&w->table, &pd, &sge);
	case REMOTE_WRITE: return may_access(w, key, va, length, WRITE);
	case REMOTE_READ: return may_access(w, key, va, length, READ);
	case REMOTE_ATOMIC: return may_access(w, key, va, length, ATOMIC);
	case BIND_READ: return may_bind(w, second, key, va, length, READ);
	case BIND_WRITE: return may_bind(w, second, key, va, length, WRITE);
	case BIND_ATOMIC: return may_bind(w, second, key, va, length, ATOMIC);
	case OPERATIONS: break;
	}
	return false;
}

/* Makes one of the kind that has these rights, and the first `length` bytes of `memory`; returns
 * its key. */
static uint32_t make_kind(
	struct windows *w, const struct kind_row *row, uint32_t access, uint64_t length)
{
	struct frl_mw_bind bind = { .addr = row->iova, .length = length, .access = access };
	uint32_t key;

	windows_init(w, row->flags & WINDOW ? ALL_RIGHTS - 1 : access);
	w->parent.iova = row->iova;
	w->parent.length = row->flags & WINDOW ? sizeof(memory) : length;
	w->parent.owner = row->flags & OF_OFFLOAD ? (struct offload *)memory : NULL;
	w->parent.fragments = row->flags & OF_FRAGMENTS ? (struct fragments *)memory : NULL;
	w->parent.pd = w->window.pd = row->flags & FOREIGN ? &other : &pd;
	key = row->flags & WINDOW ? w->window.key : w->parent.key;
	if ((row->flags & WINDOW) && !(row->flags & UNBOUND)) {
		bind.rkey = frl_inc_rkey(key);
		key = row->flags & OLD_KEY ? key : bind.rkey;
		ck_assert(region_bind(&w->table, &w->window, &w->parent, &bind,
			row->flags & OTHER_QP ? &w->other_qp : &w->qp));
	}
	if (row->flags & INVALIDATED)
		ck_assert(region_invalidate(&w->table, key, &w->qp));
	if (row->flags & REMOVED)
		region_remove(&w->table, row->flags & WINDOW ? &w->window : &w->parent);
	return row->key_change == UINT32_MAX ? 0 : key ^ row->key_change;
}

static void ask_all(const struct kind_row *row, uint32_t access)
{
	struct region second = { .is_window = true, .pd = &pd };
	struct windows w;
	uint32_t key = make_kind(&w, row, access, ASKED);

	ck_assert(region_add(&w.table, &second, 0x9abc));
	for (enum operation i = 0; i < OPERATIONS; i++) {
		bool possible = row->possible & 1 << i;
		bool wanted = possible && (access & rights[i]) == rights[i];

		ck_assert_msg(is_allowed(&w, &second, i, key, row->iova, ASKED) == wanted,
			"%s, rights %#x, operation %d", row->name, access, i);
		/* A byte more than there is. */
		ck_assert_msg(
			is_allowed(&w, &second, i, key, row->iova, ASKED + 1) == (i == INLINE),
			"%s, rights %#x, operation %d, too long", row->name, access, i);
	}
}

START_LOOP_TEST(each_kind_of_region, ROWS(kinds))
{
	const struct kind_row *row = &kinds[_i];
	uint32_t never = 0;

	if (row->flags & WINDOW)
		never = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_MW_BIND |
			(row->flags & OF_OFFLOAD ? ATOMIC : 0);
	for (uint32_t access = 0; access < ALL_RIGHTS; access++)
		if (!(access & never))
			ask_all(row, access);
}
END_TEST

TEST_FILE(region)
