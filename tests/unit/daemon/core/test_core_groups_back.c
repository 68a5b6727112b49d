/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups whose daemon is killed and started again: who may return to them, and what is given once
 * more. test_core_groups_survive.c has the actions of ranks.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/groups_fixture.h"
#include "tests/fixtures/program.h"

enum { GROUP = 77 };

static struct rank ranks[3];

/* Three ranks that have met, and a daemon that has no state of them. */
static void setup(void)
{
	groups_setup();
	for (uint32_t i = 0; i < 3; i++)
		ranks[i] = rank_joined(0, "train", "", i, 3);
	for (int i = 0; i < 3; i++) {
		expect_silence(&ranks[i]);
		ck_assert_uint_eq(ranks[i].met, 1);
		ranks[i].met = 0;
	}
	world_kill_daemon(group_world, 0);
	world_settle(group_world);
	world_start_daemon(group_world, 0, true);
	for (int i = 0; i < 3; i++)
		process_come_back(ranks[i].process);
}

static int come(int rank, uint8_t left)
{
	return rank_return(&ranks[rank], 3, 4, left, GROUP);
}

START_TEST(all_come_back)
{
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(come(i, 0), 0);
		expect_silence(&ranks[0]);
		ck_assert_uint_eq(ranks[0].met, (i == 2));
	}
	world_run(group_world, 60 * WORLD_S);
	for (int i = 0; i < 3; i++) {
		expect_silence(&ranks[i]);
		ck_assert_uint_eq(ranks[i].met, 1);
	}
	rank_give_text(&ranks[0], 4, "next");
	expect_text(&ranks[1], 0, 4, "next");
	expect_text(&ranks[2], 0, 4, "next");
	rank_die(&ranks[2]);
	expect_event(&ranks[0], DEAD, 2, "ended without leaving the job");
	rank_leave(&ranks[0], false);
	rank_leave(&ranks[1], false);
	ck_assert_uint_eq(count_groups(0) + count_members(0), 0);
}
END_TEST

/* One has given up while its daemon was away. The next one gets the reason, and reports it to the
 * others. */
START_TEST(one_gave_up_meanwhile)
{
	ranks[1].gave_up = "the disk is full";
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(come(i, 0), 0);
	rank_die(&ranks[1]);
	expect_event(&ranks[0], ABORTED, 1, "gave up: the disk is full");
	expect_event(&ranks[2], ABORTED, 1, "gave up: the disk is full");
	expect_silence(&ranks[0]);
	expect_silence(&ranks[2]);
	rank_leave(&ranks[0], false);
	rank_leave(&ranks[2], false);
	ck_assert_uint_eq(count_groups(0) + count_members(0), 0);
}
END_TEST

static void expect_question(struct rank *rank, uint32_t round, uint32_t rounds)
{
	Ctl__Envelope *envelope;
	const Ctl__GroupEvent *event;

	do {
		envelope = process_take(rank->process, CTL__ENVELOPE__BODY_GROUP_EVENT);
		ck_assert_msg(envelope != NULL, "rank %u is not asked", rank->number);
		event = envelope->group_event;
		if (event->kind == AGAIN) {
			ck_assert_uint_eq(event->round, round);
			ck_assert_uint_eq(event->rounds, rounds);
			rounds = 0;
		}
		ctl__envelope__free_unpacked(envelope, NULL);
	} while (rounds > 0);
}

static void give_nothing(struct rank *rank, uint32_t round)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;

	set_member(&piece.member, rank);
	piece.round = round;
	piece.gone = true;
	process_say(rank->process, CTL__ENVELOPE__BODY_GROUP_PIECE, &piece);
	world_settle(group_world);
}

/* Rank 1 has completed a round more than the others, and rank 2 has not begun the next one. */
static void come_apart(void)
{
	ranks[0].gives = ranks[1].gives = true;
	ck_assert_int_eq(rank_return(&ranks[0], 3, 4, 0, GROUP), 0);
	ck_assert_int_eq(rank_return(&ranks[1], 3, 5, 0, GROUP), 0);
	ck_assert_int_eq(rank_return(&ranks[2], 3, 5, 0, GROUP), 0);
}

START_TEST(what_is_lacking_is_given_again)
{
	come_apart();
	expect_question(&ranks[0], 4, 1);
	/* Pieces are sent one after the other while their lengths are unknown. */
	expect_silence(&ranks[1]);
	expect_silence(&ranks[2]);
	rank_give_text(&ranks[0], 4, "zero");
	expect_text(&ranks[1], 0, 4, "zero");
	expect_text(&ranks[2], 0, 4, "zero");
	expect_question(&ranks[1], 4, 2);
	expect_question(&ranks[2], 4, 1);
	rank_give_text(&ranks[1], 4, "one");
	rank_give_text(&ranks[1], 5, "one'");
	give_nothing(&ranks[2], 4);
	expect_text(&ranks[0], 1, 4, "one");
	expect_text(&ranks[0], 1, 5, "one'");
	expect_text(&ranks[2], 1, 4, "one");
	expect_text(&ranks[2], 1, 5, "one'");
	for (int i = 0; i < 3; i++)
		expect_silence(&ranks[i]);
	/* They continue. */
	rank_give_text(&ranks[2], 5, "two");
	expect_text(&ranks[0], 2, 5, "two");
	expect_text(&ranks[1], 2, 5, "two");
}
END_TEST

START_TEST(long_pieces_come_one_after_the_other)
{
	uint8_t *large = calloc(1, MIB);

	come_apart();
	expect_question(&ranks[0], 4, 1);
	rank_give(&ranks[0], 4, large, MIB);
	expect_question(&ranks[1], 4, 2);
	rank_give(&ranks[1], 4, large, MIB);
	expect_piece(&ranks[2], 0, 4, large, MIB);
	expect_piece(&ranks[2], 1, 4, large, MIB);
	expect_silence(&ranks[2]);
	/* A rank that has ended is not waited for. */
	rank_die(&ranks[1]);
	expect_event(&ranks[2], DEAD, 1, "ended without leaving the job");
	free(large);
	ck_assert_uint_eq(world_core(group_world, 0)->groups->resends_pending, 1);
}
END_TEST

START_LOOP_TEST(nobody_gives_more_than_is_asked_for, 3)
{
	come_apart();
	if (_i == 0) {
		rank_give_text(&ranks[1], 4, "nobody wants that");
		expect_event(&ranks[1], LOST, 1, "out of turn");
		return;
	}
	rank_give_text(&ranks[0], 4, "once");
	if (_i == 1)
		rank_give_text(&ranks[0], 4, "twice");
	else
		give_nothing(&ranks[0], 5);
	expect_question(&ranks[0], 4, 1);
	expect_event(&ranks[0], LOST, 0, "out of turn");
}
END_TEST

START_TEST(who_does_not_come_back_is_dead)
{
	ck_assert_int_eq(come(0, 0), 0);
	ck_assert_int_eq(come(1, 0), 0);
	world_run(group_world, WORLD_S);
	expect_silence(&ranks[0]);
	world_run(group_world, 60 * WORLD_S);
	expect_event(&ranks[0], DEAD, 2, "did not come back");
	expect_event(&ranks[1], DEAD, 2, "did not come back");
	/* It is too late. */
	ck_assert_int_eq(come(2, 0), EEXIST);
}
END_TEST

START_TEST(who_had_left_is_not_dead)
{
	ck_assert_int_eq(come(0, 1 << 2), 0);
	expect_event(&ranks[0], LEFT, 2, "");
	ck_assert_int_eq(come(1, 0), 0);
	expect_event(&ranks[1], LEFT, 2, "");
	world_run(group_world, 60 * WORLD_S);
	expect_silence(&ranks[0]);
	expect_silence(&ranks[1]);
}
END_TEST

START_TEST(who_comes_and_leaves_at_once_is_not_dead)
{
	ck_assert_int_eq(come(0, 0), 0);
	rank_leave(&ranks[0], false);
	ck_assert_int_eq(come(1, 0), 0);
	ck_assert_int_eq(come(2, 0), 0);
	expect_event(&ranks[1], LEFT, 0, "");
	world_run(group_world, 60 * WORLD_S);
	expect_silence(&ranks[1]);
}
END_TEST

START_TEST(strangers_do_not_come_back)
{
	struct rank same = rank_on(0, USER), other = rank_on(0, USER + 1);

	ck_assert_int_eq(come(0, 0), 0);
	same.number = other.number = 0;
	ck_assert_int_eq(rank_return(&same, 3, 4, 0, GROUP), EEXIST);
	same.number = 1;
	ck_assert_int_eq(rank_return(&same, 3, 4, 0, GROUP + 1), EEXIST);
	ck_assert_int_eq(rank_join(&same, "train", "", 1, 3, true), EEXIST);
	/* Another user's is another job. */
	ck_assert_int_eq(rank_return(&other, 3, 4, 7, GROUP), 0);
	expect_silence(&ranks[0]);
	ck_assert_uint_eq(count_groups(0), 2);
	world_run(group_world, 60 * WORLD_S);
	expect_event(&ranks[0], DEAD, 1, "did not come back");
}
END_TEST

START_TEST(who_has_not_come_yet_is_waited_for)
{
	struct rank late;

	ck_assert_int_eq(rank_return(&ranks[0], 3, 0, 0, GROUP), 0);
	world_run(group_world, 60 * WORLD_S);
	expect_silence(&ranks[0]);
	late = rank_on(0, USER);
	ck_assert_int_eq(rank_join(&late, "train", "", 1, 3, true), 0);
	expect_silence(&ranks[0]);
}
END_TEST

/* Nobody has given anything: only the daemon could tell which ranks were there, but it had notified
 * them all. */
START_TEST(who_dies_before_the_first_allgather_is_missed)
{
	ranks[0].has_met = true;
	ck_assert_int_eq(rank_return(&ranks[0], 3, 0, 0, GROUP), 0);
	ck_assert_int_eq(rank_return(&ranks[1], 3, 0, 0, GROUP), 0);
	world_run(group_world, 60 * WORLD_S);
	expect_event(&ranks[0], DEAD, 2, "did not come back");
	expect_event(&ranks[1], DEAD, 2, "did not come back");
}
END_TEST

/* ---- the place of a rank of another host */

/* Claims of a daemon that has come back for its members. */
static const struct {
	const char *what, *name;
	uint32_t uid;
	const char *job;
	uint32_t rank, ranks;
	uint8_t id;
	bool resumes, same_group;
	int error;
} claims[] = {
	{ "it is", "nodeb", USER, "train", 1, 3, 0, true, true, 0 },
	{ "it has had no answer", "nodeb", USER, "train", 1, 3, 0, false, false, 0 },
	{ "another host", "nodex", USER, "train", 1, 3, 0, true, true, EEXIST },
	{ "another host again", "nodex", USER, "train", 1, 3, 0, false, false, EEXIST },
	{ "another user", "nodeb", USER + 1, "train", 1, 3, 0, true, true, EEXIST },
	{ "another job", "nodeb", USER, "other", 1, 3, 0, true, true, EEXIST },
	{ "another rank", "nodeb", USER, "train", 0, 3, 0, true, true, EEXIST },
	{ "another size", "nodeb", USER, "train", 1, 4, 0, true, true, EEXIST },
	{ "another job of the name", "nodeb", USER, "train", 1, 3, 0, true, false, EEXIST },
	{ "another process", "nodeb", USER, "train", 1, 3, 9, true, true, EEXIST },
	{ "a new process", "nodeb", USER, "train", 1, 3, 9, false, false, EEXIST },
};

static struct process *rogue_named(const char *name)
{
	struct process *rogue = world_rogue(group_world, 0);
	Ctl__Hello hello = CTL__HELLO__INIT;

	hello.role = CTL__ROLE__ROLE_DAEMON;
	hello.name = (char *)(uintptr_t)name;
	hello.instance = 4711;
	process_say(rogue, CTL__ENVELOPE__BODY_HELLO, &hello);
	world_settle(group_world);
	return rogue;
}

static void claim(struct process *rogue, int row, const struct rank *rank, uint64_t group)
{
	Ctl__GroupJoin join = CTL__GROUP_JOIN__INIT;
	Ctl__Who who = CTL__WHO__INIT;
	struct rank claimed = *rank;

	if (claims[row].id)
		claimed.id[0] = claims[row].id;
	set_member(&join.member, &claimed);
	join.job = (char *)(uintptr_t)claims[row].job;
	join.rank = claims[row].rank;
	join.ranks = claims[row].ranks;
	join.resumes = claims[row].resumes;
	join.group = group + !claims[row].same_group;
	who.uid = claims[row].uid;
	who.program = (char *)(uintptr_t) "test";
	join.who = &who;
	process_say(rogue, CTL__ENVELOPE__BODY_GROUP_JOIN, &join);
	world_settle(group_world);
}

/* Also while the daemon does not know yet that it is away. */
static void claim_place(int row, bool is_away)
{
	struct rank mine[3];
	struct process *rogue;
	Ctl__Envelope *answer;
	uint64_t group;

	groups_teardown();
	groups_setup();
	world_add_host(group_world, "nodeb", NULL);
	mine[0] = rank_joined(0, "train", "", 0, 3);
	mine[1] = rank_joined(1, "train", "nodea", 1, 3);
	group = world_core(group_world, 0)->groups->id;
	if (is_away)
		world_kill_daemon(group_world, 1);
	world_settle(group_world);
	rogue = rogue_named(claims[row].name);
	claim(rogue, row, &mine[1], group);
	answer = process_take(rogue,
		claims[row].error ? CTL__ENVELOPE__BODY_GROUP_EVENT
				  : CTL__ENVELOPE__BODY_GROUP_JOINED);
	ck_assert_msg(answer != NULL, "%s", claims[row].what);
	if (claims[row].error)
		ck_assert_msg((int)answer->group_event->refusal == claims[row].error, "%s: %s",
			claims[row].what, answer->group_event->text);
	else
		ck_assert_uint_eq(answer->group_joined->group, group);
	ctl__envelope__free_unpacked(answer, NULL);
	rank_give_text(&mine[0], 0, "secret");
	answer = process_take(rogue, CTL__ENVELOPE__BODY_GROUP_PIECE);
	ck_assert_int_eq(answer == NULL, claims[row].error != 0);
	if (answer)
		ctl__envelope__free_unpacked(answer, NULL);
}

START_LOOP_TEST(a_place_is_kept_for_its_rank, 2 * ROWS(claims))
{
	claim_place(_i / 2, _i % 2);
}
END_TEST

TEST_MAIN(core_groups_back)
{
	return run_suite(all_tests(setup, groups_teardown));
}
