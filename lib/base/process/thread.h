/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the library's own threads. Any thread may call. */
#ifndef FERRULE_BASE_THREAD_H
#define FERRULE_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a thread with all signals blocked: signals are for the application's threads. If `stack`
 * is 0, the stack has the default size. If `ret_thread` is NULL, the thread is detached. Returns 0
 * or a negative errno. */
int thread_start(void *(*run)(void *arg), void *arg, size_t stack, pthread_t *ret_thread);

#endif
