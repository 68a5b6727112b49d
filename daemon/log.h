/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's log: lines to standard error, with syslog levels where the journal reads them. Lines
 * about what others do are limited in number, so that a client that misbehaves fills no disk.
 * One thread.
 */
#ifndef FERRULE_DAEMON_LOG_H
#define FERRULE_DAEMON_LOG_H

#include "daemon/core/core.h"

/* Lines above `level` are left out. Levels by name: -1 is no such name. */
void log_start(enum core_log level);
int log_level_of(const char *name);

/* A line about the daemon itself. */
void log_line(enum core_log level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line about what a client or peer does: at most some dozens a second, then how many more. */
void log_of_others(enum core_log level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
