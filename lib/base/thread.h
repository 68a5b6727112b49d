/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts threads of the library's own. Any thread may call. */
#ifndef FERRULE_BASE_THREAD_H
#define FERRULE_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a thread in which all signals are blocked: they are for the threads of the application.
 * With `stack` 0 its stack has the usual size. With `ret_thread` NULL the thread is detached.
 * Returns 0 or a negative errno. */
int thread_start(void *(*run)(void *arg), void *arg, size_t stack, pthread_t *ret_thread);

#endif
