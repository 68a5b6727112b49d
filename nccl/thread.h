/* SPDX-License-Identifier: BSD-3-Clause */
/* The plugin's own threads, and condition variables for them. */
#ifndef FERRULE_NCCL_THREAD_H
#define FERRULE_NCCL_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts a thread that blocks all signals, because these are for the host's threads. If
 * `ret_thread` is NULL the thread is detached. Returns a positive errno if no thread can be
 * created. */
int net_thread_start(void *(*run)(void *arg), void *arg, pthread_t *ret_thread);

/* A condition variable whose clock is that of net_now_ns(). */
void net_condition_init(pthread_cond_t *condition);
void net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

#endif
