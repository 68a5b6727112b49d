/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/rights.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/process/closer.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

void rights_prepare(int fd)
{
	int on = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
}

void rights_allow(int fd, int allow)
{
	(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &allow, sizeof(allow));
}

/* Returns the descriptor that was passed, or -1. The kernel puts all descriptors of a message into
 * one list. */
static int passed_in(struct msghdr *message)
{
	const struct cmsghdr *header = CMSG_FIRSTHDR(message);
	int fd;

	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
		header->cmsg_len < CMSG_LEN(sizeof(fd)))
		return -1;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

/* Consumes `size` bytes that were peeked at. *ret_brought: descriptors came with these bytes. */
static bool take(int fd, void *to, size_t size, bool *ret_brought)
{
	struct iovec part = { to, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);

	/* SOCK_SEQPACKET reports this once, before the remaining data. */
	if (got < 0 && errno == ECONNRESET)
		got = recvmsg(fd, &message, MSG_DONTWAIT);
	*ret_brought = message.msg_flags & MSG_CTRUNC;
	return got == (ssize_t)size;
}

ssize_t rights_receive(int fd, void *to, size_t size, int *ret_passed)
{
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { to, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	bool brought = false;
	int passed = -1;
	ssize_t got;

	if (ret_passed) {
		/* CMSG_SPACE() pads, which would leave room for a second descriptor. */
		message.msg_control = &control;
		message.msg_controllen = CMSG_LEN(sizeof(int));
		*ret_passed = -1;
	}
	got = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return -errno;
	if (ret_passed)
		passed = passed_in(&message);
	/* This process holds `passed`, so the copy dropped here is not the file's last one. */
	if (message.msg_flags & MSG_CTRUNC)
		got = -EBADMSG;
	else if (message.msg_flags & MSG_TRUNC)
		got = -EMSGSIZE;
	else if (got > 0 && !take(fd, to, (size_t)got, &brought))
		got = -EBADMSG;
	/* A peek that filled its buffer also reports the descriptors of a later message. These come
	 * again with that message. */
	if (got > 0 && brought && ret_passed)
		*ret_passed = passed;
	else if (passed >= 0)
		closer_close(passed);
	return got;
}

static bool may_pass(int fd)
{
	socklen_t length = sizeof(int);
	int allowed = 1;

	return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &allowed, &length) != 0 || allowed;
}

/* Call after shutdown(), when nothing more can be queued. Messages may be empty; pieces of a stream
 * may not. */
static bool is_empty(int fd)
{
	socklen_t length = sizeof(int);
	int type = 0, queued = 1;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
		ioctl(fd, FIONREAD, &queued) == 0 && queued == 0;
}

void rights_close(int fd)
{
	shutdown(fd, SHUT_RDWR);
	if (!may_pass(fd) || is_empty(fd))
		close(fd);
	else
		closer_close(fd);
}
