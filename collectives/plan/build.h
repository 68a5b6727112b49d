/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the plan algorithms: appending steps, ranges in buffers, groups of ranks. A failed
 * allocation is noted and reported once, at the end. Steps without elements are not added, and
 * waiting for them has no effect. One thread at a time uses a builder.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_BUILD_H
#define FERRULE_COLLECTIVES_PLAN_BUILD_H

#include "collectives/plan/plan.h"
#include "collectives/plan/shapes.h"
#include "collectives/plan/thresholds.h"

enum {
	PLAN_PIECE_SEGMENTS = 8, /* that chains and trees keep in scratch at a time */
};

struct plan_builder {
	struct plan *plan;
	const struct plan_job *job;
	uint32_t capacity; /* of plan->steps */
	bool failed;       /* no memory */
	/* This rank's input: the range of its first element, and the step that computes it. */
	struct plan_range input;
	uint32_t input_step;
};

/* Ranks that work together, in order; `me` is the index of this rank. */
struct plan_group {
	const uint32_t *ranks;
	uint32_t n;
	uint32_t me;
};

/* Append a step. Return its number, or PLAN_NOTHING if there are no elements. */
uint32_t plan_add_send(
	struct plan_builder *b, uint32_t peer, struct plan_range source, size_t count);
uint32_t plan_add_receive(
	struct plan_builder *b, uint32_t peer, struct plan_range target, size_t count);
uint32_t plan_add_receive_reduce(struct plan_builder *b, uint32_t peer, struct plan_range target,
	struct plan_range operand, size_t count);
uint32_t plan_add_local(struct plan_builder *b, enum plan_action action, struct plan_range target,
	struct plan_range source, size_t count);
/* The operand of REDUCE and DECODE_REDUCE is set by plan_set_operand(). */
void plan_set_operand(struct plan_builder *b, uint32_t step, struct plan_range operand);

/* Lets `step` proceed to its element j only when `on` is complete up to element j + shift. */
void plan_wait(struct plan_builder *b, uint32_t step, uint32_t on, int64_t shift);
void plan_wait_whole(struct plan_builder *b, uint32_t step, uint32_t on);

/* Ranges. */
struct plan_range plan_at(const struct plan_builder *b, enum plan_buffer buffer, size_t element);
struct plan_range plan_plus(const struct plan_builder *b, struct plan_range range, size_t elements);
/* Allocate scratch for a number of elements, plain or encoded. */
struct plan_range plan_scratch(struct plan_builder *b, size_t elements);
struct plan_range plan_scratch_encoded(struct plan_builder *b, size_t elements);

/*
 * Sets this rank's input to a reduction of `count` elements: the caller's buffer, or the scaled
 * copy that a first step makes. `into` is the buffer for the copy if it is long enough;
 * PLAN_BUFFERS: use scratch.
 */
void plan_take_input(struct plan_builder *b, size_t count, enum plan_buffer into);
struct plan_range plan_input(const struct plan_builder *b, size_t element);
/* Lets `step`, which reads the input from `element` on, wait for the input. */
void plan_wait_input(struct plan_builder *b, uint32_t step, size_t element);

/* Divides the finished sum in place for FRL_AVG. Returns the step, or `made`, the step that
 * completed the sum, if there is nothing to divide. */
uint32_t plan_finish(struct plan_builder *b, struct plan_range range, size_t count, uint32_t made);

/* For collectives that copy: copies this rank's block to itself, unless it is in place. With a
 * wire type the block is rounded as on the wire, also in place. Returns the step. */
uint32_t plan_copy_own_block(struct plan_builder *b);

/*
 * Blocks that are sent encoded, if the job asks for it. Local steps run in the order of the list,
 * so a rank encodes everything it sends before it decodes what depends on others.
 */

/* Returns the range to send a block from once *ret_made is complete: its own, or encoded
 * scratch. */
struct plan_range plan_outgoing(
	struct plan_builder *b, struct plan_range source, size_t count, uint32_t *ret_made);
/* Receives a block to its destination, through scratch if it is encoded. */
void plan_receive_block(
	struct plan_builder *b, uint32_t peer, struct plan_range target, size_t count);
/* Returns the distance of blocks in scratch, in elements: encoded blocks begin at whole wire
 * blocks. */
size_t plan_spacing(const struct plan_job *job, size_t count);

/* Returns the bytes that a rank sends to another one in such collectives. For ALLTOALLV a
 * nominal number, the same on all ranks. */
double plan_block_bytes(const struct plan_job *job);

/* Returns whether the job has a wire type. */
bool plan_is_encoded(const struct plan_job *job);
bool plan_is_power_of_two(uint32_t n);
/* Returns the number of doublings until n ranks are reached. */
uint32_t plan_log2_up(uint32_t n);

/* Returns the first element of chunk number `chunk` of `chunks`; `count` if chunk == chunks. */
size_t plan_chunk(size_t count, uint32_t chunks, uint32_t chunk);

/* Returns the segment length in elements, so that steps of `elements` elements overlap. */
size_t plan_segment(const struct plan_job *job, size_t elements);

/* Returns the position of the rank in topology order. */
uint32_t plan_position(const struct plan_job *job, uint32_t rank);
uint32_t plan_rank_at(const struct plan_job *job, uint32_t position);

#endif
