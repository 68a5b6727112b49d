/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/alloc.h"

#include <stdio.h>

#include "gpudirect/gpu.h"
#include "lib/base/error.h"

int gpu_alloc(struct gpu *gpu, size_t bytes, uint8_t **ret_memory)
{
	struct gpu_scope scope;
	cu_deviceptr address = 0;
	cu_result result;
	char what[96];
	int err = gpu_enter(gpu, &scope);

	if (err)
		return err;
	result = gpu->cuda->cuMemAlloc(&address, bytes);
	gpu_leave(&scope);
	snprintf(what, sizeof(what), "%zu bytes of memory on GPU %d", bytes, gpu->ordinal);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, "cuMemAlloc", what);
	*ret_memory = (uint8_t *)(uintptr_t)address;
	return 0;
}

void gpu_free(struct gpu *gpu, uint8_t *memory)
{
	struct gpu_scope scope;
	cu_result result;

	/* If the context is gone, the memory is gone too. */
	if (!memory || gpu_enter(gpu, &scope) < 0)
		return;
	result = gpu->cuda->cuMemFree((cu_deviceptr)(uintptr_t)memory);
	gpu_leave(&scope);
	if (result != CUDA_SUCCESS && !cuda_is_fatal(result)) {
		cuda_fail(result, "cuMemFree", NULL);
		frl_log(FRL_LOG_WARNING, "GPU %d: memory was leaked: %s", gpu->ordinal,
			frl_last_error());
	}
}
