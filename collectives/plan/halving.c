/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive halving and doubling. Halving: in each round a rank and its partner, whose positions
 * differ in one bit, exchange halves of their data; each keeps and reduces one half. After log2 n
 * rounds each rank has one chunk. Doubling reverses this, copying. It sends as many bytes as a ring
 * in fewer rounds, but over growing distances.
 *
 * If n is not a power of two, allreduce folds: with p the largest power of two below n, each rank
 * at a position from p on gives its data to the position p below it, and gets the result from
 * there.
 */
#include "collectives/plan/algos.h"

/* Positions or ranks of the power of two, the own one, and the data that is cut into chunks. */
struct halving {
	struct plan_builder *b;
	uint32_t n;
	uint32_t me;
	bool by_position;   /* partners are positions in topology order, not ranks */
	uint32_t low, high; /* chunks that this rank has */
	size_t count;       /* of all chunks */
	/* The range of the data from element `base_first` on, and the step that made it. */
	struct plan_range base;
	size_t base_first;
	uint32_t made;
	size_t made_first;
};

static uint32_t power_below(uint32_t n)
{
	uint32_t power = 1;

	while (2 * power <= n)
		power *= 2;
	return power;
}

static const char *why_not(const struct plan_job *job)
{
	if (job->coll != FRL_ALLREDUCE && job->coll != FRL_REDUCE_SCATTER &&
		job->coll != FRL_ALLGATHER)
		return "does not do this collective";
	if (plan_is_encoded(job))
		return "does not support a wire type";
	if (job->coll != FRL_ALLREDUCE && !plan_is_power_of_two((uint32_t)job->ranks))
		return "needs a power of two of ranks for this collective";
	return NULL;
}

static uint32_t partner_rank(const struct halving *h, uint32_t distance)
{
	uint32_t partner = h->me ^ distance;

	return h->by_position ? plan_rank_at(h->b->job, partner) : partner;
}

static size_t start_of(const struct halving *h, uint32_t chunk)
{
	return plan_chunk(h->count, h->n, chunk);
}

static struct plan_range held_at(const struct halving *h, size_t element)
{
	struct plan_range range = h->base;

	range.offset += (element - h->base_first) * h->b->job->elem_size;
	return range;
}

static void wait_made(const struct halving *h, uint32_t step, size_t element)
{
	plan_wait(h->b, step, h->made, (int64_t)element - (int64_t)h->made_first);
}

/* One round: sends the half that the partner keeps, and reduces the other half into `target`,
 * which begins at element `target_first`. */
static void halve(
	struct halving *h, uint32_t distance, struct plan_range target, size_t target_first)
{
	struct plan_builder *b = h->b;
	uint32_t middle = (h->low + h->high) / 2;
	bool keeps_upper = h->me & distance;
	size_t send_first = start_of(h, keeps_upper ? h->low : middle);
	size_t send_end = start_of(h, keeps_upper ? middle : h->high);
	size_t keep_first, keep_end;
	uint32_t step;

	step = plan_add_send(
		b, partner_rank(h, distance), held_at(h, send_first), send_end - send_first);
	wait_made(h, step, send_first);
	if (keeps_upper)
		h->low = middle;
	else
		h->high = middle;
	keep_first = start_of(h, h->low);
	keep_end = start_of(h, h->high);
	target.offset += (keep_first - target_first) * b->job->elem_size;
	step = plan_add_receive_reduce(b, partner_rank(h, distance), target, held_at(h, keep_first),
		keep_end - keep_first);
	wait_made(h, step, keep_first);
	h->base = target;
	h->base_first = keep_first;
	h->made = step;
	h->made_first = keep_first;
}

/*
 * Progress of the gathering. Each receive waits for the previous one, so the last one implies all,
 * and a send can name what it waits for. This costs no time, because every send needs all of them.
 */
struct gathered {
	uint32_t all;    /* complete before `recent` begins */
	uint32_t recent; /* the last receive, and its first element */
	size_t recent_first;
};

static void wait_gathered(
	const struct halving *h, const struct gathered *g, uint32_t step, size_t first)
{
	int64_t shift = 0;

	if (g->recent == PLAN_NOTHING) {
		plan_wait_whole(h->b, step, g->all);
		return;
	}
	if (g->recent_first > first)
		shift = -(int64_t)(g->recent_first - first);
	plan_wait(h->b, step, g->recent, shift);
	plan_wait_whole(h->b, step, g->all);
}

/* Doubling: `own` is the source of this rank's chunk, made by step `own_made`. Everything is
 * gathered in the receive buffer. */
static void double_all(
	struct halving *h, struct gathered *g, struct plan_range own, uint32_t own_made)
{
	struct plan_builder *b = h->b;

	for (uint32_t distance = 1; distance < h->n; distance *= 2) {
		uint32_t peer = partner_rank(h, distance);
		uint32_t low = h->low ^ distance;
		size_t first = start_of(h, h->low);
		size_t end = start_of(h, h->low + distance);
		size_t other = start_of(h, low);
		size_t other_end = start_of(h, low + distance);
		uint32_t step;

		step = plan_add_send(
			b, peer, distance == 1 ? own : plan_at(b, PLAN_RECV, first), end - first);
		if (distance == 1)
			plan_wait(b, step, own_made, 0);
		else
			wait_gathered(h, g, step, first);
		step = plan_add_receive(b, peer, plan_at(b, PLAN_RECV, other), other_end - other);
		plan_wait_whole(b, step, g->recent != PLAN_NOTHING ? g->recent : g->all);
		if (step != PLAN_NOTHING) {
			if (g->recent != PLAN_NOTHING)
				g->all = g->recent;
			g->recent = step;
			g->recent_first = other;
		}
		if (low < h->low)
			h->low = low;
	}
}

static void allreduce(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t n = power_below((uint32_t)job->ranks);
	uint32_t position = plan_position(job, (uint32_t)job->rank);
	bool has_surplus = position + n < (uint32_t)job->ranks;
	struct plan_range recv = plan_at(b, PLAN_RECV, 0);
	struct gathered g = { .recent = PLAN_NOTHING };
	struct halving h = {
		.b = b, .n = n, .me = position, .by_position = true, .high = n, .count = job->count
	};
	struct plan_range own;
	uint32_t step;

	plan_take_input(b, job->count, PLAN_RECV);
	if (position >= n) {
		step = plan_add_send(
			b, plan_rank_at(job, position - n), plan_input(b, 0), job->count);
		plan_wait_input(b, step, 0);
		plan_add_receive(b, plan_rank_at(job, position - n), recv, job->count);
		return;
	}
	h.base = plan_input(b, 0);
	h.made = b->input_step;
	if (has_surplus) {
		h.made = plan_add_receive_reduce(
			b, plan_rank_at(job, position + n), recv, h.base, job->count);
		plan_wait_input(b, h.made, 0);
		h.base = recv;
	}
	for (uint32_t distance = n / 2; distance > 0; distance /= 2)
		halve(&h, distance, recv, 0);
	own = plan_at(b, PLAN_RECV, start_of(&h, h.low));
	g.all = plan_finish(b, own, start_of(&h, h.high) - start_of(&h, h.low), h.made);
	double_all(&h, &g, own, g.all);
	if (has_surplus) {
		step = plan_add_send(b, plan_rank_at(job, position + n), recv, job->count);
		wait_gathered(&h, &g, step, 0);
	}
}

/* Partners are ranks: ranges of blocks are contiguous by rank, not by position. */
static void reduce_scatter(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	struct halving h = { .b = b,
		.n = n,
		.me = (uint32_t)job->rank,
		.high = n,
		.count = job->count * n,
		.made = PLAN_NOTHING };
	/* The half that is kept in the first round is in scratch. */
	size_t kept = (h.me & n / 2) ? h.count / 2 : 0;
	struct plan_range scratch;

	plan_take_input(b, h.count, PLAN_BUFFERS);
	h.base = plan_input(b, 0);
	h.made = b->input_step;
	scratch = plan_scratch(b, n > 2 ? h.count / 2 : 0);
	for (uint32_t distance = n / 2; distance > 1; distance /= 2)
		halve(&h, distance, scratch, kept);
	halve(&h, 1, plan_at(b, PLAN_RECV, 0), job->count * h.me);
	plan_finish(b, plan_at(b, PLAN_RECV, 0), job->count, h.made);
}

static void allgather(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	struct gathered g = { .all = PLAN_NOTHING, .recent = PLAN_NOTHING };
	struct halving h = { .b = b,
		.n = n,
		.me = (uint32_t)job->rank,
		.low = (uint32_t)job->rank,
		.count = job->count * n };
	struct plan_range own = plan_at(b, PLAN_RECV, h.me * job->count);

	if (!job->in_place) {
		g.all = plan_add_local(b, PLAN_COPY, own, plan_at(b, PLAN_SEND, 0), job->count);
		own = plan_at(b, PLAN_SEND, 0);
	}
	double_all(&h, &g, own, PLAN_NOTHING);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool is_one = job->coll == FRL_ALLREDUCE;

	b->plan->segment = plan_segment(
		job, is_one ? job->count / 2 : job->count * ((size_t)job->ranks / 2));
	if (job->coll == FRL_ALLREDUCE)
		allreduce(b);
	else if (job->coll == FRL_REDUCE_SCATTER)
		reduce_scatter(b);
	else
		allgather(b);
}

const struct plan_algo plan_halving_algo = { why_not, make };
