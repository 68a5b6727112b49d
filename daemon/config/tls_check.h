/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks the TLS files as daemons of other hosts will: for --check-config, ferrulectl doctor, the
 * log and the metrics. Changes nothing. One thread.
 */
#ifndef FERRULE_DAEMON_CONFIG_TLS_CHECK_H
#define FERRULE_DAEMON_CONFIG_TLS_CHECK_H

#include <stdint.h>
#include <time.h>

#include "daemon/config/config.h"

enum { TLS_WARN_DAYS = 21 };

enum tls_level {
	TLS_WARNING, /* works for now */
	TLS_FAILURE, /* no daemon will connect */
	TLS_HIDDEN,  /* this process may not read the file */
};

struct tls_check {
	void (*say)(void *arg, enum tls_level level, const char *text);
	void *arg;
	time_t now;
	bool as_user; /* run by root: checks also whether the daemon's user can read the files */
};

/* Calls `say` with a sentence for each problem. The configuration must have TLS. Returns when the
 * first certificate of the chain expires, as Unix time; 0: unknown. */
int64_t tls_check(const struct config *config, const struct tls_check *check);

/* Prints "2026-11-28 21:40 UTC". */
void tls_date(char text[24], int64_t seconds);

#endif
