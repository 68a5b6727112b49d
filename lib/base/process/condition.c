/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/condition.h"

#include <errno.h>
#include <time.h>

enum { NS_PER_S = 1000000000 };

bool condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t end_ns)
{
	const struct timespec end = {
		.tv_sec = (time_t)(end_ns / NS_PER_S),
		.tv_nsec = (long)(end_ns % NS_PER_S),
	};

	if (end_ns == UINT64_MAX) {
		pthread_cond_wait(condition, mutex);
		return true;
	}
	return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &end) != ETIMEDOUT;
}
