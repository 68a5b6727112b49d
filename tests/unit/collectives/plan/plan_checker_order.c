/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan checker's proof of order: of two accesses to one place, is the end of one before the
 * beginning of the other in the order that plans rely on? Events are in the log in such an order,
 * so one pass over the log finds, for 64 events at a time, all events after them.
 */
#include "tests/unit/collectives/plan/plan_checker_internal.h"

#include <stdlib.h>

enum { AT_A_TIME = 64 };

/* Visits of events that a check may take; of more pairs some are left out, at random. */
static const uint64_t visits_most = 100000000;

struct query {
	uint32_t first, second; /* events: is the first before the second? */
	uint32_t rank, step_first, step_second;
};

struct queries {
	struct query *list;
	size_t n, capacity;
};

static int compare_accesses(const void *left, const void *right)
{
	const struct access *a = left;
	const struct access *b = right;

	return a->low < b->low ? -1 : a->low > b->low;
}

static int compare_queries(const void *left, const void *right)
{
	const struct query *a = left;
	const struct query *b = right;

	return a->first < b->first ? -1 : a->first > b->first;
}

/* The answer is often near. */
static bool is_just_before(const struct world *w, uint32_t first, uint32_t second, int levels)
{
	for (int i = 0; i < 5; i++) {
		uint32_t before = w->events[second].before[i];

		if (before == first)
			return true;
		if (before != NOBODY && before > first && levels > 1 &&
			is_just_before(w, first, before, levels - 1))
			return true;
	}
	return false;
}

static bool out_of_order(struct world *w, const struct query *q)
{
	uint32_t first = w->nodes[q->rank].first_step;

	return check_fail(w, "rank %u: steps %u and %u use the same place in any order", q->rank,
		q->step_first - first, q->step_second - first);
}

static bool ask(struct world *w, struct queries *queries, uint32_t rank, const struct access *a,
	const struct access *b)
{
	const struct access *first = a->end < b->end ? a : b;
	const struct access *second = first == a ? b : a;
	struct query q = { .first = first->end,
		.second = second->start,
		.rank = rank,
		.step_first = first->step,
		.step_second = second->step };

	/* The same event: the action of a step on one element. */
	if (a->end == b->end)
		return true;
	w->result->queries++;
	if (q.first >= q.second)
		return out_of_order(w, &q);
	if (is_just_before(w, q.first, q.second, 3))
		return true;
	if (queries->n == queries->capacity) {
		size_t capacity = queries->capacity > 0 ? 2 * queries->capacity : 256;
		struct query *list = reallocarray(queries->list, capacity, sizeof(q));

		if (!list)
			return check_fail(w, "no memory");
		queries->list = list;
		queries->capacity = capacity;
	}
	queries->list[queries->n++] = q;
	return true;
}

static bool find_pairs(struct world *w, struct queries *queries, uint32_t rank)
{
	struct accesses *all = &w->accesses[rank];

	if (all->n == 0)
		return true;
	qsort(all->list, all->n, sizeof(all->list[0]), compare_accesses);
	for (size_t i = 0; i < all->n; i++)
		for (size_t j = i + 1; j < all->n && all->list[j].low < all->list[i].high; j++)
			if ((all->list[i].writes || all->list[j].writes) &&
				!ask(w, queries, rank, &all->list[i], &all->list[j]))
				return false;
	return true;
}

/* Marks every event from `first` to `last` with those of the `n` sources that are before it. */
static void mark(struct world *w, const uint32_t sources[], uint32_t n, uint32_t last)
{
	uint32_t first = sources[0];
	uint32_t next = 0;

	for (uint32_t e = first; e <= last; e++) {
		struct event *event = &w->events[e];

		event->seen = 0;
		for (int i = 0; i < 5; i++)
			if (event->before[i] != NOBODY && event->before[i] >= first)
				event->seen |= w->events[event->before[i]].seen;
		while (next < n && sources[next] == e)
			event->seen |= (uint64_t)1 << next++;
	}
}

/* Answers the queries from `i` on that one pass can; *ret_next is the first one that is left. */
static bool answer(struct world *w, const struct queries *queries, size_t i, size_t *ret_next,
	uint64_t *visits)
{
	uint32_t sources[AT_A_TIME] = { 0 };
	uint32_t n = 0, last = 0;
	size_t end = i;

	for (; end < queries->n; end++) {
		const struct query *q = &queries->list[end];

		if (n == 0 || sources[n - 1] != q->first) {
			if (n == AT_A_TIME)
				break;
			sources[n++] = q->first;
		}
		if (q->second > last)
			last = q->second;
	}
	*ret_next = end;
	*visits += last - sources[0];
	mark(w, sources, n, last);
	n = 0;
	for (; i < end; i++) {
		const struct query *q = &queries->list[i];

		if (sources[n] != q->first)
			n++;
		if (!(w->events[q->second].seen & (uint64_t)1 << n))
			return out_of_order(w, q);
	}
	return true;
}

bool check_order(struct world *w)
{
	struct queries queries = { .n = 0 };
	uint64_t visits = 0;
	bool ok = true;
	size_t i = 0, next;

	for (uint32_t rank = 0; ok && rank < w->c->ranks; rank++)
		ok = find_pairs(w, &queries, rank);
	if (ok && queries.n > 0)
		qsort(queries.list, queries.n, sizeof(queries.list[0]), compare_queries);
	while (ok && i < queries.n && visits < visits_most) {
		ok = answer(w, &queries, i, &next, &visits);
		i = next;
		/* Leaves some out when there are too many. */
		if (queries.n / AT_A_TIME * w->n_events > visits_most)
			i += random_below(&w->random, queries.n * w->n_events / visits_most + 1);
	}
	free(queries.list);
	return ok;
}

/* No rank leaves before all have entered: any action of a rank shows that it has entered, and
 * messages carry their sender's knowledge at the time of sending. */
bool check_barrier(struct world *w)
{
	uint32_t n = w->c->ranks;

	for (uint32_t first = 0; first < n; first += AT_A_TIME) {
		uint64_t all = n - first < AT_A_TIME ? ((uint64_t)1 << (n - first)) - 1
						     : UINT64_MAX;
		uint64_t *known = calloc(n, sizeof(known[0]));

		if (!known)
			return check_fail(w, "no memory");
		for (uint32_t rank = first; rank < n && rank < first + AT_A_TIME; rank++)
			known[rank] = (uint64_t)1 << (rank - first);
		for (uint32_t e = 0; e < w->n_events; e++) {
			struct event *event = &w->events[e];

			event->seen = 0;
			if (event->rank >= first && event->rank < first + AT_A_TIME)
				event->seen = (uint64_t)1 << (event->rank - first);
			for (int i = 0; i < 5; i++)
				if (event->before[i] != NOBODY)
					event->seen |= w->events[event->before[i]].seen;
			known[event->rank] |= event->seen;
		}
		for (uint32_t rank = 0; rank < n; rank++)
			if ((known[rank] & all) != all) {
				free(known);
				return check_fail(
					w, "rank %u leaves before all have entered", rank);
			}
		free(known);
	}
	return true;
}
