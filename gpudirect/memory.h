/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the kind of memory behind a pointer, and keeps GPU memory consistent while it is registered
 * with a NIC. Callable from any thread. */
#ifndef FERRULE_GPUDIRECT_MEMORY_H
#define FERRULE_GPUDIRECT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/gpu.h"

enum gpu_memory_kind {
	GPU_MEMORY_HOST,    /* host memory: malloc(), mmap(), pinned by CUDA or not */
	GPU_MEMORY_DEVICE,  /* cuMemAlloc() and similar calls */
	GPU_MEMORY_POOL,    /* cuMemAllocAsync(), cuMemAllocFromPoolAsync() */
	GPU_MEMORY_VIRTUAL, /* cuMemMap(), also expandable segments (several handles in a row) */
	GPU_MEMORY_MANAGED, /* cuMemAllocManaged(): the driver migrates it */
};

struct gpu_memory {
	enum gpu_memory_kind kind;
	cu_context context; /* NULL: not bound to a context */
	int ordinal;        /* the device's ordinal */
	uint64_t base;      /* start of the allocation */
	uint64_t size;      /* its size; for VIRTUAL, the size of the contiguous mapping */
	uint64_t buffer_id; /* unlike addresses, never reused in this process; 0: not known */
	bool rdma_capable;  /* a NIC can access it */
};

/*
 * Describes the memory at [addr, addr + length). Returns 0 with GPU_MEMORY_HOST for host memory,
 * also if CUDA is not loaded; it does not initialize CUDA. -EINVAL: the range is not within one
 * allocation, or the address belongs to a GPU range that holds no memory. VIRTUAL memory must be
 * mapped up to the range's end, on one device. -ENOSYS: the memory is a GPU's, but the driver is
 * too old for Ferrule. -EIO: the query failed. GPU memory is never reported as host memory.
 */
int gpu_memory_of(const void *addr, size_t length, struct gpu_memory *ret_memory);

/* Same as gpu_memory_of(), but makes no system call, so it is fast enough for each operation. An
 * address that the driver does not know is reported as host memory, even if nothing is mapped
 * there. */
int gpu_memory_look(const void *addr, size_t length, struct gpu_memory *ret_memory);

/*
 * Checks that the GPU's own kernels may read, and with is_written also write, memory that
 * gpu_memory_of() found. Access rights of mapped memory are per device, and a violation destroys
 * the context for the whole process. Fails with -EINVAL and a remedy, or as gpu_enter().
 */
int gpu_memory_check_rights(struct gpu *gpu, const struct gpu_memory *memory, const void *addr,
	size_t length, bool is_written);

/*
 * Exports whole pages around [addr, addr + length) as a dma-buf. Uses the PCIe mapping if the
 * driver supports it, else the default mapping. *ret_offset is the offset of `addr` in the dma-buf.
 * The caller must close the descriptor, and may do so after the NIC has imported it. Fails with
 * -ENOTSUP, -EINVAL or -ENOMEM.
 */
int gpu_memory_export(struct gpu *gpu, const struct gpu_memory *memory, const void *addr,
	size_t length, int *ret_fd, uint64_t *ret_offset);

/* Sets SYNC_MEMOPS, so that the driver orders synchronous copies of this memory with a NIC's
 * accesses. Pools and virtual memory do not support the attribute; this is not a failure. */
void gpu_memory_sync(struct gpu *gpu, const struct gpu_memory *memory, const void *addr);

/*
 * Makes a NIC's earlier writes to GPU memory visible to running kernels. Uses
 * cuFlushGPUDirectRDMAWrites(), or reads back from `addr` if that call is not supported. Does
 * nothing if the device orders writes by itself.
 */
int gpu_memory_flush(struct gpu *gpu, const void *addr);

#endif
