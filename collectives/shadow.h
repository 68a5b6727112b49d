/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs on copies of GPU memory. Small messages go through the processor's hands, as do operations
 * between a buffer in GPU memory and one in host memory, and what a rank sends to itself. Such a
 * run works on host memory that the GPU reaches: one launch copies what is sent into it before the
 * run begins, another one what was received out of it before the run is over.
 */
#ifndef FERRULE_COLLECTIVES_SHADOW_H
#define FERRULE_COLLECTIVES_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/run.h"

struct block;
struct compute;
struct frl_comm;

/* What a run writes of one of its buffers, in bytes. */
struct written {
	enum plan_buffer buffer;
	size_t offset, bytes;
};

struct shadow {
	struct compute *compute;
	struct block *blocks[2];   /* of the run's buffers; in place the first is for both */
	const uint8_t *memory[2];  /* the caller's, on the GPU; NULL: it is the host's */
	bool is_unpacking;         /* else packing */
	const struct written *all; /* that are to be copied, */
	uint32_t n, next;          /* the next of them, */
	size_t begun;              /* of which so many bytes are on their way */
	struct written self;
	struct run *next_moving;
};

/* The buffers of the run that are a GPU's get copies, which take their places. As block_get(). */
int shadow_make(struct run *run, struct compute *compute, const bool on_gpu[2], bool in_place);
/* Nothing is copied any more. */
void shadow_free(struct run *run);

/* Copies in what the run sends; then it is open. */
void shadow_pack(struct run *run);
/* All is done: copies out what the run has written; then it is over. */
void shadow_unpack(struct run *run);
/* Goes on with those for which there was no room. Returns how many went on. */
int shadows_move(struct frl_comm *comm);

#endif
