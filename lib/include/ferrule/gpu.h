/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs whose memory Ferrule can send from, receive into and reduce in. GPU memory is registered
 * like any other, by frl_reg_mr() with the device pointer; frl_mr_query() then says how a device
 * reaches it. docs/gpudirect.md explains the ways.
 *
 * CUDA is looked for at run time, and only when somebody asks for it: by these functions, or by
 * using CUDA in the process. Without it everything about host memory works as ever.
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

/* How a device reaches memory: the tiers of docs/gpudirect.md. */
enum frl_mr_tier {
	FRL_MR_HOST,    /* host memory */
	FRL_MR_DMABUF,  /* A: the NIC reads and writes GPU memory, given as a dma-buf */
	FRL_MR_PEERMEM, /* A: the same, by the kernel module nvidia-peermem */
	FRL_MR_MAPPED,  /* C: kernels move payload between packet buffers and GPU memory */
	/* B: received payload lies in GPU memory already, and kernels move it within; the NIC sends
	 * from there */
	FRL_MR_QUEUE,
	FRL_MR_TIERS /* how many there are */
};

/* "host", "dma-buf", "peermem", "mapped", "nic-queue"; NULL for a value that is none. */
FRL_API const char *frl_mr_tier_name(enum frl_mr_tier tier);

struct frl_gpu_info {
	int ordinal; /* as CUDA counts */
	char name[64];
	char pci[16]; /* "0000:3b:00.0" */
	uint64_t memory_bytes;
	int compute_major, compute_minor; /* compute capability */
	int driver_version;               /* 13000: CUDA 13.0 */
	bool usable;                      /* Ferrule can work with its memory */
	bool has_kernels;                 /* and move and reduce payload there by kernels */
	bool exports_dmabuf;              /* tier A by dma-buf, with a NIC that takes one */
	bool has_peermem;                 /* tier A by nvidia-peermem */
	bool needs_flush;                 /* see frl_mr_flush() */
	bool loads_lazily; /* CUDA loads modules lazily: matters to NCCL only, docs/nccl.md */
	char reason[512];  /* what does not work, why, and what to do about it; "" if all does */
};

/*
 * All GPUs that CUDA shows this process, usable or not; the array is the caller's:
 * frl_gpu_list_free(). Where there is none, one entry with ordinal -1 that is not usable says why.
 * Loads and initializes CUDA, but makes no context. -ENOMEM.
 */
FRL_API int frl_gpu_list(struct frl_gpu_info **ret_infos, size_t *ret_n);

/* NULL is fine. */
FRL_API void frl_gpu_list_free(struct frl_gpu_info *infos);

#ifdef __cplusplus
}
#endif
#endif
