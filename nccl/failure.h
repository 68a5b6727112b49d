/* SPDX-License-Identifier: BSD-3-Clause */
/* Connection failures: a failed connection stays failed, and reports the reason to NCCL once. */
#ifndef FERRULE_NCCL_FAILURE_H
#define FERRULE_NCCL_FAILURE_H

#include <ferrule/work.h>

#include "nccl/comm.h"

/* Marks the connection as failed, unless it has failed already. Returns comm->err. */
int net_comm_fail(struct comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Fails the connection because the peer violated the plugin's protocol. */
int net_comm_protocol_error(struct comm *comm);
/* Fails the connection because of a work completion's status. */
int net_comm_fail_status(struct comm *comm, const struct path *path, enum frl_wc_status status);
/*
 * Fails the connection if a queue pair has failed without any completion: some NICs flush nothing
 * until the queue pair is destroyed. Call it occasionally while nothing completes. The second call
 * fails the connection, so that earlier completions are processed first.
 */
void net_comm_check_qps(struct comm *comm);
/* Returns the failure's result for NCCL and logs the reason. Returns success if the reason is not
 * known yet; call again. */
int net_comm_report(struct comm *comm);
/* Same, without waiting for the control daemon's information: the connection is closed now. */
int net_comm_report_now(struct comm *comm);

#endif
