/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct start {
	void (*run)(void *arg);
	void *arg;
};

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	start.run(start.arg);
	return NULL;
}

int comm_thread_start(void (*run)(void *arg), void *arg)
{
	struct start *start = malloc(sizeof(*start));
	sigset_t all, saved;
	pthread_t thread;
	int err;

	if (!start)
		return -ENOMEM;
	*start = (struct start){ .run = run, .arg = arg };
	/* Signals are for the host's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	err = pthread_create(&thread, NULL, thread_main, start);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err) {
		free(start);
		return -err;
	}
	pthread_detach(thread);
	return 0;
}
