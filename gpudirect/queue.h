/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue of work for a GPU: pieces are added, launched together as one kernel, and done in the
 * order in which they were added, as far as anybody can tell: what touches bytes that an earlier
 * piece writes, or writes what an earlier one reads, comes after it. It has a stream of its own,
 * which waits for none of the application's.
 *
 * Nothing here waits for work to be done but gpu_queue_free(), and nothing on the GPU waits for
 * more work. A call of the driver may wait for one of another thread, which may wait for the GPU.
 *
 * One thread at a time.
 */
#ifndef FERRULE_GPUDIRECT_QUEUE_H
#define FERRULE_GPUDIRECT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/work.h"

struct gpu;
struct gpu_queue;

enum {
	GPU_QUEUE_PIECES = 4096, /* added and not done, at most */
};

/* -ENOTSUP: this Ferrule was built without kernels, or they are not for this GPU or driver;
 * -ENOMEM, and as cuda_fail(). The queue holds the GPU. */
int gpu_queue_new(struct gpu *gpu, struct gpu_queue **ret_queue);

/* Waits until all that was launched is done, or cannot be any more. NULL is fine. */
void gpu_queue_free(struct gpu_queue *queue);

/*
 * Adds a piece. Returns its ticket, which counts up from 1; 0: there is no room until some are
 * done, or the queue has failed. It may launch what is waiting, to make room.
 */
uint64_t gpu_queue_add(struct gpu_queue *queue, const struct gpu_work *work);

/* Launches what was added. When the GPU cannot take it just now (a passing failure, or many
 * launches that are not done) it stays, and is tried again by this and by gpu_queue_done(). */
void gpu_queue_launch(struct gpu_queue *queue);

/* The queue takes no more, and what it has not launched yet is forgotten: that counts as done when
 * all that was launched is done. gpu_queue_error() says so from here on. */
void gpu_queue_drop(struct gpu_queue *queue);

/* All pieces up to this ticket are done: their results are there for whoever looks, on the GPU, on
 * the processor and on a bus. After a failure it stays what it was, whatever is done of the rest,
 * until it is the last ticket that was given, when the GPU certainly touches none of the memory any
 * more, or has answered with nothing but unknown errors for two seconds, which is logged. Cheap. It
 * launches what waits, too. */
uint64_t gpu_queue_done(struct gpu_queue *queue);

/* How many pieces one launch carries, at most. */
uint32_t gpu_queue_max_pieces(const struct gpu_queue *queue);

/* 0, or why nothing works any more: -EIO, with the sentence in *ret_why, which lives as long as
 * the queue. */
int gpu_queue_error(const struct gpu_queue *queue, const char **ret_why);

struct gpu_queue_stats {
	uint64_t pieces, bytes, launches, retries;
};
void gpu_queue_stats(const struct gpu_queue *queue, struct gpu_queue_stats *ret_stats);

#endif
