/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/connect/cleanup.h"

#include <pthread.h>
#include <stddef.h>

#include "lib/base/limit.h"
#include "nccl/log.h"
#include "nccl/connect/setup.h"
#include "nccl/thread.h"

enum {
	NS_PER_MS = 1000000,
	FINISH_MS = 30000, /* a port may still be starting */
};

static struct {
	pthread_once_t once;
	pthread_mutex_t lock; /* protects the following fields, and those of the cleanups */
	pthread_cond_t changed;
	struct cleanup *first;
	bool has_thread;
	struct cleanup *running; /* not in the list, because try_finish() is running */
} state = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&state.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&state.lock);
}

/* The child process has no cleanup thread, and the cleanups belong to the parent. */
static void after_fork_in_child(void)
{
	state.first = state.running = NULL;
	state.has_thread = false;
	net_condition_init(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

static void init_once(void)
{
	net_condition_init(&state.changed);
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static struct cleanup **first_due(void)
{
	struct cleanup **first = &state.first;

	for (struct cleanup **link = first; *link; link = &(*link)->next)
		if ((*link)->due_ns < (*first)->due_ns)
			first = link;
	return first;
}

static void put(struct cleanup *cleanup, uint64_t due_ns)
{
	cleanup->due_ns = due_ns;
	cleanup->next = state.first;
	state.first = cleanup;
}

/* Requires the lock; releases it during try_finish(). */
static void run_one(struct cleanup **link)
{
	struct cleanup *cleanup = *link;
	bool is_over;

	*link = cleanup->next;
	state.running = cleanup;
	pthread_mutex_unlock(&state.lock);
	is_over = cleanup->try_finish(cleanup);
	pthread_mutex_lock(&state.lock);
	state.running = NULL;
	if (!is_over)
		put(cleanup, net_now_ns() + (uint64_t)cleanup->period_ms * NS_PER_MS);
	pthread_cond_broadcast(&state.changed);
}

static void *run_all(void *arg)
{
	pthread_mutex_lock(&state.lock);
	while (state.first) {
		struct cleanup **link = first_due();

		if ((*link)->due_ns <= net_now_ns())
			run_one(link);
		else
			net_condition_wait(&state.changed, &state.lock, (*link)->due_ns);
	}
	state.has_thread = false;
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
	return arg;
}

/* If no thread can be created, cleanups wait for the next attempt, or for net_cleanup_wait(). */
static void ensure_thread(void)
{
	if (!state.has_thread)
		state.has_thread = net_thread_start(run_all, NULL, NULL) == 0;
}

void net_cleanup_add(struct cleanup *cleanup)
{
	pthread_once(&state.once, init_once);
	pthread_mutex_lock(&state.lock);
	put(cleanup, net_now_ns() + (uint64_t)cleanup->period_ms * NS_PER_MS);
	ensure_thread();
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

/* Returns whether a cleanup is pending. A background cleanup counts only until its
 * try_finish() has been called once. */
static bool is_busy(void)
{
	if (state.running)
		return true;
	for (struct cleanup *cleanup = state.first; cleanup; cleanup = cleanup->next)
		if (!cleanup->is_background || !cleanup->due_ns)
			return true;
	return !state.first && state.has_thread;
}

static void wait_or_run(uint64_t until_ns)
{
	struct cleanup **link = first_due();

	if (state.has_thread || !*link)
		net_condition_wait(&state.changed, &state.lock, until_ns);
	else if ((*link)->due_ns <= net_now_ns())
		run_one(link);
	else
		net_condition_wait(&state.changed, &state.lock, (*link)->due_ns);
}

void net_cleanup_wait(void)
{
	uint64_t until_ns = limit_after_ms(net_now_ns(), FINISH_MS);
	bool is_late;

	pthread_once(&state.once, init_once);
	pthread_mutex_lock(&state.lock);
	for (struct cleanup *cleanup = state.first; cleanup; cleanup = cleanup->next)
		cleanup->due_ns = 0;
	pthread_cond_broadcast(&state.changed);
	while (is_busy() && net_now_ns() < until_ns)
		wait_or_run(until_ns);
	is_late = is_busy();
	pthread_mutex_unlock(&state.lock);
	if (is_late)
		net_log_warning("connections or ports are still closing after %d ms; the plugin "
				"ends without waiting for them",
			FINISH_MS);
}
