/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/stream.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "gpudirect/gpu.h"
#include "lib/base/error.h"

/* Handles up to this value mean streams of the current context: NULL, CU_STREAM_LEGACY,
 * CU_STREAM_PER_THREAD. */
enum { LAST_DEFAULT_STREAM = 2 };

struct gpu_event {
	struct gpu *gpu;
	cu_event event;
};

bool gpu_stream_is_default(const void *stream)
{
	return (uintptr_t)stream <= LAST_DEFAULT_STREAM;
}

/* Returns whether a stream capture caused the failure: the capture does not allow the call. */
static bool is_of_capture(cu_result result)
{
	return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
		result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

static int refuse_capture(void)
{
	return frl_fail(-ENOTSUP,
		"the stream is being captured into a CUDA graph, which cannot contain Ferrule's "
		"operations: start them outside of the capture");
}

static int query_context(const struct cuda_api *cuda, void *stream, cu_context *ret_context)
{
	cu_context context = NULL;
	cu_result result = cuda->cuCtxGetCurrent(&context);

	if (result == CUDA_SUCCESS && !context)
		return frl_fail(-EINVAL,
			"no CUDA context is current, and no buffer is GPU memory, so the stream's "
			"owner is unknown: call cudaSetDevice() first");
	if (result == CUDA_SUCCESS && !gpu_stream_is_default(stream))
		result = cuda->cuStreamGetCtx(stream, &context);
	if (is_of_capture(result))
		return refuse_capture();
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, "cuStreamGetCtx", "looking for the GPU of a stream");
	*ret_context = context;
	return 0;
}

int gpu_stream_context(struct gpu *gpu, void *stream, cu_context *ret_context)
{
	const struct cuda_api *cuda;
	struct gpu_scope scope;
	int err = cuda_get(&cuda);

	if (!err && gpu)
		err = gpu_enter(gpu, &scope);
	if (err)
		return err;
	err = query_context(cuda, stream, ret_context);
	if (gpu)
		gpu_leave(&scope);
	return err;
}

/* A device handle need not equal its ordinal. */
static cu_result find_ordinal(const struct cuda_api *cuda, cu_device device, int *ret_ordinal)
{
	int n = 0;
	cu_result result = cuda->cuDeviceGetCount(&n);

	for (int i = 0; i < n && result == CUDA_SUCCESS; i++) {
		cu_device one;

		result = cuda->cuDeviceGet(&one, i);
		*ret_ordinal = i;
		if (result == CUDA_SUCCESS && one == device)
			return CUDA_SUCCESS;
	}
	return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_DEVICE : result;
}

int gpu_context_ordinal(cu_context context, int *ret_ordinal)
{
	const struct cuda_api *cuda;
	cu_context popped;
	cu_device device = 0;
	cu_result result;
	int err = cuda_get(&cuda);

	if (err)
		return err;
	result = cuda->cuCtxPushCurrent(context);
	if (result == CUDA_SUCCESS) {
		result = cuda->cuCtxGetDevice(&device);
		cuda->cuCtxPopCurrent(&popped);
	}
	if (result == CUDA_SUCCESS)
		result = find_ordinal(cuda, device, ret_ordinal);
	return result == CUDA_SUCCESS
		? 0
		: cuda_fail(result, "cuCtxGetDevice", "looking for the GPU of a stream");
}

int gpu_event_new(struct gpu *gpu, struct gpu_event **ret_event)
{
	struct gpu_event *event = calloc(1, sizeof(*event));
	struct gpu_scope scope;
	cu_result result;
	int err;

	if (!event)
		return frl_fail(-ENOMEM, "no memory for an event");
	err = gpu_enter(gpu, &scope);
	if (err) {
		free(event);
		return err;
	}
	result = gpu->cuda->cuEventCreate(&event->event, CU_EVENT_DISABLE_TIMING);
	gpu_leave(&scope);
	if (result != CUDA_SUCCESS) {
		free(event);
		return cuda_fail(result, "cuEventCreate", "an event to wait for a stream");
	}
	gpu_hold_again(gpu);
	event->gpu = gpu;
	*ret_event = event;
	return 0;
}

void gpu_event_free(struct gpu_event *event)
{
	struct gpu_scope scope;

	if (!event)
		return;
	/* If the context is gone, the event is gone too. */
	if (gpu_enter(event->gpu, &scope) == 0) {
		event->gpu->cuda->cuEventDestroy(event->event);
		gpu_leave(&scope);
	}
	gpu_release(event->gpu);
	free(event);
}

int gpu_event_record(struct gpu_event *event, void *stream)
{
	const struct cuda_api *cuda = event->gpu->cuda;
	const char *call = "cuStreamIsCapturing";
	cu_capture_status status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct gpu_scope scope;
	cu_result result;
	int err = gpu_enter(event->gpu, &scope);

	if (err)
		return err;
	/* Never record into a capture: the event would become a node of the graph, and would not
	 * complete before the graph is launched. */
	result = cuda->cuStreamIsCapturing(stream, &status);
	if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) {
		call = "cuEventRecord";
		result = cuda->cuEventRecord(event->event, stream);
	}
	gpu_leave(&scope);
	if (status != CU_STREAM_CAPTURE_STATUS_NONE || is_of_capture(result))
		return refuse_capture();
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, call, "waiting for a stream");
	return 0;
}

int gpu_event_has_happened(struct gpu_event *event)
{
	struct gpu_scope scope;
	cu_result result;
	int err = gpu_enter(event->gpu, &scope);

	if (err)
		return cuda_is_passing_error(err) ? 0 : err;
	result = event->gpu->cuda->cuEventQuery(event->event);
	gpu_leave(&scope);
	if (result == CUDA_SUCCESS)
		return 1;
	if (cuda_is_passing(result))
		return 0;
	return cuda_fail(
		result, "cuEventQuery", "waiting for the stream in which the buffers are written");
}
