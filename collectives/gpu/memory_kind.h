/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory kind of the buffers of an operation, and the stream that fills them. */
#ifndef FERRULE_COLLECTIVES_GPU_MEMORY_KIND_H
#define FERRULE_COLLECTIVES_GPU_MEMORY_KIND_H

#include <stdbool.h>

struct compute;
struct frl_collective;
struct frl_comm;
struct operation;
struct stream_wait;

struct memory_kinds {
	struct compute *compute; /* the GPU of the buffers; NULL: host memory only */
	bool on_gpu[2];          /* by buffer */
	/* event that the operation waits for, or NULL; the code that takes it sets NULL */
	struct stream_wait *stream_wait;
};

/*
 * Finds the memory kind of the buffers. `has_cuda`: result of cuda_is_loaded(), which a group of
 * operations checks once. Fails with -EINVAL for buffers of several GPUs or invalid memory, with
 * -ENOTSUP for managed memory, a captured stream, or a GPU without kernels, and as gpu_memory_of(),
 * gpu_hold(), gpu_queue_new().
 */
int memory_kinds_find(struct memory_kinds *ret_kinds, struct frl_comm *comm,
	const struct operation *operation, const struct frl_collective *collective, bool has_cuda);

#endif
