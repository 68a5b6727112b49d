/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/thread.h"

#include <signal.h>
#include <time.h>

enum { NS_PER_S = 1000000000 };

int net_thread_start(void *(*run)(void *arg), void *arg, pthread_t *ret_thread)
{
	sigset_t every, saved;
	pthread_t thread;
	int err;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &saved);
	err = pthread_create(&thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err)
		return err;
	if (ret_thread)
		*ret_thread = thread;
	else
		pthread_detach(thread);
	return 0;
}

void net_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attr);
	pthread_condattr_destroy(&attr);
}

void net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S),
		.tv_nsec = (long)(until_ns % NS_PER_S),
	};

	pthread_cond_timedwait(condition, lock, &until);
}
