/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory of Ferrule's own: scratch and rings. Any thread. */
#ifndef FERRULE_GPUDIRECT_ALLOC_H
#define FERRULE_GPUDIRECT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

struct gpu;

/*
 * Memory that a NIC can be given, aligned to 256 bytes at least, of unknown contents. The driver
 * may wait for what runs on the GPU, so this is for what is kept long. The caller holds the GPU.
 * -ENOMEM, and as cuda_fail().
 */
int gpu_alloc(struct gpu *gpu, size_t bytes, uint8_t **ret_memory);

/* Nothing under way refers to it. The driver may wait for what runs on the GPU. NULL is fine. */
void gpu_free(struct gpu *gpu, uint8_t *memory);

#endif
