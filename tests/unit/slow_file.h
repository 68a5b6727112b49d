/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that takes a day to close, for the process that closes its last descriptor: a TCP
 * connection over loopback with SO_LINGER and bytes that nobody reads. And messages that bring such
 * files to another process.
 */
#ifndef FERRULE_TESTS_SLOW_FILE_H
#define FERRULE_TESTS_SLOW_FILE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOW_FILE_S = 86400, SLOW_FILE_MOST = 253 };

static inline bool slow_file_connect(int *ret_fd, int *ret_reader)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
	socklen_t length = sizeof(address);
	bool done;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	setsockopt(*ret_fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	done = bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		listen(listener, 1) == 0 &&
		getsockname(listener, (struct sockaddr *)&address, &length) == 0 &&
		connect(*ret_fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	*ret_reader = done ? accept(listener, NULL, NULL) : -1;
	close(listener);
	return *ret_reader >= 0;
}

/* -1: it cannot be made. The reader has to stay open: the file is fast to close without it. */
static inline int slow_file(int *ret_reader)
{
	const struct linger linger = { .l_onoff = 1, .l_linger = SLOW_FILE_S };
	static const uint8_t bytes[65536];
	int fd;

	if (!slow_file_connect(&fd, ret_reader) ||
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)))
		return -1;
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	return fd;
}

/* Sends some bytes, with the same descriptor `n` times. As sendmsg(). */
static inline ssize_t slow_file_send(
	int to, const void *bytes, size_t size, int fd, size_t n, int flags)
{
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(SLOW_FILE_MOST * sizeof(int))];
	} control;
	struct iovec part = { (void *)(uintptr_t)bytes, size };
	struct msghdr message = { .msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *header;

	memset(&control, 0, sizeof(control));
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (size_t i = 0; i < n; i++)
		memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(fd));
	return sendmsg(to, &message, flags | MSG_NOSIGNAL);
}

#endif
