/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a job: joins the others, opens its devices, and makes a communicator. One thread.
 */
#ifndef FERRULE_TOOLS_COMMON_SESSION_H
#define FERRULE_TOOLS_COMMON_SESSION_H

#include <stdbool.h>

#include "tools/common/job.h"

/* One rank of the job. */
struct session {
	const struct job_options *options;
	int rank;
	bool joined;
	bool gave_up;
	struct frl_bootstrap bootstrap;
	struct frl_device *devices[MAX_RAILS];
	int n_devices;
	struct frl_device_attr attr; /* of the first */
	struct frl_comm *comm;
};

/* These functions print what failed and return 0 or a negative errno. */

/* Joins the job and opens the devices. `job` NULL: the job of the launcher. */
int session_join(struct session *session, const char *job);

/* Creates the communicator. It uses the bootstrap alone until session_disconnect(). */
int session_connect(struct session *session);
/* Creates the communicator with other algorithms than FRL_ALGO; NULL: with those of FRL_ALGO. */
int session_connect_with(struct session *session, const char *algos);
void session_disconnect(struct session *session);

/* Adds up the counters of all devices. */
void session_stats(const struct session *session, struct frl_stats *ret_stats);

/* Notifies the other ranks, once, that this rank fails. */
void session_give_up(struct session *session);

/* Ends the session. `rc` is the result of this rank: a failure is reported to the other ranks. */
void session_close(struct session *session, int rc);

#endif
