/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU as Ferrule uses it: a CUDA context in which memory lies and kernels run. The application's
 * context where its memory has one, else the device's primary one, which is retained as long as
 * somebody holds the struct gpu.
 *
 * Every call into a context goes between gpu_enter() and gpu_leave(): they make it current, and
 * allow in this thread what a stream capture in another one would forbid
 * (cuThreadExchangeStreamCaptureMode(), relaxed), so that an application that captures a CUDA graph
 * neither breaks Ferrule nor has its capture broken.
 */
#ifndef FERRULE_GPUDIRECT_GPU_H
#define FERRULE_GPUDIRECT_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/cuda.h"

struct gpu_host;
struct gpu_image;

/* What a device can, as its attributes say. */
struct gpu_caps {
	int compute_major, compute_minor;
	bool dma_buf;           /* DMA_BUF_SUPPORTED */
	bool rdma;              /* GPU_DIRECT_RDMA_SUPPORTED */
	bool rdma_vmm;          /* GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
	bool host_register;     /* HOST_REGISTER_SUPPORTED */
	bool same_host_pointer; /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
	bool flush_by_host;     /* cuFlushGPUDirectRDMAWrites() works here */
	bool needs_flush;       /* writes of a NIC are not ordered for kernels that run already */
	bool integrated;
	int multiprocessors;
};

/* Of a device, without a context. What the driver does not know is not there. */
void gpu_read_caps(const struct cuda_api *cuda, cu_device device, struct gpu_caps *ret_caps);

struct gpu {
	const struct cuda_api *cuda;
	cu_context context;
	uint64_t context_id; /* tells it from a later one at the same address; 0: not known */
	cu_device device;
	int ordinal;
	bool is_primary; /* retained by this struct */
	struct gpu_caps caps;
	unsigned holders;        /* gpu.c's, under its lock */
	struct gpu *next;        /* likewise */
	struct gpu_image *image; /* image.c's: the loaded kernels, or NULL */
	struct gpu_host *host;   /* host.c's: host memory that the GPU can reach */
};

/* The GPU of a context (NULL: the primary one of the device of this ordinal), one more holder.
 * -ENODEV, -ENOMEM, and as cuda_get(). */
int gpu_hold(cu_context context, int ordinal, struct gpu **ret_gpu);
/* The same of the calling thread's current context. *ret_gpu is NULL where it has none. */
int gpu_hold_current(struct gpu **ret_gpu);
/* One more. */
void gpu_hold_again(struct gpu *gpu);
/* The last holder has nothing under way in it. NULL is fine. */
void gpu_release(struct gpu *gpu);

/* What gpu_enter() found. */
struct gpu_scope {
	const struct gpu *gpu;
	int capture_mode;
	bool is_mode_changed;
};

/* -ENODEV: the context is gone (destroyed by the application); else as cuda_fail(). Nests. */
int gpu_enter(struct gpu *gpu, struct gpu_scope *ret_scope);
void gpu_leave(struct gpu_scope *scope);

#endif
