/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's connection to the daemon, which is the test itself. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/control/client.h"
#include "tests/unit/fake_daemon.h"

enum { NS_PER_MS = 1000000, LOG_MAX = 256 };

/* It knows no threads that a child starts after fork(). */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER true
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER false
#endif

/* What handlers were told, one letter each: U up, A up again, D down, H hopeless, M message, T
 * tick. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	char log[LOG_MAX];
	size_t n;
	int error;
	char why[400];
	Ctl__Envelope__BodyCase body;
	uint64_t seq;
} seen = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static struct fake_daemon fake;

static void note(char what)
{
	pthread_mutex_lock(&seen.mutex);
	if (seen.n + 1 < sizeof(seen.log))
		seen.log[seen.n++] = what;
	pthread_cond_broadcast(&seen.changed);
	pthread_mutex_unlock(&seen.mutex);
}

static size_t count(char what)
{
	size_t n = 0;

	for (size_t i = 0; i < seen.n; i++)
		n += seen.log[i] == what;
	return n;
}

/* Of anything, so far. */
static size_t count_all(void)
{
	size_t n;

	pthread_mutex_lock(&seen.mutex);
	n = seen.n;
	pthread_mutex_unlock(&seen.mutex);
	return n;
}

/* Waits until it was noted so many times. */
static void await(char what, size_t times)
{
	struct timespec limit;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += FAKE_MS / 1000;
	pthread_mutex_lock(&seen.mutex);
	while (count(what) < times && rc == 0)
		rc = pthread_cond_timedwait(&seen.changed, &seen.mutex, &limit);
	ck_assert_msg(count(what) >= times, "'%c' %zu times, not in \"%s\"", what, times, seen.log);
	pthread_mutex_unlock(&seen.mutex);
}

static void post_publish(int fd)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	envelope.publish = &publish;
	ck_assert_int_eq(control_post(&envelope, fd), 0);
}

/* A message that says which one it is. */
static int post_number(uint32_t number)
{
	Ctl__ClosePort message = CTL__CLOSE_PORT__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	message.port = number;
	envelope.body_case = CTL__ENVELOPE__BODY_CLOSE_PORT;
	envelope.close_port = &message;
	return control_post(&envelope, -1);
}

static void expect_number(uint32_t number)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_CLOSE_PORT);

	ck_assert_uint_eq(envelope->close_port->port, number);
	ctl__envelope__free_unpacked(envelope, NULL);
}

static bool on_message(struct control_handler *handler, const Ctl__Envelope *envelope)
{
	bool mine = envelope->body_case == CTL__ENVELOPE__BODY_FAIL_QP ||
		envelope->body_case == CTL__ENVELOPE__BODY_FAILURE;

	seen.body = envelope->body_case;
	seen.seq = envelope->seq;
	note('M');
	return mine;
}

static void on_up(struct control_handler *handler, bool again)
{
	note(again ? 'A' : 'U');
}

static void on_down(struct control_handler *handler, int error, const char *why)
{
	seen.error = error;
	snprintf(seen.why, sizeof(seen.why), "%s", why);
	note(error ? 'H' : 'D');
}

static uint32_t up_number; /* what talks_in_up() says */

static void talks_in_up(struct control_handler *handler, bool again)
{
	post_number(up_number);
	on_up(handler, again);
}

static struct control_handler handler, other;

static void setup(void)
{
	handler = (struct control_handler){ .message = on_message, .up = on_up, .down = on_down };
	other = handler;
	seen.n = 0;
	memset(seen.log, 0, sizeof(seen.log));
	fake_listen(&fake);
}

static void teardown(void)
{
	control_unregister(&handler);
	control_unregister(&other);
	fake_close(&fake);
}

static void come_up(enum control_want want)
{
	ck_assert_msg(control_register(&handler, want) == 0, "%s", frl_last_error());
	fake_greet(&fake);
	await('U', 1);
}

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
	/* One that comes later is told as well. */
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), 0);
	await('U', 2);
}
END_TEST

/* What was posted before there was a daemon comes after what the handler says in up(). */
START_TEST(order)
{
	handler.up = talks_in_up;
	up_number = 1;
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	ck_assert_int_eq(post_number(2), 0);
	ck_assert_int_eq(post_number(3), 0);
	fake_accept(&fake);
	ctl__envelope__free_unpacked(fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO), NULL);
	fake_expect_silence(&fake, 20);
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

/* A handler that comes later speaks of what the others have told: a connection of a port. */
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

struct asker {
	pthread_t thread;
	int timeout_ms;
	int rc;
	Ctl__Envelope__BodyCase body;
	char why[200];
};

static void *ask(void *arg)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope request, *answer = NULL;
	struct asker *asker = arg;

	envelope_init(&request);
	request.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	request.publish = &publish;
	asker->rc = control_call(&request, asker->timeout_ms, &answer);
	if (asker->rc == 0)
		asker->body = answer->body_case;
	else
		snprintf(asker->why, sizeof(asker->why), "%s", frl_last_error());
	if (asker->rc == 0)
		ctl__envelope__free_unpacked(answer, NULL);
	return NULL;
}

static void start_asking(struct asker *asker, int timeout_ms)
{
	*asker = (struct asker){ .timeout_ms = timeout_ms };
	ck_assert_int_eq(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void end_asking(struct asker *asker, int rc)
{
	pthread_join(asker->thread, NULL);
	ck_assert_msg(asker->rc == rc, "%d instead of %d: %s", asker->rc, rc, asker->why);
}

static uint64_t read_request(void)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_PUBLISH);
	uint64_t seq = envelope->seq;

	ck_assert_uint_ne(seq, 0);
	ctl__envelope__free_unpacked(envelope, NULL);
	return seq;
}

static void stands_in_up(struct control_handler *me, bool again)
{
	note('W');
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	on_up(me, again);
}

/* What another thread posts, now that the first handler is up, comes before what the next handler
 * says about it. */
START_TEST(order_while_telling)
{
	struct asker one;

	other.up = talks_in_up;
	up_number = 2;
	handler.up = stands_in_up;
	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	ck_assert_int_eq(control_register(&other, CONTROL_START), 0);
	start_asking(&one, FAKE_MS);
	pthread_mutex_lock(&gate);
	fake_greet(&fake);
	await('W', 1);
	ck_assert_int_eq(post_number(1), 0);
	pthread_mutex_unlock(&gate);
	expect_number(1);
	expect_number(2);
	/* Which may be about anything that they tell. */
	fake_done(&fake, read_request());
	end_asking(&one, 0);
}
END_TEST

START_TEST(call)
{
	struct asker one, two;
	uint64_t seq[2];

	come_up(CONTROL_IF_THERE);
	start_asking(&one, FAKE_MS);
	seq[0] = read_request();
	start_asking(&two, FAKE_MS);
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
	start_asking(&one, 20);
	seq = read_request();
	end_asking(&one, -ETIMEDOUT);
	/* Too late: nobody wants it, and it is no request that must be refused. */
	fake_done(&fake, seq);
	await('M', 1);
	fake_expect_silence(&fake, 20);
}
END_TEST

/* A call that comes before the daemon waits for it. */
START_TEST(early_call)
{
	struct asker one;

	ck_assert_int_eq(control_register(&handler, CONTROL_START), 0);
	start_asking(&one, FAKE_MS);
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

START_TEST(lost)
{
	Ctl__Envelope *envelope;
	uint64_t instance, start_ns;
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
	start_asking(&one, FAKE_MS);
	read_request();
	fake_hang_up(&fake);
	end_asking(&one, -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(one.why, "went away"));
	await('D', 1);
	/* It is told in up(), so this is not: */
	ck_assert_int_eq(post_number(8), 0);
	start_ns = clock_now_ns();
	fake_accept(&fake);
	ck_assert_uint_lt(clock_now_ns() - start_ns, UINT64_C(1000) * NS_PER_MS);
	envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_HELLO);
	ck_assert_uint_eq(envelope->hello->instance, instance);
	ck_assert(envelope->hello->resumes);
	ctl__envelope__free_unpacked(envelope, NULL);
	fake_hello(&fake);
	expect_number(7);
	await('A', 1);
	ck_assert_int_eq(post_number(9), 0);
	expect_number(9);
	/* Who comes now has nothing to tell again. */
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), 0);
	await('U', 1);
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
	start_asking(&one, FAKE_MS);
	end_asking(&one, -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(one.why, "daemon.sock"));
	ck_assert_int_eq(control_register(&other, CONTROL_IF_THERE), -ENOTCONN);
	/* Somebody has started it, and wants it now. */
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
	ck_assert_ptr_nonnull(strstr(seen.why, "no control daemon"));
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

START_TEST(garbage_from_daemon)
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
	/* Nobody takes that one. */
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
	/* The answer to what was posted with a number of its own. */
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

/* What was posted leaves although the last handler goes. */
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

/* A daemon that reads nothing: what is queued has a bound, and the end does not wait for it. */
START_TEST(daemon_hangs)
{
	Ctl__GroupPiece piece = CTL__GROUP_PIECE__INIT;
	Ctl__Envelope envelope;
	uint8_t member[UUID_SIZE] = { 0 };
	uint64_t start_ns;
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
	start_ns = clock_now_ns();
	control_unregister(&handler);
	ck_assert_uint_lt(clock_now_ns() - start_ns, UINT64_C(2000) * NS_PER_MS);
}
END_TEST

/* A child has neither the connection nor the handlers, and may have its own. */
START_TEST(after_fork)
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

int main(void)
{
	Suite *suite = suite_create("control client");
	TCase *tcase = tcase_create("control client");
	SRunner *runner;
	int failed;

	fake_folder();
	runner = srunner_create(suite);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 20);
	tcase_add_test(tcase, nobody_there);
	tcase_add_test(tcase, hello);
	tcase_add_test(tcase, order);
	tcase_add_test(tcase, order_of_latecomer);
	tcase_add_test(tcase, order_while_telling);
	tcase_add_test(tcase, call);
	tcase_add_test(tcase, call_not_answered);
	tcase_add_test(tcase, early_call);
	tcase_add_test(tcase, descriptor);
	tcase_add_test(tcase, lost);
	tcase_add_test(tcase, comes_back_late);
	tcase_add_test(tcase, hopeless);
	tcase_add_test(tcase, another_version);
	tcase_add_test(tcase, refused);
	tcase_add_test(tcase, no_daemon_at_all);
	tcase_add_test(tcase, hangs_up_always);
	tcase_add_loop_test(tcase, garbage_from_daemon, 0, 2);
	tcase_add_test(tcase, messages);
	tcase_add_test(tcase, many_messages);
	tcase_add_test(tcase, ticks);
	tcase_add_test(tcase, last_words);
	tcase_add_test(tcase, daemon_hangs);
	if (!THREAD_SANITIZER)
		tcase_add_test(tcase, after_fork);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	fake_remove_folder();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
