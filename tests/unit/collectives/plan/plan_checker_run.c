/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan checker's scheduler: everything that can advance does, in random order. */
#include "tests/unit/collectives/plan/plan_checker_internal.h"

#include <stdlib.h>

enum { RANKS_ALL_WATCHED = 40, RANKS_WATCHED = 8 };

/* The result of an attempt to advance: it ran, nothing is left, or it waits for a step. */
enum { RAN = UINT32_MAX - 1, ENDED = UINT32_MAX };

static bool is_watched(const struct world *w, uint32_t rank)
{
	uint32_t every = w->c->ranks / RANKS_WATCHED;

	return w->c->ranks <= RANKS_ALL_WATCHED || (rank + w->c->seed) % every == 0;
}

/* How many elements of `on` must be complete for the elements of a step before `end`. */
static size_t needed(const struct world *w, const struct plan_after *after, uint32_t on, size_t end)
{
	size_t count = check_step(w, on)->count;

	if (after->shift >= (int64_t)(count - (end < count ? end : count)))
		return count;
	if (after->shift < 0 && (uint64_t)-after->shift >= end)
		return 0;
	end += (size_t)after->shift;
	return end < count ? end : count;
}

/* Finds the events that segment number `segment` of a step comes after. Returns the step to wait
 * for, or RAN. */
static uint32_t find_before(
	const struct world *w, uint32_t step, uint32_t segment, uint32_t before[PLAN_AFTER])
{
	const struct plan_step *s = check_step(w, step);
	const struct node *node = &w->nodes[w->steps[step].rank];
	size_t length = node->plan.segment;
	size_t end = (segment + 1) * length < s->count ? (segment + 1) * length : s->count;

	for (int i = 0; i < PLAN_AFTER; i++) {
		uint32_t on = node->first_step + s->after[i].step;
		const struct progress *p;
		size_t need, done;

		before[i] = NOBODY;
		if (s->after[i].step == PLAN_NOTHING)
			continue;
		p = &w->steps[on];
		need = needed(w, &s->after[i], on, end);
		done = p->done * length;
		if (need == 0)
			continue;
		if (done < need && p->done < check_segments(w, on))
			return on;
		if (check_step(w, on)->kind == PLAN_SENDS)
			p = &w->steps[p->match];
		before[i] = w->events_of[p->events + (need - 1) / length];
	}
	return RAN;
}

static uint32_t add_event(struct world *w, uint32_t rank, uint32_t from)
{
	struct event *event;

	if (w->n_events == w->events_capacity) {
		uint32_t capacity = w->events_capacity > 0 ? 2 * w->events_capacity : 1024;
		struct event *events = reallocarray(w->events, capacity, sizeof(w->events[0]));

		if (!events) {
			check_fail(w, "no memory");
			return NOBODY;
		}
		w->events = events;
		w->events_capacity = capacity;
	}
	event = &w->events[w->n_events];
	*event = (struct event){ .rank = rank, .from = from };
	for (int i = 0; i < 5; i++)
		event->before[i] = NOBODY;
	return w->n_events++;
}

static void come_after(struct world *w, uint32_t event, int i, uint32_t before, uint32_t messages)
{
	struct event *e = &w->events[event];

	e->before[i] = before;
	if (before != NOBODY && w->events[before].depth + messages > e->depth)
		e->depth = w->events[before].depth + messages;
	if (e->depth > w->result->rounds)
		w->result->rounds = e->depth;
}

static bool add_access(struct world *w, uint32_t rank, uint32_t step, uint32_t segment,
	const struct plan_range *range, bool writes, uint32_t start, uint32_t end)
{
	struct accesses *list = &w->accesses[rank];
	struct access *access;

	if (!is_watched(w, rank))
		return true;
	if (list->n == list->capacity) {
		size_t capacity = list->capacity > 0 ? 2 * list->capacity : 64;

		access = reallocarray(list->list, capacity, sizeof(access[0]));
		if (!access)
			return check_fail(w, "no memory");
		list->list = access;
		list->capacity = capacity;
	}
	access = &list->list[list->n++];
	*access = (struct access){ .start = start, .end = end, .writes = writes, .step = step };
	check_addresses(w, rank, step, range, segment, &access->low, &access->high);
	return true;
}

/* A receive or a local step: its effect on its rank's memory. */
static bool add_accesses(
	struct world *w, uint32_t rank, uint32_t step, uint32_t segment, uint32_t event)
{
	const struct plan_step *s = check_step(w, step);

	if (s->kind == PLAN_LOCAL &&
		!add_access(w, rank, step, segment, &s->source, false, event, event))
		return false;
	if ((s->action == PLAN_REDUCE || s->action == PLAN_DECODE_REDUCE) &&
		!add_access(w, rank, step, segment, &s->operand, false, event, event))
		return false;
	return add_access(w, rank, step, segment, &s->target, true, event, event);
}

static void complete(struct world *w, uint32_t step)
{
	struct progress *p = &w->steps[step];

	p->done++;
	while (p->waiters != NOBODY) {
		uint32_t candidate = p->waiters;

		p->waiters = w->candidates[candidate].next_waiter;
		w->ready[w->n_ready++] = candidate;
	}
}

/* The next local step, if all before it are complete. */
static uint32_t run_local(struct world *w, struct candidate *c)
{
	struct node *node = &w->nodes[c->rank];
	uint32_t before[PLAN_AFTER];
	uint32_t step, segment, waits_for, event;

	for (;; node->local++) {
		step = node->first_step + node->local;
		if (node->local == node->plan.n_steps)
			return ENDED;
		if (check_step(w, step)->kind == PLAN_LOCAL &&
			w->steps[step].done < check_segments(w, step))
			break;
	}
	segment = w->steps[step].done;
	waits_for = find_before(w, step, segment, before);
	if (waits_for != RAN)
		return waits_for;
	if (!check_move(w, c->rank, c->rank, step, step, segment))
		return ENDED;
	event = add_event(w, c->rank, NOBODY);
	if (event == NOBODY)
		return ENDED;
	for (int i = 0; i < PLAN_AFTER; i++)
		come_after(w, event, i, before[i], 0);
	come_after(w, event, PLAN_AFTER, c->last_event, 0);
	c->last_event = event;
	w->events_of[w->steps[step].events + segment] = event;
	if (!add_accesses(w, c->rank, step, segment, event))
		return ENDED;
	complete(w, step);
	return RAN;
}

/* The next segment on a connection. */
static uint32_t run_message(struct world *w, struct candidate *c)
{
	uint32_t send = c->send, receive, segment, waits_for, begun, event;
	uint32_t before[PLAN_AFTER], before_receive[PLAN_AFTER];
	uint32_t from, to;

	if (send == NOBODY)
		return ENDED;
	receive = w->steps[send].match;
	segment = w->steps[send].done;
	from = w->steps[send].rank;
	to = w->steps[receive].rank;
	waits_for = find_before(w, send, segment, before);
	if (waits_for == RAN)
		waits_for = find_before(w, receive, segment, before_receive);
	if (waits_for != RAN)
		return waits_for;
	if (!check_move(w, from, to, send, receive, segment))
		return ENDED;
	begun = add_event(w, from, NOBODY);
	event = add_event(w, to, from);
	if (begun == NOBODY || event == NOBODY)
		return ENDED;
	for (int i = 0; i < PLAN_AFTER; i++) {
		come_after(w, begun, i, before[i], 0);
		come_after(w, event, i, before_receive[i], 0);
	}
	come_after(w, event, PLAN_AFTER, begun, 1);
	come_after(w, event, PLAN_AFTER + 1, c->last_event, 0);
	c->last_event = event;
	w->events_of[w->steps[receive].events + segment] = event;
	if (!add_access(
		    w, from, send, segment, &check_step(w, send)->source, false, begun, event) ||
		!add_accesses(w, to, receive, segment, event))
		return ENDED;
	complete(w, send);
	complete(w, receive);
	if (w->steps[send].done == check_segments(w, send))
		c->send = w->steps[send].next;
	return RAN;
}

static bool check_all_ran(struct world *w)
{
	for (uint32_t step = 0; step < w->n_steps; step++) {
		const struct plan_step *s = check_step(w, step);
		const struct progress *p = &w->steps[step];

		if (p->done < check_segments(w, step))
			return check_fail(w,
				"deadlock: rank %u, step %u (kind %d, peer %u) has "
				"%u of %u segments",
				p->rank, step - w->nodes[p->rank].first_step, s->kind, s->peer,
				p->done, check_segments(w, step));
	}
	return true;
}

static bool number_events(struct world *w)
{
	size_t total = 0;

	for (uint32_t step = 0; step < w->n_steps; step++) {
		if (check_step(w, step)->kind == PLAN_SENDS)
			continue;
		w->steps[step].events = (uint32_t)total;
		total += check_segments(w, step);
	}
	w->events_of = calloc(total + 1, sizeof(w->events_of[0]));
	return w->events_of || check_fail(w, "no memory");
}

bool check_run(struct world *w)
{
	/* Sometimes one candidate advances as far as it can, so that others are late. */
	bool in_order = random_below(&w->random, 2) == 0;

	if (!number_events(w))
		return false;
	while (w->n_ready > 0) {
		size_t i = in_order ? w->n_ready - 1 : random_below(&w->random, w->n_ready);
		uint32_t candidate = w->ready[i];
		struct candidate *c = &w->candidates[candidate];
		uint32_t result = c->rank != NOBODY ? run_local(w, c) : run_message(w, c);

		if (w->result->error[0] != '\0')
			return false;
		if (result == RAN) {
			/* complete() may have made others wait for it. */
			if (in_order && random_below(&w->random, 64) == 0)
				in_order = false;
			continue;
		}
		w->ready[i] = w->ready[--w->n_ready];
		if (result == ENDED)
			continue;
		c->next_waiter = w->steps[result].waiters;
		w->steps[result].waiters = candidate;
		in_order = random_below(&w->random, 4) == 0;
	}
	return check_all_ran(w);
}
