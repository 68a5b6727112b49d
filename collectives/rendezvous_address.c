/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/rendezvous_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.h"

static int resolve_unix(const char *path, struct rendezvous_address *address)
{
	size_t length = strlen(path);

	if (length < 1 || (path[0] == '@' && length < 2) || length >= sizeof(address->un.sun_path))
		return frl_fail(-EINVAL, "unix:%s: a path of 1 to %zu characters is needed", path,
			sizeof(address->un.sun_path) - 1);
	address->un.sun_family = AF_UNIX;
	memcpy(address->un.sun_path, path, length);
	address->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (path[0] == '@')
		address->un.sun_path[0] = '\0';
	else
		address->length++;
	return 0;
}

static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= 5 && text[digits] == '\0' && atoi(text) <= 65535;
}

static void add(struct rendezvous_addresses *addresses, const void *name, socklen_t length)
{
	struct rendezvous_address *address = &addresses->list[addresses->n];

	if (addresses->n == RENDEZVOUS_ADDRESSES_MAX)
		return;
	memcpy(&address->storage, name, length);
	address->length = length;
	addresses->n++;
}

/* "[::]" stands for this host in either family, and IPv6 may be off. */
static void add_ipv4_of_any(struct rendezvous_addresses *addresses, const struct addrinfo *found)
{
	struct sockaddr_in ipv4 = { .sin_family = AF_INET };
	struct sockaddr_in6 ipv6;

	if (found->ai_family != AF_INET6 || found->ai_addrlen != sizeof(ipv6))
		return;
	memcpy(&ipv6, found->ai_addr, sizeof(ipv6));
	if (!IN6_IS_ADDR_UNSPECIFIED(&ipv6.sin6_addr))
		return;
	ipv4.sin_port = ipv6.sin6_port;
	ipv4.sin_addr.s_addr = htonl(INADDR_ANY);
	add(addresses, &ipv4, sizeof(ipv4));
}

static int resolve_host(const char *host, const char *port, struct rendezvous_addresses *addresses)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *found;
	int err = getaddrinfo(host, port, &hints, &found);

	if (err)
		return frl_fail(-EHOSTUNREACH, "tcp:%s:%s: %s", host, port, gai_strerror(err));
	for (const struct addrinfo *one = found; one; one = one->ai_next) {
		add(addresses, one->ai_addr, one->ai_addrlen);
		add_ipv4_of_any(addresses, one);
	}
	freeaddrinfo(found);
	return 0;
}

static int resolve_tcp(const char *text, struct rendezvous_addresses *addresses)
{
	const char *colon = strrchr(text, ':');
	char host[256];
	size_t length;

	if (!colon || colon == text || !is_port(colon + 1))
		return frl_fail(-EINVAL, "tcp:%s: HOST:PORT is needed", text);
	length = (size_t)(colon - text);
	if (text[0] == '[' && colon[-1] == ']') {
		text++;
		length -= 2;
	} else if (memchr(text, ':', length)) {
		return frl_fail(-EINVAL, "tcp:%s: an IPv6 address goes into brackets", text);
	}
	if (length == 0 || length >= sizeof(host))
		return frl_fail(-EINVAL, "tcp:%s: HOST:PORT is needed", text);
	memcpy(host, text, length);
	host[length] = '\0';
	return resolve_host(host, colon + 1, addresses);
}

int rendezvous_resolve(const char *address, struct rendezvous_addresses *ret_addresses)
{
	memset(ret_addresses, 0, sizeof(*ret_addresses));
	if (strncmp(address, "tcp:", 4) == 0)
		return resolve_tcp(address + 4, ret_addresses);
	if (strncmp(address, "unix:", 5) != 0)
		return frl_fail(-EINVAL,
			"\"%s\" is no address: unix:/path, unix:@name or tcp:HOST:PORT", address);
	ret_addresses->n = 1;
	return resolve_unix(address + 5, &ret_addresses->list[0]);
}

/* A socket that a server left when it was killed: nobody listens there any more. */
static bool is_left_over(const struct rendezvous_address *address)
{
	struct stat st;
	bool refused;
	int fd;

	if (address->any.sa_family != AF_UNIX || !address->un.sun_path[0] ||
		lstat(address->un.sun_path, &st) || !S_ISSOCK(st.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	refused = connect(fd, &address->any, address->length) < 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static int bind_to(int fd, const struct rendezvous_address *address)
{
	if (bind(fd, &address->any, address->length) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	if (!is_left_over(address) || unlink(address->un.sun_path) < 0)
		return -EADDRINUSE;
	return bind(fd, &address->any, address->length) == 0 ? 0 : -errno;
}

/* On success the path, if it is one, is the caller's to unlink. */
static int listen_at(const struct rendezvous_address *address)
{
	int fd, err, on = 1, off = 0;

	fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (address->any.sa_family != AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	err = bind_to(fd, address);
	if (!err && listen(fd, SOMAXCONN) < 0) {
		err = -errno;
		if (address->any.sa_family == AF_UNIX && address->un.sun_path[0])
			unlink(address->un.sun_path);
	}
	if (!err)
		return fd;
	close(fd);
	return err;
}

int rendezvous_listen(const struct rendezvous_addresses *addresses, const char *text,
	struct rendezvous_address *ret_bound)
{
	bool is_unix = addresses->list[0].any.sa_family == AF_UNIX;
	int fd = -EINVAL;

	/* A port that is taken is no reason to go on: clients would find the other server. */
	for (int i = 0; i < addresses->n && fd < 0 && fd != -EADDRINUSE; i++) {
		fd = listen_at(&addresses->list[i]);
		if (fd >= 0)
			*ret_bound = addresses->list[i];
	}
	if (fd >= 0)
		return fd;
	return frl_fail(fd, "%s: %s%s", text, frl_strerror(fd),
		fd == -EADDRINUSE && is_unix ? ": another rendezvous, or a file of that name" : "");
}

void rendezvous_tune(int fd, const struct rendezvous_address *address)
{
	/* A host that loses power says no good-bye: 2 s of silence, then three probes. */
	int on = 1, idle_s = 2, interval_s = 1, probes = 3, unacked_ms = 5000;

	if (address->any.sa_family == AF_UNIX)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
}

bool rendezvous_peer_may_join(int fd, const struct rendezvous_address *address)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (address->any.sa_family != AF_UNIX)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return false;
	return peer.uid == geteuid() || peer.uid == 0;
}
