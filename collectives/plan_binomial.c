/* SPDX-License-Identifier: BSD-3-Clause */
/* Gather and scatter over a binomial tree. */
#include "collectives/plan_binomial.h"

struct binomial {
	struct plan_builder *b;
	uint32_t n;
	uint32_t root;          /* its place */
	uint32_t me;            /* number of this rank, counted from the root's place */
	uint32_t blocks;        /* of this rank and those below it */
	struct plan_range held; /* of a rank that others are below: scratch for these blocks */
};

/* The rank with number `v`. */
static uint32_t rank_of(const struct binomial *t, uint32_t v)
{
	return plan_rank_at(t->b->job, (t->root + v) % t->n);
}

/* How many ranks are at and below number `v`. */
static uint32_t blocks_of(const struct binomial *t, uint32_t v)
{
	uint32_t blocks = v == 0 ? t->n : v & -v;

	return blocks < t->n - v ? blocks : t->n - v;
}

/* The ranks from number `v` on (before `end`) whose blocks follow each other at the root: both ends
 * of a message with the root cut it in this way. */
static uint32_t run_of(const struct binomial *t, uint32_t v, uint32_t end)
{
	uint32_t length = 1;

	while (v + length < end && rank_of(t, v + length) == rank_of(t, v) + length)
		length++;
	return length;
}

/* Where the block of number `v` is, which this rank holds. */
static struct plan_range block_at(const struct binomial *t, enum plan_buffer at_root, uint32_t v)
{
	if (t->me == 0)
		return plan_at(t->b, at_root, rank_of(t, v) * t->b->job->count);
	if (t->blocks == 1)
		return plan_at(t->b, at_root == PLAN_SEND ? PLAN_RECV : PLAN_SEND, 0);
	return plan_plus(t->b, t->held, (v - t->me) * t->b->job->count);
}

/* Exchanges the blocks of the numbers [v, end) with the rank with number `peer`, which is above or
 * below. Returns the last step; the others are complete before it. */
static uint32_t exchange(const struct binomial *t, enum plan_buffer at_root, bool sends,
	uint32_t peer, uint32_t v, uint32_t end, uint32_t after)
{
	uint32_t step = PLAN_NOTHING;

	while (v < end) {
		bool with_root = t->me == 0 || peer == 0;
		uint32_t run = with_root ? run_of(t, v, end) : end - v;
		size_t count = run * t->b->job->count;
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

static void gather(struct binomial *t, uint32_t own)
{
	uint32_t step = own;

	/* Each waits for the one before it, so that the last stands for all. */
	for (uint32_t bit = 1; bit < t->blocks; bit *= 2)
		step = exchange(t, PLAN_RECV, false, t->me + bit, t->me + bit,
			t->me + bit + blocks_of(t, t->me + bit), step);
	if (t->me > 0)
		exchange(t, PLAN_RECV, true, t->me - (t->me & -t->me), t->me, t->me + t->blocks,
			step);
}

static void scatter(struct binomial *t)
{
	struct plan_builder *b = t->b;
	uint32_t received = PLAN_NOTHING, step;
	uint32_t bit = 1;

	if (t->me > 0)
		received = exchange(t, PLAN_SEND, false, t->me - (t->me & -t->me), t->me,
			t->me + t->blocks, PLAN_NOTHING);
	if (t->me > 0 && t->blocks > 1) {
		step = plan_add_local(
			b, PLAN_COPY, plan_at(b, PLAN_RECV, 0), t->held, b->job->count);
		plan_wait_whole(b, step, received);
	}
	while (2 * bit < t->blocks)
		bit *= 2;
	/* Those with most below them first. */
	for (; bit > 0; bit /= 2)
		if (t->me + bit < t->n && bit < t->blocks)
			exchange(t, PLAN_SEND, true, t->me + bit, t->me + bit,
				t->me + bit + blocks_of(t, t->me + bit), received);
}

const char *plan_binomial_why_not(const struct plan_job *job)
{
	if (plan_is_encoded(job))
		return "sends elements as they are only";
	if (job->topology->peers_max < plan_log2_up((uint32_t)job->ranks))
		return "needs more connections a rank than there may be";
	return NULL;
}

void plan_binomial_make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool gathers = job->coll == FRL_GATHER;
	size_t at_root = (size_t)job->rank * job->count;
	struct binomial t = { .b = b, .n = (uint32_t)job->ranks };
	uint32_t own = PLAN_NOTHING;

	t.root = plan_position(job, (uint32_t)job->root);
	t.me = (plan_position(job, (uint32_t)job->rank) + t.n - t.root) % t.n;
	t.blocks = blocks_of(&t, t.me);
	b->plan->segment = plan_segment(job, job->count);
	if (t.me == 0 && !job->in_place)
		own = plan_add_local(b, PLAN_COPY, plan_at(b, PLAN_RECV, gathers ? at_root : 0),
			plan_at(b, PLAN_SEND, gathers ? 0 : at_root), job->count);
	if (t.me > 0 && t.blocks > 1) {
		t.held = plan_scratch(b, t.blocks * job->count);
		if (gathers)
			own = plan_add_local(
				b, PLAN_COPY, t.held, plan_at(b, PLAN_SEND, 0), job->count);
	}
	if (gathers)
		gather(&t, own);
	else
		scatter(&t);
}

void plan_binomial_cost(const struct plan_job *job, struct plan_cost *ret_cost)
{
	double n = job->ranks;
	double bytes = (double)job->count * (double)job->elem_size;
	double rounds = plan_log2_up((uint32_t)job->ranks);

	/* The root has n - 1 blocks to move; half of them pass through the ranks below it. */
	*ret_cost = (struct plan_cost){
		.rounds = rounds, .bytes = (n - 1) * bytes + n / 2 * bytes, .reduced = bytes
	};
}
