/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrations: of NCCL's buffers with all ports of a device, out of the ports' caches. One may be
 * used by all connections of the device. Any thread; net_register() and net_deregister() are here.
 */
#ifndef FERRULE_NCCL_MEMORY_H
#define FERRULE_NCCL_MEMORY_H

#include <stdatomic.h>

#include "nccl/devices.h"

struct comm;

struct registration {
	struct net_device *device;
	int type;                          /* NCCL_PTR_* */
	struct unpack *unpack;             /* whose packets stand for the memory, or NULL */
	struct frl_mr *mrs[NET_MAX_RAILS]; /* NULL: there are no bytes to register */
	uint32_t lkeys[NET_MAX_RAILS];
	uint32_t rkeys[NET_MAX_RAILS];
	struct frl_mr
		*flushed;    /* one of them, which tells its GPU; NULL: nothing is to be flushed */
	atomic_uint holders; /* requests; one more until it is deregistered */
};

/* What a request uses; NULL: nothing. Set by its thread, looked at by whoever deregisters. */
typedef _Atomic(struct registration *) registration_user;

/* A request begins and ends to use it; NULL is fine. Who deregisters meanwhile leaves the struct to
 * the request. */
void registration_use(registration_user *user, struct registration *registration);
void registration_unuse(registration_user *user);

/* Connections that may have requests: net_deregister() stops those that still use the memory. */
void registration_comm_starts(struct comm *comm);
void registration_comm_ends(struct comm *comm);

/* As frl_dereg_mr(), tried again while the port or a GPU is busy with the memory, for so long. */
int net_dereg_within(struct net_port *port, struct frl_mr *mr, uint64_t ns);

#endif
