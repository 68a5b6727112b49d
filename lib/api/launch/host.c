/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides whether a host is this one. The daemon of this host may not listen for others, and then
 * cannot be dialled at the host's own address. Ranks on the host that keeps the job must therefore
 * use "".
 */
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/api/launch/launch.h"

static bool is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	if (address->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static bool is_equal(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
		memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
}

static bool is_own(const struct ifaddrs *own, const struct sockaddr *address)
{
	if (is_loopback(address))
		return true;
	for (; own; own = own->ifa_next)
		if (own->ifa_addr && is_equal(own->ifa_addr, address))
			return true;
	return false;
}

bool launch_is_this_host(const char *host)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found, *at;
	struct ifaddrs *own;
	char name[256] = "";
	bool is_here = false;

	if (strcasecmp(host, "localhost") == 0)
		return true;
	if (gethostname(name, sizeof(name) - 1) == 0 && strcasecmp(host, name) == 0)
		return true;
	/* "HOST:PORT" cannot be resolved: the daemon decides whether that is itself. */
	if (getaddrinfo(host, NULL, &hints, &found))
		return false;
	if (getifaddrs(&own) == 0) {
		for (at = found; at && !is_here; at = at->ai_next)
			is_here = is_own(own, at->ai_addr);
		freeifaddrs(own);
	}
	freeaddrinfo(found);
	return is_here;
}
