/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory a pointer leads to, and what has to be kept in order while GPU memory is registered
 * with a NIC. Any thread. */
#ifndef FERRULE_GPUDIRECT_MEMORY_H
#define FERRULE_GPUDIRECT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/gpu.h"

enum gpu_memory_kind {
	GPU_MEMORY_HOST,    /* the processor's: malloc(), mmap(), pinned by CUDA or not */
	GPU_MEMORY_DEVICE,  /* cuMemAlloc() and what is like it */
	GPU_MEMORY_POOL,    /* cuMemAllocAsync(), cuMemAllocFromPoolAsync() */
	GPU_MEMORY_VIRTUAL, /* cuMemMap(): also of expandable segments, several handles in a row */
	GPU_MEMORY_MANAGED, /* cuMemAllocManaged(): it moves */
};

struct gpu_memory {
	enum gpu_memory_kind kind;
	cu_context context; /* NULL: none in particular */
	int ordinal;        /* of the device */
	uint64_t base;      /* of the allocation, */
	uint64_t size;      /* and its size; of VIRTUAL, of what is mapped around it in one piece */
	uint64_t buffer_id; /* never used again in this process, unlike addresses; 0: not known */
	bool rdma_capable;  /* a NIC may be given it */
};

/*
 * What lies at [addr, addr + length). Host memory, also where nobody has loaded CUDA: 0 and
 * GPU_MEMORY_HOST, without initializing anything. -EINVAL: it does not lie in one allocation (of
 * VIRTUAL memory: in one range of mappings of one device, checked to its end), or not in memory at
 * all that the driver knows though it looks like a GPU's; -ENOSYS: it is a GPU's, but this driver
 * is too old for Ferrule; -EIO. What is a GPU's is never taken for host memory.
 */
int gpu_memory_of(const void *addr, size_t length, struct gpu_memory *ret_memory);

/* The same for each operation, without asking the kernel: what the driver does not know counts as
 * host memory, be it memory or not. */
int gpu_memory_look(const void *addr, size_t length, struct gpu_memory *ret_memory);

/*
 * Whether the GPU's own kernels may read what gpu_memory_of() has found, and write it. What is
 * mapped has rights by device, and touching more than that ends the context for all of the process.
 * -EINVAL, with what to do; and as gpu_enter().
 */
int gpu_memory_check_rights(struct gpu *gpu, const struct gpu_memory *memory, const void *addr,
	size_t length, bool is_written);

/*
 * A dma-buf of whole pages around [addr, addr + length), by the PCIe mapping if the driver has one,
 * else the usual one. *ret_offset: where `addr` is in it. The descriptor is the caller's to close,
 * which he may do when the NIC has taken it. -ENOTSUP, -EINVAL, -ENOMEM.
 */
int gpu_memory_export(struct gpu *gpu, const struct gpu_memory *memory, const void *addr,
	size_t length, int *ret_fd, uint64_t *ret_offset);

/* Has the driver order synchronous copies of this memory against a NIC (SYNC_MEMOPS). Where it
 * cannot (pools, virtual memory) that is no failure. */
void gpu_memory_sync(struct gpu *gpu, const struct gpu_memory *memory, const void *addr);

/*
 * What a NIC has written into GPU memory is seen by kernels that run already, when this returns: by
 * cuFlushGPUDirectRDMAWrites(), or where that does not work by reading back from `addr`. Nothing
 * where the device orders writes by itself.
 */
int gpu_memory_flush(struct gpu *gpu, const void *addr);

#endif
