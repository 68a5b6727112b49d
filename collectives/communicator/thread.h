/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of communicators. There is one only while ranks reconnect (api/siblings.h). */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_THREAD_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_THREAD_H

/* Starts a detached thread that takes no signals. Fails with a negative errno. Any thread. */
int comm_thread_start(void (*run)(void *arg), void *arg);

#endif
