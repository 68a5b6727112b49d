/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's connection to a daemon that goes away, refuses, hangs or sends garbage. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "tests/unit/control/control_fixture.h"
#include "tests/fixtures/wait_limits.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/stopped_clock.h"

/* The client's. */
enum { NS_PER_MS = 1000000, END_MS = 500, GREET_MS = 4000 };

enum { PIECES = 64, PIECE_BYTES = 256 * 1024 };

/* ThreadSanitizer does not support threads that a child starts after fork(). */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER true
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER false
#endif

START_TEST(lost)
{
	Ctl__Envelope *envelope;
	uint64_t instance;
	struct asker one;

	handler.up = talks_in_up;
	up_number = 7;
	ck_assert_int_eq(control_register(&handler, CONTROL_IF_THERE), 0);
	fake_accept(&fake);
	envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO);
	instance = envelope->hello->instance;
	ctl__envelope__free_unpacked(envelope, NULL);
	fake_hello(&fake);
	expect_number(7);
	start_asking(&one, HANG_MS);
	read_request();
	fake_hang_up(&fake);
	end_asking(&one, -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(one.why, "went away"));
	await('D', 1);
	/* up() has sent it, so this is not sent: */
	ck_assert_int_eq(post_number(8), 0);
	fake_accept(&fake);
	envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_uint_eq(envelope->hello->instance, instance);
	ck_assert(envelope->hello->resumes);
	ctl__envelope__free_unpacked(envelope, NULL);
	fake_hello(&fake);
	expect_number(7);
	await('A', 1);
	ck_assert_int_eq(post_number(9), 0);
	expect_number(9);
	/* A handler that comes now has nothing to send again. */
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), 0);
	await('U', 1);
}
END_TEST

/* A process that was connected reconnects before others would try: no time passes. */
START_TEST(comes_back_at_once)
{
	come_up(CONTROL_IF_THERE);
	clock_stop();
	for (unsigned i = 0; i < 3; i++) {
		fake_hang_up(&fake);
		fake_greet(&fake);
		await('A', i + 1);
	}
	clock_go_on();
}
END_TEST

/* A daemon that accepts connections and never answers. */
START_TEST(silent)
{
	limits_expire(GREET_MS);
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	for (int i = 0; i < 5; i++)
		fake_accept(&fake);
	await('H', 1);
	ck_assert_ptr_nonnull(strstr(seen.why, "does not answer"));
	limits_expire(0);
}
END_TEST

/* The daemon is away for longer, and its socket with it. */
START_TEST(comes_back_late)
{
	come_up(CONTROL_START);
	fake_close(&fake);
	await('D', 1);
	fake_listen(&fake);
	fake_greet(&fake);
	await('A', 1);
	ck_assert_uint_eq(count('H'), 0);
}
END_TEST

START_TEST(hopeless)
{
	struct asker one;

	fake_stop_listening(&fake);
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	await('H', 1);
	ck_assert_int_eq(seen.error, -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(seen.why, "daemon.sock"));
	ck_assert_int_eq(post_number(1), -ENOTCONN);
	start_asking(&one, HANG_MS);
	end_asking(&one, -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(one.why, "daemon.sock"));
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), -ENOTCONN);
	/* Another process has started it, and needs it now. */
	fake_close(&fake);
	fake_listen(&fake);
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	fake_greet(&fake);
	await('A', 1);
	ck_assert_uint_eq(count('H'), 1);
}
END_TEST

START_TEST(another_version)
{
	Ctl__Hello message = CTL__HELLO__INIT;
	Ctl__Envelope envelope = CTL__ENVELOPE__INIT;

	message.role = CTL__ROLE__ROLE_DAEMON;
	envelope.version = CONTROL_VERSION + 1;
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &message;
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	fake_accept(&fake);
	fake_write(&fake, &envelope);
	await('H', 1);
	ck_assert_ptr_nonnull(strstr(seen.why, "version 2"));
	ck_assert_ptr_nonnull(strstr(seen.why, "version 1"));
}
END_TEST

START_TEST(refused)
{
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	fake_accept(&fake);
	fake_failure(&fake, 0, EDQUOT, "too many processes of user 1000");
	await('H', 1);
	ck_assert_int_eq(seen.error, -EDQUOT);
	ck_assert_ptr_nonnull(strstr(seen.why, "too many processes of user 1000"));
}
END_TEST

START_TEST(no_daemon_at_all)
{
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	fake_accept(&fake);
	fake_done(&fake, 0);
	await('H', 1);
	ck_assert_ptr_nonnull(strstr(seen.why, "not a control daemon"));
}
END_TEST

START_TEST(hangs_up_always)
{
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	for (int i = 0; i < 5; i++) {
		fake_accept(&fake);
		fake_hang_up(&fake);
	}
	await('H', 1);
}
END_TEST

static const uint8_t garbage[][8] = {
	{ 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0 },
	{ 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff },
};

START_LOOP_TEST(garbage_from_daemon, 2)
{
	come_up(CONTROL_IF_THERE);
	fake_write_bytes(&fake, garbage[_i], sizeof(garbage[_i]));
	await('D', 1);
	fake_greet(&fake);
	await('A', 1);
}
END_TEST

static void write_fail_qp(uint64_t seq)
{
	Ctl__FailQp message = CTL__FAIL_QP__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.seq = seq;
	message.port = message.qpn = message.error = 1;
	envelope.body_case = CTL__ENVELOPE__BODY_FAIL_QP;
	envelope.fail_qp = &message;
	fake_write(&fake, &envelope);
}

START_TEST(messages)
{
	Ctl__Envelope envelope, *answer;
	Ctl__Ping ping = CTL__PING__INIT;
	uint64_t seq;

	come_up(CONTROL_IF_THERE);
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), 0);
	await('U', 2);
	/* The first one takes it. */
	write_fail_qp(0);
	await('M', 1);
	/* Nobody accepts that one. */
	envelope_init(&envelope);
	envelope.seq = 99;
	envelope.body_case = CTL__ENVELOPE__BODY_PING;
	envelope.ping = &ping;
	fake_write(&fake, &envelope);
	await('M', 3);
	answer = fake_expect(&fake, CTL__ENVELOPE__BODY_FAILURE);
	ck_assert_uint_eq(answer->seq, 99);
	ck_assert_uint_eq(answer->failure->error, EOPNOTSUPP);
	ctl__envelope__free_unpacked(answer, NULL);
	/* The answer to a message that was posted with a number of its own. */
	seq = control_next_seq();
	fake_failure(&fake, seq, EBUSY, "draining");
	await('M', 4);
	ck_assert_uint_eq(seen.seq, seq);
	ck_assert_int_eq(seen.body, CTL__ENVELOPE__BODY_FAILURE);
}
END_TEST

/* More than is handled at once, and than the first buffer holds. */
START_TEST(many_messages)
{
	come_up(CONTROL_IF_THERE);
	for (unsigned i = 0; i < 200; i++)
		write_fail_qp(0);
	await('M', 200);
}
END_TEST

static uint64_t next_tick;

static uint64_t on_tick(struct control_handler *unused, uint64_t now_ns)
{
	note('T');
	return next_tick ? now_ns + next_tick : UINT64_MAX;
}

START_TEST(ticks)
{
	handler.tick = on_tick;
	next_tick = 0;
	come_up(CONTROL_IF_THERE);
	await('T', 1);
	next_tick = 2 * NS_PER_MS;
	control_wake();
	await('T', 4);
	ck_assert_uint_eq(count('D'), 0);
}
END_TEST

/* Posted messages leave although the last handler goes. */
START_TEST(last_words)
{
	come_up(CONTROL_IF_THERE);
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_int_eq(post_number(i), 0);
	control_unregister(&handler);
	ck_assert(!control_is_up());
	for (uint32_t i = 0; i < 100; i++)
		expect_number(i);
	fake_expect_end(&fake);
	/* And another life. */
	ck_assert_int_eq(control_register(&handler, CONTROL_IF_THERE), 0);
	fake_greet(&fake);
	await('U', 2);
}
END_TEST

/* A daemon that reads nothing: the queue is bounded, and the end does not wait for it. */
START_TEST(daemon_hangs)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	Ctl__Envelope envelope;
	uint8_t member[UUID_SIZE] = { 0 };
	int rc = 0;

	come_up(CONTROL_IF_THERE);
	envelope_init(&envelope);
	piece.member = (ProtobufCBinaryData){ sizeof(member), member };
	piece.data = (ProtobufCBinaryData){ 1 << 20, calloc(1, 1 << 20) };
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_PIECE;
	envelope.group_piece = &piece;
	for (int i = 0; i < 70 && !rc; i++)
		rc = control_post(&envelope, -1);
	ck_assert_int_eq(rc, -ENOMEM);
	free(piece.data.data);
	limits_expire(END_MS);
	control_unregister(&handler);
	limits_expire(0);
}
END_TEST

/* A child has neither the connection nor the handlers, and may have its own. */
START_TEST_IF(after_fork, !THREAD_SANITIZER)
{
	struct control_handler own = { .message = on_message, .up = on_up };
	Ctl__Envelope *envelope;
	int to_child[2], status;
	char byte;
	pid_t pid;

	come_up(CONTROL_IF_THERE);
	ck_assert_int_eq(pipe(to_child), 0);
	pid = fork();
	if (pid == 0) {
		/* Until the parent's connection has ended. */
		close(to_child[1]);
		if (read(to_child[0], &byte, 1) != 1 || control_is_up() ||
			post_number(1) != -ENOTCONN)
			_exit(1);
		control_unregister(&handler);
		if (control_register(&own, CONTROL_IF_THERE))
			_exit(2);
		await('U', 2);
		control_unregister(&own);
		_exit(0);
	}
	close(to_child[0]);
	control_unregister(&handler);
	fake_expect_end(&fake);
	ck_assert_int_eq(write(to_child[1], "x", 1), 1);
	fake_accept(&fake);
	envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_uint_eq(envelope->hello->pid, (unsigned)pid);
	ck_assert(!envelope->hello->resumes);
	ctl__envelope__free_unpacked(envelope, NULL);
	fake_hello(&fake);
	fake_expect_end(&fake);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close(to_child[1]);
}
END_TEST

static void post_piece(void)
{
	static uint8_t bytes[PIECE_BYTES];
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	piece.member = (ProtobufCBinaryData){ UUID_SIZE, bytes };
	piece.data = (ProtobufCBinaryData){ sizeof(bytes), bytes };
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_PIECE;
	envelope.group_piece = &piece;
	if (control_post(&envelope, -1))
		_exit(1);
}

/* A process that has posted more than the socket takes, and ends at once. */
START_TEST_IF(ends_with_a_full_queue, !THREAD_SANITIZER)
{
	int posted[2], status;
	char byte = 0;
	pid_t pid;

	ck_assert_int_eq(pipe(posted), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (control_register(&handler, CONTROL_START))
			_exit(2);
		await('U', 1);
		for (int i = 0; i < PIECES; i++)
			post_piece();
		if (write(posted[1], &byte, 1) != 1)
			_exit(3);
		exit(0);
	}
	close(posted[1]);
	fake_greet(&fake);
	ck_assert_int_eq(read(posted[0], &byte, 1), 1);
	for (int i = 0; i < PIECES; i++)
		ctl__envelope__free_unpacked(
			fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_PIECE), NULL);
	fake_expect_end(&fake);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	close(posted[0]);
}
END_TEST

TEST_MAIN(control_client_lost)
{
	fake_folder();
	return run_suite(all_tests(setup, teardown));
}
