/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs on GPU memory: a GPU does what the processor does in net/local.c for host memory. Work is
 * added to a queue of the GPU, and steps advance when their work is done. A communicator has one
 * struct compute for each GPU whose memory it has been given. Several communicators or ranks of a
 * process may use one GPU; each has its own.
 *
 * Only computes_settle() waits, and the first call of some driver functions.
 */
#ifndef FERRULE_COLLECTIVES_GPU_COMPUTE_H
#define FERRULE_COLLECTIVES_GPU_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/communicator/gpu_ops.h"
#include "gpudirect/cuda/cuda_abi.h"
#include "gpudirect/kernels/work.h"

struct frl_comm;
struct frl_request;
struct gpu;
struct gpu_event;
struct gpu_queue;

/* An event, kept for reuse. */
struct stream_wait {
	struct stream_wait *next;
	struct compute *compute;
	struct gpu_event *event;
};

struct compute {
	struct compute *next;
	struct frl_comm *comm;
	struct gpu *gpu;
	struct gpu_queue *queue; /* NULL: not needed yet */
	struct gpu_task *tasks;  /* by number modulo GPU_QUEUE_PIECES */
	uint32_t first, behind;  /* from `first` up to `behind`, in the order of their tickets */
	uint64_t last;           /* last ticket added */
	struct stream_wait *idle_stream_waits;
	/* Idle blocks, see block.c. */
	struct block *idle_blocks;
	struct block *anchor; /* or NULL */
	bool is_anchored;
};

/* Returns the struct compute of a context (NULL: the primary context of device `ordinal`). Fails
 * as gpu_hold(). */
int compute_get(
	struct frl_comm *comm, cu_context context, int ordinal, struct compute **ret_compute);

/* Creates the queue if there is none. Fails as gpu_queue_new(). */
int compute_need_queue(struct compute *compute);

/* Adds a piece of work. Returns false if the queue is full or has failed; computes_poll()
 * reports a failure. The ticket of `task` is ignored. */
bool compute_add(struct compute *compute, const struct gpu_work *work, const struct gpu_task *task);

/* As act() of net/local.c: adds work for `count` elements of a step, from `first` on, whose source
 * begins at `source`. */
bool compute_act(struct run *run, const struct plan_step *step, size_t first, size_t count,
	const uint8_t *source, const struct gpu_task *task);

/* Gets the scratch of a run, in memory of its GPU. Fails as block_get() or block_register(). */
int compute_get_scratch(struct run *run);
/* Frees the scratch, bounce buffers and event of a run. */
void compute_release_run(struct run *run);

/* Completes tasks whose work is done. Returns their number, or the communicator's error. */
int computes_poll(struct frl_comm *comm);

/* Launches the work that was added. */
void computes_launch(struct frl_comm *comm);

/* Drops work that was not launched, because the communicator has failed. */
void computes_drop(struct frl_comm *comm);

/*
 * Returns whether GPUs and devices have stopped accessing the memory of a request after the
 * communicator failed. Does not wait. Returns true, with a log message, when that takes too long.
 */
bool computes_are_still(struct frl_request *request);
/* Waits until computes_are_still(). */
void computes_settle(struct frl_request *request);

/* Frees everything. No work may be under way, and no channels may be left. */
void computes_free(struct frl_comm *comm);

/* ---- stream_wait.c: operations that wait for a stream */

/*
 * Makes an event that happens when all work launched into `stream` until now is done. It belongs to
 * the GPU of the stream; `compute` is that of the buffers, or NULL. Fails with -ENOTSUP if the
 * stream is being captured, with -EINVAL if it belongs to no GPU, and as cuda_fail().
 */
int stream_wait_make(struct frl_comm *comm, void *stream, struct compute *compute,
	struct stream_wait **ret_stream_wait);
/* Returns an event for reuse. NULL is allowed. */
void stream_wait_put(struct stream_wait *stream_wait);

/* Lets a run that is in its lanes wait for its stream and for its copies to bounce buffers. */
void stream_wait_start(struct run *run);
/* Polls all streams that runs wait for. Returns the number of runs that continue, or the
 * communicator's error. */
int stream_waits_poll(struct frl_comm *comm);

/* ---- block.c: memory that is kept for reuse */

/* Returns an idle block that is long enough, or a new one. Frees all idle blocks if there is no
 * memory. Fails as gpu_alloc() or gpu_host_map(). */
int block_get(struct compute *compute, bool is_on_gpu, size_t bytes, struct block **ret_block);
/* Sets `mapped` of a block in host memory. Fails with -EIO if the GPU cannot access all of it
 * any more. */
int block_look(struct block *block);
/* Registers the block with all rails, unless it is registered. Fails as rail_register(). */
int block_register(struct block *block);
/* Returns a block for reuse. NULL is allowed. */
void block_put(struct block *block);
/* Keeps some GPU memory registered with all rails from now on, so that devices keep their setup
 * for the GPU. Without it, each operation takes longer; failure is therefore ignored. */
void compute_anchor(struct compute *compute);
void blocks_free(struct compute *compute);

#endif
