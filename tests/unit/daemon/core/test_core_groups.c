/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups on one host: pieces, late ranks, ends of ranks, refusals, limits. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/groups_fixture.h"
#include "tests/fixtures/program.h"

START_TEST(pieces_go_to_all_others)
{
	struct rank ranks[3];
	uint8_t *large = malloc(MIB);

	for (uint32_t i = 0; i < 3; i++)
		ranks[i] = rank_joined(0, "train", "", i, 3);
	for (uint32_t round = 0; round < 4; round++) {
		rank_give_text(&ranks[0], round, "zero");
		rank_give(&ranks[1], round, NULL, 0);
		memset(large, (int)round, MIB);
		rank_give(&ranks[2], round, large, MIB);
		for (int i = 0; i < 3; i++) {
			if (i != 0)
				expect_text(&ranks[i], 0, round, "zero");
			if (i != 1)
				expect_piece(&ranks[i], 1, round, NULL, 0);
			if (i != 2)
				expect_piece(&ranks[i], 2, round, large, MIB);
			expect_silence(&ranks[i]);
		}
	}
	free(large);
}
END_TEST

START_TEST(one_process_may_be_several_ranks)
{
	struct rank first = rank_joined(0, "train", "", 0, 2), second = first;

	memset(second.id, 77, sizeof(second.id));
	ck_assert_int_eq(rank_join(&second, "train", "", 1, 2, true), 0);
	rank_give_text(&first, 0, "one");
	expect_text(&second, 0, 0, "one");
	rank_die(&first);
	ck_assert_uint_eq(count_groups(0), 0);
	ck_assert_uint_eq(count_members(0), 0);
}
END_TEST

START_TEST(late_ranks_get_all_they_missed)
{
	struct rank ranks[4];
	const struct core *core = world_core(group_world, 0);

	for (uint32_t i = 0; i < 3; i++)
		ranks[i] = rank_joined(0, "train", "", i, 4);
	rank_give_text(&ranks[0], 0, "zero");
	rank_give_text(&ranks[1], 0, "one");
	ck_assert_uint_eq(core->groups->kept, 7);
	rank_leave(&ranks[1], true);
	rank_die(&ranks[2]);
	ranks[3] = rank_joined(0, "train", "", 3, 4);
	expect_text(&ranks[3], 0, 0, "zero");
	expect_text(&ranks[3], 1, 0, "one");
	expect_event(&ranks[3], ABORTED, 1, "(test) on nodea");
	expect_event(&ranks[3], DEAD, 2, "ended without leaving the job");
	expect_silence(&ranks[3]);
	/* All have met: nothing is kept for any rank. */
	ck_assert_uint_eq(core->groups->kept, 0);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_ptr_null(core->groups->members[i]->piece);
	rank_give_text(&ranks[3], 0, "three");
	rank_give_text(&ranks[0], 1, "more");
	ck_assert_uint_eq(core->groups->kept, 0);
	expect_text(&ranks[3], 0, 1, "more");
}
END_TEST

START_TEST(ends_are_told_to_the_others)
{
	struct rank ranks[4];

	for (uint32_t i = 0; i < 4; i++)
		ranks[i] = rank_joined(0, "train", "", i, 4);
	rank_leave(&ranks[1], false);
	expect_event(&ranks[0], LEFT, 1, "");
	rank_leave(&ranks[2], true);
	expect_event(&ranks[0], ABORTED, 2, "(test) on nodea");
	expect_silence(&ranks[1]);
	rank_leave(&ranks[2], true);
	expect_silence(&ranks[0]);
	/* Its death is not reported. */
	rank_die(&ranks[2]);
	expect_silence(&ranks[0]);
	rank_die(&ranks[3]);
	expect_event(&ranks[0], DEAD, 3, "ended without leaving the job");
	expect_silence(&ranks[0]);
	/* A rank that has left may say so again; nobody gets that. */
	rank_leave(&ranks[1], false);
	expect_silence(&ranks[0]);
}
END_TEST

START_TEST(a_name_is_free_when_all_are_gone)
{
	struct rank ranks[3], again;

	for (uint32_t i = 0; i < 2; i++)
		ranks[i] = rank_joined(0, "train", "", i, 3);
	rank_die(&ranks[0]);
	again = rank_on(0, USER);
	ck_assert_int_eq(rank_join(&again, "train", "", 0, 3, true), EEXIST);
	rank_leave(&ranks[1], false);
	ck_assert_uint_eq(count_groups(0), 0);
	ck_assert_int_eq(rank_join(&again, "train", "", 1, 2, true), 0);
	expect_silence(&again);
	ck_assert_uint_eq(count_groups(0), 1);
	rank_die(&again);
	ck_assert_uint_eq(count_groups(0), 0);
	ck_assert_uint_eq(count_members(0), 0);
}
END_TEST

START_TEST(users_do_not_meet)
{
	struct rank mine = rank_joined(0, "train", "", 0, 2), other = rank_on(0, USER + 1);

	ck_assert_int_eq(rank_join(&other, "train", "", 0, 3, true), 0);
	rank_give_text(&mine, 0, "secret");
	expect_silence(&other);
	ck_assert_uint_eq(count_groups(0), 2);
	/* Knowing another one's member does not help either. */
	memcpy(other.id, mine.id, UUID_SIZE);
	rank_leave(&other, false);
	rank_give_text(&other, 1, "forged");
	ck_assert_uint_eq(count_groups(0), 2);
	expect_silence(&mine);
}
END_TEST

static const struct {
	const char *job;
	uint32_t rank, ranks;
	int error;
	const char *text;
} refusals[] = {
	{ "", 0, 2, EINVAL, "1 to 64" },
	{ "a b", 0, 2, EINVAL, "letters" },
	{ "a@b", 0, 2, EINVAL, "letters" },
	{ "train", 0, 0, EINVAL, "not 0" },
	{ "train", 0, 32769, EINVAL, "32768" },
	{ "train", 3, 3, EINVAL, "0 to 2" },
	{ "train", 2, 4, EINVAL, "3 ranks, not 4" },
	{ "train", 1, 3, EEXIST, "rank 1 of job 'train' has joined before" },
};

START_LOOP_TEST(refusals_say_why, ROWS(refusals))
{
	struct rank first = rank_joined(0, "train", "", 1, 3), other = rank_on(0, USER);

	for (int with_seq = 0; with_seq < 2; with_seq++) {
		ck_assert_int_eq(rank_join(&other, refusals[_i].job, "", refusals[_i].rank,
					 refusals[_i].ranks, with_seq),
			refusals[_i].error);
		ck_assert_msg(
			strstr(group_refusal, refusals[_i].text) != NULL, "%s", group_refusal);
	}
	expect_silence(&first);
	/* Nothing of it stays. */
	ck_assert_uint_eq(count_groups(0), 1);
	ck_assert_uint_eq(count_members(0), 1);
}
END_TEST

START_TEST(a_member_is_one_rank)
{
	struct rank rank = rank_joined(0, "train", "", 0, 3);

	ck_assert_int_eq(rank_join(&rank, "train", "", 1, 3, true), EEXIST);
	ck_assert_int_eq(rank_join(&rank, "other", "", 1, 3, true), EEXIST);
}
END_TEST

START_LOOP_TEST(pieces_out_of_turn, 2)
{
	struct rank ranks[3];

	for (uint32_t i = 0; i < 3; i++)
		ranks[i] = rank_joined(0, "train", "", i, 3);
	rank_give_text(&ranks[0], 0, "a");
	expect_text(&ranks[1], 0, 0, "a");
	expect_text(&ranks[2], 0, 0, "a");
	/* A second one while others have given none; or a wrong number. */
	rank_give_text(&ranks[0], _i == 0 ? 1 : 0, "b");
	expect_event(&ranks[0], LOST, 0, "removed this rank");
	expect_event(&ranks[1], DEAD, 0, "out of turn");
	expect_silence(&ranks[1]);
	/* The daemon lets the others continue, and so can the process. */
	rank_give_text(&ranks[1], 0, "c");
	rank_give_text(&ranks[2], 0, "d");
	rank_give_text(&ranks[1], 1, "e");
	expect_text(&ranks[2], 1, 0, "c");
	expect_text(&ranks[2], 1, 1, "e");
	expect_silence(&ranks[0]);
	ck_assert_int_eq(rank_join(&ranks[0], "other", "", 0, 1, true), 0);
}
END_TEST

START_TEST(a_round_is_not_left_out)
{
	struct rank rank = rank_joined(0, "train", "", 0, 1);

	rank_give_text(&rank, 0, "a");
	rank_give_text(&rank, 2, "c");
	expect_event(&rank, LOST, 0, "out of turn");
}
END_TEST

/* A host whose limits are changed. */
static struct config *limits;

static int limited_host(uint32_t max_groups)
{
	limits = config_new();
	limits->max_groups_per_user = max_groups;
	limits->max_sessions_per_user = 1000;
	free(limits->host);
	limits->host = strdup("limited");
	return world_add_host(group_world, "limited", limits);
}

START_TEST(kept_pieces_are_limited)
{
	int host = limited_host(100);
	uint8_t *large = calloc(1, MIB);
	struct rank rank, late;
	char job[16];

	for (int i = 0; i < 64; i++) {
		snprintf(job, sizeof(job), "job%d", i);
		rank = rank_joined(host, job, "", 0, 2);
		rank_give(&rank, 0, large, MIB);
		expect_silence(&rank);
	}
	late = rank_joined(host, "another", "", 0, 2);
	rank_give(&late, 0, "x", 1);
	expect_event(&late, LOST, 0, "have not joined");
	/* The next job has no advantage, until one of the jobs has met. */
	late = rank_joined(host, "another", "", 0, 2);
	rank = rank_joined(host, "job0", "", 1, 2);
	expect_piece(&rank, 0, 0, large, MIB);
	rank_give(&late, 0, large, MIB);
	expect_silence(&late);
	free(large);
	world_destroy(group_world);
	config_free(limits);
	groups_setup();
}
END_TEST

START_TEST(groups_are_limited)
{
	int host = limited_host(5);
	struct rank rank, other;
	char job[16];

	for (uint32_t i = 0; i < 4; i++) {
		snprintf(job, sizeof(job), "job%u", i);
		rank_joined(host, job, "", 0, GROUP_RANKS_MAX);
	}
	rank = rank_on(host, USER);
	ck_assert_int_eq(rank_join(&rank, "job4", "", 0, 1, true), EDQUOT);
	ck_assert_ptr_nonnull(strstr(group_refusal, "131072 ranks"));
	ck_assert_int_eq(rank_join(&rank, "job3", "", 1, GROUP_RANKS_MAX, true), 0);
	other = rank_on(host, USER + 1);
	ck_assert_int_eq(rank_join(&other, "job4", "", 0, 1, true), 0);
	for (uint32_t i = 0; i < 4; i++) {
		memset(other.id, 0x80 + (int)i, UUID_SIZE);
		snprintf(job, sizeof(job), "more%u", i);
		ck_assert_int_eq(rank_join(&other, job, "", 0, 1, true), 0);
	}
	memset(other.id, 0x90, UUID_SIZE);
	ck_assert_int_eq(rank_join(&other, "toomany", "", 0, 1, true), EDQUOT);
	ck_assert_ptr_nonnull(strstr(group_refusal, "max_groups_per_user"));
	world_destroy(group_world);
	config_free(limits);
	groups_setup();
}
END_TEST

START_TEST(a_host_that_drains_takes_no_new_jobs)
{
	struct rank first = rank_joined(0, "train", "", 0, 2), second = rank_on(0, USER), third;

	snprintf(world_core(group_world, 0)->draining, CORE_REASON, "new kernel");
	ck_assert_int_eq(rank_join(&second, "other", "", 0, 1, true), EBUSY);
	ck_assert_ptr_nonnull(strstr(group_refusal, "new kernel"));
	ck_assert_int_eq(rank_join(&second, "train", "", 1, 2, true), 0);
	world_add_host(group_world, "nodeb", NULL);
	third = rank_on(0, USER);
	ck_assert_int_eq(rank_join(&third, "train", "nodeb", 0, 2, true), EBUSY);
	expect_silence(&first);
}
END_TEST

TEST_MAIN(core_groups)
{
	return run_suite(all_tests(groups_setup, groups_teardown));
}
