/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/thread.h"

#include <signal.h>

int thread_start(void *(*run)(void *arg), void *arg, size_t stack, pthread_t *ret_thread)
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	if (!ret_thread)
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (stack)
		pthread_attr_setstacksize(&attributes, stack);
	/* A blocked fault kills the process, even if there is a handler (memory/fault.h). */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (error == 0 && ret_thread)
		*ret_thread = thread;
	return -error;
}
