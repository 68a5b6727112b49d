/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of a connection that fails: it stays failed, and NCCL hears why, once. */
#ifndef FERRULE_NCCL_FAILURE_H
#define FERRULE_NCCL_FAILURE_H

#include <ferrule/work.h>

#include "nccl/comm.h"

/* Fails for good, unless it has already; returns comm->err. */
int net_comm_fail(struct comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The peer has sent what no release of the plugin sends. */
int net_comm_nonsense(struct comm *comm);
/* A work request of the path ended like that. */
int net_comm_fail_status(struct comm *comm, const struct path *path, enum frl_wc_status status);
/*
 * Fails if a queue pair has, but nothing of it completes: there are NICs that flush nothing before
 * it is destroyed. To be called now and then while nothing completes; what had completed before
 * comes first, so it takes two calls.
 */
void net_comm_look(struct comm *comm);
/* NCCL hears of the failure now: the result for it; success is "not yet", to be called again. */
int net_comm_tell(struct comm *comm);
/* Without waiting for the control daemon's news: the connection goes now. */
int net_comm_tell_now(struct comm *comm);

#endif
