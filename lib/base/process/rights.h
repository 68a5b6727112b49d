/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unix sockets whose peer may send descriptors (SCM_RIGHTS) to do harm. The kernel closes
 * descriptors that do not fit in recvmsg(), and those that are still queued when the socket is
 * closed. Both closes happen in the calling thread and may take long, see
 * lib/base/process/closer.h. Therefore:
 *
 * - Each message is peeked at (MSG_PEEK) before it is taken. This process then has its own
 *   descriptor, or none, and never drops the last one of a file.
 * - A message with more than one descriptor, or with one that does not fit, stays queued.
 * - A socket that may have descriptors queued is closed by the closer.
 *
 * No function here blocks. One thread per socket.
 */
#ifndef FERRULE_BASE_RIGHTS_H
#define FERRULE_BASE_RIGHTS_H

#include <stddef.h>
#include <sys/types.h>

/* Makes out-of-band bytes of a stream socket part of the stream. The kernel would otherwise drop
 * them, together with their descriptors, in the middle of a recv(). */
void rights_prepare(int fd);

/*
 * Like recv() without waiting. *ret_passed is the descriptor that came with the bytes, or -1. The
 * caller owns it and passes it to closer_close(), unless it is known to close at once. If
 * `ret_passed` is NULL, no descriptor may come.
 *
 * Takes nothing in these cases, after which only rights_close() may follow:
 * - -EBADMSG: too many descriptors came, or this process has no room for one.
 * - -EMSGSIZE: the message is longer than `size`.
 */
ssize_t rights_receive(int fd, void *to, size_t size, int *ret_passed);

/* Shuts down and closes the socket: here if nothing can be queued in it, otherwise in the
 * closer. */
void rights_close(int fd);

/* Sets whether the peer may send descriptors, if the kernel supports that (from Linux 6.16).
 * Accepted sockets inherit it from their listener. Permission cannot be withdrawn. */
void rights_allow(int fd, int allow);

#endif
