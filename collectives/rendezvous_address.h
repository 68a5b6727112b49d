/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses of a rendezvous: from text to sockets. A host may have several addresses, and nobody
 * can tell which of them works but by trying. Any thread; resolving a host name may block.
 */
#ifndef FERRULE_COLLECTIVES_RENDEZVOUS_ADDRESS_H
#define FERRULE_COLLECTIVES_RENDEZVOUS_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { RENDEZVOUS_ADDRESSES_MAX = 8 };

struct rendezvous_address {
	union {
		struct sockaddr any;
		struct sockaddr_un un;
		struct sockaddr_storage storage;
	};
	socklen_t length;
};

struct rendezvous_addresses {
	int n; /* 1 or more */
	struct rendezvous_address list[RENDEZVOUS_ADDRESSES_MAX];
};

/* Parses and, for TCP, resolves; -EINVAL, or -EHOSTUNREACH when there is no such host. */
int rendezvous_resolve(const char *address, struct rendezvous_addresses *ret_addresses);

/*
 * Listens at the first of the addresses that works, which *ret_bound then is. `text` is what errors
 * call it. A Unix socket that a dead server left behind is replaced. Returns the socket, which does
 * not block, or a negative errno.
 */
int rendezvous_listen(const struct rendezvous_addresses *addresses, const char *text,
	struct rendezvous_address *ret_bound);

/* Sets what every connection of a rendezvous wants: no delay, and dead hosts noticed. */
void rendezvous_tune(int fd, const struct rendezvous_address *address);

/* May the process at the other end take part? Over Unix sockets: its user is ours, or root. */
bool rendezvous_peer_may_join(int fd, const struct rendezvous_address *address);

#endif
