/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory for the engine: implements lib/engine/offload/offload.h with a work queue. */
#ifndef FERRULE_GPUDIRECT_OFFLOAD_H
#define FERRULE_GPUDIRECT_OFFLOAD_H

struct gpu;
struct offload;

/* Creates an offload, which holds the GPU. Fails as gpu_queue_new(). */
int gpu_offload_new(struct gpu *gpu, struct offload **ret_offload);
/* Same as gpu_queue_free(). NULL is allowed. */
void gpu_offload_free(struct offload *offload);

#endif
