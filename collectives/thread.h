/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of communicators: there is one only while ranks connect again (family.h). */
#ifndef FERRULE_COLLECTIVES_THREAD_H
#define FERRULE_COLLECTIVES_THREAD_H

/* Starts a thread that takes no signals and that nobody joins. A negative errno: there can be no
 * thread. Any thread. */
int comm_thread_start(void (*run)(void *arg), void *arg);

#endif
