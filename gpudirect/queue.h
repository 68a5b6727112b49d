/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A work queue of a GPU. Pieces are added, and launched together as one kernel. They appear to
 * complete in the order in which they were added: a piece runs after an earlier piece if either
 * writes bytes that the other one touches. The queue has its own stream, which does not wait for
 * the application's streams.
 *
 * Only gpu_queue_free() waits for work to complete. No kernel waits for further work. However, a
 * driver call may wait for a driver call of another thread, which may wait for the GPU.
 *
 * One thread at a time.
 */
#ifndef FERRULE_GPUDIRECT_QUEUE_H
#define FERRULE_GPUDIRECT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/kernels/work.h"

struct gpu;
struct gpu_queue;

enum {
	GPU_QUEUE_PIECES = 4096, /* the most pieces that are added and not done */
};

/* Creates a queue, which holds the GPU. -ENOTSUP: this build has no kernels, or they do not support
 * this GPU or driver. Other errors: -ENOMEM, and as cuda_fail(). */
int gpu_queue_new(struct gpu *gpu, struct gpu_queue **ret_queue);

/* Waits until all launched work has completed or can no longer complete, then frees the queue. NULL
 * is allowed. */
void gpu_queue_free(struct gpu_queue *queue);

/*
 * Adds a piece and returns its ticket; tickets start at 1. Returns 0 if the queue is full until
 * pieces complete, or if it has failed. May launch waiting pieces to make room.
 */
uint64_t gpu_queue_add(struct gpu_queue *queue, const struct gpu_work *work);

/* Launches all added pieces. If the GPU cannot take them now (temporary failure, or too many
 * pending launches), they stay in the queue. This function and gpu_queue_done() try again. */
void gpu_queue_launch(struct gpu_queue *queue);

/* Stops the queue: it takes no more pieces and discards those not launched. The discarded pieces
 * count as done as soon as all launched pieces are done. gpu_queue_error() reports an error from
 * now on. */
void gpu_queue_drop(struct gpu_queue *queue);

/* Returns the last ticket up to which all pieces are done: their results are visible to the GPU,
 * the processor and the bus. After a failure the value does not change until the GPU certainly no
 * longer touches the memory; then it becomes the last ticket. The same happens, with a log message,
 * after two seconds in which the GPU returned only unknown errors. Cheap to call. Also launches
 * waiting pieces. */
uint64_t gpu_queue_done(struct gpu_queue *queue);

/* Returns the most pieces of one launch. */
uint32_t gpu_queue_max_pieces(const struct gpu_queue *queue);

/* Returns 0, or -EIO if the queue has failed. *ret_why is the reason, valid as long as the
 * queue. */
int gpu_queue_error(const struct gpu_queue *queue, const char **ret_why);

struct gpu_queue_stats {
	uint64_t pieces, bytes, launches, retries;
};
void gpu_queue_stats(const struct gpu_queue *queue, struct gpu_queue_stats *ret_stats);

#endif
