/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that a GPU reads and writes: packet buffers, slots, rings. Each range is registered
 * once as a whole, and looked up by address. Callable from any thread. */
#ifndef FERRULE_GPUDIRECT_HOST_H
#define FERRULE_GPUDIRECT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu;

/*
 * Maps [addr, addr + length), rounded to pages, for the GPU. Ranges may be mapped several times,
 * may overlap or touch, and may already be registered by the application. The range is registered
 * in the device's primary context, so that the application may destroy its own contexts. -ENOTSUP:
 * the device does not support this. -ENOMEM: no more memory can be pinned; the error text gives the
 * size. -EBUSY: a stale registration exists, because its context was reset or the driver refused to
 * unregister it; the error text gives the remedy.
 */
int gpu_host_map(struct gpu *gpu, const void *addr, size_t length);

/* Undoes one gpu_host_map() call. No pending operation may refer to the memory. If the driver
 * refuses to unregister the range, the range stays listed. The next gpu_host_map() call that
 * overlaps the range tries again. */
void gpu_host_unmap(struct gpu *gpu, const void *addr, size_t length);

/* Returns the GPU address of host memory, or 0 if any part of the range is not mapped. Fast enough
 * to call for each packet. */
uint64_t gpu_host_address(const struct gpu *gpu, const void *addr, size_t length);

/* For gpu.c. gpu_host_prepare() allocates gpu->host, and fails with -ENOMEM. gpu_host_fini()
 * frees it after the last holder has released the GPU. Each mapping holds the GPU. */
int gpu_host_prepare(struct gpu *gpu);
void gpu_host_fini(struct gpu *gpu);

#endif
