/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Points in the application's streams: an event that is recorded there, and asked whether it has
 * happened. Nobody ever waits in a stream for Ferrule, nor Ferrule in a call for a stream.
 *
 * One thread at a time for each event.
 */
#ifndef FERRULE_GPUDIRECT_STREAM_H
#define FERRULE_GPUDIRECT_STREAM_H

#include <stdbool.h>

#include "gpudirect/cuda.h"

struct gpu;
struct gpu_event;

/* NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD: streams of whichever context is current. */
bool gpu_stream_is_default(const void *stream);

/*
 * The context that a CUstream belongs to; of the default streams the one that is current in the
 * calling thread. The driver says it only in some context: that of `gpu`, or where that is NULL the
 * thread's own. -EINVAL: it has none; -ENOTSUP: the stream is being captured; and as cuda_fail().
 */
int gpu_stream_context(struct gpu *gpu, void *stream, cu_context *ret_context);

/* The ordinal of a context's device. -ENODEV: the context is of no use; and as cuda_fail(). */
int gpu_context_ordinal(cu_context context, int *ret_ordinal);

/* As cuda_fail(). Holds the GPU. */
int gpu_event_new(struct gpu *gpu, struct gpu_event **ret_event);
/* NULL is fine. */
void gpu_event_free(struct gpu_event *event);

/*
 * From here on it stands for all that was launched into the stream so far, which is one of the
 * event's GPU. -ENOTSUP: the stream is being captured into a graph, nothing was recorded; and as
 * cuda_fail(). The thread matters for CU_STREAM_PER_THREAD.
 */
int gpu_event_record(struct gpu_event *event, void *stream);

/* 1: all of that is done; 0: not yet, or nobody can tell just now; as cuda_fail(): it never will
 * be. */
int gpu_event_has_happened(struct gpu_event *event);

#endif
