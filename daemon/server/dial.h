/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting to other daemons. A thread looks up the host's name, since that can take seconds. The
 * addresses are then tried in turn. One thread calls these functions.
 */
#ifndef FERRULE_DAEMON_SERVER_DIAL_H
#define FERRULE_DAEMON_SERVER_DIAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <event2/event.h>

#include "daemon/core/core.h"

struct dials;

struct dial_handler {
	/* Returns true if other daemons may be dialled, else false with a sentence in `why`. */
	bool (*allowed)(void *ctx, const char **why);
	/* Passes a connected socket, which the handler owns. */
	void (*connected)(void *ctx, uint64_t id, int fd, const char *host,
		const struct sockaddr_storage *address);
	void (*failed)(void *ctx, uint64_t id, enum core_end end, const char *why);
	void *ctx;
};

/* Returns NULL without memory or descriptors. */
struct dials *dials_create(struct event_base *base, const struct dial_handler *handler);
/* Ends all dials without calling the handler. */
void dials_destroy(struct dials *dials);

/* Starts a dial. One of the handler's functions is called later. `address`: the numeric address of
 * `host`; NULL: look it up. `uid`: the user who needs the connection; slow lookups of one user do
 * not delay those of others. */
void dial_start(struct dials *dials, uint64_t id, const char *host, const char *address,
	uint16_t port, uid_t uid);

/* Cancels a dial: the handler is not called. Returns false if there is no such dial. */
bool dial_cancel(struct dials *dials, uint64_t id);

#endif
