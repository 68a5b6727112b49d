/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets that others connect to: some connections a round are accepted; when the process has no
 * descriptor left, none for a moment. Nor is one accepted on a Unix socket while many sockets of
 * others are still being closed (lib/base/closer.h): each takes a descriptor. One thread.
 */
#ifndef FERRULE_DAEMON_LISTENER_H
#define FERRULE_DAEMON_LISTENER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <event2/event.h>

struct listener_socket;

/* Takes over a socket that listens. `accepted` owns the connection `fd`, which does not block; the
 * peer's address is as accept() gave it. NULL: no memory; the socket is still the caller's. */
struct listener_socket *listener_start(struct event_base *base, int fd,
	void (*accepted)(void *arg, int fd, const struct sockaddr_storage *peer), void *arg);

/* Closes it. NULL is fine. */
void listener_stop(struct listener_socket *listener);

/* A TCP socket that listens at a numeric address, or -1 with a sentence in `error`. The address may
 * come later: the log then says that no interface has it yet. */
int listener_tcp(const char *address, uint16_t port, char *error, size_t size);

/* "10.1.2.3" or "fe80::1" of a socket address, IPv4-mapped ones as IPv4. */
void address_text(const struct sockaddr_storage *address, char *text, size_t size);

#endif
