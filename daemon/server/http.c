/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HTTP for the metrics, with libevent's evhttp. Clients are anonymous, so all resources are small:
 * a few connections at a time, each for one request and a few seconds, short headers, no body.
 * Further connections wait to be accepted.
 */
#include "daemon/server/http.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include "daemon/server/listener.h"
#include "lib/base/list.h"

enum {
	CONNECTIONS_MAX = 32,
	HEADERS_MAX = 8192,
	LIFE_MS = 10000,
	BUSY_CONNECTIONS = CONNECTIONS_MAX /
		2, /* with more connections than this each has a shorter limit: */
	BUSY_LIFE_MS = 1000,
	SWEEP_MS = 100,
	ANSWER_MS = 50, /* between `ask` and `write` */
};

struct http {
	struct evhttp *server;
	struct evconnlistener *listener;
	void (*write)(void *arg, FILE *out);
	void (*ask)(void *arg);
	void *arg;
	unsigned life_ms, busy_life_ms;
	struct list visits;
	unsigned n_visits;
	struct event *sweeper; /* active while there are visits */
	struct list scrapes;
	struct event *writer; /* active while there are scrapes */
};

/* A connection. evhttp does not report the end of one. So a reference to its stream is kept and
 * checked periodically: a stream without callbacks has been released by evhttp. */
struct visit {
	struct bufferevent *stream;
	unsigned age_ms, life_ms, busy_life_ms;
	struct list node; /* http.visits */
};

/* A request that waits for new data. */
struct scrape {
	struct evhttp_request *request;
	struct list node; /* http.scrapes */
};

/* ---- connections */

static void visit_end(struct http *http, struct visit *visit)
{
	list_remove(&visit->node);
	bufferevent_decref(visit->stream);
	free(visit);
	http->n_visits--;
}

static bool is_over(const struct visit *visit)
{
	bufferevent_event_cb on_event = NULL;

	bufferevent_getcb(visit->stream, NULL, NULL, &on_event, NULL);
	return !on_event;
}

static void sweep(evutil_socket_t unused, short what, void *arg)
{
	struct http *http = arg;
	bool is_busy = http->n_visits > BUSY_CONNECTIONS;

	LIST_EACH(struct visit, visit, &http->visits, node) {
		visit->age_ms += SWEEP_MS;
		if (is_over(visit))
			visit_end(http, visit);
		else if (visit->age_ms >= visit->life_ms ||
			(is_busy && visit->age_ms >= visit->busy_life_ms))
			/* evhttp sees the end of the stream and releases it. */
			shutdown(bufferevent_getfd(visit->stream), SHUT_RDWR);
	}
	if (http->n_visits < CONNECTIONS_MAX)
		evconnlistener_enable(http->listener);
	if (!http->n_visits)
		event_del(http->sweeper);
}

/* Called by evhttp for each accepted connection, to get a stream. */
static struct bufferevent *visit_begin(struct event_base *base, void *arg)
{
	static const struct timeval interval = { .tv_usec = SWEEP_MS * 1000 };
	struct http *http = arg;
	struct visit *visit = calloc(1, sizeof(*visit));

	if (!visit)
		return NULL;
	visit->stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	if (!visit->stream) {
		free(visit);
		return NULL;
	}
	bufferevent_incref(visit->stream);
	visit->life_ms = http->life_ms;
	visit->busy_life_ms = http->busy_life_ms;
	list_add_tail(&http->visits, &visit->node);
	if (!http->n_visits++)
		event_add(http->sweeper, &interval);
	if (http->n_visits == CONNECTIONS_MAX)
		evconnlistener_disable(http->listener);
	return visit->stream;
}

/* ---- answers */

/* One request a connection: no client occupies a place without using it. */
static void answer(struct evhttp_request *request, int code, const char *reason, const char *type,
	const char *text, size_t length)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	char number[24];

	snprintf(number, sizeof(number), "%zu", length);
	evhttp_add_header(headers, "Connection", "close");
	evhttp_add_header(headers, "Content-Type", type);
	evhttp_add_header(headers, "Content-Length", number);
	if (evhttp_request_get_command(request) != EVHTTP_REQ_HEAD)
		evbuffer_add(evhttp_request_get_output_buffer(request), text, length);
	evhttp_send_reply(request, code, reason, NULL);
}

static void answer_text(
	struct evhttp_request *request, int code, const char *reason, const char *text)
{
	answer(request, code, reason, "text/plain; charset=utf-8", text, strlen(text));
}

/* Returns the metrics, to be freed; NULL without memory. */
static char *write_metrics(struct http *http, size_t *ret_length)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_length);
	bool ok = out;

	if (out) {
		http->write(http->arg, out);
		ok = !ferror(out);
		ok = fclose(out) == 0 && ok;
	}
	if (ok)
		return text;
	free(text);
	return NULL;
}

static void answer_metrics(struct evhttp_request *request, const char *text, size_t length)
{
	if (text)
		answer(request, HTTP_OK, "OK", "text/plain; version=0.0.4; charset=utf-8", text,
			length);
	else
		answer_text(request, HTTP_INTERNAL, "Internal Server Error", "out of memory\n");
}

/* ---- requests */

static void scrape_free(struct scrape *scrape)
{
	list_remove(&scrape->node);
	free(scrape);
}

/* Answers all waiting requests: the metrics are written at most once in ANSWER_MS. */
static void scrapes_are_due(evutil_socket_t fd, short what, void *arg)
{
	struct http *http = arg;
	size_t length = 0;
	char *text = list_empty(&http->scrapes) ? NULL : write_metrics(http, &length);

	while (!list_empty(&http->scrapes)) {
		struct scrape *scrape = container_of(http->scrapes.next, struct scrape, node);
		struct evhttp_request *request = scrape->request;

		evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
		scrape_free(scrape);
		answer_metrics(request, text, length);
	}
	free(text);
}

static void scrape_is_gone(struct evhttp_connection *connection, void *arg)
{
	scrape_free(arg);
}

/* Returns false without memory. */
static bool scrape_later(struct http *http, struct evhttp_request *request)
{
	static const struct timeval wait = { .tv_usec = ANSWER_MS * 1000 };
	struct scrape *scrape = calloc(1, sizeof(*scrape));
	bool is_first = list_empty(&http->scrapes);

	if (!scrape)
		return false;
	scrape->request = request;
	list_add_tail(&http->scrapes, &scrape->node);
	evhttp_connection_set_closecb(
		evhttp_request_get_connection(request), scrape_is_gone, scrape);
	if (!is_first)
		return true;
	event_add(http->writer, &wait);
	http->ask(http->arg);
	return true;
}

static bool is_read(struct evhttp_request *request)
{
	enum evhttp_cmd_type command = evhttp_request_get_command(request);

	if (command == EVHTTP_REQ_GET || command == EVHTTP_REQ_HEAD)
		return true;
	evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "GET, HEAD");
	answer_text(request, HTTP_BADMETHOD, "Method Not Allowed", "only GET and HEAD\n");
	return false;
}

static void on_metrics(struct evhttp_request *request, void *arg)
{
	struct http *http = arg;
	size_t length = 0;
	char *text;

	if (!is_read(request) || (http->ask && scrape_later(http, request)))
		return;
	text = write_metrics(http, &length);
	answer_metrics(request, text, length);
	free(text);
}

static void on_other(struct evhttp_request *request, void *arg)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
	const char *path = uri ? evhttp_uri_get_path(uri) : NULL;

	if (!is_read(request))
		return;
	if (path && strcmp(path, "/") == 0)
		answer_text(request, HTTP_OK, "OK", "ferruled: its metrics are at /metrics\n");
	else
		answer_text(request, HTTP_NOTFOUND, "Not Found", "only /metrics is here\n");
}

/* ---- the server */

static bool listen_at(
	struct http *http, const char *address, uint16_t port, char *error, size_t size)
{
	int length = snprintf(error, size, "metrics: ");
	int fd = listener_tcp(address, port, error + length, size - (size_t)length);
	struct evhttp_bound_socket *bound = NULL;

	if (fd < 0)
		return false;
	bound = evhttp_accept_socket_with_handle(http->server, fd);
	if (!bound) {
		snprintf(error, size, "out of memory");
		close(fd);
		return false;
	}
	http->listener = evhttp_bound_socket_get_listener(bound);
	return true;
}

struct http *http_start(struct event_base *base, const char *address, uint16_t port,
	void (*write)(void *arg, FILE *out), void *arg, char *error, size_t size)
{
	struct http *http = calloc(1, sizeof(*http));

	if (!http || !(http->server = evhttp_new(base)) ||
		!(http->sweeper = event_new(base, -1, EV_PERSIST, sweep, http)) ||
		!(http->writer = evtimer_new(base, scrapes_are_due, http))) {
		snprintf(error, size, "out of memory");
		http_stop(http);
		return NULL;
	}
	list_init(&http->visits);
	list_init(&http->scrapes);
	http->write = write;
	http->arg = arg;
	evhttp_set_max_headers_size(http->server, HEADERS_MAX);
	evhttp_set_max_body_size(http->server, 0);
	http_limit(http, LIFE_MS, BUSY_LIFE_MS);
	/* All methods that evhttp knows, so that is_read() refuses them. */
	evhttp_set_allowed_methods(http->server,
		EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
			EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE |
			EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH);
	evhttp_set_bevcb(http->server, visit_begin, http);
	evhttp_set_cb(http->server, "/metrics", on_metrics, http);
	evhttp_set_gencb(http->server, on_other, http);
	if (listen_at(http, address, port, error, size))
		return http;
	http_stop(http);
	return NULL;
}

void http_prepare(struct http *http, void (*ask)(void *arg))
{
	http->ask = ask;
}

void http_limit(struct http *http, unsigned life_ms, unsigned busy_life_ms)
{
	http->life_ms = life_ms;
	http->busy_life_ms = busy_life_ms;
	/* evhttp limits the time between two bytes. */
	evhttp_set_timeout(http->server, (int)((life_ms + 999) / 1000));
}

void http_stop(struct http *http)
{
	if (!http)
		return;
	if (http->server)
		evhttp_free(http->server);
	while (http->n_visits)
		visit_end(http, container_of(http->visits.next, struct visit, node));
	if (http->sweeper)
		event_free(http->sweeper);
	if (http->writer)
		event_free(http->writer);
	free(http);
}
