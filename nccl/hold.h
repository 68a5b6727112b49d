/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a software device has set up for a GPU: packet buffers that it reaches, a queue, kernels.
 * The library does so for the first region of the GPU's memory and takes it down with the last
 * one, by calls of the driver that may wait until the GPU is idle. While NCCL's kernels wait for
 * the network that may be never. So a region of the plugin's own keeps it from the communicator's
 * init on, before its kernels run, until the port is closed. Any thread.
 */
#ifndef FERRULE_NCCL_HOLD_H
#define FERRULE_NCCL_HOLD_H

#include <stdbool.h>
#include <stddef.h>

struct net_port;

/*
 * Sets the open software ports that take memory of GPUs up for the GPU of the calling thread's
 * current context, which is the communicator's while NCCL calls init. If there is one device only,
 * its port is opened. Does nothing without a context, or without such a port. `tries_again`: also
 * for ports where that has failed before. The log says what went wrong; net_hold_gpu() tries again.
 */
void net_hold_current_gpu(bool tries_again);

/* The memory was registered with the port: what the port has for its GPU stays. If that does not
 * succeed it goes with the last region, and the log says so. */
void net_hold_gpu(struct net_port *port, const void *data, size_t size);

/* Nobody uses the port any more. False: something refers to a region still, which stays. */
bool net_let_gpus_go(struct net_port *port);

#endif
