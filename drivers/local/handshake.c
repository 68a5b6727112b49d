/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets for the handshake of a local link: abstract Unix addresses, whole messages. Every process
 * of the machine can connect to them and send descriptors: see lib/base/process/rights.h.
 */
#include "drivers/local/link.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/process/closer.h"
#include "lib/base/process/rights.h"
#include "lib/base/process/user.h"

enum { BACKLOG = 64 };

static socklen_t address_of(const char *name, struct sockaddr_un *ret_address)
{
	int n;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	/* A leading zero byte makes the name abstract: it disappears with its last socket. */
	n = snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int handshake_listen(const char *name)
{
	struct sockaddr_un address;
	socklen_t len = address_of(name, &address);
	int fd = new_socket();
	int err;

	if (fd < 0)
		return fd;
	/* Set before anybody can connect: accepted sockets inherit it from the listener. */
	rights_allow(fd, false);
	if (bind(fd, (struct sockaddr *)&address, len) || listen(fd, BACKLOG)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

/* accept4() reports a lack of descriptors even if nobody has connected. */
int handshake_accept(int listener)
{
	struct pollfd state = { .fd = listener, .events = POLLIN };
	int fd;

	if (poll(&state, 1, 0) == 0)
		return -EAGAIN;
	fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int handshake_check_user(int fd)
{
	uid_t peer;
	int err = user_of_peer(fd, &peer);

	return !err && peer != geteuid() ? -EACCES : err;
}

int handshake_connect(const char *name, bool allow_rights)
{
	struct sockaddr_un address;
	socklen_t len = address_of(name, &address);
	int fd = new_socket();
	int err;

	if (fd < 0)
		return fd;
	if (!allow_rights)
		rights_allow(fd, false);
	if (connect(fd, (struct sockaddr *)&address, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int handshake_send(int fd, const void *message, size_t len)
{
	return send(fd, message, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -EPIPE;
}

/* If the peer has hung up with unread messages, the kernel first reports ECONNRESET once. The
 * peer's own messages follow. Returns an error unless the message has the expected length. */
static int receive(int fd, void *message, size_t len, int *ret_passed)
{
	ssize_t n = rights_receive(fd, message, len, ret_passed);

	if (n == -ECONNRESET)
		n = rights_receive(fd, message, len, ret_passed);
	if (n == (ssize_t)len)
		return 0;
	if (n > 0 && ret_passed && *ret_passed >= 0)
		closer_close(*ret_passed);
	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	return n > 0 || n == -EMSGSIZE || n == -EBADMSG ? -EPROTO : -EPIPE;
}

int handshake_receive(int fd, void *message, size_t len)
{
	return receive(fd, message, len, NULL);
}

int handshake_receive_fd(int fd, void *message, size_t len, int *ret_passed)
{
	int passed = -1;
	int err = receive(fd, message, len, &passed);

	if (!err)
		*ret_passed = passed;
	return err;
}

/* Returns true even while unread messages remain. */
bool handshake_is_closed(int fd)
{
	struct pollfd state = { .fd = fd, .events = POLLRDHUP };

	return poll(&state, 1, 0) > 0;
}

void handshake_close(int *fd)
{
	if (*fd < 0)
		return;
	link_thread_unwatch(*fd);
	rights_close(*fd);
	*fd = -1;
}

void handshake_close_passed(int fd, bool mapped)
{
	if (fd >= 0 && mapped)
		close(fd);
	else if (fd >= 0)
		closer_close(fd);
}

int handshake_send_fd(int fd, const void *message, size_t len, int passed)
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
	case ETOOMANYREFS: return -EAGAIN; /* too many descriptors in flight */
	case ECONNRESET:
	case ENOTCONN: return -EPIPE;
	default: return -errno;
	}
}
