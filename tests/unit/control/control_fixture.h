/* SPDX-License-Identifier: BSD-3-Clause */
/* A client of the control daemon, which is the test itself, and handlers that record their
 * calls. */
#ifndef FERRULE_TESTS_UNIT_CONTROL_CONTROL_FIXTURE_H
#define FERRULE_TESTS_UNIT_CONTROL_CONTROL_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/control/client.h"
#include "tests/fakes/fake_daemon.h"

enum { LOG_MAX = 256 };

/* The calls of handlers, one letter each: U up, A up again, D down, H hopeless, M message, T
 * tick. */
struct control_seen {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	char log[LOG_MAX];
	size_t n;
	int error;
	char why[400];
	Ctl__Envelope__BodyCase body;
	uint64_t seq;
};

/* A thread that waits for the answer to a request. */
struct asker {
	pthread_t thread;
	int timeout_ms;
	int rc;
	Ctl__Envelope__BodyCase body;
	char why[200];
};

extern struct control_seen seen;
extern struct fake_daemon fake;
extern uint32_t up_number; /* what talks_in_up() says */
extern struct control_handler handler, other;

void note(char what);
size_t count(char what);
/* Calls of any kind so far. */
size_t count_all(void);
/* Waits until it was called that many times. */
void await(char what, size_t times);
void post_publish(int fd);
/* A message with this number. */
int post_number(uint32_t number);
void expect_number(uint32_t number);
bool on_message(struct control_handler *me, const Ctl__Envelope *envelope);
void on_up(struct control_handler *me, bool again);
void talks_in_up(struct control_handler *me, bool again);
void setup(void);
void teardown(void);
void come_up(enum control_want want);
void start_asking(struct asker *asker, int timeout_ms);
void end_asking(struct asker *asker, int rc);
uint64_t read_request(void);

#endif
