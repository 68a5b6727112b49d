/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise exchange: in each round a rank exchanges data with one partner and proceeds when that is
 * complete, so that few messages compete for a link. In round i the partner of rank r is r XOR i if
 * n is a power of two, otherwise (i - r) modulo n; both are mutual.
 */
#include "collectives/plan/algos.h"

enum {
	AT_A_TIME = 2, /* rounds that overlap, so that links are not idle between rounds */
};

static const char *why_not(const struct plan_job *job)
{
	switch (job->coll) {
	case FRL_ALLTOALL:
	case FRL_ALLTOALLV:
	case FRL_REDUCE_SCATTER:
	case FRL_ALLGATHER: break;
	default: return "does not do this collective";
	}
	if (plan_is_encoded(job))
		return "does not support a wire type";
	return NULL;
}

/* Returns the partner, or this rank itself in the round without a partner. */
static uint32_t partner_of(const struct plan_job *job, uint32_t round)
{
	uint32_t n = (uint32_t)job->ranks;
	uint32_t rank = (uint32_t)job->rank;

	return plan_is_power_of_two(n) ? rank ^ round : (round + n - rank) % n;
}

/* The rounds under way: the steps that the next rounds wait for. */
struct rounds {
	uint32_t sent[AT_A_TIME];
	uint32_t received[AT_A_TIME];
	uint32_t reduced; /* last receive of a reduction */
};

/* The data of a round. */
struct exchange {
	uint32_t partner;
	struct plan_range source, target;
	size_t send_count, receive_count;
	uint32_t copied; /* step that copies the source to scratch, or PLAN_NOTHING */
};

static void exchange(
	struct plan_builder *b, struct rounds *rounds, uint32_t round, const struct exchange *e)
{
	uint32_t *sent = &rounds->sent[round % AT_A_TIME];
	uint32_t *received = &rounds->received[round % AT_A_TIME];
	bool reduces = b->job->coll == FRL_REDUCE_SCATTER;
	uint32_t step;

	step = plan_add_send(b, e->partner, e->source, e->send_count);
	plan_wait_whole(b, step, *received);
	if (e->copied != PLAN_NOTHING)
		plan_wait(b, step, e->copied, 0); /* the copy came after *sent */
	else
		plan_wait_whole(b, step, *sent);
	if (reduces)
		plan_wait_input(b, step, e->partner * b->job->count);
	if (step != PLAN_NOTHING)
		*sent = step;
	if (reduces) {
		uint32_t own = (uint32_t)b->job->rank;
		struct plan_range operand = rounds->reduced == PLAN_NOTHING
			? plan_input(b, own * b->job->count)
			: e->target;

		step = plan_add_receive_reduce(b, e->partner, e->target, operand, e->receive_count);
		plan_wait(b, step, rounds->reduced, 0);
		plan_wait_input(b, step, own * b->job->count);
		rounds->reduced = step;
	} else {
		step = plan_add_receive(b, e->partner, e->target, e->receive_count);
		plan_wait(b, step, e->copied, 0);
	}
	if (step != PLAN_NOTHING)
		*received = step;
}

/* All-to-all in place: copies a block to scratch before it is overwritten. */
static void move_away(struct plan_builder *b, const struct rounds *rounds, uint32_t round,
	struct plan_range slot, struct exchange *e)
{
	e->copied = plan_add_local(b, PLAN_COPY, slot, e->source, e->send_count);
	plan_wait_whole(b, e->copied, rounds->sent[round % AT_A_TIME]);
	e->source = slot;
}

static void run_rounds(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	uint32_t n = (uint32_t)job->ranks;
	bool moves_away = job->coll == FRL_ALLTOALL && job->in_place;
	struct rounds rounds = { .reduced = PLAN_NOTHING };
	struct plan_range slots[AT_A_TIME];

	for (int i = 0; i < AT_A_TIME; i++) {
		slots[i] = plan_scratch(b, moves_away ? job->count : 0);
		rounds.sent[i] = rounds.received[i] = PLAN_NOTHING;
	}
	for (uint32_t round = 0; round < n; round++) {
		struct exchange e = { .partner = partner_of(job, round),
			.send_count = job->count,
			.receive_count = job->count,
			.copied = PLAN_NOTHING };
		size_t block = e.partner * job->count;

		if (e.partner == (uint32_t)job->rank)
			continue;
		e.source = plan_at(b, PLAN_SEND, block);
		e.target = plan_at(b, PLAN_RECV, block);
		if (job->coll == FRL_REDUCE_SCATTER) {
			e.source = plan_input(b, block);
			e.target = plan_at(b, PLAN_RECV, 0);
		} else if (job->coll == FRL_ALLGATHER) {
			e.source = job->in_place
				? plan_at(b, PLAN_RECV, (size_t)job->rank * job->count)
				: plan_at(b, PLAN_SEND, 0);
		} else if (job->coll == FRL_ALLTOALLV) {
			e.source = plan_at(b, PLAN_SEND, job->send_displs[e.partner]);
			e.target = plan_at(b, PLAN_RECV, job->recv_displs[e.partner]);
			e.send_count = job->send_counts[e.partner];
			e.receive_count = job->recv_counts[e.partner];
		}
		if (moves_away)
			move_away(b, &rounds, round, slots[round % AT_A_TIME], &e);
		exchange(b, &rounds, round, &e);
	}
	if (job->coll == FRL_REDUCE_SCATTER)
		plan_finish(b, plan_at(b, PLAN_RECV, 0), job->count, rounds.reduced);
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;

	/* Alltoallv: a rank does not know the counts of the others, and all ranks must choose the
	 * same segment. So it depends on a number that all have: the bytes, taken as elements. */
	b->plan->segment = plan_segment(
		job, shape_has_pieces(job->coll) ? job->segment_bytes : job->count);
	if (job->coll == FRL_REDUCE_SCATTER)
		plan_take_input(b, job->count * (size_t)job->ranks, PLAN_BUFFERS);
	else
		plan_copy_own_block(b);
	run_rounds(b);
}

const struct plan_algo plan_pairwise_algo = { why_not, make };
