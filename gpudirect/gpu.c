/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpudirect/host.h"
#include "gpudirect/kernels/image.h"
#include "gpudirect/stream.h"
#include "lib/base/error.h"

/* The GPUs that have holders. */
static struct {
	pthread_mutex_t mutex;
	struct gpu *first;
} known = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* ---- device capabilities */

static int attribute(const struct cuda_api *cuda, cu_device device, cu_device_attribute which)
{
	int value = 0;

	/* If the driver does not know the attribute, it does not support the feature. */
	return cuda->cuDeviceGetAttribute(&value, which, device) ? 0 : value;
}

void gpu_read_caps(const struct cuda_api *cuda, cu_device device, struct gpu_caps *ret_caps)
{
	const int options = attribute(
		cuda, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
	const int ordering = attribute(
		cuda, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);

	*ret_caps = (struct gpu_caps){
		.compute_major = attribute(
			cuda, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
		.compute_minor = attribute(
			cuda, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
		.dma_buf = attribute(cuda, device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0,
		.rdma = attribute(cuda, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0,
		.rdma_vmm = attribute(cuda, device,
				    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) !=
			0,
		.host_register = attribute(cuda, device,
					 CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) != 0,
		.same_host_pointer =
			attribute(cuda, device,
				CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0,
		.flush_by_host = cuda->cuFlushGPUDirectRDMAWrites &&
			(options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST),
		.needs_flush = ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER,
		.integrated = attribute(cuda, device, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0,
		.multiprocessors = attribute(
			cuda, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
	};
}

/* ---- contexts and holders */

/* Returns 0 if the driver does not report an ID, or the context is gone. */
static uint64_t id_of(const struct cuda_api *cuda, cu_context context)
{
	unsigned long long id = 0;

	if (!cuda->cuCtxGetId || cuda->cuCtxGetId(context, &id))
		return 0;
	return id;
}

static bool is_no_context(cu_result result)
{
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
		result == CUDA_ERROR_INVALID_HANDLE;
}

/* Returns whether the context was destroyed. Another context may have its address by now. This
 * includes a primary context: cudaDeviceReset() destroys it for all its users. Returns false if the
 * driver does not report IDs. */
static bool is_context_destroyed(const struct gpu *gpu)
{
	unsigned long long id = 0;
	cu_result result;

	if (!gpu->context_id)
		return false;
	result = gpu->cuda->cuCtxGetId(gpu->context, &id);
	return result ? is_no_context(result) : id != gpu->context_id;
}

/* A stream capture may forbid even calls that need no context. */
static void relax(const struct cuda_api *cuda, struct gpu_scope *scope)
{
	scope->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	scope->is_mode_changed = !cuda->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
}

static void relax_no_more(const struct cuda_api *cuda, struct gpu_scope *scope)
{
	if (scope->is_mode_changed)
		cuda->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	scope->is_mode_changed = false;
}

static int retain(const struct cuda_api *cuda, int ordinal, cu_device device, cu_context *ret_ctx)
{
	char what[64];
	cu_result result = cuda->cuDevicePrimaryCtxRetain(ret_ctx, device);

	if (!result)
		return 0;
	snprintf(what, sizeof(what), "taking the context of GPU %d", ordinal);
	return cuda_fail(result, "cuDevicePrimaryCtxRetain", what);
}

/* Retains `context` if it is the device's primary context. A primary context is destroyed with its
 * last user, so each user must retain it. An inactive primary context cannot be `context`, and must
 * not be created only for this comparison. */
static bool retain_if_primary(const struct cuda_api *cuda, cu_device device, cu_context context)
{
	cu_context primary = NULL;
	unsigned int flags;
	int active = 0;

	if (cuda->cuDevicePrimaryCtxGetState(device, &flags, &active) || !active ||
		cuda->cuDevicePrimaryCtxRetain(&primary, device))
		return false;
	if (primary == context)
		return true;
	cuda->cuDevicePrimaryCtxRelease(device);
	return false;
}

/* Returns a GPU that has holders, and adds a holder; or NULL. Requires the lock. */
static struct gpu *find(cu_context context, int ordinal)
{
	for (struct gpu *gpu = known.first; gpu; gpu = gpu->next) {
		if (context ? gpu->context != context : !gpu->is_primary || gpu->ordinal != ordinal)
			continue;
		if (is_context_destroyed(gpu))
			continue;
		gpu->holders++;
		return gpu;
	}
	return NULL;
}

static int find_context(struct gpu *gpu, cu_context context)
{
	int rc = 0;

	gpu->context = context;
	if (context)
		gpu->is_primary = retain_if_primary(gpu->cuda, gpu->device, context);
	else
		rc = retain(gpu->cuda, gpu->ordinal, gpu->device, &gpu->context);
	if (!context && !rc)
		gpu->is_primary = true;
	if (!rc)
		gpu->context_id = id_of(gpu->cuda, gpu->context);
	return rc;
}

static int make(const struct cuda_api *cuda, cu_context context, int ordinal, struct gpu **ret_gpu)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	struct gpu_scope scope = { 0 };
	cu_result result;
	int rc;

	if (!gpu)
		return frl_fail(-ENOMEM, "no memory for a GPU's state");
	gpu->cuda = cuda;
	gpu->ordinal = ordinal;
	gpu->holders = 1;
	result = cuda->cuDeviceGet(&gpu->device, ordinal);
	if (result) {
		char what[64];

		free(gpu);
		snprintf(what, sizeof(what), "looking for GPU %d", ordinal);
		return cuda_fail(result, "cuDeviceGet", what);
	}
	gpu_read_caps(cuda, gpu->device, &gpu->caps);
	rc = gpu_host_prepare(gpu);
	if (!rc) {
		relax(cuda, &scope);
		rc = find_context(gpu, context);
		relax_no_more(cuda, &scope);
	}
	if (rc) {
		gpu_host_fini(gpu);
		free(gpu);
		return rc;
	}
	*ret_gpu = gpu;
	return 0;
}

int gpu_hold(cu_context context, int ordinal, struct gpu **ret_gpu)
{
	const struct cuda_api *cuda;
	struct gpu *gpu;
	int rc = cuda_get(&cuda);

	if (rc)
		return rc;
	pthread_mutex_lock(&known.mutex);
	gpu = find(context, ordinal);
	if (!gpu) {
		rc = make(cuda, context, ordinal, &gpu);
		if (!rc) {
			gpu->next = known.first;
			known.first = gpu;
		}
	}
	pthread_mutex_unlock(&known.mutex);
	if (!rc)
		*ret_gpu = gpu;
	return rc;
}

int gpu_hold_current(struct gpu **ret_gpu)
{
	const struct cuda_api *cuda;
	cu_context context = NULL;
	cu_result result;
	int ordinal, rc = cuda_get(&cuda);

	if (rc)
		return rc;
	result = cuda->cuCtxGetCurrent(&context);
	if (result)
		return cuda_fail(result, "cuCtxGetCurrent", "looking for a thread's GPU");
	if (!context) {
		*ret_gpu = NULL;
		return 0;
	}
	rc = gpu_context_ordinal(context, &ordinal);
	return rc ? rc : gpu_hold(context, ordinal, ret_gpu);
}

void gpu_hold_again(struct gpu *gpu)
{
	pthread_mutex_lock(&known.mutex);
	gpu->holders++;
	pthread_mutex_unlock(&known.mutex);
}

void gpu_release(struct gpu *gpu)
{
	struct gpu_scope scope = { 0 };
	bool is_last;

	if (!gpu)
		return;
	pthread_mutex_lock(&known.mutex);
	is_last = --gpu->holders == 0;
	if (is_last) {
		struct gpu **link = &known.first;

		while (*link != gpu)
			link = &(*link)->next;
		*link = gpu->next;
	}
	pthread_mutex_unlock(&known.mutex);
	if (!is_last)
		return;
	gpu_host_fini(gpu);
	image_unload(gpu);
	if (gpu->is_primary) {
		relax(gpu->cuda, &scope);
		gpu->cuda->cuDevicePrimaryCtxRelease(gpu->device);
		relax_no_more(gpu->cuda, &scope);
	}
	free(gpu);
}

/* ---- entering and leaving a context */

static int fail_context_lost(const struct gpu *gpu)
{
	return frl_fail(-ENODEV,
		"the CUDA context of this memory or work on GPU %d is gone: cuCtxDestroy() or "
		"cudaDeviceReset() destroyed it while Ferrule used it",
		gpu->ordinal);
}

int gpu_enter(struct gpu *gpu, struct gpu_scope *ret_scope)
{
	const struct cuda_api *cuda = gpu->cuda;
	struct gpu_scope scope = { .gpu = gpu };
	cu_result result;
	char what[64];

	/* Check first: the driver may not detect that a context handle is stale. */
	if (is_context_destroyed(gpu))
		return fail_context_lost(gpu);
	result = cuda->cuCtxPushCurrent(gpu->context);
	if (is_no_context(result))
		return fail_context_lost(gpu);
	if (result) {
		snprintf(what, sizeof(what), "using GPU %d", gpu->ordinal);
		return cuda_fail(result, "cuCtxPushCurrent", what);
	}
	relax(cuda, &scope);
	*ret_scope = scope;
	return 0;
}

void gpu_leave(struct gpu_scope *scope)
{
	const struct cuda_api *cuda = scope->gpu->cuda;
	cu_context context;

	relax_no_more(cuda, scope);
	cuda->cuCtxPopCurrent(&context);
}
