/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory behind frl_reg_mr(): chooses how a device accesses it. In a process without CUDA these
 * functions only check whether CUDA has been loaded since. Any thread, without the guard.
 */
#ifndef FERRULE_API_MEMORY_MEMORY_GPU_H
#define FERRULE_API_MEMORY_MEMORY_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/device/device.h"

/*
 * Prepares a device whose port receives into GPU memory, from the first frame on. Does nothing for
 * other devices. Errors as gpu_hold(), gpu_offload_new() and the device's offload_attach(). Undo it
 * before the device is closed.
 */
int device_attach_far(struct frl_device *device);
void device_detach_far(struct frl_device *device);

/*
 * Registers a region of any memory with the device, and fills in the GPU fields. Errors as
 * frl_reg_mr(); a failed call leaves nothing behind and may be repeated.
 */
int mr_register(struct frl_mr *mr);

/* Returns -ENOTSUP if GPU memory prevents the change of a region to `wanted`. */
int mr_check_gpu_change(const struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);

/*
 * Releases the GPU of a region that the device has deregistered. No request of the region is in
 * flight.
 */
void mr_release_gpu(struct frl_mr *mr);

/*
 * Returns whether the range is GPU memory, as far as known. *ret_buffer is then the unique number
 * of the allocation at [addr, addr + length), which is never reused; 0: unknown, do not cache the
 * region.
 */
bool mr_gpu_buffer(const void *addr, size_t length, uint64_t *ret_buffer);

#endif
