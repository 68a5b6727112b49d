/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan checker: makes the world, matches both ends of messages, and counts. */
#include "tests/unit/collectives/plan/plan_checker_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool check_fail(struct world *w, const char *format, ...)
{
	va_list args;

	if (w->result->error[0] != '\0')
		return false;
	va_start(args, format);
	vsnprintf(w->result->error, sizeof(w->result->error), format, args);
	va_end(args);
	return false;
}

const struct plan_step *check_step(const struct world *w, uint32_t step)
{
	const struct node *node = &w->nodes[w->steps[step].rank];

	return &node->plan.steps[step - node->first_step];
}

uint32_t check_segments(const struct world *w, uint32_t step)
{
	size_t segment = w->nodes[w->steps[step].rank].plan.segment;

	return (uint32_t)((check_step(w, step)->count + segment - 1) / segment);
}

static size_t bytes_of(const struct node *node, size_t elements, bool encoded)
{
	return encoded ? frl_wire_size(node->job.wire, elements) : elements * node->job.elem_size;
}

/* The counts that ranks of an ALLTOALLV send to each other; some are zero. */
static size_t pair_count(const struct check_case *c, uint32_t from, uint32_t to)
{
	return (from * 7 + to * 3 + from * to) % (c->count + 2);
}

static bool set_counts(struct node *node, const struct check_case *c)
{
	uint32_t n = c->ranks;
	size_t *counts = calloc(4 * (size_t)n, sizeof(counts[0]));
	size_t send = 1, recv = 2;

	node->counts = counts;
	if (!counts)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		counts[i] = pair_count(c, (uint32_t)node->job.rank, i);
		counts[n + i] = send;
		send += counts[i] + 1;
		counts[2 * n + i] = pair_count(c, i, (uint32_t)node->job.rank);
		counts[3 * n + i] = recv;
		recv += counts[2 * n + i] + i % 2;
	}
	node->job.send_counts = counts;
	node->job.send_displs = counts + n;
	node->job.recv_counts = counts + 2 * (size_t)n;
	node->job.recv_displs = counts + 3 * (size_t)n;
	node->size[PLAN_SEND] = send * c->elem_size;
	node->size[PLAN_RECV] = recv * c->elem_size;
	return true;
}

static bool is_in_place(struct world *w)
{
	const struct check_case *c = w->c;
	bool in_place = c->in_place == CHECK_IN_PLACE ||
		(c->in_place == CHECK_MIXED && random_below(&w->random, 2) == 0);

	if (c->coll == FRL_ALLTOALLV || c->coll == FRL_BARRIER || c->coll == FRL_SEND ||
		c->coll == FRL_RECV)
		return false;
	return in_place;
}

/* Sizes of the caller's buffers, and where the receive buffer lies in the send buffer or the other
 * way round. Missing buffers of a rank are empty. */
static void set_buffers(struct node *node, const struct check_case *c)
{
	size_t one = c->count * c->elem_size;
	size_t all = one * c->ranks;
	size_t own = (size_t)node->job.rank * one;
	bool is_root = node->job.rank == (int)c->root;
	bool big_send = c->coll == FRL_REDUCE_SCATTER || c->coll == FRL_ALLTOALL ||
		c->coll == FRL_SCATTER;
	bool big_recv = c->coll == FRL_ALLGATHER || c->coll == FRL_ALLTOALL ||
		c->coll == FRL_GATHER;
	size_t shift = 0; /* of recv to send, in place */

	node->size[PLAN_SEND] = big_send ? all : one;
	node->size[PLAN_RECV] = big_recv ? all : one;
	if ((c->coll == FRL_BROADCAST || c->coll == FRL_SCATTER) && !is_root)
		node->size[PLAN_SEND] = 0;
	if ((c->coll == FRL_REDUCE || c->coll == FRL_GATHER) && !is_root)
		node->size[PLAN_RECV] = 0;
	if (c->coll == FRL_BARRIER)
		node->size[PLAN_SEND] = node->size[PLAN_RECV] = 0;
	if (c->coll == FRL_REDUCE_SCATTER || c->coll == FRL_SCATTER)
		shift = own;
	node->base[PLAN_SEND] = 0;
	node->base[PLAN_RECV] = node->job.in_place ? shift : node->size[PLAN_SEND];
	if (node->job.in_place && (c->coll == FRL_ALLGATHER || c->coll == FRL_GATHER)) {
		node->base[PLAN_RECV] = 0;
		node->base[PLAN_SEND] = own;
	}
	if (node->size[PLAN_SEND] == 0 || node->size[PLAN_RECV] == 0)
		node->base[PLAN_SEND] = node->base[PLAN_RECV] = 0;
}

static bool make_node(struct world *w, uint32_t rank)
{
	const struct check_case *c = w->c;
	struct node *node = &w->nodes[rank];
	size_t end = 0;
	int err;

	node->job = (struct plan_job){ .coll = c->coll,
		.rank = (int)rank,
		.ranks = (int)c->ranks,
		.root = (int)c->root,
		.count = c->count,
		.elem_size = c->elem_size,
		.op = c->op,
		.wire = c->wire,
		.is_float_narrow = c->is_float_narrow,
		.in_place = is_in_place(w),
		.topology = c->topology,
		.segment_bytes = c->segment_bytes };
	set_buffers(node, c);
	if (c->coll == FRL_ALLTOALLV) {
		if (!set_counts(node, c))
			return check_fail(w, "no memory");
		node->base[PLAN_RECV] = node->size[PLAN_SEND];
	}
	err = plan_make(&node->plan, c->algo, &node->job);
	if (err < 0)
		return check_fail(w, "rank %u: plan_make() returns %d", rank, err);
	if (c->spoil)
		c->spoil(&node->plan, rank, c->spoil_arg);
	for (int i = 0; i < PLAN_SCRATCH; i++)
		if (node->base[i] + node->size[i] > end)
			end = node->base[i] + node->size[i];
	node->base[PLAN_SCRATCH] = end;
	node->size[PLAN_SCRATCH] = node->plan.scratch_bytes;
	node->bytes = end + node->plan.scratch_bytes;
	if (node->plan.scratch_bytes > w->result->scratch)
		w->result->scratch = node->plan.scratch_bytes;
	node->memory = calloc(node->bytes + 1, sizeof(node->memory[0]));
	if (!node->memory)
		return check_fail(w, "no memory");
	if (node->plan.segment != w->nodes[0].plan.segment)
		return check_fail(w, "rank %u has segments of %zu elements, rank 0 of %zu", rank,
			node->plan.segment, w->nodes[0].plan.segment);
	check_fill(w, rank);
	return true;
}

static bool number_steps(struct world *w)
{
	for (uint32_t rank = 0; rank < w->c->ranks; rank++) {
		w->nodes[rank].first_step = w->n_steps;
		w->n_steps += w->nodes[rank].plan.n_steps;
	}
	w->steps = calloc(w->n_steps + 1, sizeof(w->steps[0]));
	if (!w->steps)
		return check_fail(w, "no memory");
	for (uint32_t rank = 0; rank < w->c->ranks; rank++)
		for (uint32_t i = 0; i < w->nodes[rank].plan.n_steps; i++) {
			uint32_t step = w->nodes[rank].first_step + i;

			w->steps[step] = (struct progress){
				.rank = rank, .match = NOBODY, .next = NOBODY, .waiters = NOBODY
			};
			if (!check_ranges(w, rank, step))
				return false;
		}
	return true;
}

/* Often all messages are of one kind. Otherwise those that differ by an element have, half of the
 * time, two kinds. */
static void draw_short(struct world *w)
{
	const struct check_case *c = w->c;
	uint64_t kind = random_below(&w->random, 6);
	const struct plan_step *s;
	uint32_t step;

	if (kind < 2 || w->n_steps == 0)
		return;
	if (kind == 2) {
		w->short_bytes = random_below(&w->random, 2 * (c->count + 1) * (c->elem_size + 1));
		return;
	}
	step = (uint32_t)random_below(&w->random, w->n_steps);
	s = check_step(w, step);
	w->short_bytes = bytes_of(&w->nodes[w->steps[step].rank], s->count,
		s->kind == PLAN_SENDS ? s->source.encoded : s->target.encoded);
	if (kind < 5)
		w->short_bytes--;
}

/* Returns the connection of a message: short ones may overtake long ones. */
static size_t lane_of(const struct world *w, uint32_t from, uint32_t to, const struct plan_step *s)
{
	bool encoded = s->kind == PLAN_SENDS ? s->source.encoded : s->target.encoded;
	bool is_short = bytes_of(&w->nodes[from], s->count, encoded) <= w->short_bytes;

	return ((size_t)from * w->c->ranks + to) * 2 + is_short;
}

/* The sends of a rank to each peer, linked in their order: *ret_first has a head for each pair. */
static bool link_sends(struct world *w, uint32_t *first, uint32_t *last)
{
	uint32_t n = w->c->ranks;

	for (uint32_t step = 0; step < w->n_steps; step++) {
		const struct plan_step *s = check_step(w, step);
		uint32_t rank = w->steps[step].rank;
		size_t pair;

		if (s->kind != PLAN_LOCAL && (s->peer >= n || s->peer == rank))
			return check_fail(w, "rank %u, step %u: peer %u", rank, step, s->peer);
		if (s->kind != PLAN_SENDS)
			continue;
		pair = lane_of(w, rank, s->peer, s);
		if (first[pair] == NOBODY)
			first[pair] = step;
		else
			w->steps[last[pair]].next = step;
		last[pair] = step;
	}
	return true;
}

static bool match_receives(struct world *w, uint32_t *next)
{
	for (uint32_t step = 0; step < w->n_steps; step++) {
		const struct plan_step *s = check_step(w, step);
		uint32_t rank = w->steps[step].rank;
		const struct plan_step *from;
		uint32_t send;
		size_t lane;

		if (s->kind != PLAN_RECEIVES)
			continue;
		lane = lane_of(w, s->peer, rank, s);
		send = next[lane];
		if (send == NOBODY)
			return check_fail(w,
				"rank %u waits for a message that rank %u does not "
				"send (%zu elements)",
				rank, s->peer, s->count);
		from = check_step(w, send);
		if (from->count != s->count || from->source.encoded != s->target.encoded)
			return check_fail(w, "rank %u sends %zu elements%s, rank %u expects %zu%s",
				s->peer, from->count, from->source.encoded ? " encoded" : "", rank,
				s->count, s->target.encoded ? " encoded" : "");
		w->steps[send].match = step;
		w->steps[step].match = send;
		next[lane] = w->steps[send].next;
	}
	for (uint32_t step = 0; step < w->n_steps; step++)
		if (check_step(w, step)->kind == PLAN_SENDS && w->steps[step].match == NOBODY)
			return check_fail(w,
				"rank %u sends %zu elements to rank %u, which does "
				"not wait for them",
				w->steps[step].rank, check_step(w, step)->count,
				check_step(w, step)->peer);
	return true;
}

/* One candidate for the local steps of each rank, and one for each connection in use. */
static bool make_candidates(struct world *w, const uint32_t *first)
{
	uint32_t n = w->c->ranks;
	uint32_t count = n;

	for (size_t pair = 0; pair < 2 * (size_t)n * n; pair++)
		count += first[pair] != NOBODY;
	w->candidates = calloc(count, sizeof(w->candidates[0]));
	w->ready = calloc(count, sizeof(w->ready[0]));
	if (!w->candidates || !w->ready)
		return check_fail(w, "no memory");
	for (uint32_t rank = 0; rank < n; rank++)
		w->candidates[w->n_candidates++] = (struct candidate){
			.rank = rank, .last_event = NOBODY, .next_waiter = NOBODY
		};
	for (size_t pair = 0; pair < 2 * (size_t)n * n; pair++)
		if (first[pair] != NOBODY)
			w->candidates[w->n_candidates++] = (struct candidate){ .rank = NOBODY,
				.send = first[pair],
				.last_event = NOBODY,
				.next_waiter = NOBODY };
	for (uint32_t i = 0; i < w->n_candidates; i++)
		w->ready[w->n_ready++] = i;
	return true;
}

static void count_rank(struct world *w, uint32_t rank, uint64_t *to)
{
	const struct node *node = &w->nodes[rank];
	struct check_result *r = w->result;
	uint32_t peers = 0;
	uint64_t sent = 0;

	memset(to, 0, w->c->ranks * sizeof(to[0]));
	for (uint32_t i = 0; i < node->plan.n_steps; i++) {
		const struct plan_step *s = &node->plan.steps[i];
		uint64_t bytes;

		if (s->kind == PLAN_LOCAL)
			continue;
		if (to[s->peer] == 0)
			peers++;
		bytes = s->kind == PLAN_SENDS ? bytes_of(node, s->count, s->source.encoded) : 0;
		to[s->peer] += bytes + (to[s->peer] == 0); /* one too many marks it as seen */
		sent += bytes;
		if (s->kind == PLAN_SENDS)
			r->messages += check_segments(w, node->first_step + i);
	}
	for (uint32_t peer = 0; peer < w->c->ranks; peer++)
		if (to[peer] > 0 && to[peer] - 1 > r->one_way)
			r->one_way = to[peer] - 1;
	if (peers > r->peers)
		r->peers = peers;
	if (sent > r->sent_most)
		r->sent_most = sent;
	if (sent < r->sent_least)
		r->sent_least = sent;
}

static bool count_all(struct world *w)
{
	uint64_t *to = calloc(w->c->ranks, sizeof(to[0]));

	if (!to)
		return check_fail(w, "no memory");
	w->result->sent_least = UINT64_MAX;
	for (uint32_t rank = 0; rank < w->c->ranks; rank++)
		count_rank(w, rank, to);
	free(to);
	return true;
}

static bool connect_all(struct world *w)
{
	size_t pairs = 2 * (size_t)w->c->ranks * w->c->ranks;
	uint32_t *first = malloc(pairs * sizeof(first[0]));
	uint32_t *last = malloc(pairs * sizeof(last[0]));
	bool ok = first && last;

	if (ok) {
		memset(first, 0xff, pairs * sizeof(first[0]));
		ok = link_sends(w, first, last) && make_candidates(w, first) &&
			match_receives(w, first);
	}
	free(first);
	free(last);
	return ok;
}

static void free_world(struct world *w)
{
	for (uint32_t rank = 0; w->nodes && rank < w->c->ranks; rank++) {
		plan_free(&w->nodes[rank].plan);
		free(w->nodes[rank].memory);
		free(w->nodes[rank].counts);
		if (w->accesses)
			free(w->accesses[rank].list);
	}
	free(w->accesses);
	free(w->nodes);
	free(w->steps);
	free(w->events_of);
	free(w->events);
	free(w->candidates);
	free(w->ready);
}

bool plan_check(const struct check_case *c, struct check_result *ret)
{
	struct world w = { .c = c, .result = ret };
	bool ok = true;

	*ret = (struct check_result){ .sent_most = 0 };
	random_seed(&w.random, c->seed);
	w.nodes = calloc(c->ranks, sizeof(w.nodes[0]));
	w.accesses = calloc(c->ranks, sizeof(w.accesses[0]));
	if (!w.nodes || !w.accesses)
		ok = check_fail(&w, "no memory");
	for (uint32_t rank = 0; ok && rank < c->ranks; rank++)
		ok = make_node(&w, rank);
	ok = ok && number_steps(&w);
	if (ok)
		draw_short(&w);
	ok = ok && connect_all(&w) && count_all(&w) && check_run(&w) && check_results(&w) &&
		check_order(&w);
	if (ok && c->coll == FRL_BARRIER)
		ok = check_barrier(&w);
	free_world(&w);
	return ok;
}
