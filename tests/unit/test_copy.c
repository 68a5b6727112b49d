/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy whose bytes become visible in order, and the one past the caches. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/copy.h"
#include "tests/unit/program.h"

enum {
	SIZES = 600,
	SHIFTS = 17,
	GUARD = 64,
	LINE_WORDS = 16, /* of 8 bytes: 128 bytes, the last word is the flag */
	LINES = 32,
	WORDS = LINES * LINE_WORDS,
	SPINS = 20000, /* before the watcher lets others run */
};

/* Both of them. */
START_TEST(copies)
{
	void (*const copy)(void *, const void *, size_t) = _i ? copy_past_cache : copy_in_order;
	uint8_t from[SIZES + SHIFTS], to[SIZES + SHIFTS + 2 * GUARD];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 37 + 11);
	for (size_t n = 0; n < SIZES; n++) {
		size_t src = n % SHIFTS, dst = GUARD + n * 7 % SHIFTS;

		memset(to, 0xee, sizeof(to));
		copy(to + dst, from + src, n);
		ck_assert_mem_eq(to + dst, from + src, n);
		for (size_t i = 0; i < sizeof(to); i++)
			if (i < dst || i >= dst + n)
				ck_assert_uint_eq(to[i], 0xee);
	}
}
END_TEST

static struct {
	_Atomic uint64_t words[WORDS] __attribute__((aligned(4096)));
	_Atomic uint64_t seen; /* rounds that the watcher has been through */
	atomic_bool is_broken, is_over;
} shared;

static bool await(_Atomic uint64_t *flag, uint64_t round)
{
	for (int i = 1; atomic_load_explicit(flag, memory_order_acquire) < round; i++) {
		if (i % SPINS)
			continue;
		if (atomic_load(&shared.is_over))
			return false;
		sched_yield();
	}
	return true;
}

/* Every word of a round is its number, so a flag that comes early is seen beside an older one. */
static void *watch(void *arg)
{
	for (uint64_t round = 1;; round++) {
		for (int line = 0; line < LINES; line++) {
			_Atomic uint64_t *words = &shared.words[line * LINE_WORDS];

			if (!await(&words[LINE_WORDS - 1], round))
				return NULL;
			for (int i = 0; i < LINE_WORDS; i++)
				if (atomic_load_explicit(&words[i], memory_order_relaxed) < round)
					atomic_store(&shared.is_broken, true);
		}
		atomic_store(&shared.seen, round);
	}
}

/* A second of chances. */
START_TEST(flags_come_last)
{
	static uint64_t from[WORDS];
	uint64_t until_ns = clock_now_ns() + UINT64_C(1000000000);
	pthread_t watcher;

	ck_assert_int_eq(pthread_create(&watcher, NULL, watch, NULL), 0);
	for (uint64_t round = 1; clock_now_ns() < until_ns; round++) {
		for (int i = 0; i < WORDS; i++)
			from[i] = round;
		copy_in_order(shared.words, from, sizeof(from));
		while (atomic_load(&shared.seen) < round)
			sched_yield();
	}
	atomic_store(&shared.is_over, true);
	pthread_join(watcher, NULL);
	ck_assert(!atomic_load(&shared.is_broken));
}
END_TEST

TEST_MAIN(copy)
{
	Suite *suite = suite_create("copy");
	TCase *tcase = tcase_create("copy");

	tcase_add_loop_test(tcase, copies, 0, 2);
	tcase_add_test(tcase, flags_come_last);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
