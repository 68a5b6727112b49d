/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's all-to-all with blocks of different lengths. Block i has to go i places on, and does so
 * in the rounds of the bits of i. In each round a rank packs the blocks that it holds with that
 * bit, those of other ranks among them, into one message; what it receives stays where it came,
 * until it is packed again or is where it belongs. How long blocks of others are says
 * job->pair_counts.
 */
#include "collectives/plan_bruck.h"

#include <stdlib.h>

struct plan_bruck plan_bruck_of(struct plan_builder *b)
{
	return (struct plan_bruck){ .b = b,
		.n = (uint32_t)b->job->ranks,
		.position = plan_position(b->job, (uint32_t)b->job->rank),
		.is_around = b->plan->algo == FRL_ALGO_RING };
}

uint32_t plan_bruck_after(const struct plan_bruck *k, uint32_t places)
{
	return plan_rank_at(k->b->job, (k->position + places) % k->n);
}

uint32_t plan_bruck_before(const struct plan_bruck *k, uint32_t places)
{
	return plan_rank_at(k->b->job, (k->position + k->n - places) % k->n);
}

uint32_t plan_bruck_peers(uint32_t n)
{
	uint32_t peers = 0;

	for (uint32_t places = 1; places < n; places++)
		peers += plan_is_power_of_two(places) || plan_is_power_of_two(n - places);
	return peers;
}

bool plan_is_scarce(const struct plan_job *job)
{
	return job->topology->peers_max < plan_bruck_peers((uint32_t)job->ranks);
}

/* A block that this rank holds, and the step that brought it. */
struct piece {
	struct plan_range range;
	uint32_t ready;
};

struct exchange {
	struct plan_bruck k;
	struct piece *pieces; /* by index */
	struct plan_range out;
	uint32_t sent; /* the last step that read `out` */
};

/* Elements of block `i`, which this rank holds before the round `distance`: in the rounds before
 * it has come as far as its lower bits say. */
static size_t count_of(const struct plan_bruck *k, uint32_t i, uint32_t distance)
{
	uint32_t passed = i & (distance - 1);
	uint32_t from = plan_bruck_before(k, passed);
	uint32_t to = plan_bruck_after(k, i - passed);

	return k->b->job->pair_counts[(size_t)from * k->n + to];
}

/* Elements of the message that is made of the blocks held before the round `held`, of those with
 * the bit `distance`. */
static size_t packed_count(const struct plan_bruck *k, uint32_t distance, uint32_t held)
{
	size_t count = 0;

	for (uint32_t i = distance; i < k->n; i++)
		if (i & distance)
			count += plan_spacing(k->b->job, count_of(k, i, held));
	return count;
}

static struct plan_range take_scratch(struct plan_builder *b, size_t count)
{
	return plan_is_encoded(b->job) ? plan_scratch_encoded(b, count) : plan_scratch(b, count);
}

static void send_round(struct exchange *e, uint32_t distance)
{
	const struct plan_bruck *k = &e->k;
	struct plan_builder *b = k->b;
	uint32_t packed = PLAN_NOTHING, step;
	size_t at = 0;

	for (uint32_t i = distance; i < k->n; i++) {
		size_t count = i & distance ? count_of(k, i, distance) : 0;

		step = plan_add_local(
			b, PLAN_COPY, plan_plus(b, e->out, at), e->pieces[i].range, count);
		plan_wait_whole(b, step, e->pieces[i].ready);
		plan_wait_whole(b, step, e->sent);
		if (step != PLAN_NOTHING)
			packed = step;
		at += plan_spacing(b->job, count);
	}
	step = plan_add_send(b, plan_bruck_after(k, distance), e->out, at);
	plan_wait_whole(b, step, packed);
	if (step != PLAN_NOTHING)
		e->sent = step;
}

/* Blocks without a higher bit are where they belong. */
static void receive_round(struct exchange *e, uint32_t distance)
{
	const struct plan_bruck *k = &e->k;
	struct plan_builder *b = k->b;
	const struct plan_job *job = b->job;
	size_t all = packed_count(k, distance, 2 * distance), at = 0;
	struct plan_range in = take_scratch(b, all);
	uint32_t received = plan_add_receive(b, plan_bruck_before(k, distance), in, all);

	for (uint32_t i = distance; i < k->n; i++) {
		uint32_t from = plan_bruck_before(k, i);
		struct plan_range range = plan_plus(b, in, at);

		if (!(i & distance))
			continue;
		at += plan_spacing(job, count_of(k, i, 2 * distance));
		e->pieces[i] = (struct piece){ .range = range, .ready = received };
		if (i < 2 * distance)
			plan_wait_whole(b,
				plan_add_local(b, plan_is_encoded(job) ? PLAN_DECODE : PLAN_COPY,
					plan_at(b, PLAN_RECV, job->recv_displs[from]), range,
					job->recv_counts[from]),
				received);
	}
}

void plan_bruck_alltoallv(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct exchange e = { .k = plan_bruck_of(b), .sent = PLAN_NOTHING };
	size_t longest = 0;

	e.pieces = calloc(e.k.n, sizeof(e.pieces[0]));
	if (!e.pieces) {
		b->failed = true;
		return;
	}
	plan_copy_own_block(b);
	for (uint32_t i = 1; i < e.k.n; i++) {
		uint32_t to = plan_bruck_after(&e.k, i);

		e.pieces[i].range = plan_outgoing(b, plan_at(b, PLAN_SEND, job->send_displs[to]),
			job->send_counts[to], &e.pieces[i].ready);
	}
	for (uint32_t distance = 1; distance < e.k.n; distance *= 2) {
		size_t count = packed_count(&e.k, distance, distance);

		longest = count > longest ? count : longest;
	}
	e.out = take_scratch(b, longest);
	for (uint32_t distance = 1; distance < e.k.n; distance *= 2) {
		send_round(&e, distance);
		receive_round(&e, distance);
	}
	free(e.pieces);
}
