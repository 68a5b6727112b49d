/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounce buffers: copies of GPU memory in host memory that the GPU can access. They are used where
 * the processor must access data: for small messages, for operations between GPU and host memory,
 * and for SENDs of a rank to itself. One launch copies the input before the run begins, and another
 * one copies the result before the run completes.
 */
#ifndef FERRULE_COLLECTIVES_GPU_BOUNCE_H
#define FERRULE_COLLECTIVES_GPU_BOUNCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/communicator/run.h"

struct block;
struct compute;
struct frl_comm;

/* A range of a buffer that a run writes, in bytes. */
struct written {
	enum plan_buffer buffer;
	size_t offset, bytes;
};

struct bounce {
	struct compute *compute;
	struct block *blocks[2];   /* of the run's buffers; in place the first is for both */
	const uint8_t *memory[2];  /* the caller's GPU memory; NULL: host memory, not copied */
	bool is_copying_out;       /* copying results out, else copying inputs in */
	const struct written *all; /* ranges to copy */
	uint32_t n, next;          /* number of ranges, and the next one */
	size_t begun;              /* bytes of that range under way */
	struct written self;
	struct run *next_moving;
};

/* Replaces the run's buffers in GPU memory by bounce buffers. Fails as block_get(). */
int bounce_make(struct run *run, struct compute *compute, const bool on_gpu[2], bool in_place);
/* Frees the bounce buffers. No copy may be under way. */
void bounce_free(struct run *run);

/* Copies the run's input in, then unblocks it. */
void bounce_copy_in(struct run *run);
/* Copies the run's results out, then completes it. */
void bounce_copy_out(struct run *run);
/* Continues copies that did not fit into the queue. Returns the number of runs whose copies are
 * all under way. */
int bounce_continue_all(struct frl_comm *comm);

#endif
