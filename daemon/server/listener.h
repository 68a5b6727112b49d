/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listening sockets. A limited number of connections is accepted at a time. Accepting pauses while
 * the process has no free descriptor. On a Unix socket it also pauses while many passed descriptors
 * are being closed (lib/base/process/closer.h), since each of them still counts. One thread.
 */
#ifndef FERRULE_DAEMON_SERVER_LISTENER_H
#define FERRULE_DAEMON_SERVER_LISTENER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <event2/event.h>

struct listener_socket;

/* Takes over a listening socket. `accepted` owns the connection `fd`, which is non-blocking, and
 * gets the peer's address from accept(). Returns NULL without memory; the caller then keeps the
 * socket. */
struct listener_socket *listener_start(struct event_base *base, int fd,
	void (*accepted)(void *arg, int fd, const struct sockaddr_storage *peer), void *arg);

/* Closes it. NULL is allowed. */
void listener_stop(struct listener_socket *listener);

/* Returns a TCP socket that listens at a numeric address, or -1 with a sentence in `error`. If no
 * interface has the address yet, that is logged. */
int listener_tcp(const char *address, uint16_t port, char *error, size_t size);

/* Prints "10.1.2.3" or "fe80::1"; IPv4-mapped addresses as IPv4. */
void address_text(const struct sockaddr_storage *address, char *text, size_t size);

#endif
