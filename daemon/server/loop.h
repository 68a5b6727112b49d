/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The event loop of ferruled: the core, and the I/O around it: sockets, clock, signals, systemd.
 *
 *	loop.c      operations for the core, events of the streams, time and signals
 *	services.c  services that depend on settings: TLS, TCP, metrics
 *
 * One thread.
 */
#ifndef FERRULE_DAEMON_SERVER_LOOP_H
#define FERRULE_DAEMON_SERVER_LOOP_H

#include <stdbool.h>
#include <stddef.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "daemon/config/config.h"
#include "daemon/core/core.h"
#include "daemon/server/dial.h"
#include "daemon/server/http.h"
#include "daemon/server/listener.h"
#include "daemon/server/local.h"
#include "daemon/server/options.h"
#include "daemon/server/sockets.h"
#include "daemon/server/stream.h"
#include "daemon/server/tls.h"

enum { PLACE_SIZE = 80 };

struct loop {
	const struct options *options;
	struct config *config;
	struct local *local;
	struct event_base *base;
	struct core *core;
	struct streams *streams;
	struct sockets *sockets;
	struct dials *dials;
	struct listener_socket *local_listener, *tcp_listener;
	char listens[PLACE_SIZE], metrics[PLACE_SIZE]; /* "10.1.2.3:7476", or empty */
	struct tls *tls;
	int64_t tls_expires; /* Unix time; 0: unknown */
	struct http *http;
	uint64_t next_id;  /* of sessions */
	uint64_t armed_ns; /* when the timer fires, or CORE_NEVER */
	struct event timer, watchdog, hangup, terminate, interrupt;
};

/* Takes over `config` and `local`. Returns NULL with a sentence in `error`. */
struct loop *loop_create(const struct options *options, struct config *config, struct local *local,
	char *error, size_t size);

/* Runs until a signal, or until a private daemon is unused. Returns 0 or a negative errno. */
int loop_run(struct loop *loop);

/* Ends all sessions and releases the socket's path. NULL is allowed. */
void loop_destroy(struct loop *loop);

/* ---- services.c */

/* Opens the services of the loop's settings. Returns false with a sentence. */
bool services_open(struct loop *loop, char *error, size_t size);

/* Reads the certificates and keys that `wanted` names again. Returns false with a sentence; nothing
 * has changed then. */
bool services_reload(struct loop *loop, const struct config *wanted, char *error, size_t size);

void services_stop(struct loop *loop);

/* Returns true if other daemons may be dialled: needs TLS or insecure = true. Else `why` gets a
 * sentence. */
bool services_allow(void *ctx, const char **why);

/* Called by the listener of services.c. */
void loop_accept_peer(void *arg, int fd, const struct sockaddr_storage *peer);

#endif
