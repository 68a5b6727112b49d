/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A NIC reports completion to the processor while its bytes are still on their way to GPU memory.
 * Kernels launched later see these bytes; a running kernel may not. Source: NVIDIA, GPUDirect RDMA,
 * "Synchronization and Memory Ordering".
 */
#include <errno.h>
#include <stdint.h>

#include "gpudirect/memory.h"
#include "lib/base/error.h"

/*
 * Copies from GPU memory. A copy that is launched now must see all bytes that have arrived, so when
 * it completes they are visible to kernels. The copy uses its own stream, so it waits for no
 * kernel; a kernel may itself be waiting for these bytes.
 */
static int read_back(const struct cuda_api *cuda, const void *addr)
{
	cu_stream stream;
	uint8_t byte;
	cu_result result = cuda->cuStreamCreateWithPriority(
		&stream, CU_STREAM_NON_BLOCKING, INT32_MIN);

	if (result)
		return cuda_fail(result, "cuStreamCreateWithPriority", "flushing GPU memory");
	result = cuda->cuMemcpyDtoHAsync(&byte, (uintptr_t)addr, 1, stream);
	if (!result)
		result = cuda->cuStreamSynchronize(stream);
	cuda->cuStreamDestroy(stream);
	return result ? cuda_fail(result, "cuMemcpyDtoHAsync", "flushing GPU memory") : 0;
}

static int flush(const struct gpu *gpu, const void *addr)
{
	cu_result result = CUDA_ERROR_NOT_SUPPORTED;

	if (gpu->caps.flush_by_host)
		result = gpu->cuda->cuFlushGPUDirectRDMAWrites(
			CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
			CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return read_back(gpu->cuda, addr);
	return result ? cuda_fail(result, "cuFlushGPUDirectRDMAWrites", "flushing GPU memory") : 0;
}

int gpu_memory_flush(struct gpu *gpu, const void *addr)
{
	struct gpu_scope scope;
	int rc;

	if (!gpu->caps.needs_flush)
		return 0;
	rc = gpu_enter(gpu, &scope);
	if (rc)
		return rc;
	rc = flush(gpu, addr);
	gpu_leave(&scope);
	return rc;
}
