/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the plugin's own, and what they wait with. */
#ifndef FERRULE_NCCL_THREAD_H
#define FERRULE_NCCL_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Takes no signals: these are for the host's threads. With `ret_thread` NULL nobody joins it. A
 * positive errno: there can be no thread. */
int net_thread_start(void *(*run)(void *arg), void *arg, pthread_t *ret_thread);

/* A condition that is waited for by net_now_ns(). */
void net_condition_init(pthread_cond_t *condition);
void net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);

#endif
