/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for NCCL's profiler: one for each piece of a message that a queue pair carries, from when
 * it is posted until it is acknowledged. They look as those of NCCL's own RDMA transport, so
 * profilers that know these can read them.
 */
#ifndef FERRULE_NCCL_PROFILE_H
#define FERRULE_NCCL_PROFILE_H

#include "nccl/comm.h"

/* `parent`: what NCCL gave with the message; *ret_event is for the end. */
void net_profile_start(const struct comm *comm, const struct path *path,
	const struct frl_send_wr *wr, size_t length, void *parent, void **ret_event);
void net_profile_stop(const struct comm *comm, void **event);

#endif
