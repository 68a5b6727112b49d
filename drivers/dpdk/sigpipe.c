/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/dpdk/sigpipe.h"

#include <pthread.h>
#include <time.h>

void sigpipe_hold(struct held_sigpipe *held)
{
	sigset_t pending, sigpipe;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	sigpending(&pending);
	held->was_pending = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &sigpipe, &held->before);
}

void sigpipe_release(const struct held_sigpipe *held)
{
	const struct timespec at_once = { 0 };
	sigset_t sigpipe;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	while (!held->was_pending && sigtimedwait(&sigpipe, NULL, &at_once) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &held->before, NULL);
}
