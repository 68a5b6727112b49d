/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page with the metrics, over HTTP: GET /metrics, for Prometheus. Nothing else is served. On
 * the loop's thread.
 */
#ifndef FERRULE_DAEMON_HTTP_H
#define FERRULE_DAEMON_HTTP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct event_base;
struct http;

/*
 * Listens on a numeric address. `write` puts the whole text into `out` whenever it is asked for.
 * NULL with a sentence in `error`.
 */
struct http *http_start(struct event_base *base, const char *address, uint16_t port,
	void (*write)(void *arg, FILE *out), void *arg, char *error, size_t size);

/* `ask` is called when a request comes in, and `write` some milliseconds later: what is written can
 * be fetched in between (core_refresh()). With the `arg` of http_start(). */
void http_prepare(struct http *http, void (*ask)(void *arg));

/* For tests: how long a connection may last, whatever it does, and where places are few: 10 s and
 * 1 s if this is not called. In steps of 100 ms; for connections that come later. */
void http_limit(struct http *http, unsigned life_ms, unsigned crowd_ms);

/* Ends what is under way. NULL is fine. */
void http_stop(struct http *http);

#endif
