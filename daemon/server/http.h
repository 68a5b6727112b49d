/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The metrics over HTTP: GET /metrics, for Prometheus. Nothing else is served. On the loop's
 * thread.
 */
#ifndef FERRULE_DAEMON_SERVER_HTTP_H
#define FERRULE_DAEMON_SERVER_HTTP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct event_base;
struct http;

/*
 * Listens on a numeric address. `write` writes the whole text to `out` at each request. Returns
 * NULL with a sentence in `error`.
 */
struct http *http_start(struct event_base *base, const char *address, uint16_t port,
	void (*write)(void *arg, FILE *out), void *arg, char *error, size_t size);

/* Calls `ask` for each request, and `write` some milliseconds later, so that new data can be
 * collected in between (core_refresh()). Both get the `arg` of http_start(). */
void http_prepare(struct http *http, void (*ask)(void *arg));

/* For tests: sets the longest life of a connection, normally and with many connections. The
 * defaults are 10 s and 1 s, in steps of 100 ms. Applies to later connections. */
void http_limit(struct http *http, unsigned life_ms, unsigned busy_life_ms);

/* Ends all connections and frees the server. NULL is allowed. */
void http_stop(struct http *http);

#endif
