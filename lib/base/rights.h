/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unix sockets whose other end may send descriptors (SCM_RIGHTS) to do harm. The kernel closes
 * descriptors that a receiver has no room for in recvmsg(), and those that are still queued in
 * close() of the socket, both in the thread that makes the call; lib/base/closer.h says how long
 * that may take. So:
 *
 *	- every message is looked at (MSG_PEEK) before it is taken: that gives this process a
 *	  descriptor of its own, or none, and never drops the last one of a file;
 *	- a message with more than one descriptor, or with one that does not fit, stays queued;
 *	- a socket that may have descriptors queued is closed by the closer.
 *
 * No function here blocks. One thread a socket.
 */
#ifndef FERRULE_BASE_RIGHTS_H
#define FERRULE_BASE_RIGHTS_H

#include <stddef.h>
#include <sys/types.h>

/* Makes out-of-band bytes of a stream socket part of the stream: else the kernel drops them, and
 * the descriptors that came along, in the middle of a recv(). */
void rights_prepare(int fd);

/*
 * As recv() without waiting. *ret_passed is the descriptor that came with the bytes, or -1; it is
 * the caller's, who leaves it to closer_close() unless it is known to close at once. With a NULL
 * `ret_passed` none may come.
 *
 * Nothing is taken, and the socket is good for no more than rights_close(), when this returns
 * -EBADMSG: more descriptors came than may, or this process has no room for one; or
 * -EMSGSIZE: the message is longer than `size`.
 */
ssize_t rights_receive(int fd, void *to, size_t size, int *ret_passed);

/* Hangs up, and closes the socket: here if nothing can be queued in it, else by the closer. */
void rights_close(int fd);

/* Whether the other end may send descriptors, where the kernel can tell (from Linux 6.16). A
 * listener passes it on to the sockets that it accepts. Once they may they stay allowed. */
void rights_allow(int fd, int allow);

#endif
