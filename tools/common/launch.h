/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts the ranks of a job as processes of this machine, waits for all of them and leaves nothing
 * behind: a rank that outlives the others' failure is killed, and ranks die with their parent. The
 * parent must not have opened a device. Called from the main thread.
 */
#ifndef FERRULE_TOOLS_COMMON_LAUNCH_H
#define FERRULE_TOOLS_COMMON_LAUNCH_H

#include <stddef.h>

struct launch {
	int ranks;
	/* Runs in the child: joins `job`, a name that is good for frl_bootstrap_join() and as a
	 * service, as `rank`. Returns the exit status (0: success). */
	int (*rank_main)(int rank, const char *job, void *ret_report, void *arg);
	void *arg;
	size_t report_size; /* at most PIPE_BUF */
	void *reports;      /* report_size bytes for each rank; set when 0 is returned */
};

/* The exit status of the job: 0 when all ranks succeeded, 128 + signal when one ended the job. */
int launch_ranks(const struct launch *launch);

#endif
