/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPUs behind frl_reg_mr(): which way a device reaches it. Where nobody uses CUDA this
 * asks the loader whether that is still so, and nothing else. Any thread, without the guard.
 */
#ifndef FERRULE_API_MEMORY_GPU_H
#define FERRULE_API_MEMORY_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/device/device.h"

/*
 * A device whose port has payload go on in memory of a GPU was opened: somebody is to move it there
 * from the first frame on. Nothing of other devices. As gpu_hold(), gpu_offload_new() and
 * offload_attach() of the device. It is undone before the device is closed.
 */
int device_join_far(struct frl_device *device);
void device_leave_far(struct frl_device *device);

/*
 * Has the device register a region, whosever memory it is, and fills in what is about GPUs. Errors
 * as frl_reg_mr(); nothing is left then, and it may be called again.
 */
int mr_register(struct frl_mr *mr);

/* Whether a region may become `wanted`: as far as GPUs are concerned. -ENOTSUP. */
int mr_check_gpu_change(const struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);

/* The device has deregistered the region: so nothing of it is under way. */
void mr_release_gpu(struct frl_mr *mr);

/*
 * Whether it is memory of a GPU, as far as can be told; *ret_buffer then tells what is now at
 * [addr, addr + length) from all that was or will be there; 0: nobody can say, and nothing is to be
 * kept about it.
 */
bool mr_gpu_buffer(const void *addr, size_t length, uint64_t *ret_buffer);

#endif
