/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What NCCL's kernels read of receives that they unpack: the packet buffers of software ports, and
 * blocks in which each connection says where in them a message lies. A kernel has one address of
 * the bounce buffer for all connections of its GPU, and 32 bits for a place in it: so each GPU has
 * a window of 4 GiB, around the buffers of the first port.
 *
 * What is mapped for a GPU stays so until the port is closed: the driver lets go of it only when
 * the GPU is idle, which NCCL's kernels, waiting for the network, may never be. Any thread.
 */
#ifndef FERRULE_NCCL_BOUNCE_H
#define FERRULE_NCCL_BOUNCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/devices.h"

struct bounce; /* a GPU's */

/* A connection's, and read by kernels while it is set up. */
struct bounce_block {
	struct bounce_block *next;
	struct nccl_unpack_meta *meta;
	struct nccl_unpack_handle *handle;
	uint64_t handle_address; /* as the GPU sees it */
};

/* The GPU of this memory, with the packet buffers of all the device's ports, which are open. A
 * negative errno, and `why` is a sentence. */
int net_bounce_get(const struct net_device *device, const void *data, size_t size,
	struct bounce **ret_bounce, char *why, size_t why_size);
void net_bounce_put(struct bounce *bounce, const struct net_device *device);

/* No message in any slot, and before the first. As net_bounce_get(). */
int net_bounce_take_block(
	struct bounce *bounce, struct bounce_block **ret_block, char *why, size_t why_size);
/* Nothing is to be seen there from now on. `is_in_doubt`: a kernel that was aborted may still read
 * it, and count on; no connection gets it any more. Others get it as late as can be. */
void net_bounce_give_block(struct bounce *bounce, struct bounce_block *block, bool is_in_doubt);

/* How far behind the window's start something in a packet buffer is. False: the GPU does not see it
 * any more. Quick: for each packet. */
bool net_bounce_offset(
	const struct bounce *bounce, const void *addr, size_t length, uint32_t *ret_offset);

/* The port is about to be closed, and nobody uses it. False: a connection still does. */
bool net_bounce_let_go(const struct net_port *port);

#endif
