/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs on GPU memory: what local.c does with the processor for buffers in host memory, a GPU does
 * here. Its pieces of work go into a queue and are done some time later; the steps that they belong
 * to advance then. A communicator has one of these for each GPU that it has been given memory of;
 * a process with several communicators, or ranks, on one GPU has several, which know nothing of
 * each other.
 *
 * Nothing here waits but computes_settle(), and what is asked of the driver for the first time.
 */
#ifndef FERRULE_COLLECTIVES_COMPUTE_H
#define FERRULE_COLLECTIVES_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/run.h"
#include "gpudirect/cuda_abi.h"
#include "gpudirect/work.h"

struct block;
struct frl_comm;
struct frl_request;
struct gpu;
struct gpu_event;
struct gpu_queue;
struct segment;
struct staging_ring;

/* What goes on when a piece of work, and thus all before it, is done. */
enum task_kind {
	TASK_NOTHING,
	TASK_STEP,   /* `count` elements of a local step are complete */
	TASK_CHUNK,  /* a chunk in a ring is reduced */
	TASK_PACK,   /* the run has its copies, and can begin */
	TASK_UNPACK, /* its results are where the caller wants them: it is over */
};

struct task {
	uint64_t ticket;
	enum task_kind kind;
	uint32_t step;
	size_t count;
	struct run *run;
	struct segment *segment;
};

/* An event that nobody waits for, to be used again. */
struct gate {
	struct gate *next;
	struct compute *compute;
	struct gpu_event *event;
};

struct compute {
	struct compute *next;
	struct frl_comm *comm;
	struct gpu *gpu;
	struct gpu_queue *queue; /* NULL: not needed so far */
	struct task *tasks;      /* by number modulo GPU_QUEUE_PIECES, */
	uint32_t first, behind;  /* from `first` up to `behind`, in the order of their tickets */
	uint64_t last;           /* ticket given */
	struct gate *idle_gates;
	struct staging_ring *idle_rings;
	/* Memory that was used and may be used again, see block.c. */
	struct block *idle_blocks;
	struct block *anchor; /* or NULL */
	bool is_anchored;
};

/* That of a context (NULL: the primary one of the device of this ordinal). As gpu_hold(). */
int compute_get(
	struct frl_comm *comm, cu_context context, int ordinal, struct compute **ret_compute);

/* Work can be added from here on. As gpu_queue_new(). */
int compute_need_queue(struct compute *compute);

/* Adds a piece; false: there is no room until others are done, or the queue has failed, which
 * computes_poll() tells. `task` without its ticket. */
bool compute_add(struct compute *compute, const struct gpu_work *work, const struct task *task);

/* As act() of local.c: `count` elements of a step of a run, from `first` on; `source` is where the
 * first of them is. */
bool compute_act(struct run *run, const struct plan_step *step, size_t first, size_t count,
	const uint8_t *source, const struct task *task);

/* What is done, and what goes on therefore. Returns how much, or the communicator's error. */
int computes_poll(struct frl_comm *comm);

/* What was added is begun. */
void computes_launch(struct frl_comm *comm);

/* The communicator has failed: what was not launched yet is not done any more. */
void computes_drop(struct frl_comm *comm);

/*
 * The communicator has failed. Its GPUs and devices may still be busy with what was given to them
 * before: do they touch memory of the request no more, so that it can be given back? Looks, but
 * does not wait; true when that has taken too long, which is logged.
 */
bool computes_are_still(struct frl_request *request);
/* Waits for it. */
void computes_settle(struct frl_request *request);

/* Nothing is under way, no channel is left. */
void computes_free(struct frl_comm *comm);

/* ---- gate.c: operations that begin when a stream has come so far */

/* One that opens when all is done that was launched into `stream` until now. It is of the GPU that
 * the stream is of; `compute` is that of the buffers, or NULL. -ENOTSUP: the stream is being
 * captured; -EINVAL: it is of no GPU; and as cuda_fail(). */
int gate_make(struct frl_comm *comm, void *stream, struct compute *compute, struct gate **ret_gate);
/* It is not needed any more. NULL is fine. */
void gate_put(struct gate *gate);

/*
 * The run was put into its lanes, blocked, because it has a gate or copies to make: it goes on as
 * soon as it can.
 */
void gate_wait(struct run *run);
/* Looks at all that wait. Returns how many went on, or the communicator's error. */
int gates_poll(struct frl_comm *comm);

/* ---- block.c: memory that is kept for the next one */

struct block {
	struct block *next;
	struct compute *compute;
	bool is_on_gpu; /* else the processor's, and mapped for the GPU */
	uint8_t *base;
	size_t bytes;    /* at least those asked for */
	uint64_t mapped; /* where the GPU sees memory of the processor, as of block_look() */
	struct frl_mr *mr[RAILS_MAX];
};

/* An idle one that is long enough, or a new one; when there is no memory for that, all that is idle
 * goes back first. As gpu_alloc(), or gpu_host_map(). */
int block_get(struct compute *compute, bool is_on_gpu, size_t bytes, struct block **ret_block);
/* Of the processor's memory: sets `mapped`. -EIO: the GPU does not see all of it any more. */
int block_look(struct block *block);
/* With all rails, if it is not yet. As rail_register(). */
int block_register(struct block *block);
/* Nothing uses it any more: it is kept for the next one. NULL is fine. */
void block_put(struct block *block);
/* Some memory of the GPU stays registered with all rails from here on, so that devices keep what
 * they have set up for it. Where that fails, each operation takes longer. */
void compute_anchor(struct compute *compute);
void blocks_free(struct compute *compute);

#endif
