/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Closes descriptors whose close() may take long: files that another process has sent
 * (SCM_RIGHTS), and Unix sockets whose queue may hold such files, which the kernel closes together
 * with the socket. The sender chooses how long that takes: close() of a TCP socket with SO_LINGER
 * and unsent data sleeps for as many seconds as were set.
 *
 * Some threads close; each of them exists while there is something to close. Any thread may call,
 * also with locks held: no function here blocks.
 */
#ifndef FERRULE_BASE_CLOSER_H
#define FERRULE_BASE_CLOSER_H

/* Takes the descriptor over and closes it in another thread. Where none can be started it stays
 * open until the next call; with 8,192 that wait, for good. */
void closer_close(int fd);

/* Returns how many descriptors were taken over and are still open. */
unsigned closer_pending(void);

/*
 * Ends sleeps in close() by this signal, 1 ms after they began; whoever owns the process has set a
 * handler for it. Sleeps that signals do not end, such as those for a file system, are left. A
 * library does not own its process and does without.
 */
void closer_interrupt_by(int signal);

#endif
