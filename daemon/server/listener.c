/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "daemon/server/log.h"
#include "lib/base/process/closer.h"

enum {
	ACCEPT_ROUND = 16,
	PAUSE_MS = 100,
	BACKLOG = 1024,
	MOST_CLOSING = 64,
};

struct listener_socket {
	int fd;
	bool local; /* a Unix socket */
	struct event readable, resume;
	bool paused; /* and an error was logged */
	void (*accepted)(void *arg, int fd, const struct sockaddr_storage *peer);
	void *arg;
};

/* The socket would stay readable: pause until descriptors are free again. */
static void pause_accepting(struct listener_socket *listener, const char *why, const char *advice)
{
	struct timeval after = { 0, PAUSE_MS * 1000 };

	if (!listener->paused)
		log_line(CORE_LOG_ERROR, "cannot accept connections: %s; %s", why, advice);
	listener->paused = true;
	event_del(&listener->readable);
	event_add(&listener->resume, &after);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct listener_socket *listener = arg;

	event_add(&listener->readable, NULL);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct listener_socket *listener = arg;

	for (int i = 0; i < ACCEPT_ROUND; i++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t length = sizeof(peer);
		int connection;

		if (listener->local && closer_pending() >= MOST_CLOSING) {
			pause_accepting(listener, "files that processes sent are slow to close",
				"end the processes that sent them");
			return;
		}
		connection = accept4(
			fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (connection >= 0) {
			listener->paused = false;
			listener->accepted(listener->arg, connection, &peer);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(listener, strerror(errno),
				"raise LimitNOFILE, or lower max_sessions");
		/* Other errors concern only that connection, which is gone. */
		return;
	}
}

struct listener_socket *listener_start(struct event_base *base, int fd,
	void (*accepted)(void *arg, int fd, const struct sockaddr_storage *peer), void *arg)
{
	struct listener_socket *listener = calloc(1, sizeof(*listener));
	socklen_t length = sizeof(int);
	int domain = 0;

	if (!listener)
		return NULL;
	evutil_make_socket_nonblocking(fd);
	listener->fd = fd;
	listener->local = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
		domain == AF_UNIX;
	listener->accepted = accepted;
	listener->arg = arg;
	event_assign(&listener->readable, base, fd, EV_READ | EV_PERSIST, on_readable, listener);
	evtimer_assign(&listener->resume, base, on_resume, listener);
	event_add(&listener->readable, NULL);
	return listener;
}

void listener_stop(struct listener_socket *listener)
{
	if (!listener)
		return;
	event_del(&listener->readable);
	event_del(&listener->resume);
	/* Connections that were not accepted are closed too, with all that they have queued. */
	if (listener->local)
		closer_close(listener->fd);
	else
		close(listener->fd);
	free(listener);
}

/* Also binds to an address that no interface has yet, as during boot. Connections arrive once an
 * interface has it. */
static bool bind_address(int fd, const struct addrinfo *found, const char *address)
{
	int on = 1;

	if (bind(fd, found->ai_addr, found->ai_addrlen) == 0)
		return true;
	if (errno != EADDRNOTAVAIL)
		return false;
	/* The option also works for IPv6 sockets. */
	if (setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on)) < 0 ||
		bind(fd, found->ai_addr, found->ai_addrlen) < 0)
		return false;
	log_line(CORE_LOG_WARNING,
		"no interface has the address %s yet: nobody can connect to it until then",
		address);
	return true;
}

int listener_tcp(const char *address, uint16_t port, char *error, size_t size)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
		.ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char service[8];
	int fd, on = 1, result;

	snprintf(service, sizeof(service), "%u", port);
	result = getaddrinfo(address, service, &hints, &found);
	if (result) {
		snprintf(error, size, "cannot listen on %s port %u: %s", address, port,
			gai_strerror(result));
		return -1;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || !bind_address(fd, found, address) || listen(fd, BACKLOG) < 0) {
		snprintf(error, size, "cannot listen on %s port %u: %s", address, port,
			strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

static bool is_mapped(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 &&
		IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static const uint8_t *ipv6_bytes(const struct sockaddr_storage *address)
{
	return ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
}

void address_text(const struct sockaddr_storage *address, char *text, size_t size)
{
	*text = '\0';
	if (is_mapped(address))
		inet_ntop(AF_INET, ipv6_bytes(address) + 12, text, (socklen_t)size);
	else if (address->ss_family == AF_INET6)
		inet_ntop(AF_INET6, ipv6_bytes(address), text, (socklen_t)size);
	else if (address->ss_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text,
			(socklen_t)size);
}
