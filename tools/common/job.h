/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks that this process is, or starts: options of ferrule-allreduce and ferrule-bench, or
 * values of the launcher. For one thread.
 */
#ifndef FERRULE_TOOLS_COMMON_JOB_H
#define FERRULE_TOOLS_COMMON_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/common/common.h"

struct job_options {
	int ranks;
	int rank;         /* -1: this process starts all ranks */
	const char *job;  /* NULL: this process or a launcher starts the ranks */
	bool may_be_none; /* the tool also has work without ranks */
	bool is_launched;
	struct frl_launch launch; /* if is_launched; has `rank` and `ranks` */
	struct device_options device;
};

enum { OPT_RANK = OPT_OWN, OPT_JOB, OPT_BEYOND_JOB };

/* clang-format off */
#define JOB_LONG_OPTIONS                                                                           \
	{"ranks", required_argument, NULL, 'n'},                                                   \
	{"rank", required_argument, NULL, OPT_RANK},                                               \
	{"job", required_argument, NULL, OPT_JOB},                                                 \
	RAIL_LONG_OPTIONS
/* clang-format on */

#define JOB_HELP                                                                                   \
	"Several machines or network namespaces, one process each:\n"                              \
	"  --rank R            be rank R of N\n"                                                   \
	"  --job NAME[@HOST]   the job's name, the same for all ranks; the daemon (ferruled) of\n" \
	"                      HOST keeps the job (default: that of this machine)\n"               \
	"\n" RAIL_HELP

/* Takes one of the options above. Returns 0, or EXIT_USAGE after printing what is wrong with it. */
int job_option(int code, const char *value, struct job_options *options);

/*
 * Completes the options after the last one was taken: gets rank and ranks from the launcher if
 * there is no -n, and checks that the options fit together. Returns 0 or EXIT_USAGE.
 */
int job_options_finish(struct job_options *options);

/* Parse options with a value. They return as job_option() does. */
int option_number(
	const char *name, const char *value, uint64_t min, uint64_t max, uint64_t *ret_number);
int option_path(const char *name, const char *value, const char **ret_path);

#endif
