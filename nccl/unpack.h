/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives into packet buffers, which NCCL's own kernels unpack into its buffer (netDeviceType
 * UNPACK, FERRULE_UNPACK=1). A connection decides when NCCL first registers memory of a GPU for
 * it: what cannot unpack then is as any other.
 *
 *	irecv          takes the next of 16 slots, in turn, as the kernel does, and arms its buffer
 *	...            packets come, and stay where they are
 *	test           writes into the slot where they are, then how many, and says that it is done
 *	...            NCCL tells the kernel, which fetches them
 *	irecvConsumed  gives the packets back; the slot is free
 *
 * Receives into memory of the host (LL) take no slot, and kernels look at none for them. A kernel
 * that was aborted goes on to further slots and must find no piece in them (NCCL would not end the
 * loop over them), so a slot says that it has some only from `test` until `irecvConsumed`.
 * net_unpack_offer() and net_consumed() are in net.h.
 *
 * net_unpack_for(), _register() and _forget() are called by NCCL's service thread, those about
 * requests by the connection's progress thread; a lock keeps slots together.
 */
#ifndef FERRULE_NCCL_UNPACK_H
#define FERRULE_NCCL_UNPACK_H

#include "nccl/comm.h"

struct unpack; /* a connection's */

/* Whether receives into this memory of a GPU are unpacked; the connection's first one decides.
 * NULL: they are not, and the log says why. */
struct unpack *net_unpack_for(struct comm *comm, const void *data, size_t size);
/* Makes a region of a rail, for the peer to write to; as frl_reg_mr(). The registration holds the
 * struct until net_unpack_release(). */
int net_unpack_register(
	struct unpack *unpack, int rail, void *data, size_t size, struct frl_mr **ret_mr);
void net_unpack_hold(struct unpack *unpack);
void net_unpack_release(struct unpack *unpack);
/* The memory is somebody else's in a moment: a connection that receives into it, or whose kernel
 * has not fetched all, is stopped, and its packets are given back. */
void net_unpack_forget(struct unpack *unpack, const struct registration *registration);

/* A request for a message of which the payload stays in packets. NULL: not now, or comm->err. */
struct request *net_unpack_take(struct comm *comm, const struct net_buffer *buffer);
/* Why such a receive is none that kernels unpack: NCCL_INVALID_USAGE, and the log says so. */
int net_unpack_check(const struct comm *comm, int n, const struct net_buffer *buffers);
/* The message has come: the kernel can be told. As comm->err. */
int net_unpack_publish(struct request *request);

/* No request of the connection is under way. Its buffers are others' now. */
void net_unpack_end(struct comm *comm);

#endif
