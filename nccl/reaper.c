/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/reaper.h"

#include <pthread.h>
#include <stddef.h>

#include "lib/base/limit.h"
#include "nccl/log.h"
#include "nccl/setup.h"
#include "nccl/thread.h"

enum {
	NS_PER_MS = 1000000,
	FINISH_MS = 30000, /* a port may still be starting */
};

static struct {
	pthread_once_t once;
	pthread_mutex_t lock; /* protects the following fields, and those of the chores */
	pthread_cond_t changed;
	struct chore *first;
	bool has_thread;
	struct chore *in_hand; /* not in the list, because look() is running */
} reaper = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&reaper.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&reaper.lock);
}

/* The child process has no reaper thread, and the chores belong to the parent. */
static void after_fork_in_child(void)
{
	reaper.first = reaper.in_hand = NULL;
	reaper.has_thread = false;
	net_condition_init(&reaper.changed);
	pthread_mutex_unlock(&reaper.lock);
}

static void init_once(void)
{
	net_condition_init(&reaper.changed);
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static struct chore **first_due(void)
{
	struct chore **first = &reaper.first;

	for (struct chore **link = first; *link; link = &(*link)->next)
		if ((*link)->due_ns < (*first)->due_ns)
			first = link;
	return first;
}

static void put(struct chore *chore, uint64_t due_ns)
{
	chore->due_ns = due_ns;
	chore->next = reaper.first;
	reaper.first = chore;
}

/* Requires the lock; releases it during look(). */
static void look_at(struct chore **link)
{
	struct chore *chore = *link;
	bool is_over;

	*link = chore->next;
	reaper.in_hand = chore;
	pthread_mutex_unlock(&reaper.lock);
	is_over = chore->look(chore);
	pthread_mutex_lock(&reaper.lock);
	reaper.in_hand = NULL;
	if (!is_over)
		put(chore, net_now_ns() + (uint64_t)chore->period_ms * NS_PER_MS);
	pthread_cond_broadcast(&reaper.changed);
}

static void *reap(void *arg)
{
	pthread_mutex_lock(&reaper.lock);
	while (reaper.first) {
		struct chore **link = first_due();

		if ((*link)->due_ns <= net_now_ns())
			look_at(link);
		else
			net_condition_wait(&reaper.changed, &reaper.lock, (*link)->due_ns);
	}
	reaper.has_thread = false;
	pthread_cond_broadcast(&reaper.changed);
	pthread_mutex_unlock(&reaper.lock);
	return arg;
}

/* If no thread can be created, chores wait for the next attempt, or for net_reaper_finish(). */
static void need_thread(void)
{
	if (!reaper.has_thread)
		reaper.has_thread = net_thread_start(reap, NULL, NULL) == 0;
}

void net_reaper_add(struct chore *chore)
{
	pthread_once(&reaper.once, init_once);
	pthread_mutex_lock(&reaper.lock);
	put(chore, net_now_ns() + (uint64_t)chore->period_ms * NS_PER_MS);
	need_thread();
	pthread_cond_broadcast(&reaper.changed);
	pthread_mutex_unlock(&reaper.lock);
}

/* Returns whether a chore is pending. A patient chore counts only until its look() has been
 * called. */
static bool is_busy(void)
{
	if (reaper.in_hand)
		return true;
	for (struct chore *chore = reaper.first; chore; chore = chore->next)
		if (!chore->is_patient || !chore->due_ns)
			return true;
	return !reaper.first && reaper.has_thread;
}

static void wait_or_work(uint64_t until_ns)
{
	struct chore **link = first_due();

	if (reaper.has_thread || !*link)
		net_condition_wait(&reaper.changed, &reaper.lock, until_ns);
	else if ((*link)->due_ns <= net_now_ns())
		look_at(link);
	else
		net_condition_wait(&reaper.changed, &reaper.lock, (*link)->due_ns);
}

void net_reaper_finish(void)
{
	uint64_t until_ns = limit_after_ms(net_now_ns(), FINISH_MS);
	bool is_late;

	pthread_once(&reaper.once, init_once);
	pthread_mutex_lock(&reaper.lock);
	for (struct chore *chore = reaper.first; chore; chore = chore->next)
		chore->due_ns = 0;
	pthread_cond_broadcast(&reaper.changed);
	while (is_busy() && net_now_ns() < until_ns)
		wait_or_work(until_ns);
	is_late = is_busy();
	pthread_mutex_unlock(&reaper.lock);
	if (is_late)
		net_log_warning("connections or ports are still being closed after %d ms; the end "
				"goes on without them",
			FINISH_MS);
}
