/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of ferruled. */
#ifndef FERRULE_DAEMON_SERVER_OPTIONS_H
#define FERRULE_DAEMON_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config.h"
#include "daemon/core/core.h"

struct options {
	const char *config; /* a file that must exist, or NULL */
	const char *socket;
	bool is_private;
	bool has_listen, has_metrics; /* else the configuration's */
	char listen_address[64], metrics_address[64];
	uint16_t listen_port, metrics_port;
	bool check_config;
	enum core_log log_level;
};

/* Returns -1 to continue with *options; else the exit status, after the messages were printed. */
int options_parse(struct options *options, int argc, char **argv);

/* Combines the file, if any, and the command line. Returns NULL with a sentence. */
struct config *options_config(const struct options *options, char *error, size_t size);

#endif
