/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Points in the application's streams: an event is recorded in a stream, and polled later. No
 * stream ever waits for Ferrule, and no Ferrule call waits for a stream.
 *
 * One thread at a time for each event.
 */
#ifndef FERRULE_GPUDIRECT_STREAM_H
#define FERRULE_GPUDIRECT_STREAM_H

#include <stdbool.h>

#include "gpudirect/cuda/cuda.h"

struct gpu;
struct gpu_event;

/* Returns whether the stream is NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. These mean a stream
 * of the current context. */
bool gpu_stream_is_default(const void *stream);

/*
 * Returns the context of a CUstream. For a default stream, this is the calling thread's current
 * context. The driver answers only while a context is current: `gpu`'s context, or the thread's own
 * if `gpu` is NULL. -EINVAL: the thread has no context. -ENOTSUP: the stream is being captured.
 * Other errors as cuda_fail().
 */
int gpu_stream_context(struct gpu *gpu, void *stream, cu_context *ret_context);

/* Returns the device ordinal of a context. Fails with -ENODEV if the context is unusable; else as
 * cuda_fail(). */
int gpu_context_ordinal(cu_context context, int *ret_ordinal);

/* Creates an event, which holds the GPU. Fails as cuda_fail(). */
int gpu_event_new(struct gpu *gpu, struct gpu_event **ret_event);
/* NULL is allowed. */
void gpu_event_free(struct gpu_event *event);

/*
 * Records the event after all work launched into the stream so far. The stream must belong to the
 * event's GPU. -ENOTSUP: the stream is being captured into a graph, and nothing was recorded. Other
 * errors as cuda_fail(). CU_STREAM_PER_THREAD means the calling thread's stream.
 */
int gpu_event_record(struct gpu_event *event, void *stream);

/* Returns 1 if the recorded work is done, 0 if it is not done or the driver cannot tell now. Fails
 * as cuda_fail() if the work will never complete. */
int gpu_event_has_happened(struct gpu_event *event);

#endif
