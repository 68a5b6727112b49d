/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: streams, and the work queued in them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

enum { PATIENCE_S = 120 };

struct fake_stream *fake_stream_new(struct fake_context *context, unsigned flags, int priority)
{
	struct fake_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->is_alive = true;
	stream->flags = flags;
	stream->priority = priority;
	stream->context = context;
	stream->last = &stream->first;
	stream->next = fake.streams;
	fake.streams = stream;
	return stream;
}

void fake_stream_free(struct fake_stream *stream)
{
	struct fake_stream **at = &fake.streams;

	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	while (stream->first) {
		struct fake_work *work = stream->first;

		stream->first = work->next;
		fake_work_free(work);
	}
	free(stream);
}

void fake_streams_drop(const struct fake_context *context)
{
	struct fake_stream *stream, *next;

	fake_worker_pause_context(context);
	for (stream = fake.streams; stream; stream = next) {
		next = stream->next;
		if (stream->context == context)
			fake_stream_free(stream);
	}
	pthread_cond_broadcast(&fake.changed);
}

cu_result fake_stream_of(cu_stream handle, struct fake_stream **ret_stream)
{
	struct fake_context *context;
	cu_result result;

	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		result = fake_current(&context);
		if (result == CUDA_SUCCESS)
			*ret_stream = handle == CU_STREAM_PER_THREAD ? context->per_thread
								     : context->legacy;
		return result;
	}
	for (struct fake_stream *s = fake.streams; s; s = s->next) {
		if ((cu_stream)(void *)s != handle || !s->is_alive)
			continue;
		*ret_stream = s;
		return s->context->fatal;
	}
	return CUDA_ERROR_INVALID_HANDLE;
}

static struct fake_work *copy_work(const struct fake_work *work)
{
	struct fake_work *copy = malloc(sizeof(*copy));

	if (copy) {
		*copy = *work;
		copy->next = NULL;
		copy->sequence = ++fake.next_sequence;
	}
	return copy;
}

cu_result fake_queue(struct fake_stream *stream, const struct fake_work *work)
{
	struct fake_context *context;
	cu_result result = fake_current(&context);
	struct fake_work *copy;

	/* Streams of other contexts take no work while this one is current. */
	if (result == CUDA_SUCCESS && context != stream->context)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS)
		result = fake_capture_implicit(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	copy = copy_work(work);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		free(copy);
		return CUDA_SUCCESS;
	}
	if (work->event)
		work->event->pending++;
	*stream->last = copy;
	stream->last = &copy->next;
	fake_worker_start();
	pthread_cond_broadcast(&fake.changed);
	return CUDA_SUCCESS;
}

cu_result fake_wait(struct fake_context *context, bool (*is_so)(const void *), const void *what)
{
	uint64_t id = context->id;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	for (;;) {
		if (!context->is_alive || context->id != id)
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		if (context->fatal != CUDA_SUCCESS)
			return context->fatal;
		if (is_so(what))
			return CUDA_SUCCESS;
		if (pthread_cond_timedwait(&fake.changed, &fake.lock, &until) == ETIMEDOUT) {
			fprintf(stderr,
				"fake_libcuda: waited %d s for work that does not end; "
				"%u are queued, %s\n",
				PATIENCE_S, fake_queued(),
				fake.is_held ? "and hold() keeps them" : "and nothing is held");
			abort();
		}
	}
}

bool fake_stream_is_idle(const void *stream)
{
	const struct fake_stream *s = stream;

	return !s->first && !s->running;
}

static cu_result stream_create(cu_stream *ret_stream, unsigned flags, int priority)
{
	struct fake_context *context;
	struct fake_stream *stream;

	fake_current(&context);
	if (!ret_stream || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	stream = fake_stream_new(context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_stream = (cu_stream)(void *)stream;
	return CUDA_SUCCESS;
}

cu_result cuStreamCreate(cu_stream *ret_stream, unsigned int flags)
{
	cu_result result = fake_enter("cuStreamCreate", FAKE_CONTEXTED | FAKE_UNSAFE);

	return result == CUDA_SUCCESS ? fake_leave(stream_create(ret_stream, flags, 0)) : result;
}

cu_result cuStreamCreateWithPriority(cu_stream *ret_stream, unsigned int flags, int priority)
{
	cu_result result = fake_enter("cuStreamCreateWithPriority", FAKE_CONTEXTED | FAKE_UNSAFE);

	return result == CUDA_SUCCESS ? fake_leave(stream_create(ret_stream, flags, priority))
				      : result;
}

/* Work that is queued in it still runs. */
cu_result cuStreamDestroy_v2(cu_stream handle)
{
	cu_result result = fake_enter("cuStreamDestroy", FAKE_CONTEXTED);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result != CUDA_SUCCESS)
		return fake_leave(result);
	if (stream == stream->context->legacy || stream == stream->context->per_thread)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	stream->is_alive = false;
	stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
	if (fake_stream_is_idle(stream))
		fake_stream_free(stream);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuStreamQuery(cu_stream handle)
{
	cu_result result = fake_enter("cuStreamQuery", FAKE_CONTEXTED | FAKE_UNSAFE | FAKE_QUIET);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS)
		result = fake_capture_implicit(stream);
	if (result == CUDA_SUCCESS)
		result = fake_capture_conflict(stream);
	if (result == CUDA_SUCCESS && !fake_stream_is_idle(stream))
		result = CUDA_ERROR_NOT_READY;
	return fake_leave(result);
}

cu_result cuStreamSynchronize(cu_stream handle)
{
	cu_result result = fake_enter("cuStreamSynchronize", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS)
		result = fake_capture_implicit(stream);
	if (result == CUDA_SUCCESS)
		result = fake_capture_conflict(stream);
	if (result == CUDA_SUCCESS)
		result = fake_wait(stream->context, fake_stream_is_idle, stream);
	return fake_leave(result);
}

static cu_result attribute_of(
	const char *name, cu_stream handle, const void *data, struct fake_stream **ret_stream)
{
	cu_result result = fake_enter(name, FAKE_CONTEXTED);

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, ret_stream);
	if (result == CUDA_SUCCESS && !data)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		fake_leave(result);
	return result;
}

cu_result cuStreamGetCtx(cu_stream handle, cu_context *ret_context)
{
	struct fake_stream *stream;
	cu_result result = attribute_of("cuStreamGetCtx", handle, ret_context, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	*ret_context = fake_context_handle(stream->context);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuStreamGetFlags(cu_stream handle, unsigned int *ret_flags)
{
	struct fake_stream *stream;
	cu_result result = attribute_of("cuStreamGetFlags", handle, ret_flags, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	*ret_flags = stream->flags;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuStreamGetPriority(cu_stream handle, int *ret_priority)
{
	struct fake_stream *stream;
	cu_result result = attribute_of("cuStreamGetPriority", handle, ret_priority, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	*ret_priority = stream->priority;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuLaunchHostFunc(cu_stream handle, cu_host_function function, void *user_data)
{
	cu_result result = fake_enter("cuLaunchHostFunc", FAKE_CONTEXTED);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS && !function)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = fake_queue(stream,
			&(struct fake_work){ .kind = FAKE_FUNCTION,
				.function = function,
				.user_data = user_data });
	return fake_leave(result);
}
