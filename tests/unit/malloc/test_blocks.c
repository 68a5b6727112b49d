/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of the preloaded malloc(): contents, addresses and counts, against a model. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/memory/share_source.h"
#include "lib/base/random.h"
#include "lib/malloc/blocks.h"

#include "tests/fixtures/program.h"

enum { PAGE = 4096, KIB = 1 << 10, MIB = 1 << 20 };

static void init(size_t kept, unsigned most)
{
	blocks_init(&(struct block_limits){ .kept = kept, .blocks = most, .first_fd = 100 });
}

static struct block_counts counts(void)
{
	struct block_counts counts;

	blocks_count(&counts);
	return counts;
}

static uint8_t *alloc(size_t size)
{
	bool is_zero;

	return block_alloc(size, 0, 0, &is_zero);
}

static bool is_filled(const uint8_t *at, uint8_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (at[i] != value)
			return false;
	return true;
}

START_TEST(a_new_block_is_zeroed_sealed_and_leaves_low_descriptors)
{
	bool is_zero = false;
	uint8_t *addr;
	struct share *share;

	init(0, 0);
	addr = block_alloc(3 * PAGE + 1, 0, 0, &is_zero);
	ck_assert_ptr_nonnull(addr);
	ck_assert(is_zero && is_filled(addr, 0, 4 * PAGE));
	ck_assert_uint_eq(block_size(addr), 4 * PAGE);
	share = block_share_find(addr + PAGE, 2 * PAGE);
	ck_assert_ptr_nonnull(share);
	ck_assert(share->addr == addr && share->size == 4 * PAGE && share->fd >= 100);
	ck_assert(share->id & SHARE_FROM_SOURCE);
	ck_assert_int_eq(fcntl(share->fd, F_GET_SEALS),
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	ck_assert(fcntl(share->fd, F_GETFD) & FD_CLOEXEC);
	block_share_put(share);
	ck_assert(block_free(addr));
	ck_assert(!block_free(addr));
	ck_assert_uint_eq(counts().blocks, 0);
}
END_TEST

START_TEST(only_allocated_ranges_are_found)
{
	uint8_t *addr;
	int other;

	init(MIB, 0);
	addr = alloc(2 * PAGE);
	ck_assert_ptr_null(block_share_find(addr + PAGE, PAGE + 1));
	ck_assert_ptr_null(block_share_find(addr + PAGE, SIZE_MAX));
	ck_assert_ptr_null(block_share_find(addr - 1, 1));
	ck_assert_ptr_null(block_share_find(addr + 2 * PAGE, 0));
	ck_assert_ptr_null(block_share_find(&other, 1));
	ck_assert(!block_free(addr + PAGE) && !block_free(addr + 1) && !block_free(&other));
	ck_assert_uint_eq(block_size(addr + PAGE), 0);
	ck_assert(block_contains(addr + PAGE, PAGE) && !block_contains(addr + PAGE, PAGE + 1));
	ck_assert(block_free(addr));
	/* It is kept now. */
	ck_assert_uint_eq(counts().kept, 1);
	ck_assert_ptr_null(block_share_find(addr, 1));
	ck_assert(!block_contains(addr, 1) && !block_free(addr));
}
END_TEST

START_LOOP_TEST(alignments, 10)
{
	size_t alignment = (size_t)PAGE << _i;
	bool is_zero;
	uint8_t *addr;

	init(0, 0);
	addr = block_alloc(5 * PAGE, alignment, 0, &is_zero);
	ck_assert_ptr_nonnull(addr);
	ck_assert_uint_eq((uintptr_t)addr & (alignment - 1), 0);
	memset(addr, 1, 5 * PAGE);
	ck_assert(block_free(addr));
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
	bool is_zero;

	init(0, 0);
	ck_assert_ptr_null(alloc(SIZE_MAX));
	ck_assert_ptr_null(alloc((size_t)PTRDIFF_MAX + 1));
	ck_assert_ptr_null(block_alloc(PAGE, SIZE_MAX / 2 + 1, 0, &is_zero));
	ck_assert_uint_eq(counts().blocks, 0);
}
END_TEST

START_TEST(there_is_a_limit_of_blocks)
{
	uint8_t *first, *second;

	init(0, 2);
	first = alloc(PAGE);
	second = alloc(PAGE);
	ck_assert(first && second && !alloc(PAGE));
	ck_assert(block_free(first));
	ck_assert_ptr_nonnull(alloc(PAGE));
}
END_TEST

START_TEST(a_kept_block_is_reused_if_it_fits_well)
{
	uint8_t *addr, *other;
	bool is_zero;
	uint64_t id;
	struct share *share;

	init(MIB, 0);
	addr = alloc(100 * PAGE);
	share = block_share_find(addr, 1);
	id = share->id;
	block_share_put(share);
	ck_assert(block_free(addr));
	/* Peers keep their mapping. */
	ck_assert(block_share_is_there(id));
	other = alloc(79 * PAGE);
	ck_assert_ptr_ne(other, addr);
	ck_assert_ptr_eq(block_alloc(80 * PAGE, 0, 0, &is_zero), addr);
	ck_assert(!is_zero);
	share = block_share_find(addr, 1);
	ck_assert_uint_eq(share->id, id);
	block_share_put(share);
	ck_assert(block_free(addr) && block_free(other));
	ck_assert(blocks_trim() && !blocks_trim());
	ck_assert(!block_share_is_there(id));
	ck_assert_uint_eq(counts().blocks, 0);
}
END_TEST

START_TEST(the_oldest_kept_blocks_go_first)
{
	uint8_t *addr[4];

	init(3 * MIB, 0);
	for (int i = 0; i < 4; i++)
		addr[i] = alloc(MIB + (size_t)i * PAGE - 3 * PAGE);
	for (int i = 0; i < 4; i++)
		ck_assert(block_free(addr[i]));
	ck_assert_uint_eq(counts().kept, 3);
	ck_assert(counts().kept_bytes <= 3 * MIB);
	ck_assert_ptr_eq(alloc(MIB - 2 * PAGE), addr[1]);
}
END_TEST

START_TEST(many_small_kept_blocks_are_limited)
{
	static uint8_t *addr[300];

	init((size_t)1 << 30, 0);
	for (int i = 0; i < 300; i++)
		addr[i] = alloc(PAGE);
	for (int i = 0; i < 300; i++)
		ck_assert(block_free(addr[i]));
	ck_assert_uint_lt(counts().kept, 300);
	ck_assert_uint_eq(counts().blocks, counts().kept);
}
END_TEST

/* Row 1: its user has yet to pass it. */
START_LOOP_TEST(a_passed_block_gets_no_other_content, 2)
{
	struct share *share;
	uint8_t *addr;

	init(MIB, 0);
	addr = alloc(PAGE);
	share = block_share_find(addr, 1);
	atomic_store(&share->passed, _i == 0);
	ck_assert(block_free(addr));
	ck_assert_uint_eq(counts().blocks, 0);
	/* Its user has the descriptor until it releases it. */
	ck_assert(atomic_load(&share->freed));
	ck_assert_int_ge(fcntl(share->fd, F_GETFD), 0);
	block_share_put(share);
}
END_TEST

START_TEST(frees_count_what_peers_may_have_mapped)
{
	uint64_t before;
	uint8_t *addr;

	init(0, 0);
	before = block_share_frees();
	addr = alloc(PAGE);
	ck_assert(block_free(addr));
	ck_assert_uint_eq(block_share_frees(), before);
	addr = alloc(PAGE);
	block_share_put(block_share_find(addr, 1));
	ck_assert(block_free(addr));
	ck_assert_uint_eq(block_share_frees(), before + 1);
}
END_TEST

/* Programs such as daemons close all descriptors, and open other files. */
START_TEST(a_closed_descriptor_is_not_used)
{
	struct share *share;
	uint8_t *addr;
	int fd;

	init(0, 0);
	addr = alloc(PAGE);
	share = block_share_find(addr, 1);
	fd = share->fd;
	block_share_put(share);
	ck_assert_int_eq(dup2(STDERR_FILENO, fd), fd);
	ck_assert_ptr_null(block_share_find(addr, 1));
	ck_assert(block_free(addr));
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
}
END_TEST

START_TEST(growing_in_spare_addresses)
{
	bool is_zero;
	uint8_t *addr;

	init(0, 0);
	addr = block_alloc(10 * PAGE, 0, 5 * PAGE, &is_zero);
	ck_assert_uint_eq(block_size(addr), 10 * PAGE);
	ck_assert(block_resize(addr, 15 * PAGE) && !block_resize(addr, 15 * PAGE + 1));
	addr[15 * PAGE - 1] = 1;
	ck_assert(block_resize(addr, 8 * PAGE) && !block_resize(addr, 2 * PAGE));
	ck_assert(block_free(addr));
}
END_TEST

/* ---- random operations */

enum { LIVE = 24, STEPS = 4000 };

struct live {
	uint8_t *addr;
	size_t size;
	uint8_t value;
};

static bool overlap(const struct live *a, const struct live *b)
{
	return a->addr < b->addr + b->size && b->addr < a->addr + a->size;
}

static void check_live(const struct live live[LIVE], unsigned changed)
{
	const struct live *it = &live[changed];

	if (!it->addr)
		return;
	for (unsigned i = 0; i < LIVE; i++)
		ck_assert(i == changed || !live[i].addr || !overlap(it, &live[i]));
	ck_assert(it->addr[0] == it->value && it->addr[it->size - 1] == it->value);
	ck_assert(is_filled(it->addr, it->value, it->size));
}

/* One allocation, change of size or free. */
static void step(struct random_state *random, struct live live[LIVE])
{
	unsigned at = (unsigned)random_below(random, LIVE);
	size_t size = (1 + random_below(random, 40)) * PAGE - random_below(random, PAGE);
	struct live *it = &live[at];
	bool is_zero;

	check_live(live, at);
	if (!it->addr) {
		it->addr = block_alloc(size, random_below(random, 4) ? 0 : 64 * KIB,
			random_below(random, 3) * PAGE, &is_zero);
		ck_assert_ptr_nonnull(it->addr);
		ck_assert(!is_zero || is_filled(it->addr, 0, size));
	} else if (random_below(random, 3) == 0 && block_resize(it->addr, size)) {
		ck_assert(it->addr[0] == it->value);
	} else {
		if (random_below(random, 8) == 0)
			ck_assert_int_eq(block_make_private(it->addr), 0);
		check_live(live, at);
		ck_assert(block_free(it->addr));
		*it = (struct live){ 0 };
		return;
	}
	it->size = size;
	it->value = (uint8_t)random_below(random, 256);
	memset(it->addr, it->value, size);
	check_live(live, at);
}

START_LOOP_TEST(random_operations, 4)
{
	struct live live[LIVE] = { 0 };
	unsigned n = 0;
	struct random_state random;

	random_seed(&random, (uint64_t)_i + 1);
	init(_i % 2 ? 512 * KIB : 0, 0);
	for (int i = 0; i < STEPS; i++) {
		step(&random, live);
		if (random_below(&random, 200) == 0)
			blocks_trim();
		ck_assert(counts().kept_bytes <= 512 * KIB);
	}
	for (unsigned i = 0; i < LIVE; i++)
		n += live[i].addr != NULL;
	ck_assert_uint_eq(counts().blocks - counts().kept, n);
	for (unsigned i = 0; i < LIVE; i++)
		ck_assert(!live[i].addr || block_free(live[i].addr));
	blocks_trim();
	ck_assert_uint_eq(counts().blocks, 0);
}
END_TEST

static void *use_blocks(void *arg)
{
	uint8_t value = (uint8_t)(uintptr_t)arg;

	for (int i = 0; i < 500; i++) {
		uint8_t *addr = alloc((size_t)(1 + i % 7) * PAGE);
		struct share *share = block_share_find(addr, PAGE);

		memset(addr, value, PAGE);
		ck_assert(share && share->addr == addr);
		ck_assert(is_filled(addr, value, PAGE));
		block_share_put(share);
		ck_assert(block_free(addr));
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t thread[3];

	init(16 * PAGE, 0);
	for (uintptr_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, use_blocks, (void *)(i + 1)), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	blocks_trim();
	ck_assert_uint_eq(counts().blocks, 0);
}
END_TEST

/* Cases count the blocks of the process. */
TEST_MAIN(blocks)
{
	return run_suite_forked(all_tests(NULL, NULL));
}
