/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a job: joins the others, opens its devices, and makes a communicator. One thread.
 */
#ifndef FERRULE_TOOLS_COMMON_SESSION_H
#define FERRULE_TOOLS_COMMON_SESSION_H

#include <stdbool.h>

#include "tools/common/job.h"

/* One rank's place in the job. */
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

/* All of these say what is wrong themselves and return 0 or a negative errno. */

/* Joins the others and opens the devices. `job` NULL: as the launcher says. */
int session_join(struct session *session, const char *job);

/* Makes the communicator; the bootstrap is lent to it until session_disconnect(). */
int session_connect(struct session *session);
/* The same with other algorithms than FRL_ALGO says; NULL: as that says. */
int session_connect_with(struct session *session, const char *algos);
void session_disconnect(struct session *session);

/* The counters of all devices together. */
void session_stats(const struct session *session, struct frl_stats *ret_stats);

/* Tells the other ranks that this one fails, once. */
void session_give_up(struct session *session);

/* `rc`: how this rank fared; not 0 gives up. */
void session_close(struct session *session, int rc);

#endif
