/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of ranks on two hosts, while daemons are killed and started again and their sessions
 * break: before all ranks are there, between allgathers, and at every moment of one. No rank may
 * notice. But a rank that has really died meanwhile is missed, and so is one that cannot come back.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "tests/unit/daemon/core/fixtures/groups_model.h"
#include "tests/fixtures/program.h"

enum { KEEPER, MEMBER, RANKS = 3, ROUNDS = 4, STEP_NS = 27000 };

/* Rank 0 is on the host that keeps the job, rank 1 on the other one. */
static struct model ranks[RANKS];
static int host_of_last = MEMBER;

static void setup(void)
{
	groups_setup();
	world_add_host(group_world, "nodeb", NULL);
	memset(ranks, 0, sizeof(ranks));
}

static void come(int rank)
{
	const int hosts[RANKS] = { KEEPER, MEMBER, host_of_last };

	model_join(&ranks[rank], group_world, hosts[rank], 500 + (uint32_t)rank, "train", "nodea",
		(uint32_t)rank, RANKS);
}

static void hear_all(void)
{
	for (int i = 0; i < RANKS; i++)
		model_hear(&ranks[i]);
}

/* As world_run(); a rank that gets a message acts at once. */
static void run(uint64_t ns)
{
	uint64_t end_ns = world_now(group_world) + ns;

	while (world_now(group_world) < end_ns) {
		uint64_t step_ns = ns >= 200 * WORLD_MS ? 10 * WORLD_MS : 20000;

		if (step_ns > end_ns - world_now(group_world))
			step_ns = end_ns - world_now(group_world);
		world_run(group_world, step_ns);
		hear_all();
	}
}

static void meet(void)
{
	for (int i = 0; i < RANKS; i++)
		come(i);
	run(10 * WORLD_MS);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(ranks[i].state, MODEL_JOINED);
}

static void give_all(void)
{
	for (int i = 0; i < RANKS; i++)
		model_give(&ranks[i]);
}

static void start(int host)
{
	world_start_daemon(group_world, host, true);
	for (int i = 0; i < RANKS; i++)
		if (ranks[i].rank.process && ranks[i].rank.process->host == host)
			model_come_back(&ranks[i]);
}

/* No rank has received an end, and all can continue until they leave. */
static void expect_all_well(void)
{
	for (uint32_t round = 0; round < ROUNDS; round++) {
		give_all();
		run(10 * WORLD_MS);
	}
	for (int i = 0; i < RANKS; i++) {
		ck_assert_msg(ranks[i].state == MODEL_JOINED, "rank %d is in state %d: %s", i,
			(int)ranks[i].state, ranks[i].why);
		ck_assert_msg(!ranks[i].why[0], "rank %d: %s", i, ranks[i].why);
		ck_assert_uint_ge(ranks[i].round, ROUNDS);
		ck_assert_uint_eq(ranks[i].round, ranks[0].round);
		ck_assert_uint_eq(ranks[i].pieces, ranks[i].round * (RANKS - 1));
		ck_assert(ranks[i].met);
		for (uint32_t k = 0; k < RANKS; k++)
			ck_assert(!model_misses(&ranks[i], k));
	}
	for (int i = 0; i < RANKS; i++)
		model_leave(&ranks[i], false);
	run(10 * WORLD_MS);
	ck_assert_uint_eq(count_groups(KEEPER), 0);
	ck_assert_uint_eq(count_members(KEEPER) + count_members(MEMBER), 0);
}

/* ---- what may happen */

static void kill_member(void)
{
	world_kill_daemon(group_world, MEMBER);
	run(1500 * WORLD_MS);
	start(MEMBER);
}

static void kill_keeper(void)
{
	world_kill_daemon(group_world, KEEPER);
	run(1500 * WORLD_MS);
	start(KEEPER);
}

static void kill_both(void)
{
	world_kill_daemon(group_world, KEEPER);
	world_kill_daemon(group_world, MEMBER);
	run(WORLD_S);
	start(MEMBER);
	run(8 * WORLD_S);
	start(KEEPER);
}

static void kill_member_for_long(void)
{
	world_kill_daemon(group_world, KEEPER);
	world_kill_daemon(group_world, MEMBER);
	run(WORLD_S);
	start(KEEPER);
	run(8 * WORLD_S);
	start(MEMBER);
}

static void reset(void)
{
	world_reset_sessions(group_world, KEEPER, MEMBER);
}

/* Before all returning ranks have reported. */
static void reset_again_and_again(void)
{
	for (int i = 0; i < 20; i++) {
		world_reset_sessions(group_world, KEEPER, MEMBER);
		run(205 * WORLD_MS + (uint64_t)i * 30000);
	}
}

static void kill_keeper_then_member(void)
{
	kill_keeper();
	run(200000);
	kill_member();
}

static void (*const faults[])(void) = { kill_member, kill_keeper, kill_both, kill_member_for_long,
	reset, reset_again_and_again, kill_keeper_then_member };

enum { FAULTS = sizeof(faults) / sizeof(faults[0]), DELAYS = 16 };

static void start_anew(void)
{
	groups_teardown();
	setup();
}

START_LOOP_TEST(before_all_have_joined, FAULTS)
{
	for (uint64_t delay = 0; delay < DELAYS; delay++) {
		start_anew();
		come(0);
		come(1);
		run(10 * WORLD_MS);
		model_give(&ranks[1]);
		run(delay * STEP_NS);
		faults[_i]();
		run(5 * WORLD_S);
		model_give(&ranks[0]);
		run(20 * WORLD_S);
		come(2);
		run(WORLD_S);
		expect_all_well();
	}
}
END_TEST

/* A daemon that is away for a short time does not block a rank without an answer. */
START_LOOP_TEST(while_they_join, FAULTS)
{
	for (uint64_t delay = 0; delay < DELAYS && faults[_i] != kill_both; delay++) {
		start_anew();
		for (int i = 0; i < RANKS; i++)
			come(i);
		run(delay * STEP_NS);
		faults[_i]();
		run(5 * WORLD_S);
		expect_all_well();
	}
}
END_TEST

START_LOOP_TEST(before_the_first_allgather, FAULTS)
{
	meet();
	faults[_i]();
	run(30 * WORLD_S);
	expect_all_well();
}
END_TEST

START_LOOP_TEST(between_allgathers, FAULTS)
{
	meet();
	for (int round = 0; round < 3; round++) {
		give_all();
		run(10 * WORLD_MS);
	}
	faults[_i]();
	run(30 * WORLD_S);
	/* Nothing was on its way. */
	for (int i = 0; i < RANKS; i++)
		ck_assert_uint_eq(ranks[i].repeated, 0);
	expect_all_well();
}
END_TEST

/* At every moment; the ranks of the set have begun, the others do so some time later. */
static void in_an_allgather(unsigned set, uint64_t delay_ns, void (*fault)(void))
{
	meet();
	give_all();
	run(10 * WORLD_MS);
	for (unsigned i = 0; i < RANKS; i++)
		if (set >> i & 1)
			model_give(&ranks[i]);
	run(delay_ns);
	/* A rank that is done begins the next one. */
	give_all();
	run(delay_ns / 3);
	fault();
	give_all();
	run(30 * WORLD_S);
	expect_all_well();
}

START_LOOP_TEST(in_the_middle_of_an_allgather, 2 * FAULTS)
{
	host_of_last = _i % 2;
	for (unsigned set = 0; set < 1 << RANKS; set++) {
		for (uint64_t delay = 0; delay < DELAYS; delay++) {
			start_anew();
			in_an_allgather(set, delay * STEP_NS, faults[_i / 2]);
		}
	}
	host_of_last = MEMBER;
}
END_TEST

/* A daemon that takes longer to start than a host may be silent: the host refuses, so it lives. */
START_TEST(longer_than_keepalive)
{
	struct config *config = (struct config *)(uintptr_t)world_core(group_world, KEEPER)->config;

	config->keepalive_ms = 400;
	meet();
	world_kill_daemon(group_world, MEMBER);
	run(9 * WORLD_S);
	start(MEMBER);
	run(5 * WORLD_S);
	expect_all_well();
}
END_TEST

/* ---- who does not come back */

/* Rank 2 dies while no daemon sees it. */
START_LOOP_TEST(who_has_died_meanwhile_is_missed, 8)
{
	meet();
	if (_i >= 4) {
		give_all();
		run(10 * WORLD_MS);
	}
	give_all();
	world_kill_daemon(group_world, _i % 2 ? KEEPER : MEMBER);
	if (_i % 4 > 1)
		world_kill_daemon(group_world, _i % 2 ? MEMBER : KEEPER);
	run(100 * WORLD_MS);
	model_die(&ranks[2]);
	run(WORLD_S);
	if (!world_core(group_world, KEEPER))
		start(KEEPER);
	if (!world_core(group_world, MEMBER))
		start(MEMBER);
	run(WORLD_S);
	ck_assert(!ranks[0].dead_ns[2]);
	run(16 * WORLD_S);
	for (int i = 0; i < 2; i++) {
		ck_assert(ranks[i].dead_ns[2]);
		ck_assert_ptr_nonnull(strstr(ranks[i].why, "not come back"));
		ck_assert(!ranks[i].dead_ns[!i]);
		ck_assert_int_eq(ranks[i].state, MODEL_JOINED);
	}
	/* The others still receive each other. */
	ck_assert(model_has_all(&ranks[0], &ranks[1]));
	ck_assert(model_has_all(&ranks[1], &ranks[0]));
	ck_assert_uint_eq(ranks[0].given, _i >= 4 ? 2 : 1);
}
END_TEST

/* Once their daemon is there they are not waited for as long as it was allowed to be away. */
START_TEST(a_daemon_that_is_back_has_not_long_to_bring_them)
{
	meet();
	world_kill_daemon(group_world, MEMBER);
	run(100 * WORLD_MS);
	model_die(&ranks[2]);
	start(MEMBER);
	run(1500 * WORLD_MS);
	ck_assert(!ranks[0].dead_ns[2]);
	run(3 * WORLD_S);
	ck_assert(ranks[0].dead_ns[2]);
	ck_assert(!ranks[0].dead_ns[1]);
}
END_TEST

START_LOOP_TEST(a_daemon_that_does_not_come_back, 4)
{
	int host = _i % 2 ? KEEPER : MEMBER;
	uint64_t patience_s = _i < 2 ? 15 : 4;

	for (int i = 0; i < RANKS; i++) {
		ranks[i].lost_s = _i < 2 ? 0 : 4;
		come(i);
	}
	run(10 * WORLD_MS);
	world_kill_daemon(group_world, host);
	run((patience_s - 1) * WORLD_S);
	ck_assert(!ranks[0].dead_ns[1]);
	for (int i = 0; i < RANKS; i++)
		ck_assert(model_is_in(&ranks[i]));
	run(2 * WORLD_S);
	for (int i = 1; i < RANKS; i++) {
		ck_assert_int_eq(ranks[i].state, MODEL_FAILED);
		if (host == MEMBER)
			ck_assert(ranks[0].dead_ns[i]);
	}
	if (host == MEMBER)
		ck_assert_ptr_nonnull(strstr(ranks[0].why, "connection with its daemon broke"));
	/* It is too late. */
	start(host);
	run(20 * WORLD_S);
	for (int i = 1; i < RANKS; i++)
		model_die(&ranks[i]);
	model_leave(&ranks[0], false);
	run(60 * WORLD_S);
	ck_assert_uint_eq(count_groups(KEEPER), 0);
	ck_assert_uint_eq(count_members(KEEPER) + count_members(MEMBER), 0);
}
END_TEST

/* Nothing is expected of a silent host. */
START_LOOP_TEST(a_host_that_is_gone, 2)
{
	meet();
	if (_i == 1) {
		world_kill_daemon(group_world, MEMBER);
		run(500 * WORLD_MS);
	}
	world_partition(group_world, KEEPER, MEMBER, true);
	run(6 * WORLD_S);
	for (uint32_t i = 1; i < RANKS; i++)
		ck_assert(ranks[0].dead_ns[i]);
	ck_assert_ptr_nonnull(strstr(ranks[0].why, "host nodeb is gone"));
	if (_i == 0) {
		ck_assert_int_eq(ranks[1].state, MODEL_FAILED);
		ck_assert_ptr_nonnull(strstr(ranks[1].why, "host nodea is gone"));
		return;
	}
	start(MEMBER);
	run(6 * WORLD_S);
	ck_assert_int_eq(ranks[1].state, MODEL_FAILED);
	ck_assert_ptr_nonnull(strstr(ranks[1].why, "nodea cannot be reached"));
}
END_TEST

START_TEST(who_has_been_given_up_does_not_come_back)
{
	meet();
	world_partition(group_world, KEEPER, MEMBER, true);
	/* This side notices later: only then it learns that it is refused. */
	world_kill_daemon(group_world, MEMBER);
	run(6 * WORLD_S);
	world_partition(group_world, KEEPER, MEMBER, false);
	start(MEMBER);
	run(6 * WORLD_S);
	for (int i = 1; i < RANKS; i++) {
		ck_assert_int_eq(ranks[i].state, MODEL_FAILED);
		ck_assert_ptr_nonnull(strstr(ranks[i].why, "has been given up"));
	}
}
END_TEST

START_LOOP_TEST(who_has_left_is_not_missed, FAULTS)
{
	meet();
	give_all();
	run(10 * WORLD_MS);
	model_leave(&ranks[2], false);
	run(10 * WORLD_MS);
	faults[_i]();
	run(30 * WORLD_S);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ranks[i].state, MODEL_JOINED);
		ck_assert(ranks[i].left[2] && !ranks[i].dead_ns[2]);
		ck_assert(!model_misses(&ranks[i], (uint32_t)!i));
	}
	/* The next one leaves as soon as it may. */
	faults[_i]();
	run(WORLD_MS);
	while (ranks[1].state != MODEL_JOINED)
		run(WORLD_MS);
	model_leave(&ranks[1], false);
	run(30 * WORLD_S);
	ck_assert(ranks[0].left[1] && !ranks[0].dead_ns[1]);
}
END_TEST

START_LOOP_TEST(who_has_given_up_says_so_again, 2)
{
	meet();
	world_kill_daemon(group_world, _i ? KEEPER : MEMBER);
	run(WORLD_MS);
	model_leave(&ranks[1], true);
	run(WORLD_S);
	start(_i ? KEEPER : MEMBER);
	run(10 * WORLD_S);
	ck_assert(ranks[0].aborted[1]);
	ck_assert(ranks[2].aborted[1]);
	ck_assert(!ranks[0].dead_ns[1]);
}
END_TEST

TEST_MAIN(core_groups_survive)
{
	return run_suite(all_tests(setup, groups_teardown));
}
