/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/api/naps.h"

#include <check.h>

#include "tests/fixtures/program.h"

static uint64_t us(uint64_t n)
{
	return n * 1000;
}

/* The thread looks, makes no progress, and rests. */
static uint64_t rests(struct naps *naps, enum need need, uint32_t oldest, uint32_t leads)
{
	ck_assert(!naps_look(naps, need, oldest, leads));
	return naps_next(naps);
}

static struct naps asleep(void)
{
	struct naps naps;

	naps_init(&naps);
	ck_assert_uint_eq(rests(&naps, NO_NEED, 0, 0), NAP_SLEEP);
	return naps;
}

/* A caller has led once, or leads for long. */
static void falls_asleep_by_naps(struct naps *naps, uint32_t leads)
{
	for (uint64_t nap_ns = us(100); nap_ns <= us(3200); nap_ns *= 2)
		ck_assert_uint_eq(rests(naps, NO_NEED, 0, leads), nap_ns);
	ck_assert_uint_eq(rests(naps, NO_NEED, 0, leads), NAP_SLEEP);
}

START_TEST(naps_grow_then_sleep)
{
	struct naps naps = asleep();

	falls_asleep_by_naps(&naps, 1);
	falls_asleep_by_naps(&naps, 2);
}
END_TEST

START_TEST(naps_go_on_while_callers_lead)
{
	struct naps naps = asleep();
	uint32_t leads = 0;

	for (int i = 0; i < 5; i++)
		rests(&naps, NO_NEED, 0, ++leads);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(rests(&naps, NO_NEED, 0, ++leads), us(3200));
	ck_assert_uint_eq(rests(&naps, NO_NEED, 0, leads), NAP_SLEEP);
}
END_TEST

/* Woken from sleep, or between two naps. */
START_LOOP_TEST(a_request_gets_progress, 2)
{
	struct naps naps = asleep();

	if (_i)
		rests(&naps, NO_NEED, 0, 1);
	ck_assert_uint_eq(rests(&naps, CALLER_MAY_COME, 7, 1), us(100));
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 7, 1));
}
END_TEST

START_LOOP_TEST(a_detached_request_gets_progress_at_once, 2)
{
	struct naps naps = asleep();

	if (_i)
		rests(&naps, NO_NEED, 0, 1);
	ck_assert(naps_look(&naps, NEEDED_NOW, 7, 1));
}
END_TEST

/* Each look finds a new request, whose caller is about to wait. */
START_TEST(callers_that_wait_are_left_alone)
{
	struct naps naps = asleep();
	uint64_t total_ns = 0;

	for (uint32_t i = 1; i <= 100; i++)
		total_ns += rests(&naps, CALLER_MAY_COME, i, i);
	/* Every other nap is a short one. */
	ck_assert_uint_ge(total_ns, us((100 / 2 - 6) * (3200 + 100)));
}
END_TEST

/* A caller leads again and again, for other requests. */
START_LOOP_TEST(an_old_request_gets_progress, 2)
{
	struct naps naps = asleep();

	rests(&naps, CALLER_MAY_COME, 6, 1);
	rests(&naps, CALLER_MAY_COME, 7, 2);
	if (_i)
		rests(&naps, NO_NEED, 0, 3);
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 7, 4));
}
END_TEST

/* A request that the thread has completed, or begun: the caller has work of its own, and the next
 * request wakes the thread. Otherwise the caller is as fast. */
START_LOOP_TEST(sleeps_after_progress, 4)
{
	bool has_done = _i & 1;
	uint32_t leads = _i & 2 ? 2 : 1;
	struct naps naps = asleep();

	rests(&naps, CALLER_MAY_COME, 7, 1);
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 7, 1));
	naps_restart(&naps, has_done, leads);
	if (has_done)
		ck_assert_uint_eq(rests(&naps, NO_NEED, 0, leads), NAP_SLEEP);
	else
		falls_asleep_by_naps(&naps, leads);
}
END_TEST

/* A caller took over, and left it pending. */
START_TEST(a_request_is_new_after_progress)
{
	struct naps naps = asleep();

	rests(&naps, CALLER_MAY_COME, 7, 1);
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 7, 1));
	naps_restart(&naps, true, 2);
	ck_assert_uint_eq(rests(&naps, NO_NEED, 0, 2), NAP_SLEEP);
	ck_assert_uint_eq(rests(&naps, CALLER_MAY_COME, 7, 2), us(100));
	ck_assert(naps_look(&naps, CALLER_MAY_COME, 7, 2));
}
END_TEST

TEST_FILE(naps)
