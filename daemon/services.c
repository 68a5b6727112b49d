/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/process.h"
#include "lib/base/clock.h"

/* What new settings make, until all of it has been made. */
struct opened {
	struct tls *tls;
	int tcp_fd;
	struct sockaddr_storage tcp_address;
	struct http *http;
	bool new_tcp, new_http;
	char listens[PLACE_SIZE], metrics[PLACE_SIZE];
};

static void write_metrics(void *arg, FILE *out)
{
	struct loop *loop = arg;

	core_write_metrics(loop->core, out, clock_now_ns());
	process_write_metrics(out);
}

static void ask_for_metrics(void *arg)
{
	struct loop *loop = arg;

	core_refresh(loop->core, clock_now_ns());
	streams_settle(loop->streams);
}

static void name_place(char text[PLACE_SIZE], const char *address, uint16_t port)
{
	if (!address)
		*text = '\0';
	else
		snprintf(text, PLACE_SIZE, strchr(address, ':') ? "[%s]:%u" : "%s:%u", address,
			port);
}

/* Where the socket listens. */
static bool place_of(int fd, struct sockaddr_storage *address, char text[PLACE_SIZE])
{
	socklen_t length = sizeof(*address);
	char name[64];

	if (getsockname(fd, (struct sockaddr *)address, &length) < 0)
		return false;
	address_text(address, name, sizeof(name));
	name_place(text, name, address_port(address));
	return true;
}

/* Others than this machine's processes may connect to us only by TLS, unless it was said. */
static bool is_safe(const struct config *config, const struct sockaddr_storage *address,
	const char *place, char *error, size_t size)
{
	if (config->tls_certificate || config->insecure || address_is_loopback(address))
		return true;
	snprintf(error, size,
		"listening on %s needs TLS: set tls, or insecure = true if every host of that "
		"network can be trusted",
		place);
	return false;
}

/* ---- TCP */

static bool open_tcp(const struct config *wanted, struct opened *opened, char *error, size_t size)
{
	char place[PLACE_SIZE];

	opened->tcp_fd = listener_tcp(wanted->listen_address, wanted->listen_port, error, size);
	return opened->tcp_fd >= 0 && place_of(opened->tcp_fd, &opened->tcp_address, place) &&
		is_safe(wanted, &opened->tcp_address, place, error, size);
}

static bool replace_tcp(struct loop *loop, int fd)
{
	struct listener_socket *listener = listener_start(loop->base, fd, loop_accept_peer, loop);

	if (!listener)
		return false;
	listener_stop(loop->tcp_listener);
	loop->tcp_listener = listener;
	return true;
}

bool services_adopt_tcp(struct loop *loop, int fd, char *error, size_t size)
{
	if (!place_of(fd, &loop->tcp_address, loop->listens)) {
		snprintf(error, size, "the socket given by systemd: %s", strerror(errno));
		return false;
	}
	if (!is_safe(loop->config, &loop->tcp_address, loop->listens, error, size))
		return false;
	loop->tcp_activated = replace_tcp(loop, fd);
	if (!loop->tcp_activated)
		snprintf(error, size, "no memory");
	return loop->tcp_activated;
}

/* ---- all of them */

static bool open_wanted(struct loop *loop, const struct config *wanted, struct opened *opened,
	char *error, size_t size)
{
	if (wanted->tls_certificate) {
		opened->tls = tls_create(wanted, error, size);
		if (!opened->tls)
			return false;
	}
	name_place(opened->listens, wanted->listen_address, wanted->listen_port);
	name_place(opened->metrics, wanted->metrics_address, wanted->metrics_port);
	opened->new_tcp = !loop->tcp_activated && strcmp(opened->listens, loop->listens) != 0;
	/* One that stays open may have lost its TLS. */
	if (!opened->new_tcp && loop->tcp_listener &&
		!is_safe(wanted, &loop->tcp_address, loop->listens, error, size))
		return false;
	if (opened->new_tcp && wanted->listen_address && !open_tcp(wanted, opened, error, size))
		return false;
	opened->new_http = strcmp(opened->metrics, loop->metrics) != 0;
	if (opened->new_http && wanted->metrics_address) {
		opened->http = http_start(loop->base, wanted->metrics_address, wanted->metrics_port,
			write_metrics, loop, error, size);
		if (opened->http) {
			http_prepare(opened->http, ask_for_metrics);
		} else if (wanted->metrics_by_default) {
			log_line(CORE_LOG_WARNING, "no metrics: %s", error);
			*opened->metrics = '\0';
		} else {
			return false;
		}
	}
	return true;
}

static bool replace(struct loop *loop, const struct config *wanted, char *error, size_t size)
{
	struct opened opened = { .tcp_fd = -1 };

	if (!open_wanted(loop, wanted, &opened, error, size) ||
		(opened.tcp_fd >= 0 && !replace_tcp(loop, opened.tcp_fd))) {
		if (opened.tcp_fd >= 0)
			close(opened.tcp_fd);
		http_stop(opened.http);
		tls_destroy(opened.tls);
		return false;
	}
	if (opened.new_tcp && opened.tcp_fd < 0) {
		listener_stop(loop->tcp_listener);
		loop->tcp_listener = NULL;
	}
	if (opened.new_tcp) {
		loop->tcp_address = opened.tcp_address;
		memcpy(loop->listens, opened.listens, sizeof(loop->listens));
	}
	if (opened.new_http) {
		http_stop(loop->http);
		loop->http = opened.http;
		memcpy(loop->metrics, opened.metrics, sizeof(loop->metrics));
	}
	tls_destroy(loop->tls);
	loop->tls = opened.tls;
	return true;
}

static void close_replaced(struct loop *loop, bool tcp, bool metrics)
{
	if (tcp) {
		listener_stop(loop->tcp_listener);
		loop->tcp_listener = NULL;
		*loop->listens = '\0';
	}
	if (metrics) {
		http_stop(loop->http);
		loop->http = NULL;
		*loop->metrics = '\0';
	}
}

bool services_apply(struct loop *loop, const struct config *wanted, char *error, size_t size)
{
	const struct config *now = loop->config;
	bool tcp = loop->tcp_listener && !loop->tcp_activated && wanted->listen_address &&
		wanted->listen_port == now->listen_port &&
		strcmp(wanted->listen_address, now->listen_address) != 0;
	bool metrics = loop->http && wanted->metrics_address &&
		wanted->metrics_port == now->metrics_port &&
		strcmp(wanted->metrics_address, now->metrics_address) != 0;
	char again[200];

	if (replace(loop, wanted, error, size))
		return true;
	if (!tcp && !metrics)
		return false;
	/* One address of a port, and all addresses of it, cannot be had together: what is to be
	 * replaced has to go first, and comes back if that was not it. */
	close_replaced(loop, tcp, metrics);
	if (replace(loop, wanted, error, size))
		return true;
	if (!replace(loop, now, again, sizeof(again)))
		log_line(CORE_LOG_ERROR, "what was open before is lost: %s", again);
	return false;
}

void services_stop(struct loop *loop)
{
	listener_stop(loop->tcp_listener);
	http_stop(loop->http);
	tls_destroy(loop->tls);
}

bool services_allow(void *ctx, const struct sockaddr_storage *address, const char **why)
{
	const struct loop *loop = ctx;

	if (loop->tls || loop->config->insecure || address_is_loopback(address))
		return true;
	*why = "a daemon on another host is only connected to by TLS: set tls in ferruled.conf, or "
	       "insecure = true";
	return false;
}
