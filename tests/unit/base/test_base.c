/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists, random numbers, the guard, and waiting. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ferrule/device.h>

#include "lib/base/process/backoff.h"
#include "lib/base/process/guard.h"
#include "lib/base/list.h"
#include "lib/base/random.h"
#include "lib/base/time_budget.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/stopped_clock.h"

enum {
	NODES = 5,
	POLLERS = 3,
	ENTRIES = 20,
	BELOW_TRIES = 60000,
	AWAKE = 200 + 2000, /* rounds of a backoff before it sleeps */
};

/* Yields so far, and whether each yield gives the processor to another thread, for how long. */
static _Thread_local unsigned n_yields;
static _Thread_local bool is_wanted;
static _Thread_local uint64_t turn_ns = 1000000;

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
	n_yields++;
	if (is_wanted)
		clock_advance_ns(turn_ns);
	return __real_sched_yield();
}

struct item {
	int number;
	struct list node;
};

static void expect_list(const struct list *head, const char *numbers)
{
	const struct list *at = head->next;

	for (; *numbers; numbers++, at = at->next) {
		ck_assert_ptr_ne(at, head);
		ck_assert_int_eq(container_of(at, struct item, node)->number, *numbers - '0');
		ck_assert_ptr_eq(at->next->prev, at);
	}
	ck_assert_ptr_eq(at, head);
	ck_assert_ptr_eq(head->next->prev, head);
}

START_TEST(list)
{
	struct item items[NODES];
	struct list head;

	list_init(&head);
	ck_assert(list_empty(&head));
	expect_list(&head, "");
	for (int i = 0; i < NODES; i++) {
		items[i].number = i;
		list_init(&items[i].node);
		list_remove(&items[i].node); /* in no list: fine */
		list_add_tail(&head, &items[i].node);
		ck_assert(!list_empty(&items[i].node));
	}
	ck_assert(!list_empty(&head));
	expect_list(&head, "01234");
	list_remove(&items[0].node);
	list_remove(&items[2].node);
	list_remove(&items[4].node);
	list_remove(&items[4].node);
	ck_assert(list_empty(&items[4].node));
	expect_list(&head, "13");
	list_add_tail(&head, &items[0].node);
	expect_list(&head, "130");
	list_remove(&items[1].node);
	list_remove(&items[3].node);
	list_remove(&items[0].node);
	ck_assert(list_empty(&head));
}
END_TEST

/* The first outputs of splitmix64, as published with it. */
START_TEST(known_values)
{
	static const uint64_t of_0[] = { 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4,
		0x06c45d188009454f };
	static const uint64_t of_1234567[] = { 6457827717110365317u, 3203168211198807973u,
		9817491932198370423u, 4593380528125082431u, 16408922859458223821u };
	struct random_state state;

	random_seed(&state, 0);
	for (size_t i = 0; i < sizeof(of_0) / sizeof(of_0[0]); i++)
		ck_assert_uint_eq(random_u64(&state), of_0[i]);
	random_seed(&state, 1234567);
	for (size_t i = 0; i < sizeof(of_1234567) / sizeof(of_1234567[0]); i++)
		ck_assert_uint_eq(random_u64(&state), of_1234567[i]);
}
END_TEST

START_TEST(same_seed)
{
	struct random_state a, b, c;
	unsigned same = 0;

	random_seed(&a, 42);
	random_seed(&b, 42);
	random_seed(&c, 43);
	for (int i = 0; i < 1000; i++) {
		uint64_t number = random_u64(&a);

		ck_assert_uint_eq(number, random_u64(&b));
		same += number == random_u64(&c);
	}
	ck_assert_uint_eq(same, 0);
}
END_TEST

START_TEST(below_is_even)
{
	static const uint64_t sizes[] = { 2, 3, 6, 7, 10, 100 };
	struct random_state state;

	random_seed(&state, 7);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint32_t counts[100] = { 0 };
		double expected = (double)BELOW_TRIES / (double)sizes[s], chi = 0;

		for (int i = 0; i < BELOW_TRIES; i++) {
			uint64_t number = random_below(&state, sizes[s]);

			ck_assert_uint_lt(number, sizes[s]);
			counts[number]++;
		}
		for (uint64_t i = 0; i < sizes[s]; i++)
			chi += (counts[i] - expected) * (counts[i] - expected) / expected;
		/* Chi-squared of up to 99 degrees of freedom; larger once in 10^5 runs. */
		ck_assert_msg(
			chi < 20 + 1.6 * (double)sizes[s], "%d: chi^2 is %f", (int)sizes[s], chi);
	}
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(random_below(&state, 1), 0);
}
END_TEST

/* 2^64 is no multiple of this: plain x % n would give the lower half twice as often. */
START_TEST(below_of_large_numbers)
{
	const uint64_t n = UINT64_C(3) << 62;
	struct random_state state;
	unsigned thirds[3] = { 0 };

	random_seed(&state, 9);
	for (int i = 0; i < 30000; i++)
		thirds[random_below(&state, n) >> 62]++;
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_gt(thirds[i], 9500);
		ck_assert_uint_lt(thirds[i], 10500);
	}
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_lt(random_below(&state, UINT64_MAX), UINT64_MAX);
}
END_TEST

START_TEST(entropy)
{
	uint64_t seen[64];

	for (int i = 0; i < 64; i++) {
		seen[i] = random_entropy();
		for (int k = 0; k < i; k++)
			ck_assert_uint_ne(seen[i], seen[k]);
	}
}
END_TEST

struct contest {
	struct guard guard;
	atomic_bool stop;
	atomic_ulong rounds;
	unsigned inside;
	/* For the rank that enters first: */
	unsigned long rounds_at_entry;
	bool is_disturbed;
	atomic_bool has_entered;
};

static void *poll_loop(void *arg)
{
	struct contest *contest = arg;

	while (!atomic_load(&contest->stop)) {
		guard_enter(&contest->guard);
		contest->inside++;
		for (volatile int i = 0; i < 2000; i++)
			;
		contest->inside--;
		guard_leave(&contest->guard);
		atomic_fetch_add(&contest->rounds, 1);
	}
	return NULL;
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Enters first, and records the rounds of the pollers so far. */
static void *enter_first(void *arg)
{
	struct contest *contest = arg;

	guard_enter_first(&contest->guard);
	contest->rounds_at_entry = atomic_load(&contest->rounds);
	contest->is_disturbed = contest->is_disturbed || contest->inside;
	guard_leave(&contest->guard);
	atomic_store(&contest->has_entered, true);
	return NULL;
}

/* Each poller may have checked before the other announced itself: then it is in once more, and the
 * round before that may not be counted yet. */
START_TEST(guard_lets_in_first)
{
	struct contest contest = { .inside = 0 };
	struct timespec pause = { .tv_nsec = 5000000 };
	pthread_t pollers[POLLERS], first;
	uint64_t limit_ns = hang_limit_ns();
	unsigned long before;

	guard_init(&contest.guard);
	for (int i = 0; i < POLLERS; i++)
		ck_assert_int_eq(pthread_create(&pollers[i], NULL, poll_loop, &contest), 0);
	for (int i = 0; i < ENTRIES; i++) {
		bool is_announced = false;

		atomic_store(&contest.has_entered, false);
		ck_assert_int_eq(pthread_create(&first, NULL, enter_first, &contest), 0);
		while (!is_announced && !atomic_load(&contest.has_entered))
			is_announced = atomic_load(&contest.guard.wanted) > 0;
		before = atomic_load(&contest.rounds);
		pthread_join(first, NULL);
		ck_assert(!contest.is_disturbed);
		if (is_announced && contest.rounds_at_entry > before)
			ck_assert_uint_le(contest.rounds_at_entry - before, 2 * POLLERS);
		nanosleep(&pause, NULL);
	}
	/* And the pollers continue. */
	before = atomic_load(&contest.rounds);
	while (may_wait(limit_ns) && atomic_load(&contest.rounds) == before)
		nanosleep(&pause, NULL);
	ck_assert_uint_gt(atomic_load(&contest.rounds), before);
	atomic_store(&contest.stop, true);
	for (int i = 0; i < POLLERS; i++)
		pthread_join(pollers[i], NULL);
	guard_fini(&contest.guard);
}
END_TEST

/* Pollers wait as long as another thread has precedence, even if the mutex is free. */
START_TEST(guard_pollers_stand_back)
{
	struct contest contest = { .inside = 0 };
	struct timespec pause = { .tv_nsec = 20000000 };
	pthread_t poller;

	guard_init(&contest.guard);
	atomic_store(&contest.guard.wanted, 1);
	ck_assert_int_eq(pthread_create(&poller, NULL, poll_loop, &contest), 0);
	nanosleep(&pause, NULL);
	ck_assert_uint_eq(atomic_load(&contest.rounds), 0);
	atomic_store(&contest.guard.wanted, 0);
	for (uint64_t limit_ns = hang_limit_ns();
		may_wait(limit_ns) && atomic_load(&contest.rounds) == 0;)
		nanosleep(&pause, NULL);
	ck_assert_uint_gt(atomic_load(&contest.rounds), 0);
	atomic_store(&contest.stop, true);
	pthread_join(poller, NULL);
	guard_fini(&contest.guard);
}
END_TEST

START_TEST(backoff_phases)
{
	static const uint32_t sleeps[] = { 20, 40, 80, 100, 100 };
	struct frl_backoff backoff;
	double start;

	frl_backoff_reset(&backoff);
	ck_assert_uint_eq(backoff.rounds, 0);
	for (uint32_t i = 0; i < AWAKE; i++) {
		uint32_t sleep_us = backoff.sleep_us;

		frl_backoff_idle(&backoff);
		ck_assert_uint_eq(backoff.rounds, i + 1);
		ck_assert_uint_eq(backoff.sleep_us, sleep_us);
	}
	for (size_t i = 0; i < sizeof(sleeps) / sizeof(sleeps[0]); i++) {
		frl_backoff_idle(&backoff);
		ck_assert_uint_eq(backoff.rounds, AWAKE);
		ck_assert_uint_eq(backoff.sleep_us, sleeps[i]);
	}
	start = now_ms();
	for (int i = 0; i < 20; i++)
		frl_backoff_idle(&backoff);
	ck_assert(now_ms() - start >= 2.0);
	frl_backoff_reset(&backoff);
	ck_assert_uint_eq(backoff.rounds, 0);
	ck_assert_uint_eq(backoff.sleep_us, 10);
	/* Cleared instead of reset. */
	backoff = (struct frl_backoff){ .rounds = AWAKE };
	frl_backoff_idle(&backoff);
	ck_assert_uint_eq(backoff.sleep_us, 20);
}
END_TEST

/* A loop that may be idle for hours sleeps longer, by a 64th each time. */
START_TEST(backoff_long)
{
	static const uint32_t sleeps[][2] = { { 80, 100 }, { 100, 101 }, { 192, 195 }, { 249, 250 },
		{ 250, 250 } };

	for (size_t i = 0; i < sizeof(sleeps) / sizeof(sleeps[0]); i++) {
		struct frl_backoff backoff = { .rounds = AWAKE, .sleep_us = sleeps[i][0] };

		ck_assert_int_eq(backoff_is_long(&backoff), i > 0);
		backoff_idle(&backoff, BACKOFF_IDLE_US);
		ck_assert_uint_eq(backoff.sleep_us, sleeps[i][1]);
	}
}
END_TEST

/* A thread that slept long sleeps at most the new limit. */
START_TEST(shorter_limit_shortens_the_sleep)
{
	struct frl_backoff backoff = { .rounds = AWAKE, .sleep_us = 250 };

	for (int i = 0; i < 3; i++) {
		backoff_idle(&backoff, BACKOFF_GPU_US);
		ck_assert_uint_eq(backoff.sleep_us, BACKOFF_GPU_US);
		ck_assert(!backoff_is_long(&backoff));
	}
}
END_TEST

static bool has_come_at_0(void *arg)
{
	int *looks = arg;

	return (*looks)-- == 0;
}

START_TEST(backoff_spins)
{
	int soon = 3, late = 1000;

	ck_assert(backoff_spin(has_come_at_0, &soon));
	ck_assert_int_eq(soon, -1);
	ck_assert(!backoff_spin(has_come_at_0, &late));
	ck_assert_int_lt(late, 1000);
	ck_assert_int_gt(late, 0);
}
END_TEST

static unsigned yields_of_tests(unsigned tests)
{
	unsigned before = n_yields;

	while (tests--)
		backoff_test();
	return n_yields - before;
}

/* Tests that find nothing yield each time while others need the processor, else sometimes. */
START_TEST(backoff_tests)
{
	clock_stop();
	yields_of_tests(20 * 200);
	ck_assert_uint_eq(yields_of_tests(1000), 5);
	is_wanted = true;
	ck_assert_uint_eq(yields_of_tests(200), 1);
	ck_assert_uint_eq(yields_of_tests(10), 10);
	is_wanted = false;
	ck_assert_uint_eq(yields_of_tests(16), 16);
	ck_assert_uint_eq(yields_of_tests(199), 0);
	clock_go_on();
}
END_TEST

/* The last yield tells whether the processor is wanted for long; a wait can skip to its long
 * sleeps. */
START_TEST(backoff_on_a_crowded_processor)
{
	struct frl_backoff backoff;

	clock_stop();
	is_wanted = false;
	yields_of_tests(40 * 200);
	ck_assert(!backoff_is_crowded());
	is_wanted = true;
	yields_of_tests(200);
	ck_assert(backoff_is_crowded());
	turn_ns = 100000;
	yields_of_tests(1);
	ck_assert(!backoff_is_crowded());
	turn_ns = 100001;
	yields_of_tests(1);
	ck_assert(backoff_is_crowded());
	is_wanted = false;
	yields_of_tests(1);
	ck_assert(!backoff_is_crowded());
	yields_of_tests(40);
	clock_go_on();
	frl_backoff_reset(&backoff);
	ck_assert(!backoff_is_long(&backoff));
	backoff_lengthen(&backoff);
	ck_assert(backoff_is_long(&backoff));
	ck_assert_uint_eq(backoff.rounds, AWAKE);
}
END_TEST

/* The time during which a process was stopped counts as one step. */
START_TEST(time_budget_in_steps)
{
	struct time_budget budget = { 0 };

	ck_assert_uint_eq(time_budget_spend(&budget, 1000, 5000000), 0);
	ck_assert_uint_eq(time_budget_spend(&budget, 1000, 5000400), 400);
	ck_assert_uint_eq(time_budget_spend(&budget, 1000, 9000000), 1400);
	ck_assert_uint_eq(time_budget_spend(&budget, 1000, 9000000), 1400);
	ck_assert_uint_eq(time_budget_spend(&budget, 1000, 9001000), 2400);
}
END_TEST

TEST_FILE(base)
