/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory that Ferrule allocates for itself: scratch space and rings. Callable from any
 * thread. */
#ifndef FERRULE_GPUDIRECT_ALLOC_H
#define FERRULE_GPUDIRECT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

struct gpu;

/*
 * Allocates memory that a NIC can access, aligned to at least 256 bytes, with undefined contents.
 * The driver may wait for running kernels, so use this only for long-lived memory. The caller must
 * hold the GPU. Fails with -ENOMEM, or as cuda_fail().
 */
int gpu_alloc(struct gpu *gpu, size_t bytes, uint8_t **ret_memory);

/* Frees memory. No pending operation may refer to the memory. The driver may wait for running
 * kernels. NULL is allowed. */
void gpu_free(struct gpu *gpu, uint8_t *memory);

#endif
