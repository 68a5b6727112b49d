/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that a GPU reads and writes: packet buffers, slots, rings. Registered whole, once,
 * and found by address. Any thread. */
#ifndef FERRULE_GPUDIRECT_HOST_H
#define FERRULE_GPUDIRECT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu;

/*
 * Lets the GPU reach [addr, addr + length), rounded to pages; as often as wanted, also where the
 * application has registered it already, and where ranges overlap or touch. It is registered in the
 * primary context of the device, so that a context of the application's own may end. -ENOTSUP: the
 * device cannot; -ENOMEM: no more may be pinned (the sentence says how much was asked for); -EBUSY:
 * there is a registration of it that is of no use, of a context that was reset, or that the driver
 * did not let go of; the sentence says what to do.
 */
int gpu_host_map(struct gpu *gpu, const void *addr, size_t length);

/* The reverse of one such call; nothing under way refers to it. When the driver refuses to let go,
 * the range stays known, and it is asked again at the next gpu_host_map() of any of it. */
void gpu_host_unmap(struct gpu *gpu, const void *addr, size_t length);

/* Where the GPU sees it; 0: some of it is not registered. Quick: for each packet. */
uint64_t gpu_host_address(const struct gpu *gpu, const void *addr, size_t length);

/* gpu.c's: makes gpu->host, -ENOMEM; and frees it, when nobody holds the GPU any more. What is
 * mapped holds it. */
int gpu_host_prepare(struct gpu *gpu);
void gpu_host_forget(struct gpu *gpu);

#endif
