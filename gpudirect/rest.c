/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/rest.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "gpudirect/launch_ring.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum { NS_PER_S = 1000000000 };

/* The lock is held for a look at all gates, never over a call that may wait. */
static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct rest_gate *first;
	pthread_t thread;
	bool has_thread;
	uint64_t threads;       /* that were started or told to end: each knows its own number */
	_Atomic bool is_asleep; /* until somebody expects something */
} rest = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- gates */

bool rest_take(struct rest_gate *gate, uint64_t number, uint64_t word)
{
	uint64_t undecided = 0;

	return __atomic_compare_exchange_n(ring_word(gate->ring, number), &undecided, word, false,
		__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void rest_pass(struct rest_gate *gate, uint64_t number)
{
	uint64_t go = __atomic_load_n(&gate->ring->go, __ATOMIC_SEQ_CST);

	while (go < number &&
		!__atomic_compare_exchange_n(
			&gate->ring->go, &go, number, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* A number that was decided long ago, whose slot is another one's by now, does no harm: that one is
 * then none, and its batch takes another way. */
void rest_let_go(struct rest_gate *gate)
{
	uint64_t end = atomic_load(&gate->end);
	uint64_t go = __atomic_load_n(&gate->ring->go, __ATOMIC_SEQ_CST);

	while (go < end)
		rest_take(gate, ++go, GPU_RING_SKIP);
	rest_pass(gate, end);
}

/* When the gate is to be let go; 0: nothing waits. */
static uint64_t due_of(const struct rest_gate *gate)
{
	uint64_t end = atomic_load(&gate->end);
	uint64_t go = __atomic_load_n(&gate->ring->go, __ATOMIC_SEQ_CST);

	return go < end ? atomic_load(&gate->due_ns[(go + 1) % GPU_RING_SLOTS]) : 0;
}

/* ---- the thread */

/* With the lock held. When there is something to do again; 0: nobody expects anything. */
static uint64_t let_go_of_due(void)
{
	uint64_t now = clock_now_ns(), first = 0;

	for (struct rest_gate *gate = rest.first; gate; gate = gate->next) {
		uint64_t due = due_of(gate);

		if (due && due <= now)
			rest_let_go(gate);
		else if (due && (!first || due < first))
			first = due;
	}
	return first;
}

/* A thread that is bound to a processor may keep that to itself, also while it waits for what this
 * one ends. */
static void leave_processor(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) > 1)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++)
		CPU_SET((size_t)i, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void *rest_main(void *number)
{
	leave_processor();
	pthread_mutex_lock(&rest.lock);
	while (rest.threads == (uintptr_t)number) {
		uint64_t until;

		/* Who expects something from here on wakes it. */
		atomic_store(&rest.is_asleep, true);
		until = let_go_of_due();
		if (!until) {
			pthread_cond_wait(&rest.changed, &rest.lock);
			continue;
		}
		atomic_store(&rest.is_asleep, false);
		pthread_cond_timedwait(&rest.changed, &rest.lock,
			&(struct timespec){ .tv_sec = (time_t)(until / NS_PER_S),
				.tv_nsec = (long)(until % NS_PER_S) });
	}
	pthread_mutex_unlock(&rest.lock);
	return NULL;
}

static void init_condition(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&rest.changed, &attr);
	pthread_condattr_destroy(&attr);
}

static void before_fork(void)
{
	pthread_mutex_lock(&rest.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&rest.lock);
}

/* The thread and the gates are the parent's, who goes on with them. */
static void after_fork_in_child(void)
{
	for (struct rest_gate *gate = rest.first; gate; gate = gate->next)
		gate->is_added = false;
	rest.first = NULL;
	rest.has_thread = false;
	init_condition();
	pthread_mutex_unlock(&rest.lock);
}

static void init_once(void)
{
	init_condition();
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* With the lock held. Neither the signals of the host's threads, nor the class of whoever calls
 * this, who may be one that lets no other run. */
static int start(void)
{
	const struct sched_param ordinary = { .sched_priority = 0 };
	sigset_t every, saved;
	pthread_attr_t attr;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	pthread_attr_setschedparam(&attr, &ordinary);
	rest.threads++;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &saved);
	err = pthread_create(&rest.thread, &attr, rest_main, (void *)(uintptr_t)rest.threads);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return frl_fail(-err, "cannot start the thread that ends waits of GPUs: %s",
			frl_strerror(err));
	rest.has_thread = true;
	return 0;
}

int rest_add(struct rest_gate *gate)
{
	int rc = 0;

	pthread_once(&rest.once, init_once);
	pthread_mutex_lock(&rest.lock);
	if (!rest.has_thread)
		rc = start();
	if (!rc) {
		gate->next = rest.first;
		gate->is_added = true;
		rest.first = gate;
	}
	pthread_mutex_unlock(&rest.lock);
	return rc;
}

void rest_remove(struct rest_gate *gate)
{
	struct rest_gate **link = &rest.first;
	pthread_t thread;
	bool is_last;

	pthread_once(&rest.once, init_once);
	pthread_mutex_lock(&rest.lock);
	if (!gate->is_added) {
		pthread_mutex_unlock(&rest.lock);
		return;
	}
	while (*link != gate)
		link = &(*link)->next;
	*link = gate->next;
	gate->is_added = false;
	is_last = !rest.first;
	thread = rest.thread;
	if (is_last) {
		rest.threads++;
		rest.has_thread = false;
		pthread_cond_broadcast(&rest.changed);
	}
	pthread_mutex_unlock(&rest.lock);
	if (is_last)
		pthread_join(thread, NULL);
}

void rest_expect(struct rest_gate *gate, uint64_t number)
{
	atomic_store(&gate->due_ns[number % GPU_RING_SLOTS], clock_now_ns() + REST_NS);
	atomic_store(&gate->end, number);
	if (!atomic_load(&rest.is_asleep))
		return;
	pthread_mutex_lock(&rest.lock);
	pthread_cond_broadcast(&rest.changed);
	pthread_mutex_unlock(&rest.lock);
}
