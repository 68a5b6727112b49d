/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank whose daemon, or the one that keeps the job, goes away: its messages when it is back, when
 * it continues, and the data that it sends again. The daemon is the test.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/connect.h>

#include "tests/fakes/fake_daemon.h"
#include "tests/fixtures/program.h"

enum { RANKS = 2, LARGE = 1024 * 1024, GROUP = 77 };

static struct fake_daemon fake;
static struct frl_bootstrap rank;
static uint8_t id[UUID_SIZE];

/* One call of the library at a time, in a thread: the test is the daemon meanwhile. */
static struct call {
	pthread_t thread;
	int number, rc;
	size_t size;
	uint8_t *mine, *all;
	char text[512];
} call;

static void *do_join(void *arg)
{
	(void)arg;
	call.rc = frl_bootstrap_join("train", call.number, RANKS, HANG_MS, &rank);
	snprintf(call.text, sizeof(call.text), "%s", frl_last_error());
	return NULL;
}

static void *do_gather(void *arg)
{
	(void)arg;
	call.rc = rank.allgather(rank.ctx, call.mine, call.size, call.all);
	snprintf(call.text, sizeof(call.text), "%s", call.rc ? frl_last_error() : "");
	return NULL;
}

static void *do_close(void *arg)
{
	(void)arg;
	rank.close(rank.ctx);
	return NULL;
}

static void begin(void *(*function)(void *))
{
	ck_assert_int_eq(pthread_create(&call.thread, NULL, function, NULL), 0);
}

static void end(int rc)
{
	pthread_join(call.thread, NULL);
	ck_assert_msg(call.rc == rc, "%d instead of %d: %s", call.rc, rc, call.text);
}

/* ---- the daemon */

static Ctl__Envelope *expect_join(bool resumes)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_JOIN);
	const Ctl__GroupJoin *join = envelope->group_join;

	ck_assert_int_eq(join->resumes, resumes);
	ck_assert_str_eq(join->job, "train");
	ck_assert_uint_eq(join->lost_s, settings_get()->control_lost_s);
	if (resumes) {
		ck_assert_mem_eq(join->member.data, id, UUID_SIZE);
		ck_assert_uint_eq(join->group, GROUP);
	}
	memcpy(id, join->member.data, UUID_SIZE);
	return envelope;
}

static void expect_return(uint32_t done, bool gives, bool met)
{
	Ctl__Envelope *envelope = expect_join(true);
	const Ctl__GroupJoin *join = envelope->group_join;

	ck_assert_uint_eq(join->done, done);
	ck_assert_int_eq(join->gives, gives);
	ck_assert_int_eq(join->met, met);
	ctl__envelope__free_unpacked(envelope, NULL);
}

static void expect_piece(uint32_t round, uint8_t byte, size_t size)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_PIECE);
	const Ctl__GroupPiece *piece = envelope->group_piece;

	ck_assert_uint_eq(piece->round, round);
	ck_assert_uint_eq(piece->data.len, size);
	ck_assert_int_eq(piece->gone, size == 0);
	for (size_t i = 0; i < size; i++)
		ck_assert_uint_eq(piece->data.data[i], byte);
	ctl__envelope__free_unpacked(envelope, NULL);
}

static void say_joined(void)
{
	Ctl__GroupJoined joined = CTL__GROUP_JOINED__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_JOINED;
	envelope.group_joined = &joined;
	joined.member = (ProtobufCBinaryData){ UUID_SIZE, id };
	joined.group = GROUP;
	joined.carries_mail = true;
	fake_write(&fake, &envelope);
}

static void say(Ctl__GroupEventKind kind, uint32_t round, uint32_t rounds)
{
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_EVENT;
	envelope.group_event = &event;
	event.member = (ProtobufCBinaryData){ UUID_SIZE, id };
	event.kind = kind;
	event.text = (char *)(uintptr_t) "the daemon of nodea is out of reach";
	event.round = round;
	event.rounds = rounds;
	fake_write(&fake, &envelope);
}

static void say_met(void)
{
	say(CTL__GROUP_EVENT_KIND__GROUP_MET, 0, 0);
}

/* The other rank's. */
static void say_piece(uint32_t round, uint8_t byte, size_t size)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	uint8_t *bytes = malloc(size);
	Ctl__Envelope envelope;

	memset(bytes, byte, size);
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_PIECE;
	envelope.group_piece = &piece;
	piece.member = (ProtobufCBinaryData){ UUID_SIZE, id };
	piece.rank = (uint32_t)!call.number;
	piece.round = round;
	piece.data = (ProtobufCBinaryData){ size, bytes };
	fake_write(&fake, &envelope);
	free(bytes);
}

static void say_done(void)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_LEAVE);

	fake_done(&fake, envelope->seq);
	ctl__envelope__free_unpacked(envelope, NULL);
}

/* ---- what tests have in common */

static void join_as(int number)
{
	call = (struct call){ .number = number };
	fake_listen(&fake);
	begin(do_join);
	fake_greet(&fake);
	ctl__envelope__free_unpacked(expect_join(false), NULL);
	say_joined();
	end(0);
}

static void leave(void)
{
	begin(do_close);
	say_done();
	pthread_join(call.thread, NULL);
	fake_close(&fake);
	free(call.mine);
	free(call.all);
}

/* Round `round` has begun, with bytes 0x10 and on. */
static void gather(uint32_t round, size_t size)
{
	free(call.mine);
	free(call.all);
	call.mine = malloc(size);
	call.all = malloc(RANKS * size);
	call.size = size;
	memset(call.mine, (int)(0x10 + round), size);
	begin(do_gather);
}

static void expect_gathered(uint32_t round)
{
	end(0);
	for (int i = 0; i < RANKS; i++)
		for (size_t k = 0; k < call.size; k++)
			ck_assert_uint_eq(call.all[(size_t)i * call.size + k],
				(uint8_t)((i == call.number ? 0x10 : 0x20) + round));
}

static void whole_round(uint32_t round)
{
	gather(round, 3);
	expect_piece(round, (uint8_t)(0x10 + round), 3);
	say_piece(round, (uint8_t)(0x20 + round), 3);
	expect_gathered(round);
}

/* _i: the daemon of this host dies, or reports that the other one has. */
static void break_off(int how)
{
	if (how == 0) {
		fake_hang_up(&fake);
		fake_greet(&fake);
	} else {
		say(CTL__GROUP_EVENT_KIND__GROUP_AWAY, 0, 0);
	}
}

/* ---- tests */

START_LOOP_TEST(in_the_middle_of_an_allgather, 2)
{
	join_as(1);
	gather(0, 3);
	expect_piece(0, 0x10, 3);
	break_off(_i);
	expect_return(0, true, false);
	say_joined();
	say_met();
	fake_expect_silence(&fake);
	say(CTL__GROUP_EVENT_KIND__GROUP_AGAIN, 0, 1);
	expect_piece(0, 0x10, 3);
	/* A repeated message counts once. */
	say_piece(0, 0x20, 3);
	say_piece(0, 0x66, 3);
	expect_gathered(0);
	say_piece(0, 0x66, 3);
	/* Others may lack it still, and this rank may have begun the next round before they say
	 * so. */
	say(CTL__GROUP_EVENT_KIND__GROUP_AGAIN, 0, 1);
	expect_piece(0, 0x10, 3);
	gather(1, 3);
	expect_piece(1, 0x11, 3);
	break_off(_i);
	expect_return(1, true, true);
	say_joined();
	say_met();
	say(CTL__GROUP_EVENT_KIND__GROUP_AGAIN, 0, 2);
	expect_piece(0, 0x10, 3);
	expect_piece(1, 0x11, 3);
	say_piece(1, 0x21, 3);
	expect_gathered(1);
	/* A rank that has given this piece has received the one before. */
	say(CTL__GROUP_EVENT_KIND__GROUP_AGAIN, 0, 2);
	expect_piece(0, 0, 0);
	expect_piece(1, 0x11, 3);
	whole_round(2);
	leave();
}
END_TEST

START_LOOP_TEST(nothing_is_given_before_all_are_back, 2)
{
	join_as(0);
	say_met();
	whole_round(0);
	break_off(_i);
	expect_return(1, false, true);
	gather(1, 3);
	fake_expect_silence(&fake);
	say_joined();
	fake_expect_silence(&fake);
	/* Once more, before the others were there. */
	break_off(_i);
	expect_return(1, false, true);
	say_joined();
	fake_expect_silence(&fake);
	say_met();
	expect_piece(1, 0x11, 3);
	say_piece(1, 0x21, 3);
	expect_gathered(1);
	leave();
}
END_TEST

START_LOOP_TEST(while_it_waits_for_its_turn, 2)
{
	join_as(1);
	gather(0, LARGE);
	fake_expect_silence(&fake);
	break_off(_i);
	expect_return(0, false, false);
	say_joined();
	say_piece(0, 0x20, LARGE);
	fake_expect_silence(&fake);
	say_met();
	expect_piece(0, 0x10, LARGE);
	expect_gathered(0);
	leave();
}
END_TEST

START_LOOP_TEST(others_that_do_not_come_back, 2)
{
	join_as(0);
	frl_bootstrap_set_timeout(&rank, 200);
	break_off(_i);
	expect_return(0, false, false);
	say_joined();
	gather(0, 3);
	end(-ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(call.text, "waited 200 ms for control daemons"));
	frl_bootstrap_set_timeout(&rank, HANG_MS);
	say_met();
	whole_round(0);
	leave();
}
END_TEST

/* Others may request its last piece. */
START_LOOP_TEST(who_leaves_waits_for_the_others, 2)
{
	join_as(0);
	whole_round(0);
	break_off(_i);
	expect_return(1, false, false);
	begin(do_close);
	fake_expect_silence(&fake);
	say_joined();
	fake_expect_silence(&fake);
	say_met();
	say_done();
	pthread_join(call.thread, NULL);
	fake_close(&fake);
	free(call.mine);
	free(call.all);
}
END_TEST

START_LOOP_TEST(a_daemon_that_does_not_come_back, 2)
{
	int gone = 5;

	join_as(0);
	gather(0, 3);
	expect_piece(0, 0x10, 3);
	set_control_lost(1);
	if (_i == 0) {
		fake_hang_up(&fake);
		fake_stop_listening(&fake);
	} else {
		say(CTL__GROUP_EVENT_KIND__GROUP_AWAY, 0, 0);
		expect_return(0, true, false);
	}
	end(-ECONNRESET);
	ck_assert_ptr_nonnull(strstr(call.text, _i == 0 ? "of this host" : "of nodea"));
	ck_assert_ptr_nonnull(strstr(call.text, "not back within 1 s (FRL_CONTROL_LOST_S)"));
	ck_assert_int_eq(rank.check(rank.ctx, &gone), -ECONNRESET);
	ck_assert_int_eq(gone, -1);
	begin(do_close);
	set_control_lost(HANG_S);
	if (_i == 1)
		say_done();
	pthread_join(call.thread, NULL);
	fake_close(&fake);
	free(call.mine);
	free(call.all);
}
END_TEST

TEST_MAIN(bootstrap_back)
{
	fake_folder();
	setenv("FRL_CONTROL_LOST_S", "600", 1);
	return run_suite(all_tests(NULL, NULL));
}
