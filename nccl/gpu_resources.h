/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps the resources that a software device has for a GPU: mapped packet buffers, a queue,
 * kernels. The library creates them for the first region of the GPU's memory, and frees them with
 * the last one. Freeing needs driver calls that may wait until the GPU is idle, and that may be
 * never while NCCL's kernels wait for the network. So the plugin registers a region of its own. The
 * region exists from the communicator's init, before NCCL's kernels run, until the port is closed.
 * Callable from any thread.
 */
#ifndef FERRULE_NCCL_GPU_RESOURCES_H
#define FERRULE_NCCL_GPU_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

struct net_port;

/*
 * Adds the resources of all open software ports that accept GPU memory for the GPU of the thread's
 * current context. During NCCL's init call this is the communicator's GPU. If there is only one
 * device, its port is opened. Does nothing without a context or without such a port. `retry`: also
 * retry ports for which this failed before. Failures are logged; net_gpu_resources_add() tries
 * again.
 */
void net_gpu_resources_add_current(bool retry);

/* Adds the port's resources for the GPU that owns the memory, which is registered with the port.
 * On failure the log has the reason, and the resources are freed with the last region. */
void net_gpu_resources_add(struct net_port *port, const void *data, size_t size);

/* Frees the resources of a port without users. Returns false if a region is still in use; it is
 * then kept. */
bool net_gpu_resources_free(struct net_port *port);

#endif
