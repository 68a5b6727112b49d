/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one way in which threads wait by polling. A wait spins, then yields, then sleeps, longer each
 * time. A thread skips spinning while its yields show that others want the processor. Callers
 * choose the longest sleep; backoff_spin() and backoff_test() never sleep. Waits that a wake-up can
 * end use device_idle() (lib/device/device.h). Any thread.
 */
#ifndef FERRULE_BASE_BACKOFF_H
#define FERRULE_BASE_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/device.h>

enum {
	BACKOFF_GPU_US = 20,   /* for GPU work, whose end raises no signal */
	BACKOFF_US = 100,      /* used by frl_backoff_idle() */
	BACKOFF_IDLE_US = 250, /* for threads that may be idle for hours */
};

/* Same as frl_backoff_idle() with a longest sleep of `max_us`. Sleeps beyond 100 us grow by 1/64
 * each. */
void backoff_idle(struct frl_backoff *backoff, uint32_t max_us);

/* Returns true if the next frl_backoff_idle() of this thread neither yields nor sleeps. */
bool backoff_is_spinning(const struct frl_backoff *backoff);

/* Returns true after enough tests and yields that a long sleep is right, provided that a wake-up
 * can end the sleep. */
bool backoff_is_long(const struct frl_backoff *backoff);

/* Returns true if other threads seem to want the processor for long: the last yield of this thread
 * took more than 100 us. */
bool backoff_is_crowded(void);

/* Ends spinning and yielding in this wait: the next sleep is a long one. */
void backoff_lengthen(struct frl_backoff *backoff);

/* Call after an unsuccessful test in a loop. Yields if other threads want the processor, and
 * sometimes to find out whether they do. Never sleeps. */
void backoff_test(void);

/* Polls up to 50 times without yielding. Returns true once has_arrived() does. For events due
 * within a microsecond. */
bool backoff_spin(bool (*has_arrived)(void *arg), void *arg);

#endif
