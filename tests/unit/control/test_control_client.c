/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's connection to the daemon, which is the test itself: the messages and their
 * times. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "tests/unit/control/control_fixture.h"
#include "tests/fixtures/program.h"

enum { NS_PER_MS = 1000000 };

START_TEST(nobody_there)
{
	fake_stop_listening(&fake);
	ck_assert_int_eq(control_register(&handler, CONTROL_IF_THERE), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "daemon.sock"));
	ck_assert(!control_is_up());
	ck_assert_int_eq(post_number(1), -ENOTCONN);
	ck_assert_uint_eq(count_all(), 0);
}
END_TEST

START_TEST(hello)
{
	Ctl__Envelope *envelope;

	ck_assert_int_eq(control_register(&handler, CONTROL_IF_THERE), 0);
	fake_accept(&fake);
	envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_uint_eq(envelope->version, CONTROL_VERSION);
	ck_assert_int_eq(envelope->hello->role, CTL__ROLE__ROLE_PROCESS);
	ck_assert_uint_eq(envelope->hello->pid, (unsigned)getpid());
	ck_assert_str_eq(envelope->hello->name, program_invocation_short_name);
	ck_assert_uint_ne(envelope->hello->instance, 0);
	ck_assert(*envelope->hello->release && !envelope->hello->resumes);
	ctl__envelope__free_unpacked(envelope, NULL);
	ck_assert(!control_is_up());
	ck_assert_uint_eq(count_all(), 0);
	fake_hello(&fake);
	await('U', 1);
	ck_assert(control_is_up());
	/* A handler that comes later is called as well. */
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), 0);
	await('U', 2);
}
END_TEST

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static bool takes_long(struct control_handler *me, const Ctl__Envelope *envelope)
{
	bool taken = on_message(me, envelope);

	pthread_mutex_lock(&busy);
	pthread_mutex_unlock(&busy);
	return taken;
}

/* The client's thread is busy, or has no processor: posted messages still leave, as the process may
 * end right after. */
START_TEST(posted_while_the_thread_is_busy)
{
	handler.message = takes_long;
	come_up(CONTROL_IF_THERE);
	pthread_mutex_lock(&busy);
	fake_done(&fake, 77);
	await('M', 1);
	ck_assert_int_eq(post_number(5), 0);
	expect_number(5);
	ck_assert_uint_eq(control_queued(), 0);
	pthread_mutex_unlock(&busy);
}
END_TEST

/* Messages that were posted before there was a daemon follow the handler's messages in up(). */
START_TEST(order)
{
	handler.up = talks_in_up;
	up_number = 1;
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	ck_assert_int_eq(post_number(2), 0);
	ck_assert_int_eq(post_number(3), 0);
	fake_accept(&fake);
	ctl__envelope__free_unpacked(fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO), NULL);
	fake_hello(&fake);
	for (uint32_t i = 1; i <= 3; i++)
		expect_number(i);
}
END_TEST

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static bool stands_at_gate(struct control_handler *me, const Ctl__Envelope *envelope)
{
	on_message(me, envelope);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return true;
}

static void send_publish(void)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	envelope.publish = &publish;
	fake_write(&fake, &envelope);
}

/* A later handler refers to earlier handlers' messages: a connection of a port. */
START_TEST(order_of_latecomer)
{
	handler.message = stands_at_gate;
	other.up = talks_in_up;
	up_number = 2;
	come_up(CONTROL_START);
	pthread_mutex_lock(&gate);
	send_publish();
	await('M', 1);
	ck_assert_int_eq(post_number(1), 0);
	ck_assert_int_eq(control_register(&other, CONTROL_START), 0);
	ck_assert_int_eq(post_number(3), 0);
	pthread_mutex_unlock(&gate);
	expect_number(1);
	expect_number(3);
	expect_number(2);
}
END_TEST

static void stands_in_up(struct control_handler *me, bool again)
{
	note('W');
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	on_up(me, again);
}

/* A message that another thread posts after the first handler is up precedes the next handler's
 * message about it. */
START_TEST(order_while_telling)
{
	struct asker one;

	other.up = talks_in_up;
	up_number = 2;
	handler.up = stands_in_up;
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	ck_assert_int_eq(control_register(&other, CONTROL_START), 0);
	start_asking(&one, HANG_MS);
	pthread_mutex_lock(&gate);
	fake_greet(&fake);
	await('W', 1);
	ck_assert_int_eq(post_number(1), 0);
	pthread_mutex_unlock(&gate);
	expect_number(1);
	expect_number(2);
	/* It may be about anything that they send. */
	fake_done(&fake, read_request());
	end_asking(&one, 0);
}
END_TEST

START_TEST(call)
{
	struct asker one, two;
	uint64_t seq[2];

	come_up(CONTROL_IF_THERE);
	start_asking(&one, HANG_MS);
	seq[0] = read_request();
	start_asking(&two, HANG_MS);
	seq[1] = read_request();
	ck_assert_uint_ne(seq[0], seq[1]);
	fake_failure(&fake, seq[1], EDQUOT, "too many ports");
	fake_done(&fake, seq[0]);
	end_asking(&one, 0);
	ck_assert_int_eq(one.body, CTL__ENVELOPE__BODY_DONE);
	end_asking(&two, -EDQUOT);
	ck_assert_str_eq(two.why, "too many ports");
	ck_assert_uint_eq(count('M'), 0);
}
END_TEST

START_TEST(call_not_answered)
{
	struct asker one;
	uint64_t seq;

	come_up(CONTROL_IF_THERE);
	/* From the first answer on a call is sent at once. */
	start_asking(&one, HANG_MS);
	fake_done(&fake, read_request());
	end_asking(&one, 0);
	start_asking(&one, 20);
	seq = read_request();
	end_asking(&one, -ETIMEDOUT);
	/* Too late: nobody waits for it, and it is no request that must be refused. */
	fake_done(&fake, seq);
	await('M', 1);
	fake_expect_silence(&fake);
}
END_TEST

/* A call that comes before the daemon waits for it. */
START_TEST(early_call)
{
	struct asker one;

	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	start_asking(&one, HANG_MS);
	fake_greet(&fake);
	fake_done(&fake, read_request());
	end_asking(&one, 0);
}
END_TEST

START_TEST(descriptor)
{
	int ends[2];
	char byte = 0;

	come_up(CONTROL_IF_THERE);
	ck_assert_int_eq(pipe(ends), 0);
	post_publish(ends[1]);
	close(ends[1]);
	ctl__envelope__free_unpacked(fake_expect(&fake, CTL__ENVELOPE__BODY_PUBLISH), NULL);
	ck_assert_int_ge(fake.passed_fd, 0);
	ck_assert_int_eq(write(fake.passed_fd, "x", 1), 1);
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	close(fake.passed_fd);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* nobody else has it */
	close(ends[0]);
}
END_TEST

TEST_MAIN(control_client)
{
	fake_folder();
	return run_suite(all_tests(setup, teardown));
}
