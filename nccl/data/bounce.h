/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that NCCL's kernels read when they unpack receives: the packet buffers of software
 * ports, and blocks in which each connection lists the pieces of its messages. A kernel has one
 * bounce buffer address for all connections of its GPU, and 32-bit offsets. So each GPU has a
 * window of 4 GiB around the packet buffers of the first port.
 *
 * Memory that is mapped for a GPU stays mapped until the port is closed. The driver unmaps only
 * when the GPU is idle, and NCCL's kernels that wait for the network may never become idle.
 * Callable from any thread.
 */
#ifndef FERRULE_NCCL_BOUNCE_H
#define FERRULE_NCCL_BOUNCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/devices.h"

struct bounce; /* of a GPU */

/* A connection's block, which kernels read. */
struct bounce_block {
	struct bounce_block *next;
	struct nccl_unpack_meta *meta;
	struct nccl_unpack_handle *handle;
	uint64_t handle_address; /* GPU address of the handle */
};

/* Returns the bounce buffer of the GPU that owns `data`, with the packet buffers of all the
 * device's ports mapped. The ports must be open. Returns a negative errno and a sentence in `why`
 * on failure. */
int net_bounce_get(const struct net_device *device, const void *data, size_t size,
	struct bounce **ret_bounce, char *why, size_t why_size);
void net_bounce_put(struct bounce *bounce, const struct net_device *device);

/* Returns a block with all slots empty and no slot used yet. Fails as net_bounce_get(). */
int net_bounce_take_block(
	struct bounce *bounce, struct bounce_block **ret_block, char *why, size_t why_size);
/* Returns a block, and makes all its slots empty. `is_in_doubt`: an aborted kernel may still read
 * the block and advance its count, so no other connection gets the block. All other blocks are
 * reused as late as possible. */
void net_bounce_give_block(struct bounce *bounce, struct bounce_block *block, bool is_in_doubt);

/* Returns the offset of data in a packet buffer from the window's start. Returns false if the data
 * is not mapped for the GPU any more. Fast enough to call for each packet. */
bool net_bounce_offset(
	const struct bounce *bounce, const void *addr, size_t length, uint32_t *ret_offset);

/* Releases the buffers of an unused port, before it is closed. Returns false if a connection still
 * uses them. */
bool net_bounce_release_port(const struct net_port *port);

#endif
