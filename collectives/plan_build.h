/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the generators of plans share: appending steps, places in buffers, groups of ranks. Memory
 * that runs out is remembered and reported once, at the end; steps without elements are not made,
 * and nothing waits for them. One thread at a time uses a builder.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_BUILD_H
#define FERRULE_COLLECTIVES_PLAN_BUILD_H

#include "collectives/plan.h"
#include "collectives/shapes.h"
#include "collectives/thresholds.h"

enum {
	PLAN_PIECE_SEGMENTS = 8, /* that chains and trees keep in scratch at a time */
};

struct plan_builder {
	struct plan *plan;
	const struct plan_job *job;
	uint32_t capacity; /* of plan->steps */
	bool failed;       /* no memory */
	/* What this rank brings in: where its first element is, and the step that makes it. */
	struct plan_range input;
	uint32_t input_step;
};

/* Ranks that work together, in their order; `me` is the place of this rank. */
struct plan_group {
	const uint32_t *ranks;
	uint32_t n;
	uint32_t me;
};

/* Appending steps. They return the number of the step, or PLAN_NOTHING for no elements. */
uint32_t plan_add_send(
	struct plan_builder *b, uint32_t peer, struct plan_range source, size_t count);
uint32_t plan_add_receive(
	struct plan_builder *b, uint32_t peer, struct plan_range target, size_t count);
uint32_t plan_add_receive_reduce(struct plan_builder *b, uint32_t peer, struct plan_range target,
	struct plan_range operand, size_t count);
uint32_t plan_add_local(struct plan_builder *b, enum plan_action action, struct plan_range target,
	struct plan_range source, size_t count);
/* REDUCE and DECODE_REDUCE; the operand is set with plan_set_operand(). */
void plan_set_operand(struct plan_builder *b, uint32_t step, struct plan_range operand);

/* `step` may go on to its element j when `on` is complete up to element j + shift. */
void plan_wait(struct plan_builder *b, uint32_t step, uint32_t on, int64_t shift);
void plan_wait_whole(struct plan_builder *b, uint32_t step, uint32_t on);

/* Places. */
struct plan_range plan_at(const struct plan_builder *b, enum plan_buffer buffer, size_t element);
struct plan_range plan_plus(const struct plan_builder *b, struct plan_range range, size_t elements);
/* New scratch for so many elements, as they are or in the wire's format. */
struct plan_range plan_scratch(struct plan_builder *b, size_t elements);
struct plan_range plan_scratch_encoded(struct plan_builder *b, size_t elements);

/*
 * This rank's contribution to a reduction of `count` elements: the caller's buffer, or, when it has
 * to be scaled before it is sent, what a first step makes of it. `into` is where that may go if it
 * is at least as long; PLAN_BUFFERS: nowhere, scratch is taken.
 */
void plan_take_input(struct plan_builder *b, size_t count, enum plan_buffer into);
struct plan_range plan_input(const struct plan_builder *b, size_t element);
/* `step` reads the input from `element` on. */
void plan_wait_input(struct plan_builder *b, uint32_t step, size_t element);

/* Divides the finished sum in place for FRL_AVG; otherwise there is nothing to do and `made`, the
 * step that completed the sum, is returned. */
uint32_t plan_finish(struct plan_builder *b, struct plan_range range, size_t count, uint32_t made);

/* Where ranks copy: what a rank has for itself, if it is not in its place already. Encoded it is
 * rounded as on the wire, in place too. Returns the step. */
uint32_t plan_copy_own_block(struct plan_builder *b);

/*
 * Blocks that travel encoded, where that is asked for. Local steps run in the order of the list, so
 * a rank encodes all that it sends before it decodes what depends on others.
 */

/* Where a block is sent from, once *ret_made is complete: from its place, or encoded scratch. */
struct plan_range plan_outgoing(
	struct plan_builder *b, struct plan_range source, size_t count, uint32_t *ret_made);
/* Receives a block into its place, by way of scratch if it is encoded. */
void plan_receive_block(
	struct plan_builder *b, uint32_t peer, struct plan_range target, size_t count);
/* Elements from one block to the next in scratch: encoded blocks begin at whole wire blocks. */
size_t plan_spacing(const struct plan_job *job, size_t count);

/* What a rank sends to another one in these. ALLTOALLV: some number, the same on all ranks. */
double plan_block_bytes(const struct plan_job *job);

/* What the job asks for. */
bool plan_is_encoded(const struct plan_job *job);
bool plan_is_power_of_two(uint32_t n);
/* Rounds of doubling until n ranks are reached. */
uint32_t plan_log2_up(uint32_t n);

/* Chunk number `chunk` of `chunks` of `count` elements begins here; chunks: the end. */
size_t plan_chunk(size_t count, uint32_t chunks, uint32_t chunk);

/* Elements of a segment, when steps of `elements` are to be cut so that they overlap. */
size_t plan_segment(const struct plan_job *job, size_t elements);

/* Place of the rank in the order of the topology. */
uint32_t plan_position(const struct plan_job *job, uint32_t rank);
uint32_t plan_rank_at(const struct plan_job *job, uint32_t position);

#endif
