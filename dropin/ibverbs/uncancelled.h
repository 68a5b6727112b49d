/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls as the C library has them, but no cancellation points: see uncancelled.c. Any
 * thread.
 */
#ifndef FERRULE_DROPIN_IBVERBS_UNCANCELLED_H
#define FERRULE_DROPIN_IBVERBS_UNCANCELLED_H

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

int __wrap_close(int fd);
ssize_t __wrap_read(int fd, void *buf, size_t n);
ssize_t __wrap_write(int fd, const void *buf, size_t n);
ssize_t __wrap_writev(int fd, const struct iovec *parts, int n);
int __wrap_eventfd_read(int fd, eventfd_t *value);
int __wrap_eventfd_write(int fd, eventfd_t value);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);
ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags);
ssize_t __wrap_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *address,
	socklen_t len);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_recvfrom(
	int fd, void *buf, size_t n, int flags, struct sockaddr *address, socklen_t *len);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags);
int __wrap_recvmmsg(
	int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_ppoll(
	struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_open64(const char *path, int flags, ...);
ssize_t __wrap_pread64(int fd, void *buf, size_t n, off_t offset);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *parts, int n, off_t offset, int flags);

/* The C library's read(), which is a cancellation point. */
ssize_t __real_read(int fd, void *buf, size_t n);

#endif
