/* SPDX-License-Identifier: BSD-3-Clause */
/* ferruled's command line. */
#ifndef FERRULE_DAEMON_OPTIONS_H
#define FERRULE_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/core/core.h"

struct options {
	const char *config; /* a file that must be there, or NULL */
	const char *socket;
	bool is_private;
	bool has_listen, has_metrics; /* else the configuration's */
	char listen_address[64], metrics_address[64];
	uint16_t listen_port, metrics_port;
	bool check_config;
	enum core_log log_level;
};

/* -1: go on with *options; otherwise the status to exit with, everything having been said. */
int options_parse(struct options *options, int argc, char **argv);

/* The configuration that the file (or none) and the command line make. NULL with a sentence. */
struct config *options_config(const struct options *options, char *error, size_t size);

#endif
