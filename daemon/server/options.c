/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/options.h"

#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/util.h>

#include "daemon/server/listener.h"
#include "daemon/server/log.h"
#include "lib/control/frame.h"
#include "lib/control/install.h"
#include "lib/control/spawn.h"

enum {
	METRICS_PORT = 9476,
	EXIT_USAGE = 2,
};

static const char usage[] =
	"Usage: ferruled [OPTION]...\n"
	"Ferrule's control daemon: leases ports, sets up connections, reports all queue pairs.\n"
	"\n"
	"  --config FILE        settings (ferruled.conf(5)); default: " DAEMON_CONFIG "\n"
	"                       if it exists, and not with --private\n"
	"  --check-config       read the settings, report errors, and exit\n"
	"  --socket PATH        Unix socket for processes\n"
	"  --private            for this user alone: ends when unused; no TCP and no metrics\n"
	"                       unless a --config sets them\n"
	"  --listen ADDR:PORT   address for other daemons; \"none\": no TCP\n"
	"  --metrics ADDR:PORT  address for Prometheus; default: 127.0.0.1; \"none\": no metrics\n"
	"  --log-level LEVEL    error, warning, info (default) or debug\n"
	"  --version, --help\n"
	"\n"
	"SIGHUP reads the settings again. SIGTERM and SIGINT end the daemon.\n";

/* Parses "10.1.2.3:7476", "[::1]:7476", either without the port, or "none" for an empty address. */
static bool parse_address(
	const char *text, uint16_t usual_port, char *address, size_t size, uint16_t *ret_port)
{
	struct sockaddr_storage parsed = { 0 };
	int length = sizeof(parsed);
	uint16_t port;

	*ret_port = usual_port;
	*address = '\0';
	if (strcmp(text, "none") == 0)
		return true;
	if (evutil_parse_sockaddr_port(text, (struct sockaddr *)&parsed, &length) < 0)
		return false;
	address_text(&parsed, address, size);
	/* The port is at the same offset for both families. */
	port = ntohs(((const struct sockaddr_in *)&parsed)->sin_port);
	if (port)
		*ret_port = port;
	return true;
}

static int usage_error(const char *what, const char *value)
{
	fprintf(stderr, "ferruled: %s: %s\nTry ferruled --help\n", what, value);
	return EXIT_USAGE;
}

static int take_option(struct options *options, int option)
{
	int level;

	switch (option) {
	case 'c': options->config = optarg; break;
	case 's': options->socket = optarg; break;
	case 'p': options->is_private = true; break;
	case 'C': options->check_config = true; break;
	case 'l':
		options->has_listen = true;
		if (!parse_address(optarg, CONTROL_PORT, options->listen_address,
			    sizeof(options->listen_address), &options->listen_port))
			return usage_error("--listen needs ADDR:PORT or none", optarg);
		break;
	case 'm':
		options->has_metrics = true;
		if (!parse_address(optarg, METRICS_PORT, options->metrics_address,
			    sizeof(options->metrics_address), &options->metrics_port))
			return usage_error("--metrics needs ADDR:PORT or none", optarg);
		break;
	case 'L':
		level = log_level_of(optarg);
		if (level < 0)
			return usage_error(
				"--log-level needs error, warning, info or debug", optarg);
		options->log_level = (enum core_log)level;
		break;
	case 'v': printf("ferruled %s\n", FERRULE_RELEASE); return EXIT_SUCCESS;
	case 'h': fputs(usage, stdout); return EXIT_SUCCESS;
	default: fputs("Try ferruled --help\n", stderr); return EXIT_USAGE;
	}
	return -1;
}

int options_parse(struct options *options, int argc, char **argv)
{
	static const struct option known[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "socket", required_argument, NULL, 's' },
		{ "private", no_argument, NULL, 'p' },
		{ "listen", required_argument, NULL, 'l' },
		{ "metrics", required_argument, NULL, 'm' },
		{ "check-config", no_argument, NULL, 'C' },
		{ "log-level", required_argument, NULL, 'L' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int option;

	*options = (struct options){ .log_level = CORE_LOG_INFO };
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		int status = take_option(options, option);

		if (status >= 0)
			return status;
	}
	if (optind < argc)
		return usage_error("unexpected argument", argv[optind]);
	if (!options->config && !options->is_private && access(DAEMON_CONFIG, F_OK) == 0)
		options->config = DAEMON_CONFIG;
	return -1;
}

static bool set_text(char **to, const char *text)
{
	char *copy = text ? strdup(text) : NULL;

	free(*to);
	*to = copy;
	return copy || !text;
}

/* The socket path of a private daemon, which the library derives in the same way. */
static void private_socket(char *path, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (runtime && *runtime == '/')
		snprintf(path, size, "%s/ferrule/ferruled.sock", runtime);
	else
		snprintf(path, size, "/tmp/ferrule-%u/ferruled.sock", (unsigned)geteuid());
}

struct config *options_config(const struct options *options, char *error, size_t size)
{
	struct config *config = options->config ? config_load(options->config, error, size)
						: config_new();
	char path[256];
	bool done = true;

	if (!config) {
		if (!options->config)
			snprintf(error, size, "no memory");
		return NULL;
	}
	if (options->is_private && !options->config)
		done = set_text(&config->listen_address, NULL);
	if (options->is_private && config->metrics_by_default)
		done = done && set_text(&config->metrics_address, NULL);
	if (options->is_private && !options->socket) {
		private_socket(path, sizeof(path));
		done = done && set_text(&config->socket, path);
	}
	if (options->socket)
		done = done && set_text(&config->socket, options->socket);
	if (options->has_listen) {
		const char *address = options->listen_address;

		done = done && set_text(&config->listen_address, *address ? address : NULL);
		config->listen_port = options->listen_port;
	}
	if (options->has_metrics) {
		const char *address = options->metrics_address;

		done = done && set_text(&config->metrics_address, *address ? address : NULL);
		config->metrics_port = options->metrics_port;
		config->metrics_by_default = false;
	}
	if (done)
		return config;
	snprintf(error, size, "no memory");
	config_free(config);
	return NULL;
}
