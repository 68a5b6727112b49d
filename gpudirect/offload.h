/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory for the engine: lib/engine/offload/offload.h over a queue of work. */
#ifndef FERRULE_GPUDIRECT_OFFLOAD_H
#define FERRULE_GPUDIRECT_OFFLOAD_H

struct gpu;
struct offload;

/* Errors as gpu_queue_new(). Holds the GPU. */
int gpu_offload_new(struct gpu *gpu, struct offload **ret_offload);
/* As gpu_queue_free(). NULL is fine. */
void gpu_offload_free(struct offload *offload);

#endif
