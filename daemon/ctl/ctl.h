/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of ferrulectl. Each returns an exit status, enum ctl_exit. */
#ifndef FERRULE_DAEMON_CTL_CTL_H
#define FERRULE_DAEMON_CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/ctl/show.h"

/* As documented in ferrulectl(1). */
enum ctl_exit {
	EXIT_OK = 0,
	EXIT_FAILED = 1, /* the daemon refused; doctor: a check failed */
	EXIT_USAGE = 2,
	EXIT_NO_DAEMON = 3,
	EXIT_NOT_FOUND = 4, /* no such queue pair, or several */
	EXIT_DENIED = 5,
};

struct ctl_options {
	const char *socket; /* NULL: search */
	bool json;
	bool wide;
	bool undo;
	bool wait;
	uint32_t qpn;
	uint32_t pid;
	uint32_t port;
	const char *reason;
	double interval_s;
	uint32_t count;     /* number of refreshes; 0: until the user ends it */
	const char *root;   /* doctor: directory of proc and sys; "": / */
	const char *config; /* doctor: NULL: the default file */
};

int command_show(const struct ctl_options *options, const struct show *show);
int command_watch(const struct ctl_options *options, const struct show *show);
int command_kill(const struct ctl_options *options);
int command_drain(const struct ctl_options *options);
int command_why(const struct ctl_options *options);
int command_doctor(const struct ctl_options *options);

/* Prints an error as text or JSON. Returns the exit status for it. */
int report_error(const struct ctl_options *options, int error, const char *text);

/* Returns the columns of the terminal, from COLUMNS or TIOCGWINSZ; 0 if the output is not a
 * terminal. */
unsigned terminal_width(void);

#endif
