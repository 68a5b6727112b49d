/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct exchange with reductions, in three ways:
 *
 *  - little data: contributions are received side by side in scratch and added in rank order.
 *    Allreduce: each rank does this with whole vectors, in one round.
 *  - much data: block r belongs to rank r, which receives all contributions to it in turn and
 *    reduces each as it arrives. Allreduce: each rank then sends its block to all others.
 *  - encoded: each contribution is encoded once and received side by side. The owner adds in
 *    float32, in rank order, its own contribution unrounded. Allreduce: the owner encodes the sum
 *    once and keeps the decoded value, as the others do.
 */
#include "collectives/plan/direct_reduce.h"

#include <stdlib.h>

bool plan_direct_is_small(const struct plan_job *job)
{
	return !plan_is_encoded(job) &&
		job->count * job->elem_size * (size_t)(job->ranks - 1) <=
		job->segment_bytes * DIRECT_PERCENT / 100;
}

uint32_t plan_add_up(struct plan_builder *b, const struct plan_addend addends[], uint32_t n,
	struct plan_range partial, struct plan_range target, size_t count)
{
	struct plan_range sum = addends[0].range;
	uint32_t made = addends[0].ready;

	if (sum.encoded) {
		made = plan_add_local(b, PLAN_DECODE, partial, sum, count);
		plan_wait(b, made, addends[0].ready, 0);
		sum = partial;
	}
	for (uint32_t i = 1; i < n; i++) {
		struct plan_range to = i + 1 == n ? target : partial;
		uint32_t step = plan_add_local(b,
			addends[i].range.encoded ? PLAN_DECODE_REDUCE : PLAN_REDUCE, to,
			addends[i].range, count);

		plan_set_operand(b, step, sum);
		plan_wait(b, step, made, 0);
		plan_wait(b, step, addends[i].ready, 0);
		made = step;
		sum = to;
	}
	return plan_finish(b, target, count, made);
}

/* Return the position and length of block r, which belongs to rank r. */
static size_t block_start(const struct plan_job *job, uint32_t rank)
{
	if (shape_reduces_to_all(job->coll))
		return plan_chunk(job->count, (uint32_t)job->ranks, rank);
	return shape_root_one_block(job->coll) ? 0 : rank * job->count;
}

static size_t block_count(const struct plan_job *job, uint32_t rank)
{
	if (job->coll == FRL_ALLREDUCE)
		return block_start(job, rank + 1) - block_start(job, rank);
	return job->count;
}

/* Returns where this rank's block goes. */
static struct plan_range own_output(struct plan_builder *b)
{
	bool shared = b->job->coll == FRL_ALLREDUCE || b->job->coll == FRL_ALLGATHER;

	return plan_at(b, PLAN_RECV, shared ? block_start(b->job, (uint32_t)b->job->rank) : 0);
}

/* Sends this rank's contribution to the block of `owner`, encoded if the job asks for it. */
static void contribute(struct plan_builder *b, uint32_t owner)
{
	size_t first = block_start(b->job, owner);
	size_t count = block_count(b->job, owner);
	struct plan_range source = plan_input(b, first);
	uint32_t encode = PLAN_NOTHING, step;

	if (plan_is_encoded(b->job)) {
		struct plan_range out = plan_scratch_encoded(b, count);

		encode = plan_add_local(b, PLAN_ENCODE, out, source, count);
		plan_wait_input(b, encode, first);
		source = out;
	}
	step = plan_add_send(b, owner, source, count);
	if (encode != PLAN_NOTHING)
		plan_wait(b, step, encode, 0);
	else
		plan_wait_input(b, step, first);
}

/* Receives all contributions to this rank's block side by side and adds them in rank order.
 * `addends` has room for all ranks. */
static uint32_t collect_in_order(struct plan_builder *b, struct plan_addend addends[])
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	uint32_t me = (uint32_t)job->rank;
	size_t first = block_start(job, me);
	size_t count = block_count(job, me);

	addends[me] = (struct plan_addend){ .range = plan_input(b, first), .ready = PLAN_NOTHING };
	for (uint32_t i = 1; i < n; i++) {
		struct plan_addend *addend = &addends[plan_peer_before(job, i)];

		addend->range = plan_is_encoded(job) ? plan_scratch_encoded(b, count)
						     : plan_scratch(b, count);
		addend->ready = plan_add_receive(b, plan_peer_before(job, i), addend->range, count);
	}
	return plan_add_up(b, addends, n, plan_scratch(b, count), own_output(b), count);
}

/* Receives all contributions in turn, each reduced into the sum. */
static uint32_t collect_in_turn(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	size_t first = block_start(job, (uint32_t)job->rank);
	size_t count = block_count(job, (uint32_t)job->rank);
	struct plan_range output = own_output(b);
	struct plan_range operand = plan_input(b, first);
	uint32_t made = PLAN_NOTHING;

	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		uint32_t step = plan_add_receive_reduce(
			b, plan_peer_before(job, i), output, operand, count);

		plan_wait(b, step, made, 0);
		plan_wait_input(b, step, first);
		made = step;
		operand = output;
	}
	return plan_finish(b, output, count, made);
}

/* Sends this rank's block, from `source`, to all others, and receives theirs. */
static void share(struct plan_builder *b, struct plan_range source, uint32_t made)
{
	const struct plan_job *job = b->job;
	size_t own = block_count(job, (uint32_t)job->rank);
	struct plan_range out = source;
	uint32_t step;

	if (plan_is_encoded(job)) {
		out = plan_scratch_encoded(b, own);
		step = plan_add_local(b, PLAN_ENCODE, out, source, own);
		plan_wait(b, step, made, 0);
		made = step;
		step = plan_add_local(b, PLAN_DECODE, own_output(b), out, own);
		plan_wait(b, step, made, 0);
	}
	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		step = plan_add_send(b, plan_peer_after(job, i), out, own);
		plan_wait(b, step, made, 0);
	}
	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++) {
		uint32_t peer = plan_peer_before(job, i);
		size_t count = block_count(job, peer);
		struct plan_range output = plan_at(b, PLAN_RECV, block_start(job, peer));
		struct plan_range target = output;

		if (plan_is_encoded(job))
			target = plan_scratch_encoded(b, count);
		made = plan_add_receive(b, peer, target, count);
		if (plan_is_encoded(job)) {
			step = plan_add_local(b, PLAN_DECODE, output, target, count);
			plan_wait(b, step, made, 0);
		}
	}
}

/* Sends whole vectors to all ranks; each adds them in the same order. */
static void allreduce_small(struct plan_builder *b, struct plan_addend addends[])
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	struct plan_addend *own = &addends[job->rank];

	plan_take_input(b, job->count, PLAN_BUFFERS);
	*own = (struct plan_addend){ .range = b->input, .ready = b->input_step };
	/* In place, the result would overwrite data that is still being sent. */
	if (job->in_place && b->input_step == PLAN_NOTHING) {
		own->range = plan_scratch(b, job->count);
		own->ready = plan_add_local(b, PLAN_COPY, own->range, b->input, job->count);
	}
	for (uint32_t i = 1; i < n; i++) {
		struct plan_addend *addend = &addends[plan_peer_before(job, i)];

		plan_wait(b, plan_add_send(b, plan_peer_after(job, i), own->range, job->count),
			own->ready, 0);
		addend->range = plan_scratch(b, job->count);
		addend->ready = plan_add_receive(
			b, plan_peer_before(job, i), addend->range, job->count);
	}
	plan_add_up(
		b, addends, n, plan_scratch(b, job->count), plan_at(b, PLAN_RECV, 0), job->count);
}

static void reduce(struct plan_builder *b, struct plan_addend addends[])
{
	const struct plan_job *job = b->job;
	bool is_root = job->rank == job->root;

	plan_take_input(b, job->count, is_root ? PLAN_RECV : PLAN_BUFFERS);
	if (!is_root)
		contribute(b, (uint32_t)job->root);
	else if (plan_direct_is_small(job) || plan_is_encoded(job))
		collect_in_order(b, addends);
	else
		collect_in_turn(b);
}

static void by_blocks(struct plan_builder *b, struct plan_addend addends[])
{
	const struct plan_job *job = b->job;
	bool in_order = plan_is_encoded(job) || plan_direct_is_small(job);
	uint32_t made;

	if (job->coll == FRL_ALLREDUCE)
		plan_take_input(b, job->count, PLAN_RECV);
	else
		plan_take_input(b, job->count * (size_t)job->ranks, PLAN_BUFFERS);
	for (uint32_t i = 1; i < (uint32_t)job->ranks; i++)
		contribute(b, plan_peer_after(job, i));
	made = in_order ? collect_in_order(b, addends) : collect_in_turn(b);
	if (job->coll == FRL_ALLREDUCE)
		share(b, own_output(b), made);
}

void plan_direct_reduce(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	size_t block = block_count(job, 0);
	struct plan_addend *addends = calloc((size_t)job->ranks, sizeof(addends[0]));

	if (!addends) {
		b->failed = true;
		return;
	}
	b->plan->segment = plan_segment(job, block);
	if (job->coll == FRL_ALLGATHER) {
		if (!plan_is_encoded(job))
			plan_copy_own_block(b);
		share(b, job->in_place ? own_output(b) : plan_at(b, PLAN_SEND, 0), PLAN_NOTHING);
	} else if (job->coll == FRL_REDUCE) {
		reduce(b, addends);
	} else if (job->coll == FRL_ALLREDUCE && plan_direct_is_small(job)) {
		allreduce_small(b, addends);
	} else {
		by_blocks(b, addends);
	}
	free(addends);
}
