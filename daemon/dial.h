/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting to another daemon: its name is looked up by a thread, for that can take seconds, and
 * its addresses are tried in turn. One thread calls these functions.
 */
#ifndef FERRULE_DAEMON_DIAL_H
#define FERRULE_DAEMON_DIAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <event2/event.h>

#include "daemon/core/core.h"

struct dials;

struct dial_handler {
	/* May other daemons be dialled? Otherwise a sentence in `why`. */
	bool (*allowed)(void *ctx, const char **why);
	/* Connected: the socket is the handler's. */
	void (*connected)(void *ctx, uint64_t id, int fd, const char *host,
		const struct sockaddr_storage *address);
	void (*failed)(void *ctx, uint64_t id, enum core_end end, const char *why);
	void *ctx;
};

/* NULL: no memory or descriptors. */
struct dials *dials_create(struct event_base *base, const struct dial_handler *handler);
/* Ends all without telling anybody. */
void dials_destroy(struct dials *dials);

/* Answered by one of the handler's functions, later. `address`: the numeric address of `host`, or
 * NULL: it is looked up. `uid`: whom it is for; who wants names that are long in being looked up
 * keeps nobody else from his. */
void dial_start(struct dials *dials, uint64_t id, const char *host, const char *address,
	uint16_t port, uid_t uid);

/* No answer is wanted any more. False: there is no such dial. */
bool dial_cancel(struct dials *dials, uint64_t id);

#endif
