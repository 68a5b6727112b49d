/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: captured streams. Captured work is discarded. */
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

static __thread cu_capture_mode own_mode; /* CU_STREAM_CAPTURE_MODE_GLOBAL */
static __thread char own_address;         /* tells threads apart */

uint64_t fake_thread_id(void)
{
	return (uint64_t)(uintptr_t)&own_address;
}

int fake_capture_mode(void)
{
	return own_mode;
}

cu_result fake_capture_check(void)
{
	cu_result result = CUDA_SUCCESS;

	if (own_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	if (fake.is_capture_elsewhere && own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
		fake.stats.captures_broken++;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	for (struct fake_stream *s = fake.streams; s; s = s->next) {
		bool is_own = s->capture_thread == fake_thread_id();

		if (s->capture == CU_STREAM_CAPTURE_STATUS_NONE ||
			s->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
			(!is_own &&
				(s->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
					own_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)))
			continue;
		if (s->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE)
			fake.stats.captures_broken++;
		s->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

cu_result fake_capture_conflict(struct fake_stream *stream)
{
	if (stream->capture == CU_STREAM_CAPTURE_STATUS_NONE)
		return CUDA_SUCCESS;
	if (stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		fake.stats.captures_broken++;
	stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* The legacy stream depends on all blocking ones, so it cannot be used while one is captured. */
cu_result fake_capture_implicit(const struct fake_stream *stream)
{
	for (const struct fake_stream *s = fake.streams; stream->is_legacy && s; s = s->next)
		if (s->context == stream->context && !(s->flags & CU_STREAM_NON_BLOCKING) &&
			s->capture != CU_STREAM_CAPTURE_STATUS_NONE)
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return CUDA_SUCCESS;
}

cu_result cuThreadExchangeStreamCaptureMode(cu_capture_mode *mode)
{
	cu_result result = fake_enter("cuThreadExchangeStreamCaptureMode", FAKE_QUIET);
	cu_capture_mode before = own_mode;

	if (result != CUDA_SUCCESS)
		return result;
	if (!mode || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	own_mode = *mode;
	*mode = before;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuStreamIsCapturing(cu_stream handle, cu_capture_status *ret_status)
{
	cu_result result = fake_enter("cuStreamIsCapturing", FAKE_CONTEXTED);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS && !ret_status)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = fake_capture_implicit(stream);
	if (result == CUDA_SUCCESS)
		*ret_status = stream->capture;
	return fake_leave(result);
}

cu_result cuStreamBeginCapture_v2(cu_stream handle, cu_capture_mode mode)
{
	cu_result result = fake_enter("cuStreamBeginCapture", FAKE_CONTEXTED);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result != CUDA_SUCCESS)
		return fake_leave(result);
	if (stream->is_legacy)
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE)
		return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	stream->mode = mode;
	stream->capture_thread = fake_thread_id();
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuStreamEndCapture(cu_stream handle, cu_graph *ret_graph)
{
	cu_result result = fake_enter("cuStreamEndCapture", FAKE_CONTEXTED);
	static char graph;
	struct fake_stream *stream;
	int status;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result != CUDA_SUCCESS)
		return fake_leave(result);
	status = stream->capture;
	if (!ret_graph || status == CU_STREAM_CAPTURE_STATUS_NONE)
		return fake_leave(ret_graph ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE);
	if (stream->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
		stream->capture_thread != fake_thread_id())
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
	*ret_graph = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? (cu_graph)(void *)&graph : NULL;
	return fake_leave(status == CU_STREAM_CAPTURE_STATUS_ACTIVE
			? CUDA_SUCCESS
			: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

cu_result cuGraphDestroy(cu_graph graph)
{
	cu_result result = fake_enter("cuGraphDestroy", 0);

	if (result != CUDA_SUCCESS)
		return result;
	return fake_leave(graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
