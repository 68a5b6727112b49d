/* SPDX-License-Identifier: BSD-3-Clause */
/* Mail from one rank to another one, and the reason why it gives up. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/core/fixtures/groups_fixture.h"
#include "tests/fixtures/program.h"

enum {
	QUEUED_MAX = 512 << 10, /* of a session that gets mail */
	FLOOD = 1000,           /* of the longest mail: four times as much */
};

static void setup_three(void)
{
	groups_setup();
	world_add_host(group_world, "nodeb", NULL);
	world_add_host(group_world, "nodec", NULL);
}

/* `as`: the member that it claims to be. */
static void send_mail(struct process *process, struct rank *as, uint32_t to, const char *text)
{
	Ctl__GroupMail mail = CTL__GROUP_MAIL__INIT;

	set_member(&mail.member, as);
	mail.rank = to;
	mail.mail = (ProtobufCBinaryData){ strlen(text), (uint8_t *)(uintptr_t)text };
	process_say(process, CTL__ENVELOPE__BODY_GROUP_MAIL, &mail);
}

static void post(struct rank *from, uint32_t to, const char *text)
{
	send_mail(from->process, from, to, text);
	world_settle(group_world);
}

static void expect_mail(struct rank *rank, uint32_t from, const char *text)
{
	Ctl__Envelope *envelope = process_take(rank->process, CTL__ENVELOPE__BODY_GROUP_MAIL);
	const Ctl__GroupMail *mail;

	ck_assert_msg(envelope != NULL, "rank %u: no mail of %u", rank->number, from);
	mail = envelope->group_mail;
	ck_assert_mem_eq(mail->member.data, rank->id, UUID_SIZE);
	ck_assert_uint_eq(mail->rank, from);
	ck_assert_uint_eq(mail->mail.len, strlen(text));
	if (*text)
		ck_assert_mem_eq(mail->mail.data, text, strlen(text));
	ctl__envelope__free_unpacked(envelope, NULL);
}

/* Returns how many there were. */
static unsigned take_all_mail(struct rank *rank)
{
	Ctl__Envelope *envelope;
	unsigned count = 0;

	while ((envelope = process_take(rank->process, CTL__ENVELOPE__BODY_GROUP_MAIL))) {
		ctl__envelope__free_unpacked(envelope, NULL);
		count++;
	}
	rank->process->unread = 0;
	return count;
}

START_TEST(mail_goes_to_one_rank)
{
	struct rank ranks[3];

	for (uint32_t i = 0; i < 3; i++)
		ranks[i] = rank_joined(0, "train", "", i, 3);
	post(&ranks[0], 2, "first");
	post(&ranks[0], 2, "");
	post(&ranks[1], 2, "from one");
	post(&ranks[2], 0, "answer");
	expect_mail(&ranks[2], 0, "first");
	expect_mail(&ranks[2], 0, "");
	expect_mail(&ranks[2], 1, "from one");
	expect_mail(&ranks[0], 2, "answer");
	/* To itself, and to a rank that cannot exist. */
	post(&ranks[1], 1, "me");
	post(&ranks[1], 3, "nobody");
	post(&ranks[1], UINT32_MAX, "nobody");
	for (int i = 0; i < 3; i++)
		expect_silence(&ranks[i]);
}
END_TEST

/* Ranks 0 and 1 on the host that keeps the group, 2 and 3 on another one, 4 on a third. */
START_TEST(mail_between_hosts)
{
	static const int hosts[] = { 0, 0, 1, 1, 2 };
	struct rank ranks[5];

	for (uint32_t i = 0; i < 5; i++)
		ranks[i] = rank_joined(hosts[i], "train", hosts[i] ? "nodea" : "", i, 5);
	for (uint32_t from = 0; from < 5; from++) {
		for (uint32_t to = 0; to < 5; to++) {
			if (from == to)
				continue;
			post(&ranks[from], to, "one");
			post(&ranks[from], to, "two");
			expect_mail(&ranks[to], from, "one");
			expect_mail(&ranks[to], from, "two");
			for (int i = 0; i < 5; i++)
				expect_silence(&ranks[i]);
		}
	}
}
END_TEST

START_LOOP_TEST(strangers_have_no_mail, 2)
{
	struct rank ranks[2], other = rank_on(_i, USER + 1), twin;
	struct process *rogue;
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope *answer;

	ranks[0] = rank_joined(0, "train", "", 0, 2);
	ranks[1] = rank_joined(1, "train", "nodea", 1, 2);
	ck_assert_int_eq(rank_join(&other, "train", _i ? "nodea" : "", 1, 2, true), 0);
	/* A rank of a job of that name, but of another user, that knows others' members. */
	post(&other, 0, "who are you?");
	send_mail(other.process, &ranks[0], 1, "forged");
	send_mail(other.process, &ranks[1], 0, "forged");
	/* No rank at all. */
	twin = other;
	memset(twin.id, 0x77, UUID_SIZE);
	post(&twin, 0, "from nowhere");
	/* A daemon that has no part in the job. */
	rogue = world_rogue(group_world, 0);
	hello.role = CTL__ROLE__ROLE_DAEMON;
	hello.name = (char *)(uintptr_t) "evil";
	hello.instance = 99;
	process_say(rogue, CTL__ENVELOPE__BODY_HELLO, &hello);
	world_settle(group_world);
	while ((answer = process_take_any(rogue)))
		ctl__envelope__free_unpacked(answer, NULL);
	send_mail(rogue, &ranks[0], 1, "forged");
	send_mail(rogue, &ranks[1], 0, "forged");
	world_settle(group_world);
	for (int i = 0; i < 2; i++)
		expect_silence(&ranks[i]);
	expect_silence(&other);
}
END_TEST

START_TEST(mail_to_who_is_not_there)
{
	struct rank ranks[5];

	for (uint32_t i = 0; i < 4; i++)
		ranks[i] = rank_joined((int)(i % 2), "train", i % 2 ? "nodea" : "", i, 5);
	post(&ranks[0], 4, "too early");
	post(&ranks[1], 4, "too early");
	ranks[4] = rank_joined(1, "train", "nodea", 4, 5);
	expect_silence(&ranks[4]);
	rank_leave(&ranks[2], false);
	rank_die(&ranks[3]);
	for (int i = 0; i < 2; i++) {
		expect_event(&ranks[i], LEFT, 2, "");
		expect_event(&ranks[i], DEAD, 3, "");
		post(&ranks[i], 2, "too late");
		post(&ranks[i], 3, "too late");
		expect_silence(&ranks[i]);
	}
	expect_silence(&ranks[2]);
	/* A rank that has left sends nothing any more. */
	post(&ranks[2], 0, "from the grave");
	expect_silence(&ranks[0]);
	/* Nor does any rank once the host that keeps the group is gone. */
	world_kill_daemon(group_world, 0);
	world_run(group_world, 10 * WORLD_S);
	expect_event(&ranks[1], AWAY, 0, "nodea");
	post(&ranks[1], 0, "hello?");
	expect_silence(&ranks[1]);
}
END_TEST

START_LOOP_TEST(mail_is_not_long, 2)
{
	uint8_t member[UUID_SIZE] = { 1 }, data[MAIL_BYTES + 1] = { 2 };
	Ctl__GroupMail mail = CTL__GROUP_MAIL__INIT;
	Ctl__Envelope envelope, *read;
	const char *why = "";
	uint8_t *frame;
	size_t size;

	envelope = envelope_of(CTL__ENVELOPE__BODY_GROUP_MAIL, &mail);
	mail.member = (ProtobufCBinaryData){ UUID_SIZE, member };
	mail.mail = (ProtobufCBinaryData){ MAIL_BYTES + (size_t)_i, data };
	size = frame_size(&envelope);
	frame = malloc(size);
	ck_assert_ptr_nonnull(frame);
	frame_pack(&envelope, frame);
	read = frame_unpack(frame, size, &why);
	free(frame);
	ck_assert_msg(!read == !!_i, "%s", why);
	if (read)
		ctl__envelope__free_unpacked(read, NULL);
	else
		ck_assert_ptr_nonnull(strstr(why, "mail"));
}
END_TEST

static char long_text[MAIL_BYTES + 1];

static void flood(struct rank *from, uint32_t to)
{
	memset(long_text, 'x', MAIL_BYTES);
	for (int i = 0; i < FLOOD; i++)
		post(from, to, long_text);
}

/* Its process does not read: neither the daemon nor its session is harmed. */
START_LOOP_TEST(flood_of_who_does_not_read, 2)
{
	struct rank ranks[3];
	size_t unread;

	for (uint32_t i = 0; i < 2; i++)
		ranks[i] = rank_joined(0, "train", "", i, 3);
	ranks[2] = rank_joined(_i, "train", _i ? "nodea" : "", 2, 3);
	ranks[2].process->hangs = true;
	flood(&ranks[0], 2);
	unread = ranks[2].process->unread;
	ck_assert_uint_gt(unread, QUEUED_MAX);
	ck_assert_uint_lt(unread, QUEUED_MAX + MAIL_BYTES + 100);
	ck_assert_uint_gt(world_core(group_world, _i)->counters.mail_dropped, FLOOD / 2);
	/* Others get theirs, and it gets everything else. */
	post(&ranks[0], 1, "hello");
	expect_mail(&ranks[1], 0, "hello");
	rank_give_text(&ranks[0], 0, "zero");
	expect_text(&ranks[2], 0, 0, "zero");
	ck_assert_uint_gt(take_all_mail(&ranks[2]), QUEUED_MAX / MAIL_BYTES - 10);
	post(&ranks[1], 2, "are you back?");
	expect_mail(&ranks[2], 1, "are you back?");
	expect_silence(&ranks[2]);
}
END_TEST

/* The link between the hosts is slow: a daemon queues mail for the other one, but little. */
START_LOOP_TEST(flood_over_a_slow_link, 2)
{
	struct rank ranks[2];
	uint64_t dropped = 0;
	unsigned arrived;

	ranks[0] = rank_joined(0, "train", "", 0, 2);
	ranks[1] = rank_joined(1, "train", "nodea", 1, 2);
	world_stall(group_world, 0, 1, true);
	flood(&ranks[_i], !_i);
	world_stall(group_world, 0, 1, false);
	world_settle(group_world);
	arrived = take_all_mail(&ranks[!_i]);
	ck_assert_uint_gt(arrived, QUEUED_MAX / MAIL_BYTES - 10);
	ck_assert_uint_le(arrived, QUEUED_MAX / MAIL_BYTES + 1);
	for (int i = 0; i < 2; i++)
		dropped += world_core(group_world, i)->counters.mail_dropped;
	ck_assert_uint_eq(arrived + dropped, FLOOD);
	post(&ranks[_i], !_i, "after the flood");
	expect_mail(&ranks[!_i], (uint32_t)_i, "after the flood");
}
END_TEST

/* ---- giving up */

static void give_up(struct rank *rank, const char *why)
{
	Ctl__GroupLeave message = CTL__GROUP_LEAVE__INIT;

	set_member(&message.member, rank);
	message.aborts = true;
	message.why = (char *)(uintptr_t)why;
	process_say(rank->process, CTL__ENVELOPE__BODY_GROUP_LEAVE, &message);
	world_settle(group_world);
}

/* The next event reports that the rank has given up, and nothing after `why`. */
static void expect_reason(struct rank *rank, uint32_t about, const char *why)
{
	Ctl__Envelope *envelope = process_take(rank->process, CTL__ENVELOPE__BODY_GROUP_EVENT);
	const char *text;

	ck_assert_ptr_nonnull(envelope);
	ck_assert_int_eq(envelope->group_event->kind, ABORTED);
	ck_assert_uint_eq(envelope->group_event->rank, about);
	text = envelope->group_event->text;
	ck_assert_msg(
		strlen(text) > strlen(why) && strcmp(text + strlen(text) - strlen(why), why) == 0,
		"'%s' does not end in '%s'", text, why);
	ctl__envelope__free_unpacked(envelope, NULL);
}

START_TEST(others_hear_why)
{
	struct rank ranks[4];

	ranks[0] = rank_joined(0, "train", "", 0, 4);
	ranks[1] = rank_joined(1, "train", "nodea", 1, 4);
	ranks[2] = rank_joined(0, "train", "", 2, 4);
	give_up(&ranks[1], "the loss is NaN");
	expect_reason(&ranks[0], 1, "(test) on nodeb gave up: the loss is NaN");
	expect_reason(&ranks[2], 1, "(test) on nodeb gave up: the loss is NaN");
	give_up(&ranks[1], "once more");
	expect_silence(&ranks[0]);
	/* Its death changes nothing of that. */
	rank_die(&ranks[1]);
	ranks[3] = rank_joined(1, "train", "nodea", 3, 4);
	expect_reason(&ranks[3], 1, "(test) on nodeb gave up: the loss is NaN");
	expect_silence(&ranks[3]);
	give_up(&ranks[2], "");
	expect_reason(&ranks[3], 2, "(test) on nodea gave up");
}
END_TEST

/* A text of maximum length arrives in part, without half a character at its end. */
START_LOOP_TEST(long_reasons_are_cut, 2)
{
	struct rank ranks[2];
	char why[1025] = "";

	for (size_t i = 0; i + 2 < sizeof(why); i += 2)
		memcpy(why + i, "\xc3\xb6", 3);
	ranks[0] = rank_joined(0, "train", "", 0, 2);
	ranks[1] = rank_joined(1, "train", "nodea", 1, 2);
	give_up(&ranks[_i], why);
	why[400] = '\0';
	expect_event(&ranks[!_i], ABORTED, (uint32_t)_i, why);
}
END_TEST

TEST_MAIN(core_groups_mail)
{
	return run_suite(all_tests(setup_three, groups_teardown));
}
