/* SPDX-License-Identifier: BSD-3-Clause */
/* Appends steps to a plan, and computes ranges in its buffers. */
#include "collectives/plan/build.h"

#include <assert.h>
#include <stdlib.h>

enum {
	STEPS_FIRST = 16,
	SCRATCH_ALIGN = 64,
};

static bool grow(struct plan_builder *b)
{
	uint32_t capacity = b->capacity > 0 ? 2 * b->capacity : STEPS_FIRST;
	struct plan_step *steps;

	if (b->failed)
		return false;
	steps = reallocarray(b->plan->steps, capacity, sizeof(steps[0]));
	if (!steps) {
		b->failed = true;
		return false;
	}
	b->plan->steps = steps;
	b->capacity = capacity;
	return true;
}

static uint32_t add(struct plan_builder *b, const struct plan_step *step)
{
	struct plan_step *added;

	if (step->count == 0)
		return PLAN_NOTHING;
	if (b->plan->n_steps == b->capacity && !grow(b))
		return PLAN_NOTHING;
	added = &b->plan->steps[b->plan->n_steps];
	*added = *step;
	for (int i = 0; i < PLAN_AFTER; i++)
		added->after[i] = (struct plan_after){ .step = PLAN_NOTHING };
	return b->plan->n_steps++;
}

uint32_t plan_add_send(
	struct plan_builder *b, uint32_t peer, struct plan_range source, size_t count)
{
	return add(b,
		&(struct plan_step){
			.kind = PLAN_SENDS, .peer = peer, .count = count, .source = source });
}

uint32_t plan_add_receive(
	struct plan_builder *b, uint32_t peer, struct plan_range target, size_t count)
{
	return add(b,
		&(struct plan_step){
			.kind = PLAN_RECEIVES, .peer = peer, .count = count, .target = target });
}

uint32_t plan_add_receive_reduce(struct plan_builder *b, uint32_t peer, struct plan_range target,
	struct plan_range operand, size_t count)
{
	return add(b,
		&(struct plan_step){ .kind = PLAN_RECEIVES,
			.action = PLAN_REDUCE,
			.peer = peer,
			.count = count,
			.target = target,
			.operand = operand });
}

uint32_t plan_add_local(struct plan_builder *b, enum plan_action action, struct plan_range target,
	struct plan_range source, size_t count)
{
	return add(b,
		&(struct plan_step){ .kind = PLAN_LOCAL,
			.action = action,
			.count = count,
			.target = target,
			.source = source });
}

void plan_set_operand(struct plan_builder *b, uint32_t step, struct plan_range operand)
{
	if (step != PLAN_NOTHING)
		b->plan->steps[step].operand = operand;
}

void plan_wait(struct plan_builder *b, uint32_t step, uint32_t on, int64_t shift)
{
	struct plan_after *after;

	if (step == PLAN_NOTHING || on == PLAN_NOTHING)
		return;
	assert(on < step);
	after = b->plan->steps[step].after;
	for (int i = 0; i < PLAN_AFTER; i++)
		if (after[i].step == PLAN_NOTHING) {
			after[i] = (struct plan_after){ .step = on, .shift = shift };
			return;
		}
	assert(!"a step waits for more than a step can");
}

void plan_wait_whole(struct plan_builder *b, uint32_t step, uint32_t on)
{
	plan_wait(b, step, on, PLAN_WHOLE);
}

struct plan_range plan_at(const struct plan_builder *b, enum plan_buffer buffer, size_t element)
{
	return (struct plan_range){ .buffer = buffer, .offset = element * b->job->elem_size };
}

struct plan_range plan_plus(const struct plan_builder *b, struct plan_range range, size_t elements)
{
	range.offset += range.encoded ? frl_wire_size(b->job->wire, elements)
				      : elements * b->job->elem_size;
	return range;
}

static struct plan_range take_scratch(struct plan_builder *b, size_t bytes, bool encoded)
{
	struct plan_range range = {
		.buffer = PLAN_SCRATCH, .encoded = encoded, .offset = b->plan->scratch_bytes
	};

	b->plan->scratch_bytes += (bytes + SCRATCH_ALIGN - 1) & ~(size_t)(SCRATCH_ALIGN - 1);
	return range;
}

struct plan_range plan_scratch(struct plan_builder *b, size_t elements)
{
	return take_scratch(b, elements * b->job->elem_size, false);
}

struct plan_range plan_scratch_encoded(struct plan_builder *b, size_t elements)
{
	return take_scratch(b, frl_wire_size(b->job->wire, elements), true);
}

static bool scales_first(const struct plan_job *job)
{
	return shape_reduces(job->coll) &&
		(job->op == FRL_PREMUL_SUM || (job->op == FRL_AVG && job->is_float_narrow));
}

void plan_take_input(struct plan_builder *b, size_t count, enum plan_buffer into)
{
	bool same = b->job->in_place && into == PLAN_RECV;
	struct plan_range source = plan_at(b, same ? PLAN_RECV : PLAN_SEND, 0);

	b->input = source;
	b->input_step = PLAN_NOTHING;
	if (!scales_first(b->job))
		return;
	b->input = into == PLAN_RECV ? plan_at(b, PLAN_RECV, 0) : plan_scratch(b, count);
	b->input_step = plan_add_local(b, PLAN_SCALE, b->input, source, count);
}

struct plan_range plan_input(const struct plan_builder *b, size_t element)
{
	return plan_plus(b, b->input, element);
}

void plan_wait_input(struct plan_builder *b, uint32_t step, size_t element)
{
	plan_wait(b, step, b->input_step, (int64_t)element);
}

uint32_t plan_finish(struct plan_builder *b, struct plan_range range, size_t count, uint32_t made)
{
	uint32_t step;

	if (b->job->op != FRL_AVG || scales_first(b->job))
		return made;
	step = plan_add_local(b, PLAN_SCALE, range, range, count);
	plan_wait(b, step, made, 0);
	return step;
}

struct plan_range plan_outgoing(
	struct plan_builder *b, struct plan_range source, size_t count, uint32_t *ret_made)
{
	struct plan_range out;

	*ret_made = PLAN_NOTHING;
	if (!plan_is_encoded(b->job))
		return source;
	out = plan_scratch_encoded(b, count);
	*ret_made = plan_add_local(b, PLAN_ENCODE, out, source, count);
	return out;
}

void plan_receive_block(
	struct plan_builder *b, uint32_t peer, struct plan_range target, size_t count)
{
	struct plan_range in;
	uint32_t received;

	if (!plan_is_encoded(b->job)) {
		plan_add_receive(b, peer, target, count);
		return;
	}
	in = plan_scratch_encoded(b, count);
	received = plan_add_receive(b, peer, in, count);
	plan_wait(b, plan_add_local(b, PLAN_DECODE, target, in, count), received, 0);
}

size_t plan_spacing(const struct plan_job *job, size_t count)
{
	if (plan_is_encoded(job))
		count += (PLAN_WIRE_BLOCK - count % PLAN_WIRE_BLOCK) % PLAN_WIRE_BLOCK;
	return count;
}

/* Returns the positions of this rank's block for itself in the two buffers. */
static void find_own_block(const struct plan_job *job, size_t *ret_from, size_t *ret_to)
{
	const struct shape *shape = shape_of(job->coll);
	size_t rank = (size_t)job->rank;

	*ret_from = shape_block_of(&shape->send, rank) * job->count;
	*ret_to = shape_block_of(&shape->recv, rank) * job->count;
	if (shape_has_pieces(job->coll)) {
		*ret_from = job->send_displs[rank];
		*ret_to = job->recv_displs[rank];
	}
}

uint32_t plan_copy_own_block(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool rounds = plan_is_encoded(job) && !shape_reduces(job->coll);
	size_t count = shape_has_pieces(job->coll) ? job->send_counts[job->rank] : job->count;
	struct plan_range source, target;
	uint32_t made, step;
	size_t from, to;

	if (job->in_place && !rounds)
		return PLAN_NOTHING;
	find_own_block(job, &from, &to);
	target = plan_at(b, PLAN_RECV, to);
	source = job->in_place ? target : plan_at(b, PLAN_SEND, from);
	if (!rounds)
		return plan_add_local(b, PLAN_COPY, target, source, count);
	source = plan_outgoing(b, source, count, &made);
	step = plan_add_local(b, PLAN_DECODE, target, source, count);
	plan_wait(b, step, made, 0);
	return step;
}

double plan_block_bytes(const struct plan_job *job)
{
	if (shape_has_pieces(job->coll))
		return (double)job->segment_bytes;
	return (double)job->count * (double)job->elem_size;
}

bool plan_is_encoded(const struct plan_job *job)
{
	return job->wire != FRL_WIRE_SAME;
}

bool plan_is_power_of_two(uint32_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

uint32_t plan_log2_up(uint32_t n)
{
	uint32_t rounds = 0;

	while (((uint32_t)1 << rounds) < n)
		rounds++;
	return rounds;
}

size_t plan_chunk(size_t count, uint32_t chunks, uint32_t chunk)
{
	size_t longer = count % chunks;

	return count / chunks * chunk + (chunk < longer ? chunk : longer);
}

size_t plan_segment(const struct plan_job *job, size_t elements)
{
	size_t size = job->elem_size > 0 ? job->elem_size : 1;
	/* A multiple of 4 KiB fills packets of any MTU within a step. */
	size_t bytes = (elements * size / SEGMENTS_OF_STEP + 4095) & ~(size_t)4095;
	size_t segment;

	if (bytes < SEGMENT_LEAST)
		bytes = SEGMENT_LEAST;
	if (bytes > job->segment_bytes)
		bytes = job->segment_bytes;
	segment = bytes / size;
	if (plan_is_encoded(job))
		segment -= segment % PLAN_WIRE_BLOCK;
	if (segment == 0)
		segment = plan_is_encoded(job) ? PLAN_WIRE_BLOCK : 1;
	return segment;
}

uint32_t plan_rank_at(const struct plan_job *job, uint32_t position)
{
	return job->topology->order[position];
}

uint32_t plan_position(const struct plan_job *job, uint32_t rank)
{
	uint32_t position = 0;

	while (job->topology->order[position] != rank)
		position++;
	return position;
}
