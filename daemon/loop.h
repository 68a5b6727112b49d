/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of ferruled: the core, and everything that it is not: sockets, clock, signals, systemd.
 *
 *	loop.c      what the core wants done, what the streams bring, time and signals
 *	services.c  what the settings open: TLS, TCP, metrics; at start and again on SIGHUP
 *
 * One thread.
 */
#ifndef FERRULE_DAEMON_LOOP_H
#define FERRULE_DAEMON_LOOP_H

#include <stdbool.h>
#include <stddef.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "daemon/config.h"
#include "daemon/core/core.h"
#include "daemon/dial.h"
#include "daemon/http.h"
#include "daemon/listener.h"
#include "daemon/local.h"
#include "daemon/options.h"
#include "daemon/stream.h"
#include "daemon/tls.h"

enum { PLACE_SIZE = 80 };

struct loop {
	const struct options *options;
	struct config *config;
	struct local *local;
	struct event_base *base;
	struct core *core;
	struct streams *streams;
	struct dials *dials;
	struct listener_socket *local_listener, *tcp_listener;
	bool tcp_activated; /* its socket is systemd's, whatever the settings say */
	struct sockaddr_storage tcp_address;
	char listens[PLACE_SIZE], metrics[PLACE_SIZE]; /* "10.1.2.3:7476", or empty */
	struct tls *tls;
	struct http *http;
	uint64_t next_id;  /* of sessions */
	uint64_t armed_ns; /* what the timer is set to, or CORE_NEVER */
	struct event timer, watchdog, hangup, terminate, interrupt;
};

/* Takes over `config`, `local` and the socket `tcp_fd` (systemd's, or -1). NULL with a sentence in
 * `error`. */
struct loop *loop_create(const struct options *options, struct config *config, struct local *local,
	int tcp_fd, char *error, size_t size);

/* Until a signal, or until a private one has nobody left. 0 or a negative errno. */
int loop_run(struct loop *loop);

/* Ends all sessions, and gives the socket's place back. NULL is fine. */
void loop_destroy(struct loop *loop);

/* ---- services.c */

/* Opens what `wanted` wants and closes what it does not; `config` is still the loop's. False with a
 * sentence, and all is as before. */
bool services_apply(struct loop *loop, const struct config *wanted, char *error, size_t size);

/* A TCP socket that somebody else made listens: it is used as it is. */
bool services_adopt_tcp(struct loop *loop, int fd, char *error, size_t size);

void services_stop(struct loop *loop);

/* May another daemon be connected to at this address, with TLS or without? */
bool services_allow(void *ctx, const struct sockaddr_storage *address, const char **why);

/* For the listener of services.c. */
void loop_accept_peer(void *arg, int fd, const struct sockaddr_storage *peer);

#endif
