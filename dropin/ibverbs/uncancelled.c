/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls that are no cancellation points. With a NIC, ibv_post_send(), ibv_poll_cq() and most
 * other functions make no system call, and programs cancel threads that use them (rping). Here they
 * do, with locks held, which a cancelled thread would leave locked. The linker replaces the calls
 * of this library by these functions (--wrap, see dropin/rdma/meson.build). syscall() is no
 * cancellation point. Closing a device waits for threads, and disables cancellation: see
 * close_frl().
 *
 * Threads can be cancelled while they wait for an event, or for acknowledgements of events: see
 * events_wait() and await_acknowledged().
 */
#include "dropin/ibverbs/uncancelled.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int __wrap_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

ssize_t __wrap_read(int fd, void *buf, size_t n)
{
	return syscall(SYS_read, fd, buf, n);
}

ssize_t __wrap_write(int fd, const void *buf, size_t n)
{
	return syscall(SYS_write, fd, buf, n);
}

ssize_t __wrap_writev(int fd, const struct iovec *parts, int n)
{
	return syscall(SYS_writev, fd, parts, n);
}

int __wrap_eventfd_read(int fd, eventfd_t *value)
{
	return syscall(SYS_read, fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
}

int __wrap_eventfd_write(int fd, eventfd_t value)
{
	return syscall(SYS_write, fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	return (int)syscall(SYS_accept4, fd, address, len, flags);
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
	return (int)syscall(SYS_connect, fd, address, len);
}

ssize_t __wrap_sendto(
	int fd, const void *buf, size_t n, int flags, const struct sockaddr *address, socklen_t len)
{
	return syscall(SYS_sendto, fd, buf, n, flags, address, len);
}

ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags)
{
	return __wrap_sendto(fd, buf, n, flags, NULL, 0);
}

ssize_t __wrap_recvfrom(
	int fd, void *buf, size_t n, int flags, struct sockaddr *address, socklen_t *len)
{
	return syscall(SYS_recvfrom, fd, buf, n, flags, address, len);
}

ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags)
{
	return __wrap_recvfrom(fd, buf, n, flags, NULL, NULL);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
	return syscall(SYS_recvmsg, fd, message, flags);
}

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
	return (int)syscall(SYS_sendmmsg, fd, messages, n, flags);
}

/* A time limit is not used: the call would change it. */
int __wrap_recvmmsg(
	int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout)
{
	return (int)syscall(SYS_recvmmsg, fd, messages, n, flags, timeout);
}

/* The system call changes the time limit. */
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec left = timeout ? *timeout : (struct timespec){ 0 };

	/* The kernel's set of signals has 64 bits. */
	return (int)syscall(SYS_ppoll, fds, n, timeout ? &left : NULL, mask, 8);
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	const struct timespec timeout = {
		.tv_sec = timeout_ms / 1000,
		.tv_nsec = timeout_ms % 1000 * 1000000L,
	};

	return __wrap_ppoll(fds, n, timeout_ms < 0 ? NULL : &timeout, NULL);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	return (int)syscall(SYS_nanosleep, time, ret_left);
}

int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE)
		mode = va_arg(args, mode_t);
	va_end(args);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t __wrap_pread64(int fd, void *buf, size_t n, off_t offset)
{
	return syscall(SYS_pread64, fd, buf, n, offset);
}

/* The kernel takes the offset in two words, of which the second is 0 with 64 bits. */
ssize_t __wrap_preadv64v2(int fd, const struct iovec *parts, int n, off_t offset, int flags)
{
	return syscall(SYS_preadv2, fd, parts, n, offset, 0, flags);
}
