/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls into the GPU part of a communicator, for parts that do not depend on it. The table is set
 * when the first buffer in GPU memory is used. Only runs on GPU memory or with bounce buffers, and
 * rings in GPU memory, lead to these calls.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_GPU_OPS_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_GPU_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/communicator/run.h"

struct compute;
struct segment;

/* The action when a piece of work, and all work before it, is done. */
struct gpu_task {
	uint64_t ticket;
	void (*done)(const struct gpu_task *task); /* NULL: nothing */
	struct run *run;
	uint32_t step;
	size_t count;            /* elements of the step */
	struct segment *segment; /* of a chunk in a staging ring */
};

/* Memory that is kept for reuse: gpu/block.c. */
struct block {
	struct block *next;
	struct compute *compute;
	bool is_on_gpu; /* else host memory, mapped for the GPU */
	uint8_t *base;
	size_t bytes;    /* at least as many as requested */
	uint64_t mapped; /* address of host memory for the GPU, set by block_look() */
	struct frl_mr *mr[RAILS_MAX];
};

struct gpu_ops {
	/* Adds work for `count` elements of a step, from `first` on, whose source begins at
	 * `source`. Returns false if the queue is full or has failed. */
	bool (*act)(struct run *run, const struct plan_step *step, size_t first, size_t count,
		const uint8_t *source, const struct gpu_task *task);
	/* Returns a block of GPU memory that is registered with all rails. Fails as gpu_alloc() or
	 * rail_register(). */
	int (*get_block)(struct compute *compute, size_t bytes, struct block **ret_block);
	void (*put_block)(struct block *block);
	/* Copies the results of a run out of its bounce buffers, then completes it. */
	void (*copy_out)(struct run *run);
};

#endif
