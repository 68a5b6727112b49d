/* SPDX-License-Identifier: BSD-3-Clause */
/* Mail of a rank, and the reason why it gives up, with a daemon that the test controls. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferrule/connect.h>

#include "lib/api/bootstrap/bootstrap.h"
#include "lib/control/client.h"
#include "tests/fakes/fake_daemon.h"
#include "tests/fixtures/program.h"

enum {
	RANK = 1,
	RANKS = 4,
	KEPT_MAX = 1 << 20,
	JOIN_MS = HANG_MS,
};

static struct fake_daemon fake;
static struct frl_bootstrap bootstrap;
static uint8_t member[UUID_SIZE];

/* ---- what the daemon does */

static bool carries_mail = true;

static void *join_job(void *arg)
{
	int *rc = arg;

	*rc = frl_bootstrap_join("test", RANK, RANKS, JOIN_MS, &bootstrap);
	return NULL;
}

static void let_join(bool resumes)
{
	Ctl__Envelope *join = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_JOIN), answer;
	Ctl__GroupJoined joined = CTL__GROUP_JOINED__INIT;

	ck_assert_int_eq(join->group_join->resumes, resumes);
	memcpy(member, join->group_join->member.data, UUID_SIZE);
	ctl__envelope__free_unpacked(join, NULL);
	envelope_init(&answer);
	answer.body_case = CTL__ENVELOPE__BODY_GROUP_JOINED;
	answer.group_joined = &joined;
	joined.member = (ProtobufCBinaryData){ UUID_SIZE, member };
	joined.group = 5;
	joined.carries_mail = carries_mail;
	fake_write(&fake, &answer);
}

static void start(void)
{
	pthread_t thread;
	int rc = 0;

	fake_listen(&fake);
	pthread_create(&thread, NULL, join_job, &rc);
	fake_greet(&fake);
	let_join(false);
	pthread_join(thread, NULL);
	ck_assert_int_eq(rc, 0);
}

static void *close_it(void *arg)
{
	bootstrap.close(bootstrap.ctx);
	return NULL;
}

static void finish(void)
{
	Ctl__Envelope *leave;
	pthread_t thread;

	pthread_create(&thread, NULL, close_it, NULL);
	leave = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_LEAVE);
	ck_assert(!leave->group_leave->aborts);
	fake_done(&fake, leave->seq);
	ctl__envelope__free_unpacked(leave, NULL);
	pthread_join(thread, NULL);
	fake_close(&fake);
}

static void send_mail(uint32_t rank, const void *data, size_t size)
{
	Ctl__GroupMail mail = CTL__GROUP_MAIL__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_MAIL;
	envelope.group_mail = &mail;
	mail.member = (ProtobufCBinaryData){ UUID_SIZE, member };
	mail.rank = rank;
	mail.mail = (ProtobufCBinaryData){ size, (uint8_t *)(uintptr_t)data };
	fake_write(&fake, &envelope);
}

static void send_text(uint32_t rank, const char *text)
{
	send_mail(rank, text, strlen(text));
}

static void send_event(Ctl__GroupEventKind kind, uint32_t rank)
{
	Ctl__GroupEvent event = CTL__GROUP_EVENT__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_EVENT;
	envelope.group_event = &event;
	event.member = (ProtobufCBinaryData){ UUID_SIZE, member };
	event.kind = kind;
	event.rank = rank;
	event.text = (char *)(uintptr_t) "said by the test";
	fake_write(&fake, &envelope);
}

/* All earlier mail has been delivered when it is notified that this rank has left. */
static void wait_until_taken(uint32_t marker)
{
	send_event(CTL__GROUP_EVENT_KIND__GROUP_LEFT, marker);
	while (!bootstrap.has_left(bootstrap.ctx, (int)marker))
		usleep(100);
}

static void expect_mail(uint32_t rank, const char *text)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_MAIL);
	const Ctl__GroupMail *mail = envelope->group_mail;

	ck_assert_mem_eq(mail->member.data, member, UUID_SIZE);
	ck_assert_uint_eq(mail->rank, rank);
	ck_assert_uint_eq(mail->mail.len, strlen(text));
	if (*text)
		ck_assert_mem_eq(mail->mail.data, text, strlen(text));
	ctl__envelope__free_unpacked(envelope, NULL);
}

/* ---- receivers */

struct inbox {
	sem_t arrived;
	sem_t ended;     /* by the mail "last" */
	char text[4096]; /* "2:hello," */
	size_t length;
	unsigned count;
	size_t bytes;
	bool answers;            /* by mail */
	struct inbox *successor; /* that it makes the receiver */
	sem_t *until;            /* it does not return before */
};

static void inbox_init(struct inbox *inbox)
{
	*inbox = (struct inbox){ .count = 0 };
	sem_init(&inbox->arrived, 0, 0);
	sem_init(&inbox->ended, 0, 0);
}

static int post(int rank, const char *text)
{
	return bootstrap.post(bootstrap.ctx, rank, text, strlen(text));
}

static void receive(void *arg, int rank, const void *data, size_t size)
{
	struct inbox *inbox = arg;

	/* Only the first of a flood of empty mail is recorded. */
	if (size < 100 && (size > 0 || inbox->count < 100))
		inbox->length += (size_t)snprintf(inbox->text + inbox->length,
			sizeof(inbox->text) - inbox->length, "%d:%.*s,", rank, (int)size,
			(const char *)data);
	inbox->count++;
	inbox->bytes += size;
	if (inbox->answers)
		post(rank, "answer");
	if (inbox->successor)
		bootstrap.set_receiver(bootstrap.ctx, receive, inbox->successor);
	sem_post(&inbox->arrived);
	if (size == 4 && memcmp(data, "last", size) == 0)
		sem_post(&inbox->ended);
	if (inbox->until)
		sem_wait(inbox->until);
}

static void wait_mail(struct inbox *inbox, unsigned count)
{
	while (count--)
		sem_wait(&inbox->arrived);
}

/* ---- tests */

START_TEST(posts)
{
	char full[FRL_MAIL_MAX + 1];

	start();
	memset(full, 'f', sizeof(full));
	ck_assert_int_eq(post(0, "hello"), 0);
	ck_assert_int_eq(bootstrap.post(bootstrap.ctx, 3, NULL, 0), 0);
	full[FRL_MAIL_MAX] = '\0';
	ck_assert_int_eq(post(2, full), 0);
	expect_mail(0, "hello");
	expect_mail(3, "");
	expect_mail(2, full);
	ck_assert_int_eq(post(RANK, "me"), -EINVAL);
	ck_assert_int_eq(post(-1, "nobody"), -EINVAL);
	ck_assert_int_eq(post(RANKS, "nobody"), -EINVAL);
	ck_assert_int_eq(bootstrap.post(bootstrap.ctx, 0, full, sizeof(full)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "2049 bytes"));
	ck_assert_int_eq(bootstrap.post(bootstrap.ctx, 0, NULL, 1), -EINVAL);
	finish();
}
END_TEST

START_TEST(receives_and_answers)
{
	struct inbox inbox;

	inbox_init(&inbox);
	start();
	inbox.answers = true;
	bootstrap.set_receiver(bootstrap.ctx, receive, &inbox);
	send_text(0, "one");
	send_text(2, "");
	send_text(0, "two");
	wait_mail(&inbox, 3);
	ck_assert_str_eq(inbox.text, "0:one,2:,0:two,");
	expect_mail(0, "answer");
	expect_mail(2, "answer");
	expect_mail(0, "answer");
	/* No rank sends that. */
	send_text(RANK, "of oneself");
	send_text(RANKS, "of nobody");
	member[0] ^= 1;
	send_text(0, "for another one");
	member[0] ^= 1;
	wait_until_taken(3);
	ck_assert_uint_eq(inbox.count, 3);
	finish();
}
END_TEST

START_TEST(keeps_what_nobody_receives)
{
	struct inbox inbox, second;

	inbox_init(&inbox);
	inbox_init(&second);
	start();
	send_text(0, "a");
	send_text(2, "b");
	wait_until_taken(3);
	bootstrap.set_receiver(bootstrap.ctx, receive, &inbox);
	send_text(0, "c");
	wait_mail(&inbox, 3);
	ck_assert_str_eq(inbox.text, "0:a,2:b,0:c,");
	bootstrap.set_receiver(bootstrap.ctx, NULL, NULL);
	send_text(2, "d");
	wait_until_taken(2);
	bootstrap.set_receiver(bootstrap.ctx, receive, &second);
	wait_mail(&second, 1);
	ck_assert_str_eq(second.text, "2:d,");
	ck_assert_uint_eq(inbox.count, 3);
	/* Undelivered mail goes with the bootstrap. */
	bootstrap.set_receiver(bootstrap.ctx, NULL, NULL);
	send_text(2, "e");
	wait_until_taken(0);
	finish();
}
END_TEST

/* A rank that is flooded before it has a receiver gets the first mail. */
START_LOOP_TEST(keeps_no_more_than_it_should, 2)
{
	uint8_t full[FRL_MAIL_MAX] = { 1 };
	struct inbox inbox;
	size_t size = _i ? sizeof(full) : 0;
	unsigned sent = _i ? KEPT_MAX / FRL_MAIL_MAX + 50 : KEPT_MAX / 16, count;

	inbox_init(&inbox);
	start();
	send_text(0, "first");
	for (unsigned i = 0; i < sent; i++)
		send_mail(0, full, size);
	wait_until_taken(3);
	bootstrap.set_receiver(bootstrap.ctx, receive, &inbox);
	send_text(2, "last");
	sem_wait(&inbox.ended);
	count = inbox.count - 2;
	ck_assert_uint_ge(count, _i ? KEPT_MAX / FRL_MAIL_MAX - 20 : 1000);
	ck_assert_uint_lt(count, _i ? KEPT_MAX / FRL_MAIL_MAX : sent);
	ck_assert_mem_eq(inbox.text, "0:first,", 8);
	finish();
}
END_TEST

static sem_t has_set;
static atomic_int setter; /* thread id */

static void *set_none(void *arg)
{
	setter = gettid();
	bootstrap.set_receiver(bootstrap.ctx, NULL, NULL);
	sem_post(&has_set);
	return NULL;
}

static bool has_receiver(void)
{
	struct bootstrap_mail *mail = &((struct bootstrap *)bootstrap.ctx)->mail;
	bool has;

	pthread_mutex_lock(&mail->mutex);
	has = mail->receive;
	pthread_mutex_unlock(&mail->mutex);
	return has;
}

/* The state of a thread of this process, as in ps(1); 'X': there is none. */
static char thread_state(int id)
{
	char path[64], state = 'X';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	file = fopen(path, "r");
	if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	if (file)
		fclose(file);
	return state;
}

START_TEST(waits_for_the_receiver_to_return)
{
	struct inbox inbox;
	pthread_t thread;
	sem_t until;
	int value = -1;

	inbox_init(&inbox);
	start();
	sem_init(&until, 0, 0);
	sem_init(&has_set, 0, 0);
	inbox.until = &until;
	bootstrap.set_receiver(bootstrap.ctx, receive, &inbox);
	send_text(0, "a");
	wait_mail(&inbox, 1);
	pthread_create(&thread, NULL, set_none, NULL);
	/* It removes the receiver, and then either sleeps until that returns, or ends. */
	while (has_receiver())
		usleep(100);
	while (!strchr("SXZ", thread_state(setter)))
		usleep(100);
	sem_getvalue(&has_set, &value);
	ck_assert_int_eq(value, 0);
	/* Other threads post all the time. */
	ck_assert_int_eq(post(0, "busy"), 0);
	sem_post(&until);
	sem_wait(&has_set);
	pthread_join(thread, NULL);
	expect_mail(0, "busy");
	send_text(0, "b");
	wait_until_taken(3);
	ck_assert_uint_eq(inbox.count, 1);
	finish();
}
END_TEST

START_TEST(a_receiver_sets_the_next_one)
{
	struct inbox inbox, second;

	inbox_init(&inbox);
	inbox_init(&second);
	start();
	inbox.successor = &second;
	bootstrap.set_receiver(bootstrap.ctx, receive, &inbox);
	send_text(0, "a");
	send_text(2, "b");
	send_text(0, "c");
	wait_mail(&second, 2);
	ck_assert_str_eq(inbox.text, "0:a,");
	ck_assert_str_eq(second.text, "2:b,0:c,");
	finish();
}
END_TEST

/* It would never receive any, so it does not begin; the daemon is notified that it has given up. */
START_TEST(an_old_daemon_carries_none)
{
	pthread_t thread;
	Ctl__Envelope *leave;
	int rc = 0;

	carries_mail = false;
	fake_listen(&fake);
	pthread_create(&thread, NULL, join_job, &rc);
	fake_greet(&fake);
	let_join(false);
	leave = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_LEAVE);
	ck_assert(leave->group_leave->aborts);
	ck_assert_ptr_nonnull(strstr(leave->group_leave->why, "update ferruled"));
	ctl__envelope__free_unpacked(leave, NULL);
	leave = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_LEAVE);
	ck_assert(!leave->group_leave->aborts);
	ctl__envelope__free_unpacked(leave, NULL);
	pthread_join(thread, NULL);
	fake_close(&fake);
	carries_mail = true;
	ck_assert_int_eq(rc, -EPROTO);
}
END_TEST

START_TEST(nothing_for_the_dead)
{
	int gone;

	start();
	send_event(CTL__GROUP_EVENT_KIND__GROUP_DEAD, 2);
	wait_until_taken(3);
	ck_assert_int_eq(post(3, "left"), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 3 is gone: it has left"));
	ck_assert_int_eq(post(2, "dead"), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 2 is gone: said by the test"));
	ck_assert_int_eq(post(0, "alive"), 0);
	expect_mail(0, "alive");
	send_event(CTL__GROUP_EVENT_KIND__GROUP_LOST, 0);
	while (post(0, "lost") == 0)
		usleep(100);
	ck_assert_int_eq(post(0, "lost"), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "said by the test"));
	ck_assert_int_eq(bootstrap.check(bootstrap.ctx, &gone), -ECONNRESET);
	fake_hang_up(&fake);
	/* A good-bye to a daemon that ends meanwhile would wait for the next one. */
	while (control_is_up())
		usleep(100);
	bootstrap.close(bootstrap.ctx);
	fake_close(&fake);
}
END_TEST

/* Mail that is posted without a daemon is lost, and none arrives twice. */
START_TEST(mail_of_a_daemon_that_went_away)
{
	start();
	ck_assert_int_eq(post(0, "before"), 0);
	expect_mail(0, "before");
	fake_hang_up(&fake);
	while (control_is_up())
		usleep(100);
	ck_assert_int_eq(post(0, "meanwhile"), 0);
	fake_greet(&fake);
	let_join(true);
	wait_until_taken(3);
	ck_assert_int_eq(post(0, "after"), 0);
	expect_mail(0, "after");
	finish();
}
END_TEST

static void expect_abort(const char *why)
{
	Ctl__Envelope *leave = fake_expect(&fake, CTL__ENVELOPE__BODY_GROUP_LEAVE);

	ck_assert(leave->group_leave->aborts);
	ck_assert_str_eq(leave->group_leave->why, why);
	ctl__envelope__free_unpacked(leave, NULL);
}

START_TEST(gives_up_and_says_why)
{
	char reason[600], *end;

	start();
	bootstrap.abort(bootstrap.ctx, "out of \x1b[31mluck");
	expect_abort("out of ?[31mluck");
	bootstrap.abort(bootstrap.ctx, NULL);
	expect_abort("");
	memset(reason, 'r', sizeof(reason));
	reason[sizeof(reason) - 1] = '\0';
	end = reason + 319;
	bootstrap.abort(bootstrap.ctx, reason);
	*end = '\0';
	expect_abort(reason);
	finish();
}
END_TEST

TEST_MAIN(bootstrap_mail)
{
	fake_folder();
	return run_suite(all_tests(NULL, NULL));
}
