/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Virtual time: a heap of events, and a clock that jumps to the next event. Events of one time run
 * in the order in which they were made, so a run depends on its seed alone.
 */
#ifndef FERRULE_SIM_CLOCK_H
#define FERRULE_SIM_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLOCK_NEVER UINT64_MAX

struct clock_event {
	uint64_t at_ns;
	uint64_t order;
	void (*run)(void *owner, void *arg);
	void *owner;
	void *arg;
};

struct clock {
	uint64_t now_ns;
	uint64_t next_order;
	struct clock_event *heap;
	size_t count;
	size_t capacity;
};

void clock_init(struct clock *clock);
void clock_fini(struct clock *clock);

/* Calls run(owner, arg) at that time, or now if it has passed. */
void clock_at(struct clock *clock, uint64_t at_ns, void (*run)(void *owner, void *arg), void *owner,
	void *arg);

/* The time of the next event, or CLOCK_NEVER. */
uint64_t clock_next(const struct clock *clock);

/* Jumps to the next event and runs it. There must be one. */
void clock_step(struct clock *clock);

#endif
