/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts the ranks of a job as processes of this machine and waits for all of them. No process is
 * left behind: if a rank fails, ranks that do not end are killed, and ranks die with their parent.
 * The parent must not have opened a device. For the main thread.
 */
#ifndef FERRULE_TOOLS_COMMON_LAUNCH_H
#define FERRULE_TOOLS_COMMON_LAUNCH_H

#include <stddef.h>

struct launch {
	int ranks;
	/*
	 * Runs in the child, as rank `rank` of `job`, a name for frl_bootstrap_join() and for a
	 * service. Returns the exit status (0: success).
	 */
	int (*rank_main)(int rank, const char *job, void *ret_report, void *arg);
	void *arg;
	size_t report_size; /* at most PIPE_BUF */
	void *reports;      /* report_size bytes per rank; set if the job succeeds */
};

/*
 * Returns the exit status of the job: 0 if all ranks succeeded, 128 + signal if a signal ended the
 * job.
 */
int launch_ranks(const struct launch *launch);

#endif
