/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mutex for an object that is polled in a tight loop. With a plain mutex the polling thread
 * starves all others, because it locks again before a woken waiter can. guard_enter_first()
 * announces a waiter, and polling threads then stand back until that waiter has had the lock.
 */
#ifndef FERRULE_BASE_GUARD_H
#define FERRULE_BASE_GUARD_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct guard {
	pthread_mutex_t mutex;
	atomic_uint wanted; /* number of threads in guard_enter_first() */
};

static inline void guard_init(struct guard *guard)
{
	pthread_mutex_init(&guard->mutex, NULL);
	atomic_init(&guard->wanted, 0);
}

static inline void guard_fini(struct guard *guard)
{
	pthread_mutex_destroy(&guard->mutex);
}

/* Returns whether a thread is in guard_enter_first(). */
static inline bool guard_is_wanted(const struct guard *guard)
{
	return atomic_load_explicit(&guard->wanted, memory_order_relaxed) > 0;
}

static inline void guard_enter(struct guard *guard)
{
	while (guard_is_wanted(guard))
		sched_yield();
	pthread_mutex_lock(&guard->mutex);
}

/* Returns false instead of waiting. */
static inline bool guard_try_enter(struct guard *guard)
{
	return !guard_is_wanted(guard) && pthread_mutex_trylock(&guard->mutex) == 0;
}

static inline void guard_enter_first(struct guard *guard)
{
	atomic_fetch_add_explicit(&guard->wanted, 1, memory_order_relaxed);
	pthread_mutex_lock(&guard->mutex);
	atomic_fetch_sub_explicit(&guard->wanted, 1, memory_order_relaxed);
}

static inline void guard_leave(struct guard *guard)
{
	pthread_mutex_unlock(&guard->mutex);
}

#endif
