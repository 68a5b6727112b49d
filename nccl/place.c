/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/place.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/limit.h"
#include "nccl/setup.h"
#include "nccl/thread.h"

enum {
	/* A busy host's daemon may answer late, so try several times. A permanent failure is
	 * reported at once. */
	TRIES = 3,
	SLOW_MS = 1000,
	PATIENCE_MS = 60000,
	WAIT_MS = 5000,
	FAILED_MS = 3000, /* how long a failure is cached */
	WHY = 400,
};

static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_asking, is_late;
	char own[FRL_PLACE_SIZE]; /* "": unknown */
	int err;
	uint64_t failed_ns; /* the time of the last failure or late answer */
	char why[WHY];
} asked = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&asked.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&asked.lock);
}

static void after_fork_in_child(void)
{
	asked.is_asking = asked.is_late = false;
	net_condition_init(&asked.changed);
	pthread_mutex_unlock(&asked.lock);
}

static void init_once(void)
{
	net_condition_init(&asked.changed);
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static bool has_passed(uint64_t since_ns, unsigned ms)
{
	return net_now_ns() >= limit_after_ms(since_ns, ms);
}

static void *ask(void *arg)
{
	char own[FRL_PLACE_SIZE] = "";
	uint64_t began_ns;
	int err, tries = 0;

	do {
		began_ns = net_now_ns();
		err = frl_place_create(own);
	} while (err && has_passed(began_ns, SLOW_MS) && ++tries < TRIES);
	pthread_mutex_lock(&asked.lock);
	asked.err = err;
	if (err) {
		asked.failed_ns = net_now_ns();
		snprintf(asked.why, sizeof(asked.why), "%s", frl_last_error());
	} else {
		memcpy(asked.own, own, sizeof(own));
	}
	asked.is_asking = asked.is_late = false;
	pthread_cond_broadcast(&asked.changed);
	pthread_mutex_unlock(&asked.lock);
	return arg;
}

/* With the lock held. */
static void begin(void)
{
	int err;

	if (*asked.own || asked.is_asking || (asked.err && !has_passed(asked.failed_ns, FAILED_MS)))
		return;
	err = net_thread_start(ask, NULL, NULL);
	asked.is_asking = !err;
	asked.err = -err;
	asked.failed_ns = net_now_ns();
	snprintf(asked.why, sizeof(asked.why), "there can be no further thread: %s",
		frl_strerror(-err));
}

/* With the lock held. */
static void wait_for_answer(bool is_patient)
{
	uint64_t until_ns = limit_after_ms(net_now_ns(), is_patient ? PATIENCE_MS : WAIT_MS);

	if (!is_patient && asked.is_late && !has_passed(asked.failed_ns, FAILED_MS))
		return;
	while (asked.is_asking && net_now_ns() < until_ns)
		net_condition_wait(&asked.changed, &asked.lock, until_ns);
	if (asked.is_asking) {
		asked.is_late = true;
		asked.failed_ns = net_now_ns();
	}
}

void net_place_ask(void)
{
	pthread_once(&asked.once, init_once);
	pthread_mutex_lock(&asked.lock);
	begin();
	pthread_mutex_unlock(&asked.lock);
}

int net_place(bool is_patient, char place[FRL_PLACE_SIZE], char *why, size_t size)
{
	int err = 0;

	pthread_once(&asked.once, init_once);
	pthread_mutex_lock(&asked.lock);
	begin();
	wait_for_answer(is_patient);
	if (*asked.own) {
		memcpy(place, asked.own, sizeof(asked.own));
	} else if (asked.is_asking) {
		err = -ETIMEDOUT;
		snprintf(why, size,
			"the control daemon of this host does not answer: is the host overloaded? "
			"\"ferrulectl doctor\" looks at the daemon");
	} else {
		err = asked.err;
		snprintf(why, size, "%s", asked.why);
	}
	pthread_mutex_unlock(&asked.lock);
	return err;
}

void net_place_finish(void)
{
	uint64_t until_ns = limit_after_ms(net_now_ns(), WAIT_MS);

	pthread_once(&asked.once, init_once);
	pthread_mutex_lock(&asked.lock);
	while (asked.is_asking && net_now_ns() < until_ns)
		net_condition_wait(&asked.changed, &asked.lock, until_ns);
	pthread_mutex_unlock(&asked.lock);
}
