/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/server/log.h"
#include "daemon/server/loop.h"
#include "daemon/server/process.h"
#include "daemon/config/tls_check.h"
#include "lib/base/clock.h"

static void write_tls(const struct loop *loop, FILE *out)
{
	static const char name[] = "ferrule_tls_certificate_expiry_timestamp_seconds";

	if (loop->tls && loop->tls_expires)
		fprintf(out,
			"# HELP %s When the first certificate of this host's chain expires, as "
			"Unix "
			"time.\n# TYPE %s gauge\n%s %" PRId64 "\n",
			name, name, name, loop->tls_expires);
}

static void warn(void *arg, enum tls_level level, const char *text)
{
	log_line(CORE_LOG_WARNING, "%s", text);
}

static void write_metrics(void *arg, FILE *out)
{
	struct loop *loop = arg;

	core_write_metrics(loop->core, out, clock_now_ns());
	write_tls(loop, out);
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
	const struct tls_check check = { .say = warn, .now = time(NULL) };
	struct tls *tls = NULL;

	if (config_lacks_tls(wanted)) {
		snprintf(error, size,
			"listening on %s needs TLS: set tls_certificate, tls_key and tls_ca, or "
			"insecure = true if its network is trusted",
			wanted->listen_address);
		return false;
	}
	if (wanted->tls_certificate) {
		tls = tls_create(wanted, error, size);
		if (!tls)
			return false;
		loop->tls_expires = tls_check(wanted, &check);
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
