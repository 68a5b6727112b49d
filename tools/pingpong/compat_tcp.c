/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The exchange of rdma-core's ping-pong programs over TCP: a line of fixed length for each queue
 * pair, "LID:QPN:PSN:GID" in hexadecimal with its terminating zero byte. First the client's lines,
 * then the server's, then "done" of the client.
 */
#include "tools/pingpong/compat.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
	LINE_SIZE = sizeof("0000:000000:000000:00000000000000000000000000000000"),
	TIMEOUT_S = 60,
};

static void format_line(char line[LINE_SIZE], const struct compat_address *address)
{
	/* The LID is 0: Ethernet has none. */
	int at = snprintf(line, LINE_SIZE, "0000:%06x:%06x:", address->qpn, address->psn);

	for (unsigned i = 0; i < sizeof(address->gid.bytes); i++)
		at += snprintf(line + at, LINE_SIZE - (size_t)at, "%02x", address->gid.bytes[i]);
}

static int parse_line(const char line[LINE_SIZE], struct compat_address *ret_address)
{
	unsigned lid, qpn, psn;
	char gid[33];

	if (line[LINE_SIZE - 1] != '\0' ||
		sscanf(line, "%4x:%6x:%6x:%32[0-9a-fA-F]", &lid, &qpn, &psn, gid) != 4 ||
		strlen(gid) != 32) {
		say("the peer's line '%.*s' is not that of an ibv ping-pong program", LINE_SIZE,
			line);
		return -EPROTO;
	}
	*ret_address = (struct compat_address){ .qpn = qpn, .psn = psn };
	for (unsigned i = 0; i < 16; i++) {
		char byte[3] = { gid[2 * i], gid[2 * i + 1] };

		ret_address->gid.bytes[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	return 0;
}

static int transfer(int fd, void *bytes, size_t size, bool out)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = out ? send(fd, (char *)bytes + done, size - done, MSG_NOSIGNAL)
				: recv(fd, (char *)bytes + done, size - done, 0);
		int err = n == 0 ? ECONNRESET : errno;

		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n < 0 && err == EINTR)
			continue;
		say("the peer did not continue the exchange: %s", strerror(err));
		return -err;
	}
	return 0;
}

static int send_lines(int fd, const struct compat_address mine[], unsigned n)
{
	char line[LINE_SIZE];
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++) {
		format_line(line, &mine[i]);
		rc = transfer(fd, line, sizeof(line), true);
	}
	return rc;
}

static int receive_lines(int fd, struct compat_address theirs[], unsigned n)
{
	char line[LINE_SIZE];
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++) {
		rc = transfer(fd, line, sizeof(line), false);
		if (!rc)
			rc = parse_line(line, &theirs[i]);
	}
	return rc;
}

static int try_address(const struct addrinfo *ai, bool server)
{
	int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
	const int on = 1, off = 0;
	int rc;

	if (fd < 0)
		return -errno;
	if (server) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (ai->ai_family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		rc = bind(fd, ai->ai_addr, ai->ai_addrlen);
		if (!rc)
			rc = listen(fd, 1);
	} else {
		rc = connect(fd, ai->ai_addr, ai->ai_addrlen);
	}
	if (!rc)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* Returns a socket that is connected to `host`, or a listening one. */
static int open_socket(const char *host, uint16_t port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *list;
	char service[8];
	int fd = -EADDRNOTAVAIL, rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc) {
		say("%s: %s", host ? host : "this host", gai_strerror(rc));
		return -EADDRNOTAVAIL;
	}
	/* To listen, try IPv6 first: such a socket accepts IPv4 as well. */
	for (int pass = 0; pass < 2 && fd < 0; pass++)
		for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
			if (host || (ai->ai_family == AF_INET6) == (pass == 0))
				fd = try_address(ai, !host);
	freeaddrinfo(list);
	if (fd < 0)
		say("cannot %s port %u%s%s: %s", host ? "reach" : "listen at", port,
			host ? " of " : "", host ? host : "", strerror(-fd));
	return fd;
}

static int open_connection(const char *server, uint16_t port)
{
	const struct timeval timeout = { .tv_sec = TIMEOUT_S };
	int fd = open_socket(server, port), listener = fd;

	if (fd < 0)
		return fd;
	if (!server) {
		printf("waiting for a client at TCP port %u\n", port);
		fflush(stdout);
		do {
			fd = accept(listener, NULL, NULL);
		} while (fd < 0 && errno == EINTR);
		if (fd < 0) {
			fd = -errno;
			say("cannot accept a client: %s", strerror(-fd));
		}
		close(listener);
		if (fd < 0)
			return fd;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	return fd;
}

int compat_exchange(const char *server, uint16_t port, const struct compat_address mine[],
	struct compat_address theirs[], unsigned n,
	int (*ready)(const struct compat_address theirs[], void *arg), void *arg)
{
	char done[] = "done";
	int fd = open_connection(server, port);
	int rc;

	if (fd < 0)
		return fd;
	if (server) {
		rc = send_lines(fd, mine, n);
		if (!rc)
			rc = receive_lines(fd, theirs, n);
		if (!rc)
			rc = ready(theirs, arg);
		if (!rc)
			rc = transfer(fd, done, sizeof(done), true);
	} else {
		rc = receive_lines(fd, theirs, n);
		if (!rc)
			rc = ready(theirs, arg);
		if (!rc)
			rc = send_lines(fd, mine, n);
		if (!rc)
			rc = transfer(fd, done, sizeof(done), false);
	}
	close(fd);
	return rc;
}
