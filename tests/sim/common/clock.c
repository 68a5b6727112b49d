/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/common/clock.h"

#include "tests/sim/common/fail.h"

#include <stdlib.h>
#include <string.h>

void clock_init(struct clock *clock)
{
	*clock = (struct clock){ .capacity = 256 };
	clock->heap = sim_alloc(clock->capacity, sizeof(*clock->heap));
}

void clock_fini(struct clock *clock)
{
	free(clock->heap);
}

static bool earlier(const struct clock_event *a, const struct clock_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void clock_at(struct clock *clock, uint64_t at_ns, void (*run)(void *owner, void *arg), void *owner,
	void *arg)
{
	struct clock_event event = { at_ns, clock->next_order++, run, owner, arg };
	size_t i = clock->count++;

	if (event.at_ns < clock->now_ns)
		event.at_ns = clock->now_ns;
	if (clock->count > clock->capacity) {
		struct clock_event *heap = sim_alloc(2 * clock->capacity, sizeof(*heap));

		memcpy(heap, clock->heap, clock->capacity * sizeof(*heap));
		free(clock->heap);
		clock->heap = heap;
		clock->capacity *= 2;
	}
	while (i && earlier(&event, &clock->heap[(i - 1) / 2])) {
		clock->heap[i] = clock->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	clock->heap[i] = event;
}

uint64_t clock_next(const struct clock *clock)
{
	return clock->count ? clock->heap[0].at_ns : CLOCK_NEVER;
}

void clock_step(struct clock *clock)
{
	struct clock_event first = clock->heap[0];
	struct clock_event last = clock->heap[--clock->count];
	size_t i = 0;

	for (size_t child = 1; child < clock->count; child = 2 * i + 1) {
		if (child + 1 < clock->count &&
			earlier(&clock->heap[child + 1], &clock->heap[child]))
			child++;
		if (earlier(&last, &clock->heap[child]))
			break;
		clock->heap[i] = clock->heap[child];
		i = child;
	}
	clock->heap[i] = last;
	clock->now_ns = first.at_ns;
	first.run(first.owner, first.arg);
}
