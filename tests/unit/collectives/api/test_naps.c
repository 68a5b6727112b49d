/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/api/naps.h"

#include <check.h>

#include "tests/fixtures/program.h"

static uint64_t us(uint64_t n)
{
	return n * 1000;
}

/* The thread looks, makes no progress, and rests. */
static uint64_t rests(struct naps *naps, enum need need, uint32_t leads)
{
	ck_assert(!naps_look(naps, need, leads));
	return naps_next(naps);
}

static void falls_asleep(struct naps *naps, uint32_t leads)
{
	for (uint64_t nap_ns = us(100); nap_ns <= us(3200); nap_ns *= 2)
		ck_assert_uint_eq(rests(naps, NO_NEED, leads), nap_ns);
	ck_assert_uint_eq(rests(naps, NO_NEED, leads), NAP_SLEEP);
}

START_TEST(naps_grow_then_sleep)
{
	struct naps naps = { 0 };

	falls_asleep(&naps, 0);
}
END_TEST

START_TEST(naps_go_on_while_callers_lead)
{
	struct naps naps = { 0 };
	uint32_t leads = 0;

	for (int i = 0; i < 5; i++)
		rests(&naps, NO_NEED, leads++);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(rests(&naps, NO_NEED, leads++), us(3200));
	/* The first look finds the last one that led. */
	ck_assert_uint_eq(rests(&naps, NO_NEED, leads), us(3200));
	ck_assert_uint_eq(rests(&naps, NO_NEED, leads), NAP_SLEEP);
}
END_TEST

/* Whether it is napping or was woken from sleep. */
START_LOOP_TEST(a_pending_request_gets_progress, 2)
{
	struct naps naps = { 0 };

	if (_i)
		falls_asleep(&naps, 0);
	ck_assert_uint_eq(rests(&naps, CALLER_MAY_COME, 0), us(100));
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 0));
}
END_TEST

START_LOOP_TEST(a_detached_request_gets_progress_at_once, 2)
{
	struct naps naps = { 0 };

	if (_i)
		falls_asleep(&naps, 0);
	ck_assert(naps_look(&naps, NEEDED_NOW, 0));
}
END_TEST

/* Each look finds a new request, whose caller is about to wait. */
START_TEST(callers_that_wait_are_left_alone)
{
	struct naps naps = { 0 };
	uint64_t total_ns = 0;
	uint32_t leads = 0;

	for (int i = 0; i < 100; i++)
		total_ns += rests(&naps, CALLER_MAY_COME, ++leads);
	/* Every other nap is a short one. */
	ck_assert_uint_ge(total_ns, us((100 / 2 - 6) * (3200 + 100)));
}
END_TEST

/* Two requests whose callers led, and then one that nobody waits for. */
START_TEST(a_caller_that_stays_away_is_noticed)
{
	struct naps naps = { 0 };

	rests(&naps, CALLER_MAY_COME, 1);
	rests(&naps, CALLER_MAY_COME, 2);
	ck_assert_uint_eq(rests(&naps, CALLER_MAY_COME, 2), us(100));
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 2));
}
END_TEST

START_TEST(sleeps_when_all_requests_are_complete)
{
	struct naps naps = { 0 };

	rests(&naps, CALLER_MAY_COME, 0);
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 0));
	naps_restart(&naps, 0);
	ck_assert_uint_eq(rests(&naps, NO_NEED, 0), NAP_SLEEP);
}
END_TEST

START_TEST(naps_when_a_caller_took_over)
{
	struct naps naps = { 0 };

	rests(&naps, CALLER_MAY_COME, 0);
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 0));
	naps_restart(&naps, 1);
	falls_asleep(&naps, 1);
}
END_TEST

TEST_FILE(naps)
