/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives into packet buffers, which NCCL's own kernels unpack into its buffer (netDeviceType
 * UNPACK, FERRULE_UNPACK=1). Each connection decides when NCCL first registers GPU memory for it.
 * A connection that cannot unpack then works as any other connection.
 *
 *	irecv          takes the next of 16 slots, in turn as the kernel does, and arms its buffer
 *	...            packets arrive and stay in place
 *	test           writes their locations into the slot, then their count, and returns done
 *	...            NCCL notifies the kernel, which reads the packets
 *	irecvConsumed  releases the packets; the slot is free
 *
 * Receives into host memory (LL) use no slot, and kernels read no slot for them. An aborted kernel
 * continues with further slots, and must find no pieces there: NCCL would not end the loop over
 * them. So a slot's count is set only from `test` until `irecvConsumed`. net_unpack_offer() and
 * net_consumed() are declared in net.h.
 *
 * NCCL's service thread calls net_unpack_for(), _register() and _forget(). The connection's
 * progress thread calls the functions for requests. A lock protects the slots.
 */
#ifndef FERRULE_NCCL_UNPACK_H
#define FERRULE_NCCL_UNPACK_H

#include "nccl/comm.h"

struct unpack; /* of a connection */

/* Returns the connection's state if receives into this GPU memory are unpacked; the connection's
 * first registration decides. Otherwise returns NULL and logs the reason. */
struct unpack *net_unpack_for(struct comm *comm, const void *data, size_t size);
/* Registers a region of a rail, for the peer's writes. Fails as frl_reg_mr(). The registration
 * holds the struct until net_unpack_release(). */
int net_unpack_register(
	struct unpack *unpack, int rail, void *data, size_t size, struct frl_mr **ret_mr);
void net_unpack_hold(struct unpack *unpack);
void net_unpack_release(struct unpack *unpack);
/* Prepares for reuse of the memory. Stops a connection that receives into it, or whose kernel has
 * not read all data, and releases its packets. */
void net_unpack_revoke(struct unpack *unpack, const struct registration *registration);

/* Returns a request for a message whose payload stays in packets. Returns NULL if there is none
 * now, or after a failure (comm->err). */
struct request *net_unpack_take(struct comm *comm, const struct net_buffer *buffer);
/* Returns NCCL_INVALID_USAGE, and logs the reason, if kernels cannot unpack such a receive. */
int net_unpack_check(const struct comm *comm, int n, const struct net_buffer *buffers);
/* Publishes an arrived message for the kernel. Returns comm->err. */
int net_unpack_publish(struct request *request);

/* Releases the connection's buffers. No request may be pending. */
void net_unpack_end(struct comm *comm);

#endif
