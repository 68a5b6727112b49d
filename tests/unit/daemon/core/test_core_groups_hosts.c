/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups whose ranks are on two hosts: messages between daemons, and failures there. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/groups_fixture.h"
#include "tests/fixtures/program.h"

static void setup_two(void)
{
	groups_setup();
	world_add_host(group_world, "nodeb", NULL);
}

/* Rank 0 on nodea, which keeps the group; ranks 1 and 2 on nodeb. */
static void meet(struct rank ranks[3])
{
	ranks[0] = rank_joined(0, "train", "", 0, 3);
	ranks[1] = rank_joined(1, "train", "nodea", 1, 3);
	ranks[2] = rank_joined(1, "train", "nodea", 2, 3);
}

START_TEST(hosts_meet)
{
	struct rank ranks[3];

	meet(ranks);
	for (uint32_t round = 0; round < 3; round++) {
		rank_give_text(&ranks[0], round, "zero");
		rank_give_text(&ranks[1], round, "one");
		rank_give_text(&ranks[2], round, "two");
		expect_text(&ranks[0], 1, round, "one");
		expect_text(&ranks[0], 2, round, "two");
		expect_text(&ranks[1], 0, round, "zero");
		expect_text(&ranks[1], 2, round, "two");
		expect_text(&ranks[2], 0, round, "zero");
		expect_text(&ranks[2], 1, round, "one");
	}
	for (int i = 0; i < 3; i++)
		expect_silence(&ranks[i]);
	ck_assert_uint_eq(count_groups(0), 1);
	ck_assert_uint_eq(count_groups(1), 0);
	rank_leave(&ranks[1], false);
	expect_event(&ranks[0], LEFT, 1, "");
	expect_event(&ranks[2], LEFT, 1, "");
	rank_leave(&ranks[2], true);
	expect_event(&ranks[0], ABORTED, 2, "(test) on nodeb");
	rank_leave(&ranks[0], false);
	rank_leave(&ranks[2], false);
	world_settle(group_world);
	ck_assert_uint_eq(count_groups(0), 0);
	ck_assert_uint_eq(count_members(0), 0);
	ck_assert_uint_eq(count_members(1), 0);
}
END_TEST

START_TEST(late_ranks_of_another_host)
{
	struct rank first = rank_joined(0, "train", "", 0, 2), second;

	rank_give_text(&first, 0, "early");
	rank_leave(&first, true);
	second = rank_joined(1, "train", "nodea", 1, 2);
	expect_text(&second, 0, 0, "early");
	expect_event(&second, ABORTED, 0, "on nodea");
}
END_TEST

/* Between daemons a piece goes once for all ranks there; each rank still gets it once. */
START_TEST(pieces_are_shared_by_a_host)
{
	struct rank ranks[5], other[2];

	ranks[0] = rank_joined(0, "train", "", 0, 5);
	ranks[1] = rank_joined(1, "train", "nodea", 1, 5);
	ranks[2] = rank_joined(1, "train", "nodea", 2, 5);
	/* Another group of the same user, and one of that name but of another user. */
	other[0] = rank_joined(1, "other", "nodea", 1, 5);
	other[1] = rank_on(1, USER + 1);
	ck_assert_int_eq(rank_join(&other[1], "train", "nodea", 1, 5, true), 0);
	rank_give_text(&ranks[0], 0, "zero");
	rank_give_text(&ranks[1], 0, "one");
	for (uint32_t i = 3; i < 5; i++)
		ranks[i] = rank_joined(1, "train", "nodea", i, 5);
	rank_give_text(&ranks[4], 0, "four");
	for (int i = 0; i < 5; i++) {
		if (i != 0)
			expect_text(&ranks[i], 0, 0, "zero");
		if (i != 1)
			expect_text(&ranks[i], 1, 0, "one");
		if (i != 4)
			expect_text(&ranks[i], 4, 0, "four");
		expect_silence(&ranks[i]);
	}
	expect_silence(&other[0]);
	expect_silence(&other[1]);
}
END_TEST

START_TEST(a_process_of_another_host_dies)
{
	struct rank ranks[3];

	meet(ranks);
	rank_die(&ranks[1]);
	expect_event(&ranks[0], DEAD, 1, "on nodeb ended without leaving the job");
	expect_event(&ranks[2], DEAD, 1, "on nodeb ended without leaving the job");
	ck_assert_uint_eq(count_members(1), 1);
	rank_die(&ranks[0]);
	expect_event(&ranks[2], DEAD, 0, "on nodea ended without leaving the job");
	rank_die(&ranks[2]);
	ck_assert_uint_eq(count_groups(0), 0);
	ck_assert_uint_eq(count_members(0) + count_members(1), 0);
}
END_TEST

START_TEST(the_other_daemon_dies)
{
	struct rank ranks[3];

	meet(ranks);
	world_kill_daemon(group_world, 1);
	world_run(group_world, 10 * WORLD_S);
	expect_silence(&ranks[0]);
	world_run(group_world, 10 * WORLD_S);
	expect_event(&ranks[0], DEAD, 1, "out of reach");
	expect_event(&ranks[0], DEAD, 2, "out of reach");
	expect_silence(&ranks[0]);
	ck_assert_uint_eq(count_members(0), 1);
}
END_TEST

START_TEST(the_daemon_that_keeps_the_group_dies)
{
	struct rank ranks[3];

	meet(ranks);
	world_kill_daemon(group_world, 0);
	world_run(group_world, 10 * WORLD_S);
	for (int i = 1; i < 3; i++)
		expect_event(&ranks[i], AWAY, 0, "nodea, which keeps the job, is out of reach");
	ck_assert_uint_eq(count_members(1), 0);
	/* Their messages are dropped now. */
	rank_give_text(&ranks[1], 0, "hello?");
	rank_leave(&ranks[2], false);
	expect_silence(&ranks[1]);
}
END_TEST

/* A rank that ignores the daemon's absence has ended for the others, as soon as the daemon could be
 * back. */
START_TEST(the_connection_of_the_hosts_breaks)
{
	struct rank ranks[3];

	meet(ranks);
	world_reset_sessions(group_world, 0, 1);
	world_run(group_world, 5 * WORLD_S);
	expect_event(&ranks[0], DEAD, 1, "out of reach");
	expect_event(&ranks[0], DEAD, 2, "out of reach");
	expect_event(&ranks[1], AWAY, 0, "nodea");
	expect_event(&ranks[2], AWAY, 0, "nodea");
	rank_leave(&ranks[0], false);
	/* They meet again, under the same name. */
	memset(ranks[1].id, 0x50, UUID_SIZE);
	ck_assert_int_eq(rank_join(&ranks[1], "train", "nodea", 1, 3, true), 0);
	expect_silence(&ranks[1]);
}
END_TEST

START_TEST(the_other_host_falls_silent)
{
	struct rank ranks[3];

	meet(ranks);
	world_partition(group_world, 0, 1, true);
	world_run(group_world, 60 * WORLD_S);
	expect_event(&ranks[0], DEAD, 1, "out of reach");
	expect_event(&ranks[0], DEAD, 2, "out of reach");
	expect_event(&ranks[1], LOST, 0, "nodea");
	expect_event(&ranks[2], LOST, 0, "nodea");
	ck_assert_uint_eq(count_members(1), 0);
}
END_TEST

/* A daemon of the test's own, at 10.9.9.9, that has dialled host 0 and said Hello. */
static struct process *daemon_dials(void)
{
	struct process *daemon = world_rogue(group_world, 0);
	Ctl__Hello hello = CTL__HELLO__INIT;

	ck_assert_ptr_nonnull(daemon);
	hello.role = CTL__ROLE__ROLE_DAEMON;
	hello.name = (char *)(uintptr_t) "keeper";
	hello.instance = 4711;
	hello.port = CONTROL_PORT;
	process_say(daemon, CTL__ENVELOPE__BODY_HELLO, &hello);
	world_settle(group_world);
	return daemon;
}

static void expect_join(struct process *daemon)
{
	Ctl__Envelope *heard = process_take(daemon, CTL__ENVELOPE__BODY_GROUP_JOIN);

	ck_assert_ptr_nonnull(heard);
	ck_assert_str_eq(heard->group_join->job, "train");
	ctl__envelope__free_unpacked(heard, NULL);
}

/* The keeper connects a second time, and a join is lost with the first session: this breaks, or a
 * third session takes its place. */
START_LOOP_TEST(a_join_is_lost_with_the_oldest_session, 2)
{
	struct process *oldest = daemon_dials(), *newest;
	struct rank rank = rank_on(0, USER);
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;

	set_member(&join.member, &rank);
	join.job = (char *)(uintptr_t) "train";
	join.host = (char *)(uintptr_t) "10.9.9.9";
	join.ranks = 2;
	process_say(rank.process, CTL__ENVELOPE__BODY_GROUP_JOIN, &join);
	world_settle(group_world);
	expect_join(oldest);
	newest = daemon_dials();
	ck_assert(!oldest->ended);
	if (_i == 0) {
		process_die(oldest);
		world_settle(group_world);
	} else {
		newest = daemon_dials();
		ck_assert(oldest->ended);
	}
	expect_join(newest);
	ck_assert_ptr_null(process_take(newest, CTL__ENVELOPE__BODY_GROUP_JOIN));
}
END_TEST

START_LOOP_TEST(a_host_that_cannot_be_reached, 2)
{
	struct rank rank = rank_on(1, USER);
	int error;

	if (_i == 0)
		world_refuse(group_world, 0, true);
	error = rank_join(&rank, "train", _i == 0 ? "nodea" : "nosuchhost", 0, 2, _i);
	ck_assert_msg(
		error == EHOSTUNREACH || error == ECONNREFUSED, "%d: %s", error, group_refusal);
	ck_assert_ptr_nonnull(strstr(group_refusal, _i == 0 ? "nodea" : "nosuchhost"));
	ck_assert_uint_eq(count_members(1), 0);
}
END_TEST

/* Rank 0 of 2, at nodea; and 100 ms without an answer. */
static void ask_to_join(struct rank *rank)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;

	set_member(&join.member, rank);
	join.job = (char *)(uintptr_t) "train";
	join.host = (char *)(uintptr_t) "nodea";
	join.ranks = 2;
	process_say(rank->process, CTL__ENVELOPE__BODY_GROUP_JOIN, &join);
	world_run(group_world, 100 * WORLD_MS);
	expect_silence(rank);
}

START_LOOP_TEST(a_join_that_waits_is_taken_back, 2)
{
	struct rank rank = rank_on(1, USER);

	world_partition(group_world, 0, 1, true);
	ask_to_join(&rank);
	ck_assert_uint_eq(count_members(1), 1);
	if (_i == 0)
		rank_leave(&rank, false);
	else
		rank_die(&rank);
	ck_assert_uint_eq(count_members(1), 0);
	world_partition(group_world, 0, 1, false);
	world_run(group_world, 20 * WORLD_S);
	ck_assert_uint_eq(count_groups(0), 0);
}
END_TEST

/* A host is not gone because nobody asked. */
START_TEST(a_host_that_nobody_asked_is_waited_for)
{
	struct rank rank = rank_on(1, USER);
	Ctl__Envelope *answer;

	world_stall(group_world, 0, 1, true);
	ask_to_join(&rank);
	rank_leave(&rank, false);
	world_run(group_world, 20 * WORLD_S);
	ask_to_join(&rank);
	world_stall(group_world, 0, 1, false);
	world_run(group_world, WORLD_S);
	answer = process_take(rank.process, CTL__ENVELOPE__BODY_GROUP_JOINED);
	ck_assert_ptr_nonnull(answer);
	ctl__envelope__free_unpacked(answer, NULL);
}
END_TEST

START_TEST(refusals_come_back)
{
	struct rank ranks[3], other = rank_on(1, USER);

	meet(ranks);
	for (int with_seq = 0; with_seq < 2; with_seq++) {
		ck_assert_int_eq(rank_join(&other, "train", "nodea", 1, 3, with_seq), EEXIST);
		ck_assert_ptr_nonnull(strstr(group_refusal, "has joined before"));
		ck_assert_int_eq(rank_join(&other, "train", "nodea", 1, 2, with_seq), EINVAL);
	}
	ck_assert_uint_eq(count_members(1), 2);
	ck_assert_uint_eq(count_members(0), 3);
}
END_TEST

START_TEST(users_do_not_meet_across_hosts)
{
	struct rank mine = rank_joined(0, "train", "", 0, 2), other = rank_on(1, USER + 1);

	ck_assert_int_eq(rank_join(&other, "train", "nodea", 1, 3, true), 0);
	rank_give_text(&mine, 0, "secret");
	expect_silence(&other);
	ck_assert_uint_eq(count_groups(0), 2);
}
END_TEST

START_TEST(a_host_may_name_itself)
{
	struct rank ranks[2] = { rank_joined(0, "train", "nodea", 0, 2),
		rank_joined(0, "train", "", 1, 2) };

	rank_give_text(&ranks[0], 0, "me");
	expect_text(&ranks[1], 0, 0, "me");
	ck_assert_uint_eq(count_groups(0), 1);
	ck_assert_uint_eq(count_members(0), 2);
}
END_TEST

/* Nobody can tell that the name leads to this host until an answer comes from here. */
START_TEST(a_host_may_have_another_name)
{
	struct config *config = config_new();
	struct rank ranks[2];
	int host;

	free(config->host);
	config->host = strdup("inside");
	config->listen_address = strdup("0.0.0.0");
	host = world_add_host(group_world, "outside", config);
	ranks[0] = rank_joined(host, "train", "outside", 0, 2);
	ranks[1] = rank_joined(host, "train", "", 1, 2);
	rank_give_text(&ranks[0], 0, "me");
	expect_text(&ranks[1], 0, 0, "me");
	ck_assert_uint_eq(count_members(host), 2);
	world_destroy(group_world);
	config_free(config);
	groups_setup();
}
END_TEST

TEST_MAIN(core_groups_hosts)
{
	return run_suite(all_tests(setup_two, groups_teardown));
}
