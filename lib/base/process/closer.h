/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Closes descriptors whose close() may take long. These are files that another process has sent
 * (SCM_RIGHTS), and Unix sockets whose queue may hold such files: the kernel closes them together
 * with the socket. The sender determines how long close() takes. For example, close() of a TCP
 * socket with SO_LINGER and unsent data sleeps for the configured number of seconds.
 *
 * Closer threads exist only while there are descriptors to close. Any thread may call these
 * functions, also with locks held: no function here blocks.
 */
#ifndef FERRULE_BASE_CLOSER_H
#define FERRULE_BASE_CLOSER_H

/* Takes ownership of the descriptor and closes it in another thread. If no thread can be started,
 * the descriptor stays open until the next call. If 8,192 descriptors are queued, it stays open for
 * good. */
void closer_close(int fd);

/* Returns the number of descriptors that were handed over and are still open. */
unsigned closer_pending(void);

/*
 * Ends sleeps in close() with this signal, 1 ms after they begin. The program must have installed a
 * handler for the signal. Sleeps that signals cannot end, such as those for a file system,
 * continue. Only programs may call this: a library does not own the signals of its process.
 */
void closer_interrupt_by(int signal);

#endif
