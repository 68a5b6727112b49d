/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for NCCL's profiler: one for each piece of a message on a queue pair, from its posting to
 * its acknowledgement. They have the format of NCCL's own RDMA transport, so existing profilers can
 * read them.
 */
#ifndef FERRULE_NCCL_PROFILE_H
#define FERRULE_NCCL_PROFILE_H

#include "nccl/comm.h"

/* Starts an event. `parent` comes from NCCL, with the message. *ret_event is needed to end the
 * event. */
void net_profile_start(const struct comm *comm, const struct path *path,
	const struct frl_send_wr *wr, size_t length, void *parent, void **ret_event);
void net_profile_stop(const struct comm *comm, void **event);

#endif
