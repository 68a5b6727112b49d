/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory registrations: NCCL's buffers are registered with all ports of a device, through the
 * ports' caches. All connections of the device may use a registration. Callable from any thread.
 * memory.c also defines net_register() and net_deregister().
 */
#ifndef FERRULE_NCCL_MEMORY_H
#define FERRULE_NCCL_MEMORY_H

#include <stdatomic.h>

#include "nccl/devices.h"

struct comm;

struct registration {
	struct net_device *device;
	int type;                          /* NCCL_PTR_* */
	struct unpack *unpack;             /* whose packets hold the received data, or NULL */
	struct frl_mr *mrs[NET_MAX_RAILS]; /* NULL: no bytes to register */
	uint32_t lkeys[NET_MAX_RAILS];
	uint32_t rkeys[NET_MAX_RAILS];
	struct frl_mr
		*flushed;    /* one of `mrs`, which identifies the GPU; NULL: no flush is needed */
	atomic_uint holders; /* requests that use it, plus one until it is deregistered */
};

/* The registration that a request uses, or NULL. The request's thread sets it; a thread that
 * deregisters reads it. */
typedef _Atomic(struct registration *) registration_user;

/* Start and end a request's use of a registration; NULL is allowed. If the registration is
 * deregistered meanwhile, the request frees the struct. */
void registration_use(registration_user *user, struct registration *registration);
void registration_unuse(registration_user *user);

/* Start and end the tracking of a connection. net_deregister() stops tracked connections that still
 * use the memory. */
void registration_comm_starts(struct comm *comm);
void registration_comm_ends(struct comm *comm);

/* Same as frl_dereg_mr(), but retries for up to `ns` while the port or a GPU is using the
 * memory. */
int net_dereg_within(struct net_port *port, struct frl_mr *mr, uint64_t ns);

#endif
