/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrulectl's commands. Each returns an exit status, enum ctl_exit. */
#ifndef FERRULE_DAEMON_CTL_CTL_H
#define FERRULE_DAEMON_CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/ctl/show.h"

/* As documented in ferrulectl(1). */
enum ctl_exit {
	EXIT_OK = 0,
	EXIT_FAILED = 1, /* the daemon has refused; doctor: something FAILs */
	EXIT_USAGE = 2,
	EXIT_NO_DAEMON = 3,
	EXIT_NOT_FOUND = 4, /* no such queue pair, or several */
	EXIT_DENIED = 5,
};

struct ctl_options {
	const char *socket; /* or NULL: search */
	bool json;
	bool wide;
	bool undo;
	bool wait;
	uint32_t qpn;
	uint32_t pid;
	uint32_t port;
	const char *reason;
	double interval_s;
	uint32_t count;     /* of refreshes; 0: until the user ends it */
	const char *root;   /* doctor: where /proc and /sys are; "" */
	const char *config; /* doctor: or NULL */
};

int command_show(const struct ctl_options *options, const struct show *show);
int command_watch(const struct ctl_options *options, const struct show *show);
int command_kill(const struct ctl_options *options);
int command_drain(const struct ctl_options *options);
int command_why(const struct ctl_options *options);
int command_doctor(const struct ctl_options *options);

/* Says what went wrong, to people or as JSON; the exit status for it. */
int report_error(const struct ctl_options *options, int error, const char *text);

/* Columns of the terminal: COLUMNS, TIOCGWINSZ; 0: the output is no terminal, and nothing says. */
unsigned terminal_width(void);

#endif
