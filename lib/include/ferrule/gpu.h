/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs whose memory Ferrule can send from, receive into and reduce in. GPU memory is registered
 * with frl_reg_mr() and the device pointer; frl_mr_query() returns how a device accesses it.
 * The guide's page "GPU memory" explains the methods.
 *
 * The library loads CUDA at run time, and only on demand: when these functions are called, or when
 * the process uses CUDA. Host memory works without CUDA.
 *
 * Threads: any thread may call these functions.
 */
#ifndef FERRULE_GPU_H
#define FERRULE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a device accesses memory: the tiers A, B and C of the guide's page "GPU memory". */
enum frl_mr_tier {
	FRL_MR_HOST,    /* host memory */
	FRL_MR_DMABUF,  /* A: the NIC accesses GPU memory directly, by a dma-buf */
	FRL_MR_PEERMEM, /* A: the NIC accesses GPU memory directly, by the kernel module
			 * nvidia-peermem */
	FRL_MR_MAPPED,  /* C: GPU kernels move payload between packet buffers and GPU memory */
	/* B: the NIC receives into GPU memory and sends from it; GPU kernels move payload within */
	FRL_MR_QUEUE,
	FRL_MR_TIERS /* number of tiers */
};

/* Returns "host", "dma-buf", "peermem", "mapped", "nic-queue"; NULL for an invalid value. */
FRL_API const char *frl_mr_tier_name(enum frl_mr_tier tier);

struct frl_gpu_info {
	int ordinal; /* CUDA's device ordinal */
	char name[64];
	char pci[16]; /* "0000:3b:00.0" */
	uint64_t memory_bytes;
	int compute_major, compute_minor; /* compute capability */
	int driver_version;               /* 13000: CUDA 13.0 */
	bool usable;                      /* Ferrule can use its memory */
	bool has_kernels;                 /* GPU kernels can move and reduce payload there */
	bool exports_dmabuf;              /* tier A by dma-buf, with a NIC that supports it */
	bool has_peermem;                 /* tier A by nvidia-peermem */
	bool needs_flush;                 /* see frl_mr_flush() */
	/* CUDA loads modules lazily; matters only to NCCL: see the page "NCCL and GPU memory". */
	bool loads_lazily;
	char reason[512]; /* what does not work, why, and what to do; "" if all works */
};

/*
 * Lists all GPUs that CUDA shows this process, usable or not. The caller owns the array and frees
 * it with frl_gpu_list_free(). If there is no GPU, the list has one unusable entry with ordinal -1,
 * whose reason says why. Loads and initializes CUDA, but creates no context. Returns -ENOMEM on
 * failure.
 */
FRL_API int frl_gpu_list(struct frl_gpu_info **ret_infos, size_t *ret_n);

/* Frees a list. NULL is fine. */
FRL_API void frl_gpu_list_free(struct frl_gpu_info *infos);

#ifdef __cplusplus
}
#endif
#endif
