/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets on which the two ends of a local link meet: abstract Unix addresses, whole messages. */
#include "drivers/dpdk/fabric.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static socklen_t address_of(const char *name, struct sockaddr_un *ret_address)
{
	int n;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	/* The first byte stays zero: an abstract name, gone with the last socket. */
	n = snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

/* Kernels before 6.16 do not know it, and every peer may send descriptors there. */
void meet_take_fds(int fd, bool take)
{
	int value = take;

	(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value));
}

int meet_listen(const char *name, bool take_fds)
{
	struct sockaddr_un address;
	socklen_t len = address_of(name, &address);
	int fd = new_socket();
	int err;

	if (fd < 0)
		return fd;
	/* Before anybody can connect: sockets that are accepted have it from the listener. */
	if (!take_fds)
		meet_take_fds(fd, false);
	if (bind(fd, (struct sockaddr *)&address, len) || listen(fd, 4)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int meet_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int meet_connect(const char *name)
{
	struct sockaddr_un address;
	socklen_t len = address_of(name, &address);
	int fd = new_socket();
	int err;

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int meet_send(int fd, const void *message, size_t len)
{
	return send(fd, message, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -EPIPE;
}

/* The kernel says first, and once, that the peer has hung up without hearing all (ECONNRESET); what
 * it had said comes after that. */
static ssize_t receive(int fd, struct msghdr *in)
{
	ssize_t n = recvmsg(fd, in, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(fd, in, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	return n;
}

int meet_receive(int fd, void *message, size_t len)
{
	struct iovec part = { .iov_base = message, .iov_len = len };
	struct msghdr in = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n = receive(fd, &in);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	return n == (ssize_t)len && !(in.msg_flags & MSG_TRUNC) ? 0 : -EPIPE;
}

/* Also while there are messages left to read. */
bool meet_is_closed(int fd)
{
	struct pollfd state = { .fd = fd, .events = POLLRDHUP };

	return poll(&state, 1, 0) > 0;
}

void meet_hang_up(int *fd)
{
	if (*fd < 0)
		return;
	shutdown(*fd, SHUT_RDWR);
	close(*fd);
	*fd = -1;
}

int meet_send_fd(int fd, const void *message, size_t len, int passed)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec part = { .iov_base = (void *)(uintptr_t)message, .iov_len = len };
	struct msghdr out = { .msg_iov = &part, .msg_iovlen = 1 };

	if (passed >= 0) {
		out.msg_control = &control;
		out.msg_controllen = sizeof(control);
		CMSG_FIRSTHDR(&out)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&out)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&out)->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&out)), &passed, sizeof(passed));
	}
	if (sendmsg(fd, &out, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len)
		return 0;
	switch (errno) {
	case EAGAIN:
	case EINTR:
	case ENOBUFS:
	case ENOMEM:
	case ETOOMANYREFS: return -EAGAIN; /* the last one: descriptors on their way */
	case ECONNRESET:
	case ENOTCONN: return -EPIPE;
	default: return -errno;
	}
}

/* The only descriptor that came, or -1; others are closed. */
static int take_passed(struct msghdr *in)
{
	int fds[2] = { -1, -1 };
	size_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(in); c; c = CMSG_NXTHDR(in, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			int fd;

			memcpy(&fd, (uint8_t *)c + at, sizeof(fd));
			if (n < 2)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	if (n == 1 && !(in->msg_flags & MSG_CTRUNC))
		return fds[0];
	while (n > 0)
		close(fds[--n]);
	return -1;
}

int meet_receive_fd(int fd, void *message, size_t len, int *ret_passed)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = message, .iov_len = len };
	struct msghdr in = { .msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	ssize_t n = receive(fd, &in);
	int passed;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPIPE;
	passed = take_passed(&in);
	if (n == (ssize_t)len && !(in.msg_flags & MSG_TRUNC)) {
		*ret_passed = passed;
		return 0;
	}
	if (passed >= 0)
		close(passed);
	return n == 0 ? -EPIPE : -EPROTO;
}
