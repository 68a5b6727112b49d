/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all around the ring, for where ranks have no more connections than that takes: what a rank
 * sends goes to the next one as one message, in the order of the places that it is for. Who
 * receives it takes the first block, which is its own, and passes on the rest:
 *
 *      n = 4, blocks on their way to rank 3 (from, for):
 *
 *      round 1, from 2:   2,3  2,0  2,1        takes 2,3
 *      round 2, from 2:   1,3  1,0             takes 1,3
 *      round 3, from 2:   0,3                  takes 0,3
 *
 * n - 1 rounds, in which a rank sends n/2 times what it has for others. Nobody packs anything anew.
 */
#include "collectives/plan_bruck.h"

struct around {
	const struct plan_bruck *k;
	/* Blocks of one length: where the one from the rank i places before belongs, at i * count.
	 * Otherwise job->pair_counts says how long they are, and they belong into the output. */
	bool is_even;
	size_t count;
	struct plan_range blocks;
	struct plan_range in[2];   /* messages, by the parity of the round */
	uint32_t sent, used[2][2]; /* the last steps that read the first message, and these */
};

/* The message that arrives in this round is from the rank `round` places before; `from` is how many
 * places on from that one its blocks begin. */
static size_t length_of(const struct around *a, uint32_t round, uint32_t from)
{
	const struct plan_job *job = a->k->b->job;
	size_t origin = plan_bruck_before(a->k, round), all = 0;

	if (a->is_even)
		return (a->k->n - from) * a->count;
	for (uint32_t i = from; i < a->k->n; i++) {
		uint32_t to = plan_bruck_after(a->k, a->k->n - round + i);

		all += plan_spacing(job, job->pair_counts[origin * a->k->n + to]);
	}
	return all;
}

/* The first block of a message. */
static uint32_t take(const struct around *a, uint32_t round, uint32_t received)
{
	struct plan_builder *b = a->k->b;
	const struct plan_job *job = b->job;
	uint32_t from = plan_bruck_before(a->k, round), step;

	if (a->is_even) {
		step = plan_add_local(b, PLAN_COPY, plan_plus(b, a->blocks, round * a->count),
			a->in[round % 2], a->count);
		plan_wait_whole(b, step, a->sent);
	} else {
		step = plan_add_local(b, plan_is_encoded(job) ? PLAN_DECODE : PLAN_COPY,
			plan_at(b, PLAN_RECV, job->recv_displs[from]), a->in[round % 2],
			job->recv_counts[from]);
	}
	plan_wait(b, step, received, 0);
	return step;
}

/* `own` are this rank's blocks for the others, complete when `made` is. */
static uint32_t run_rounds(struct around *a, struct plan_range own, uint32_t made)
{
	struct plan_builder *b = a->k->b;
	uint32_t next = plan_bruck_after(a->k, 1), previous = plan_bruck_before(a->k, 1);
	uint32_t last = PLAN_NOTHING;

	a->sent = plan_add_send(b, next, own, length_of(a, 0, 1));
	plan_wait_whole(b, a->sent, made);
	for (uint32_t round = 1; round < a->k->n; round++) {
		size_t rest = length_of(a, round, round + 1);
		size_t all = length_of(a, round, round), first = all - rest;
		uint32_t *used = a->used[round % 2];
		uint32_t received, step;

		received = plan_add_receive(b, previous, a->in[round % 2], all);
		plan_wait_whole(b, received, used[0]);
		plan_wait_whole(b, received, used[1]);
		step = plan_add_send(b, next, plan_plus(b, a->in[round % 2], first), rest);
		plan_wait(b, step, received, (int64_t)first);
		/* Of an empty message there is nothing to wait for; but of the one before it is. */
		if (all == 0)
			continue;
		used[0] = step;
		used[1] = take(a, round, received);
		if (used[1] != PLAN_NOTHING)
			last = used[1];
	}
	return last;
}

static void start(struct around *a, size_t longest[2])
{
	struct plan_builder *b = a->k->b;

	for (int i = 0; i < 2; i++) {
		a->in[i] = plan_is_encoded(b->job) ? plan_scratch_encoded(b, longest[i])
						   : plan_scratch(b, longest[i]);
		a->used[i][0] = a->used[i][1] = PLAN_NOTHING;
	}
}

uint32_t plan_around_exchange(
	const struct plan_bruck *k, struct plan_range blocks, size_t count, uint32_t made)
{
	struct around a = { .k = k, .is_even = true, .count = count, .blocks = blocks };

	start(&a, (size_t[2]){ (k->n > 2 ? k->n - 2 : 0) * count, (k->n - 1) * count });
	return run_rounds(&a, plan_plus(k->b, blocks, count), made);
}

void plan_around_alltoallv(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct plan_bruck k = plan_bruck_of(b);
	struct around a = { .k = &k };
	size_t longest[2] = { 0 }, at = 0;
	uint32_t made = PLAN_NOTHING;
	struct plan_range own;

	plan_copy_own_block(b);
	own = plan_is_encoded(job) ? plan_scratch_encoded(b, length_of(&a, 0, 1))
				   : plan_scratch(b, length_of(&a, 0, 1));
	for (uint32_t i = 1; i < k.n; i++) {
		uint32_t to = plan_bruck_after(&k, i);
		uint32_t step = plan_add_local(b, plan_is_encoded(job) ? PLAN_ENCODE : PLAN_COPY,
			plan_plus(b, own, at), plan_at(b, PLAN_SEND, job->send_displs[to]),
			job->send_counts[to]);

		at += plan_spacing(job, job->send_counts[to]);
		if (step != PLAN_NOTHING)
			made = step;
		if (length_of(&a, i, i) > longest[i % 2])
			longest[i % 2] = length_of(&a, i, i);
	}
	start(&a, longest);
	run_rounds(&a, own, made);
}

uint32_t plan_around_gather(
	const struct plan_bruck *k, struct plan_range blocks, size_t count, uint32_t ready)
{
	struct plan_builder *b = k->b;
	uint32_t received = PLAN_NOTHING;

	for (uint32_t i = 1; i < k->n; i++) {
		uint32_t step = plan_add_send(b, plan_bruck_after(k, 1),
			plan_plus(b, blocks, plan_bruck_before(k, i - 1) * count), count);

		plan_wait_whole(b, step, i == 1 ? ready : received);
		step = plan_add_receive(b, plan_bruck_before(k, 1),
			plan_plus(b, blocks, plan_bruck_before(k, i) * count), count);
		plan_wait_whole(b, step, received);
		received = step;
	}
	return received;
}
