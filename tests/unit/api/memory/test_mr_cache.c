/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of registrations: hits, and that other memory never inherits a registration.
 * test_mr_cache_memory.c tests the kinds of memory that are kept. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>

#include "tests/unit/api/memory/mr_cache_fixture.h"
#include "tests/fixtures/program.h"

START_TEST(second_get_finds_the_first)
{
	uint32_t key;

	if (!is_kept())
		return;
	key = key_of(memory + 8 * PAGE, 4 * PAGE);
	ck_assert_uint_eq(key_of(memory + 8 * PAGE, 4 * PAGE), key);
	ck_assert_uint_eq(key_of(memory + 9 * PAGE + 5, PAGE), key);
	ck_assert_uint_eq(key_of(memory + 12 * PAGE - 1, 1), key);
	ck_assert_uint_ne(key_of(memory + 12 * PAGE - 1, 2), key);
	ck_assert_uint_ne(key_of(memory + 8 * PAGE - 1, 2), key);
	ck_assert_uint_eq(stats().hits, 3);
}
END_TEST

START_TEST(rights_are_enough)
{
	const uint32_t remote = LOCAL | FRL_ACCESS_REMOTE_READ;
	struct frl_mr *more, *less, *other, *same;

	if (!is_kept())
		return;
	more = get_with(memory + PAGE + 100, 200, remote);
	less = get(memory + PAGE + 100, 200);
	ck_assert_ptr_eq(more, less);
	/* With remote rights the registration is exactly the requested one. */
	other = get_with(memory + PAGE + 99, 200, remote);
	ck_assert_ptr_ne(more, other);
	same = get_with(memory + PAGE + 100, 200, remote);
	ck_assert_ptr_eq(more, same);
	frl_mr_cache_put(cache, more);
	frl_mr_cache_put(cache, less);
	frl_mr_cache_put(cache, other);
	frl_mr_cache_put(cache, same);
}
END_TEST

/* Anyone with the key of a region may do what the region allows. */
START_TEST(peers_get_no_more_than_asked_for)
{
	const uint32_t read = LOCAL | FRL_ACCESS_REMOTE_READ;
	const uint32_t all = read | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_ATOMIC;
	struct frl_mr *mr[6];

	if (!is_kept())
		return;
	mr[0] = get_with(memory, SIZE, all);
	mr[1] = get_with(memory, SIZE, read);
	mr[2] = get_with(memory, 100, read);
	mr[3] = get_with(memory + 100, 100, read);
	mr[4] = get_with(memory + 100, 100, all);
	mr[5] = get_with(memory, 200, read);
	for (int i = 0; i < 6; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_ptr_ne(mr[i], mr[j]);
	}
	for (int i = 0; i < 6; i++)
		frl_mr_cache_put(cache, mr[i]);
}
END_TEST

static void unmap(void)
{
	munmap(memory, SIZE);
}

static void map_over(void)
{
	map(memory);
}

static void give_back(void)
{
	madvise(memory, SIZE, MADV_DONTNEED);
}

static void move(void)
{
	char *other = map(NULL);

	ck_assert_ptr_eq(mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, other), other);
	munmap(other, SIZE);
}

static void *run(void *arg)
{
	((void (*)(void))arg)();
	return NULL;
}

static void by_a_thread(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, run, (void *)unmap), 0);
	pthread_join(thread, NULL);
}

static void (*const ways[])(void) = { unmap, map_over, give_back, move, by_a_thread };

START_LOOP_TEST(other_memory_inherits_nothing, ROWS(ways))
{
	uint32_t key, other;

	if (!is_kept())
		return;
	key = key_of(memory, SIZE);
	other = key_of(memory + 2 * PAGE, PAGE);
	ck_assert_uint_eq(key, other);
	ways[_i]();
	map(memory);
	ck_assert_uint_ne(key_of(memory, SIZE), key);
	ck_assert_uint_ge(stats().invalidated, 1);
}
END_TEST

/* Its user has it until it is put back; nobody else finds it. */
START_TEST(in_use_while_it_goes)
{
	struct frl_mr *mr, *other;

	if (!is_kept())
		return;
	mr = get(memory, SIZE);
	munmap(memory + 5 * PAGE, PAGE);
	map(memory);
	other = get(memory, SIZE);
	ck_assert_ptr_ne(mr, other);
	frl_mr_cache_put(cache, mr);
	ck_assert_ptr_eq(get(memory + PAGE, PAGE), other);
	frl_mr_cache_put(cache, other);
	frl_mr_cache_put(cache, other);
}
END_TEST

/* Only overlapping registrations go. */
START_TEST(neighbours_stay)
{
	uint32_t keys[16];

	if (!is_kept())
		return;
	for (int i = 0; i < 16; i++)
		keys[i] = key_of(memory + (16 + 4 * i) * PAGE, 4 * PAGE);
	munmap(memory + 35 * PAGE, 2 * PAGE);
	ck_assert_ptr_eq(mmap(memory + 35 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		memory + 35 * PAGE);
	for (int i = 0; i < 16; i++) {
		bool is_same = key_of(memory + (16 + 4 * i) * PAGE, 4 * PAGE) == keys[i];

		ck_assert_int_eq(is_same, i != 4 && i != 5);
	}
}
END_TEST

START_TEST(idle_ones_make_room)
{
	const struct frl_mr_cache_config config = { .max_regions = 2, .max_bytes = 8 * PAGE };
	uint32_t first, second, third;

	if (!is_kept())
		return;
	cache_again(&config);
	first = key_of(memory, PAGE);
	second = key_of(memory + 10 * PAGE, PAGE);
	third = key_of(memory + 20 * PAGE, PAGE);
	ck_assert_uint_eq(stats().evicted, 1);
	ck_assert_uint_eq(key_of(memory + 10 * PAGE, PAGE), second);
	ck_assert_uint_eq(key_of(memory + 20 * PAGE, PAGE), third);
	ck_assert_uint_ne(key_of(memory, PAGE), first);
	key_of(memory + 30 * PAGE, 9 * PAGE);
	ck_assert_uint_eq(stats().evicted, 5);
}
END_TEST

START_TEST(trimmed)
{
	struct frl_mr *used;
	uint32_t key;

	if (!is_kept())
		return;
	used = get(memory, PAGE);
	key = key_of(memory + 10 * PAGE, PAGE);
	key_of(memory + 20 * PAGE, PAGE);
	frl_mr_cache_trim(cache);
	ck_assert_uint_eq(stats().evicted, 2);
	ck_assert_uint_eq(stats().deregistered, 2);
	ck_assert_uint_ne(key_of(memory + 10 * PAGE, PAGE), key);
	ck_assert_uint_eq(key_of(memory, PAGE), frl_mr_lkey(used));
	frl_mr_cache_put(cache, used);
	frl_mr_cache_trim(NULL);
}
END_TEST

START_TEST(not_destroyed_while_in_use)
{
	struct frl_mr *mr = get(memory, PAGE);

	ck_assert_int_eq(frl_mr_cache_destroy(cache), -EBUSY);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "1 registrations"));
	frl_mr_cache_put(cache, mr);
	ck_assert_int_eq(frl_mr_cache_get(cache, memory, 0, LOCAL, &mr), -EINVAL);
	ck_assert_int_eq(frl_mr_cache_get(cache, NULL, 1, LOCAL, &mr), -EINVAL);
	ck_assert_int_eq(frl_mr_cache_get(cache, memory, SIZE_MAX, LOCAL, &mr), -EINVAL);
	ck_assert_int_ne(frl_mr_cache_get(cache, memory, 1, 1u << 30, &mr), 0);
}
END_TEST

enum { MOVES = 300 };

static char *target;
static atomic_int turn;

static void *move_away(void *arg)
{
	(void)arg;
	for (int i = 0; i < MOVES; i++) {
		while (atomic_load(&turn) != 1)
			sched_yield();
		if (mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, target) != target)
			abort();
		atomic_store(&turn, 2);
	}
	return NULL;
}

/* Returns false if another thread has mapped something there (a sanitizer's allocator does at any
 * time). */
static bool map_where_it_was(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	bool has_gone;

	do {
		has_gone = atomic_load(&turn) == 2;
		if (mmap(memory, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) == memory)
			return true;
		sched_yield();
	} while (!has_gone);
	return false;
}

/* The address can be reused before the call that moved the memory away returns. */
START_TEST(looked_up_while_it_goes)
{
	unsigned n_had = 0;
	pthread_t thread;

	if (!is_kept())
		return;
	target = map(NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, move_away, NULL), 0);
	for (int i = 0; i < MOVES; i++) {
		uint32_t key = key_of(memory, SIZE);

		key_of(target, SIZE);
		atomic_store(&turn, 1);
		if (map_where_it_was()) {
			ck_assert_uint_ne(key_of(memory, SIZE), key);
			n_had++;
		} else {
			memory = map(NULL);
		}
		while (atomic_load(&turn) != 2)
			sched_yield();
		atomic_store(&turn, 0);
	}
	pthread_join(thread, NULL);
	munmap(target, SIZE);
	ck_assert_uint_gt(n_had, MOVES / 2);
}
END_TEST

enum { THREADS = 4, ROUNDS = 300 };

/* Maps, gets, puts, unmaps, at addresses that others had a moment ago. */
static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		size_t size = (1 + (size_t)(rand_r(&seed) % 64)) * PAGE;
		char *addr = mmap(
			NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char *heap = malloc(size);
		struct frl_mr *mr;

		memset(addr, 1, size);
		mr = get(addr, size);
		frl_mr_cache_put(cache, mr);
		mr = get(heap, size);
		frl_mr_cache_put(cache, mr);
		free(heap);
		munmap(addr, size);
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(stats().hits + stats().misses, 2 * THREADS * ROUNDS);
}
END_TEST

/* Memory that is unmapped is also deregistered, without a call. */
START_TEST(pins_are_let_go)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (!is_kept())
		return;
	for (int i = 0; i < 4; i++)
		key_of(memory + 4 * i * PAGE, PAGE);
	munmap(memory, SIZE);
	for (uint64_t limit_ns = hang_limit_ns(); may_wait(limit_ns) && stats().deregistered < 4;)
		nanosleep(&pause, NULL);
	ck_assert_uint_eq(stats().deregistered, 4);
	map(memory);
}
END_TEST

TEST_MAIN(mr_cache)
{
	return run_suite(all_tests(cache_setup, cache_teardown));
}
