/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/control/control_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/base/error.h"
#include "tests/fixtures/patience.h"

struct control_seen seen = { .mutex = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER };

struct fake_daemon fake;

void note(char what)
{
	pthread_mutex_lock(&seen.mutex);
	if (seen.n + 1 < sizeof(seen.log))
		seen.log[seen.n++] = what;
	pthread_cond_broadcast(&seen.changed);
	pthread_mutex_unlock(&seen.mutex);
}

size_t count(char what)
{
	size_t n = 0;

	for (size_t i = 0; i < seen.n; i++)
		n += seen.log[i] == what;
	return n;
}

size_t count_all(void)
{
	size_t n;

	pthread_mutex_lock(&seen.mutex);
	n = seen.n;
	pthread_mutex_unlock(&seen.mutex);
	return n;
}

void await(char what, size_t times)
{
	struct timespec limit;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += HANG_S;
	pthread_mutex_lock(&seen.mutex);
	while (count(what) < times && rc == 0)
		rc = pthread_cond_timedwait(&seen.changed, &seen.mutex, &limit);
	ck_assert_msg(count(what) >= times, "'%c' %zu times, not in \"%s\"", what, times, seen.log);
	pthread_mutex_unlock(&seen.mutex);
}

void post_publish(int fd)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	envelope.publish = &publish;
	ck_assert_int_eq(control_post(&envelope, fd), 0);
}

int post_number(uint32_t number)
{
	Ctl__ClosePort message = CTL__CLOSE_PORT__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	message.port = number;
	envelope.body_case = CTL__ENVELOPE__BODY_CLOSE_PORT;
	envelope.close_port = &message;
	return control_post(&envelope, -1);
}

void expect_number(uint32_t number)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_CLOSE_PORT);

	ck_assert_uint_eq(envelope->close_port->port, number);
	ctl__envelope__free_unpacked(envelope, NULL);
}

bool on_message(struct control_handler *me, const Ctl__Envelope *envelope)
{
	bool mine = envelope->body_case == CTL__ENVELOPE__BODY_FAIL_QP ||
		envelope->body_case == CTL__ENVELOPE__BODY_FAILURE;

	seen.body = envelope->body_case;
	seen.seq = envelope->seq;
	note('M');
	return mine;
}

void on_up(struct control_handler *me, bool again)
{
	note(again ? 'A' : 'U');
}

static void on_down(struct control_handler *me, int error, const char *why)
{
	seen.error = error;
	snprintf(seen.why, sizeof(seen.why), "%s", why);
	note(error ? 'H' : 'D');
}

uint32_t up_number;

void talks_in_up(struct control_handler *me, bool again)
{
	post_number(up_number);
	on_up(me, again);
}

struct control_handler handler, other;

void setup(void)
{
	handler = (struct control_handler){ .message = on_message, .up = on_up, .down = on_down };
	other = handler;
	seen.n = 0;
	memset(seen.log, 0, sizeof(seen.log));
	fake_listen(&fake);
}

void teardown(void)
{
	control_unregister(&handler);
	control_unregister(&other);
	fake_close(&fake);
}

void come_up(enum control_want want)
{
	ck_assert_msg(control_register(&handler, want) == 0, "%s", frl_last_error());
	fake_greet(&fake);
	await('U', 1);
}

static void *ask(void *arg)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope request, *answer = NULL;
	struct asker *asker = arg;

	envelope_init(&request);
	request.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	request.publish = &publish;
	asker->rc = control_call(&request,
		clock_now_ns() + (uint64_t)asker->timeout_ms * UINT64_C(1000000), &answer);
	if (asker->rc == 0)
		asker->body = answer->body_case;
	else
		snprintf(asker->why, sizeof(asker->why), "%s", frl_last_error());
	if (asker->rc == 0)
		ctl__envelope__free_unpacked(answer, NULL);
	return NULL;
}

void start_asking(struct asker *asker, int timeout_ms)
{
	*asker = (struct asker){ .timeout_ms = timeout_ms };
	ck_assert_int_eq(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

void end_asking(struct asker *asker, int rc)
{
	pthread_join(asker->thread, NULL);
	ck_assert_msg(asker->rc == rc, "%d instead of %d: %s", asker->rc, rc, asker->why);
}

uint64_t read_request(void)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_PUBLISH);
	uint64_t seq = envelope->seq;

	ck_assert_uint_ne(seq, 0);
	ctl__envelope__free_unpacked(envelope, NULL);
	return seq;
}
