/* SPDX-License-Identifier: BSD-3-Clause */
/* Gather and scatter over a binomial tree. */
#include "collectives/plan/binomial.h"

struct binomial {
	struct plan_builder *b;
	uint32_t n;
	uint32_t root;   /* its position */
	uint32_t me;     /* number of this rank, counted from the root's position */
	uint32_t blocks; /* of this rank and the ranks below it */
	size_t spacing;  /* elements of a block in scratch */
	/* Scratch for these blocks, on ranks that have others below them; for encoded blocks on
	 * all ranks. */
	struct plan_range held;
};

/* Returns the rank with number `v`. */
static uint32_t rank_of(const struct binomial *t, uint32_t v)
{
	return plan_rank_at(t->b->job, (t->root + v) % t->n);
}

/* Returns the number of ranks at and below number `v`. */
static uint32_t blocks_of(const struct binomial *t, uint32_t v)
{
	uint32_t blocks = v == 0 ? t->n : v & -v;

	return blocks < t->n - v ? blocks : t->n - v;
}

static uint32_t parent_of(const struct binomial *t)
{
	return t->me - (t->me & -t->me);
}

/* Returns how many ranks from number `v` on (before `end`) have consecutive blocks at the root.
 * Both ends of a message with the root split it in this way. */
static uint32_t run_of(const struct binomial *t, uint32_t v, uint32_t end)
{
	uint32_t length = 1;

	while (v + length < end && rank_of(t, v + length) == rank_of(t, v) + length)
		length++;
	return length;
}

/* Returns where this rank holds the block of number `v`. */
static struct plan_range block_at(const struct binomial *t, enum plan_buffer at_root, uint32_t v)
{
	if (t->me == 0 && !t->held.encoded)
		return plan_at(t->b, at_root, rank_of(t, v) * t->b->job->count);
	if (t->blocks == 1 && !t->held.encoded)
		return plan_at(t->b, at_root == PLAN_SEND ? PLAN_RECV : PLAN_SEND, 0);
	return plan_plus(t->b, t->held, (v - t->me) * t->spacing);
}

/*
 * Sends the blocks of the numbers [v, end) to the rank with number `peer`, its parent or child, or
 * receives them. All steps wait for `after`. Each receive also waits for the previous one, so the
 * returned last receive completes last. Sends do not wait for each other.
 */
static uint32_t exchange(const struct binomial *t, enum plan_buffer at_root, bool sends,
	uint32_t peer, uint32_t v, uint32_t end, uint32_t after)
{
	uint32_t step = PLAN_NOTHING;

	while (v < end) {
		bool with_root = (t->me == 0 || peer == 0) && !t->held.encoded;
		uint32_t run = with_root ? run_of(t, v, end) : end - v;
		size_t count = run * t->spacing;
		struct plan_range range = block_at(t, at_root, v);

		step = sends ? plan_add_send(t->b, rank_of(t, peer), range, count)
			     : plan_add_receive(t->b, rank_of(t, peer), range, count);
		plan_wait_whole(t->b, step, after);
		if (!sends)
			after = step;
		v += run;
	}
	return step;
}

/* Returns the step that completes the blocks of this rank. */
static uint32_t gather(struct binomial *t, uint32_t own)
{
	uint32_t step = own;

	/* Each receive waits for the previous one, so the last one implies all. */
	for (uint32_t bit = 1; bit < t->blocks; bit *= 2)
		step = exchange(t, PLAN_RECV, false, t->me + bit, t->me + bit,
			t->me + bit + blocks_of(t, t->me + bit), step);
	if (t->me > 0)
		exchange(t, PLAN_RECV, true, parent_of(t), t->me, t->me + t->blocks, step);
	return step;
}

/* The root has its blocks when `received` is complete. */
static void scatter(struct binomial *t, uint32_t received)
{
	struct plan_builder *b = t->b;
	uint32_t step;
	uint32_t bit = 1;

	if (t->me > 0)
		received = exchange(
			t, PLAN_SEND, false, parent_of(t), t->me, t->me + t->blocks, PLAN_NOTHING);
	if (t->held.encoded || (t->me > 0 && t->blocks > 1)) {
		step = plan_add_local(b, t->held.encoded ? PLAN_DECODE : PLAN_COPY,
			plan_at(b, PLAN_RECV, 0), t->held, b->job->count);
		plan_wait_whole(b, step, received);
	}
	while (2 * bit < t->blocks)
		bit *= 2;
	/* The largest subtrees come first. */
	for (; bit > 0; bit /= 2)
		if (t->me + bit < t->n && bit < t->blocks)
			exchange(t, PLAN_SEND, true, t->me + bit, t->me + bit,
				t->me + bit + blocks_of(t, t->me + bit), received);
}

/* Each block is encoded by its source and decoded by its destination. */
static void make_encoded(struct binomial *t)
{
	struct plan_builder *b = t->b;
	const struct plan_job *job = b->job;
	bool gathers = job->coll == FRL_GATHER;
	enum plan_buffer from = gathers && t->me == 0 && job->in_place ? PLAN_RECV : PLAN_SEND;
	uint32_t made = PLAN_NOTHING;

	t->held = plan_scratch_encoded(b, t->blocks * t->spacing);
	if (gathers)
		made = plan_add_local(b, PLAN_ENCODE, t->held,
			plan_at(b, from, from == PLAN_RECV ? (size_t)job->rank * job->count : 0),
			job->count);
	for (uint32_t v = 0; v < t->n && !gathers && t->me == 0; v++)
		made = plan_add_local(b, PLAN_ENCODE, block_at(t, PLAN_SEND, v),
			plan_at(b, PLAN_SEND, rank_of(t, v) * job->count), job->count);
	if (!gathers) {
		scatter(t, made);
		return;
	}
	made = gather(t, made);
	for (uint32_t v = 0; v < t->n && t->me == 0; v++)
		plan_wait_whole(b,
			plan_add_local(b, PLAN_DECODE,
				plan_at(b, PLAN_RECV, rank_of(t, v) * job->count),
				block_at(t, PLAN_RECV, v), job->count),
			made);
}

void plan_binomial_make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool gathers = job->coll == FRL_GATHER;
	struct binomial t = { .b = b, .n = (uint32_t)job->ranks };
	uint32_t own = PLAN_NOTHING;

	t.root = plan_position(job, (uint32_t)job->root);
	t.me = (plan_position(job, (uint32_t)job->rank) + t.n - t.root) % t.n;
	t.blocks = blocks_of(&t, t.me);
	t.spacing = plan_spacing(job, job->count);
	b->plan->segment = plan_segment(job, job->count);
	if (plan_is_encoded(job)) {
		make_encoded(&t);
		return;
	}
	if (t.me == 0)
		own = plan_copy_own_block(b);
	if (t.me > 0 && t.blocks > 1) {
		t.held = plan_scratch(b, t.blocks * job->count);
		if (gathers)
			own = plan_add_local(
				b, PLAN_COPY, t.held, plan_at(b, PLAN_SEND, 0), job->count);
	}
	if (gathers)
		gather(&t, own);
	else
		scatter(&t, PLAN_NOTHING);
}
