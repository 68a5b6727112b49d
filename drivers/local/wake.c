/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakes sleeping processes through netlink sockets in the protocol for user space. Unlike datagrams
 * of Unix sockets, these carry no descriptors that this process would have to close, which may take
 * long. Unread datagrams are charged to their receiver, not to their senders.
 */
#include "drivers/local/wake.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/random.h"

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

enum {
	NAMES_TRIED = 8,
	/* More datagrams than a socket with the smallest buffer holds. The rest waits for the next
	 * call: a process that floods the socket must not block its owner. */
	DRAIN_MOST = 4,
	PROOFS_MOST = 64,         /* datagrams checked; more come only from a flood */
	PROOF_MAGIC = 0x46524c77, /* "FRLw" */
	/* Sockets whose owners choose no name get the process id, which others may predict. */
	FIRST_NAME = 1 << 22,
};

struct proof {
	uint32_t magic;
	uint32_t server; /* 1: sent by the server */
	char link[64];
};

static struct sockaddr_nl address_of(uint32_t name)
{
	return (struct sockaddr_nl){ .nl_family = AF_NETLINK, .nl_pid = name };
}

/* Returns errors as bind() does. */
static int take_name(int fd, uint32_t *ret_name)
{
	int err = -EADDRINUSE;

	for (int i = 0; i < NAMES_TRIED && err == -EADDRINUSE; i++) {
		uint32_t name = (uint32_t)random_entropy();
		struct sockaddr_nl address = address_of(name);

		if (name < FIRST_NAME)
			continue;
		err = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
		if (!err)
			*ret_name = name;
	}
	return err;
}

static int open_socket(uint32_t *ret_name)
{
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_USERSOCK);
	int err;

	if (fd < 0)
		return -errno;
	err = take_name(fd, ret_name);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int wake_open_proof(uint64_t claimed, uint32_t *ret_name)
{
	struct sockaddr_nl address = address_of(wake_check(claimed));
	int fd = open_socket(ret_name);
	char byte;

	if (fd < 0 || address.nl_pid == 0)
		return fd;
	/* From here on the kernel rejects datagrams of other senders. */
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		while (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno == ENOBUFS)
			;
	return fd;
}

int wake_open(uint32_t *ret_name)
{
	int fd = open_socket(ret_name), least = 1, yes = 1;

	if (fd < 0)
		return fd;
	/* One queued datagram suffices. Without these options waking still works. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &yes, sizeof(yes));
	return fd;
}

uint32_t wake_check(uint64_t claimed)
{
	return claimed >= FIRST_NAME && claimed <= UINT32_MAX ? (uint32_t)claimed : 0;
}

static void send_to(int fd, uint32_t name, const void *bytes, size_t len)
{
	struct sockaddr_nl address = address_of(name);
	ssize_t n;

	if (name == 0)
		return;
	n = sendto(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
		sizeof(address));
	(void)n;
}

static struct proof proof_of(const char *link, bool server)
{
	struct proof proof = { .magic = PROOF_MAGIC, .server = server };

	snprintf(proof.link, sizeof(proof.link), "%s", link);
	return proof;
}

void wake_prove(int fd, uint64_t claimed, const char *link, bool server)
{
	struct proof proof = proof_of(link, server);

	send_to(fd, wake_check(claimed), &proof, sizeof(proof));
}

uint32_t wake_proven(int proof_fd, uint64_t claimed, const char *link, bool server)
{
	struct proof wanted = proof_of(link, server);
	uint32_t name = wake_check(claimed);

	for (int i = 0; i < PROOFS_MOST && name; i++) {
		struct sockaddr_nl from = { .nl_pid = 0 };
		socklen_t from_len = sizeof(from);
		struct proof proof;
		ssize_t n = recvfrom(proof_fd, &proof, sizeof(proof), MSG_DONTWAIT | MSG_TRUNC,
			(struct sockaddr *)&from, &from_len);

		if (n < 0 && errno != EINTR && errno != ENOBUFS)
			break;
		if (n == sizeof(proof) && from_len == sizeof(from) && from.nl_pid == name &&
			memcmp(&proof, &wanted, sizeof(proof)) == 0)
			return name;
	}
	return 0;
}

/* If the socket is full it is readable, which suffices. */
void wake_up(int fd, uint32_t name)
{
	send_to(fd, name, "", 1);
}

void wake_drain(int fd)
{
	char byte;

	for (int i = 0; i < DRAIN_MOST && recv(fd, &byte, 1, MSG_DONTWAIT) >= 0; i++)
		;
}
