/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mutex for something that is polled in a tight loop. A plain mutex starves everybody but the
 * poller, who takes it again before a woken waiter can. Here whoever must not starve says so and
 * pollers stand back until it has been in.
 */
#ifndef FERRULE_BASE_GUARD_H
#define FERRULE_BASE_GUARD_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

struct guard {
	pthread_mutex_t mutex;
	atomic_uint wanted; /* how many wait in guard_enter_first() */
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

static inline void guard_enter(struct guard *guard)
{
	while (atomic_load_explicit(&guard->wanted, memory_order_relaxed))
		sched_yield();
	pthread_mutex_lock(&guard->mutex);
}

/* False instead of waiting. */
static inline bool guard_try_enter(struct guard *guard)
{
	return !atomic_load_explicit(&guard->wanted, memory_order_relaxed) &&
		pthread_mutex_trylock(&guard->mutex) == 0;
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
