/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU as Ferrule uses it: a CUDA context that owns memory and runs kernels. This is the
 * application's context if the memory belongs to one. Otherwise it is the device's primary context,
 * which stays retained while the struct gpu has holders.
 *
 * Every CUDA call in a context goes between gpu_enter() and gpu_leave(). They make the context
 * current, and set this thread's capture mode to relaxed (cuThreadExchangeStreamCaptureMode()).
 * Otherwise a stream capture in another thread would forbid some calls. An application's capture of
 * a CUDA graph therefore does not break Ferrule, and Ferrule does not invalidate the capture.
 */
#ifndef FERRULE_GPUDIRECT_GPU_H
#define FERRULE_GPUDIRECT_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/cuda/cuda.h"

struct gpu_host;
struct gpu_image;

/* The capabilities of a device, from its attributes. */
struct gpu_caps {
	int compute_major, compute_minor;
	bool dma_buf;           /* DMA_BUF_SUPPORTED */
	bool rdma;              /* GPU_DIRECT_RDMA_SUPPORTED */
	bool rdma_vmm;          /* GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
	bool host_register;     /* HOST_REGISTER_SUPPORTED */
	bool same_host_pointer; /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
	bool flush_by_host;     /* cuFlushGPUDirectRDMAWrites() works on this device */
	bool needs_flush;       /* running kernels see NIC writes in order only after a flush */
	bool integrated;
	int multiprocessors;
};

/* Reads a device's capabilities. Needs no context. An attribute that the driver does not know
 * counts as unsupported. */
void gpu_read_caps(const struct cuda_api *cuda, cu_device device, struct gpu_caps *ret_caps);

struct gpu {
	const struct cuda_api *cuda;
	cu_context context;
	uint64_t context_id; /* unlike the address, not reused by a later context; 0: not known */
	cu_device device;
	int ordinal;
	bool is_primary; /* a primary context that this struct retains */
	struct gpu_caps caps;
	unsigned holders;        /* used by gpu.c, under its lock */
	struct gpu *next;        /* used by gpu.c, under its lock */
	struct gpu_image *image; /* used by image.c: the loaded kernels, or NULL */
	struct gpu_host *host;   /* used by host.c: host memory that the GPU can access */
};

/* Returns the GPU of a context and adds a holder. If `context` is NULL: the primary context of
 * device `ordinal`. Fails with -ENODEV, -ENOMEM, or as cuda_get(). */
int gpu_hold(cu_context context, int ordinal, struct gpu **ret_gpu);
/* Same as gpu_hold(), for the calling thread's current context. Sets *ret_gpu to NULL if the thread
 * has no current context. */
int gpu_hold_current(struct gpu **ret_gpu);
/* Adds a holder. */
void gpu_hold_again(struct gpu *gpu);
/* Removes a holder. The last holder must have no pending work on the GPU. NULL is allowed. */
void gpu_release(struct gpu *gpu);

/* The state that gpu_enter() saves for gpu_leave(). */
struct gpu_scope {
	const struct gpu *gpu;
	int capture_mode;
	bool is_mode_changed;
};

/* Makes the GPU's context current. Calls may be nested. Fails with -ENODEV if the application has
 * destroyed the context; else as cuda_fail(). */
int gpu_enter(struct gpu *gpu, struct gpu_scope *ret_scope);
void gpu_leave(struct gpu_scope *scope);

#endif
