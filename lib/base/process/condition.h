/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits on condition variables with time limits of clock_now_ns(). Any thread may call. */
#ifndef FERRULE_BASE_CONDITION_H
#define FERRULE_BASE_CONDITION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Waits with the mutex held, until `end_ns` at most, or without a limit if that is UINT64_MAX.
 * Returns false if the time has come. The condition has the default attributes. */
bool condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t end_ns);

#endif
