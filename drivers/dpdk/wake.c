/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakes processes that sleep, by netlink sockets that users have to themselves. Unlike datagrams of
 * Unix sockets these take no descriptors along, which this process would have to close, however
 * long that takes; and what nobody reads is charged to its receiver, not to everybody who sends.
 */
#include "drivers/dpdk/wake.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/random.h"

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

enum {
	NAMES_TRIED = 8,
	/* As many as a socket with the smallest buffer holds, and more than that. Others have to
	 * wait for the next time: who floods the socket must not hold up its owner. */
	DRAIN_MOST = 4,
};

static struct sockaddr_nl address_of(uint32_t name)
{
	return (struct sockaddr_nl){ .nl_family = AF_NETLINK, .nl_pid = name };
}

/* Errors as bind(). */
static int take_name(int fd, uint32_t *ret_name)
{
	int err = -EADDRINUSE;

	for (int i = 0; i < NAMES_TRIED && err == -EADDRINUSE; i++) {
		uint32_t name = (uint32_t)random_entropy();
		struct sockaddr_nl address = address_of(name);

		/* 0 is the kernel, and asks for any name, which would be easy to guess. */
		if (name == 0)
			continue;
		*ret_name = name;
		err = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	}
	return err;
}

int wake_open(uint32_t *ret_name)
{
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_USERSOCK);
	int least = 1, yes = 1, err;

	if (fd < 0)
		return -errno;
	err = take_name(fd, ret_name);
	if (err) {
		close(fd);
		return err;
	}
	/* One datagram is as good as many. Without these two it works as well. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &yes, sizeof(yes));
	return fd;
}

uint32_t wake_check(uint64_t told)
{
	return told <= UINT32_MAX ? (uint32_t)told : 0;
}

/* A socket that takes no more is readable, which is all that counts. */
void wake_up(int fd, uint32_t name)
{
	struct sockaddr_nl address = address_of(name);
	ssize_t n;

	if (name == 0)
		return;
	n = sendto(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
		sizeof(address));
	(void)n;
}

void wake_drain(int fd)
{
	char byte;

	for (int i = 0; i < DRAIN_MOST && recv(fd, &byte, 1, MSG_DONTWAIT) >= 0; i++)
		;
}
