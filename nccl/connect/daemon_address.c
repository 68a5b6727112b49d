/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/connect/daemon_address.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/limit.h"
#include "nccl/connect/setup.h"
#include "nccl/thread.h"

enum {
	/* A busy host's daemon may answer late, so try several times. A permanent failure is
	 * reported at once. */
	TRIES = 3,
	SLOW_MS = 1000,
	LONG_WAIT_MS = 60000,
	WAIT_MS = 5000,
	FAILED_MS = 3000, /* how long a failure is cached */
	WHY = 400,
};

static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_running, is_late;
	char address[FRL_PLACE_SIZE]; /* "": unknown */
	int err;
	uint64_t failed_ns; /* the time of the last failure or late answer */
	char why[WHY];
} query = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&query.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&query.lock);
}

static void after_fork_in_child(void)
{
	query.is_running = query.is_late = false;
	net_condition_init(&query.changed);
	pthread_mutex_unlock(&query.lock);
}

static void init_once(void)
{
	net_condition_init(&query.changed);
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static bool has_passed(uint64_t since_ns, unsigned ms)
{
	return net_now_ns() >= limit_after_ms(since_ns, ms);
}

static void *run_query(void *arg)
{
	char address[FRL_PLACE_SIZE] = "";
	uint64_t began_ns;
	int err, tries = 0;

	do {
		began_ns = net_now_ns();
		err = frl_place_create(address);
	} while (err && has_passed(began_ns, SLOW_MS) && ++tries < TRIES);
	pthread_mutex_lock(&query.lock);
	query.err = err;
	if (err) {
		query.failed_ns = net_now_ns();
		snprintf(query.why, sizeof(query.why), "%s", frl_last_error());
	} else {
		memcpy(query.address, address, sizeof(address));
	}
	query.is_running = query.is_late = false;
	pthread_cond_broadcast(&query.changed);
	pthread_mutex_unlock(&query.lock);
	return arg;
}

/* With the lock held. */
static void start_query(void)
{
	int err;

	if (*query.address || query.is_running ||
		(query.err && !has_passed(query.failed_ns, FAILED_MS)))
		return;
	err = net_thread_start(run_query, NULL, NULL);
	query.is_running = !err;
	query.err = -err;
	query.failed_ns = net_now_ns();
	snprintf(query.why, sizeof(query.why), "cannot create a thread: %s", frl_strerror(-err));
}

/* With the lock held. */
static void wait_for_result(bool waits_long)
{
	uint64_t until_ns = limit_after_ms(net_now_ns(), waits_long ? LONG_WAIT_MS : WAIT_MS);

	if (!waits_long && query.is_late && !has_passed(query.failed_ns, FAILED_MS))
		return;
	while (query.is_running && net_now_ns() < until_ns)
		net_condition_wait(&query.changed, &query.lock, until_ns);
	if (query.is_running) {
		query.is_late = true;
		query.failed_ns = net_now_ns();
	}
}

void net_daemon_address_query(void)
{
	pthread_once(&query.once, init_once);
	pthread_mutex_lock(&query.lock);
	start_query();
	pthread_mutex_unlock(&query.lock);
}

int net_daemon_address(bool waits_long, char address[FRL_PLACE_SIZE], char *why, size_t size)
{
	int err = 0;

	pthread_once(&query.once, init_once);
	pthread_mutex_lock(&query.lock);
	start_query();
	wait_for_result(waits_long);
	if (*query.address) {
		memcpy(address, query.address, sizeof(query.address));
	} else if (query.is_running) {
		err = -ETIMEDOUT;
		snprintf(why, size,
			"the control daemon of this host does not answer: is the host overloaded? "
			"check the daemon with \"ferrulectl doctor\"");
	} else {
		err = query.err;
		snprintf(why, size, "%s", query.why);
	}
	pthread_mutex_unlock(&query.lock);
	return err;
}

void net_daemon_address_wait(void)
{
	uint64_t until_ns = limit_after_ms(net_now_ns(), WAIT_MS);

	pthread_once(&query.once, init_once);
	pthread_mutex_lock(&query.lock);
	while (query.is_running && net_now_ns() < until_ns)
		net_condition_wait(&query.changed, &query.lock, until_ns);
	pthread_mutex_unlock(&query.lock);
}
