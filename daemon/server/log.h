/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's log: lines to standard error, with syslog levels if the journal reads them. Lines
 * about clients and peers are rate limited, so that a faulty client cannot fill a disk. One thread.
 */
#ifndef FERRULE_DAEMON_SERVER_LOG_H
#define FERRULE_DAEMON_SERVER_LOG_H

#include "daemon/core/core.h"

/* Lines above `level` are omitted. log_level_of() returns -1 for an unknown name. */
void log_start(enum core_log level);
int log_level_of(const char *name);

/* Logs a line about the daemon itself. */
void log_line(enum core_log level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs a line about a client or peer. The rate is limited; omitted lines are counted. */
void log_of_others(enum core_log level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
