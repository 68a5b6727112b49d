/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: events. Each record of an event is a new generation. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

static void event_free(struct fake_event *event)
{
	struct fake_event **at = &fake.events;

	while (*at != event)
		at = &(*at)->next;
	*at = event->next;
	free(event);
}

void fake_event_put(struct fake_event *event)
{
	if (--event->pending == 0 && !event->is_alive)
		event_free(event);
}

void fake_events_drop(const struct fake_context *context)
{
	struct fake_event *event, *next;

	for (event = fake.events; event; event = next) {
		next = event->next;
		if (event->context != context)
			continue;
		event->is_alive = false;
		event->done = event->recorded;
		if (event->pending == 0)
			event_free(event);
	}
}

static cu_result event_of(cu_event handle, struct fake_event **ret_event)
{
	for (struct fake_event *event = fake.events; event; event = event->next) {
		if ((cu_event)(void *)event != handle || !event->is_alive)
			continue;
		*ret_event = event;
		return event->context->fatal;
	}
	return CUDA_ERROR_INVALID_HANDLE;
}

cu_result cuEventCreate(cu_event *ret_event, unsigned int flags)
{
	cu_result result = fake_enter("cuEventCreate", FAKE_CONTEXTED);
	struct fake_event *event;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_event || flags > 7)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	event = calloc(1, sizeof(*event));
	if (!event)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	event->is_alive = true;
	fake_current(&event->context);
	event->next = fake.events;
	fake.events = event;
	*ret_event = (cu_event)(void *)event;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuEventDestroy_v2(cu_event handle)
{
	cu_result result = fake_enter("cuEventDestroy", FAKE_CONTEXTED);
	struct fake_event *event;

	if (result != CUDA_SUCCESS)
		return result;
	result = event_of(handle, &event);
	if (result != CUDA_SUCCESS)
		return fake_leave(result);
	event->is_alive = false;
	if (event->pending == 0)
		event_free(event);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuEventRecord(cu_event handle, cu_stream stream_handle)
{
	cu_result result = fake_enter("cuEventRecord", FAKE_CONTEXTED);
	struct fake_stream *stream;
	struct fake_event *event;

	if (result != CUDA_SUCCESS)
		return result;
	result = event_of(handle, &event);
	if (result == CUDA_SUCCESS)
		result = fake_stream_of(stream_handle, &stream);
	if (result == CUDA_SUCCESS && event->context != stream->context)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS)
		result = fake_queue(stream,
			&(struct fake_work){ .kind = FAKE_RECORD,
				.event = event,
				.generation = event->recorded + 1 });
	if (result == CUDA_SUCCESS) {
		event->is_captured = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
		if (!event->is_captured)
			event->recorded++;
	}
	return fake_leave(result);
}

static bool event_is_done(const void *what)
{
	const struct fake_event *event = what;

	return event->done >= event->recorded;
}

cu_result cuEventQuery(cu_event handle)
{
	cu_result result = fake_enter("cuEventQuery", FAKE_CONTEXTED | FAKE_UNSAFE | FAKE_QUIET);
	struct fake_event *event;

	if (result != CUDA_SUCCESS)
		return result;
	result = event_of(handle, &event);
	if (result == CUDA_SUCCESS && event->is_captured)
		result = CUDA_ERROR_CAPTURED_EVENT;
	if (result == CUDA_SUCCESS && !event_is_done(event))
		result = CUDA_ERROR_NOT_READY;
	return fake_leave(result);
}

cu_result cuEventSynchronize(cu_event handle)
{
	cu_result result = fake_enter("cuEventSynchronize", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_event *event;

	if (result != CUDA_SUCCESS)
		return result;
	result = event_of(handle, &event);
	if (result == CUDA_SUCCESS && event->is_captured)
		result = CUDA_ERROR_CAPTURED_EVENT;
	if (result == CUDA_SUCCESS)
		result = fake_wait(event->context, event_is_done, event);
	return fake_leave(result);
}

cu_result cuStreamWaitEvent(cu_stream stream_handle, cu_event handle, unsigned int flags)
{
	cu_result result = fake_enter("cuStreamWaitEvent", FAKE_CONTEXTED);
	struct fake_stream *stream;
	struct fake_event *event;

	if (result != CUDA_SUCCESS)
		return result;
	result = event_of(handle, &event);
	if (result == CUDA_SUCCESS)
		result = fake_stream_of(stream_handle, &stream);
	if (result == CUDA_SUCCESS && flags != CU_EVENT_WAIT_DEFAULT)
		result = CUDA_ERROR_INVALID_VALUE;
	/* A stream that waits for a captured event becomes captured, too. */
	if (result == CUDA_SUCCESS && event->is_captured)
		result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	if (result == CUDA_SUCCESS)
		result = fake_queue(stream,
			&(struct fake_work){
				.kind = FAKE_WAIT, .event = event, .generation = event->recorded });
	return fake_leave(result);
}
