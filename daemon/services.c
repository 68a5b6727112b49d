/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/process.h"
#include "lib/base/clock.h"

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
	snprintf(text, PLACE_SIZE, strchr(address, ':') ? "[%s]:%u" : "%s:%u", address, port);
}

static bool open_tcp(struct loop *loop, const struct config *config, char *error, size_t size)
{
	int fd = listener_tcp(config->listen_address, config->listen_port, error, size);

	if (fd < 0)
		return false;
	loop->tcp_listener = listener_start(loop->base, fd, loop_accept_peer, loop);
	if (!loop->tcp_listener) {
		snprintf(error, size, "no memory");
		close(fd);
		return false;
	}
	name_place(loop->listens, config->listen_address, config->listen_port);
	return true;
}

static bool open_metrics(struct loop *loop, const struct config *config, char *error, size_t size)
{
	loop->http = http_start(loop->base, config->metrics_address, config->metrics_port,
		write_metrics, loop, error, size);
	if (loop->http) {
		http_prepare(loop->http, ask_for_metrics);
		name_place(loop->metrics, config->metrics_address, config->metrics_port);
	} else if (config->metrics_by_default) {
		log_line(CORE_LOG_WARNING, "no metrics: %s", error);
	} else {
		return false;
	}
	return true;
}

bool services_open(struct loop *loop, char *error, size_t size)
{
	const struct config *config = loop->config;

	return services_reload(loop, config, error, size) &&
		(!config->listen_address || open_tcp(loop, config, error, size)) &&
		(!config->metrics_address || open_metrics(loop, config, error, size));
}

bool services_reload(struct loop *loop, const struct config *wanted, char *error, size_t size)
{
	struct tls *tls = NULL;

	if (config_lacks_tls(wanted)) {
		snprintf(error, size,
			"listening on %s needs TLS: set tls_certificate, tls_key and tls_ca, or "
			"insecure = true if every user and host that reaches it can be trusted",
			wanted->listen_address);
		return false;
	}
	if (wanted->tls_certificate) {
		tls = tls_create(wanted, error, size);
		if (!tls)
			return false;
	}
	tls_destroy(loop->tls);
	loop->tls = tls;
	return true;
}

void services_stop(struct loop *loop)
{
	listener_stop(loop->tcp_listener);
	http_stop(loop->http);
	tls_destroy(loop->tls);
}

bool services_allow(void *ctx, const char **why)
{
	const struct loop *loop = ctx;

	if (loop->tls || loop->config->insecure)
		return true;
	*why = "TLS is not configured: set tls_certificate, tls_key and tls_ca in ferruled.conf, "
	       "or insecure = true";
	return false;
}
