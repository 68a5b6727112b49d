/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A time budget for a wait, counted in bounded steps: at most `step_ns` count between two calls. A
 * process that was stopped, or got no processor, thus does not find its wait expired. No I/O and no
 * lock. One thread at a time.
 */
#ifndef FERRULE_BASE_TIME_BUDGET_H
#define FERRULE_BASE_TIME_BUDGET_H

#include <stdint.h>

/* Zeroed: nothing is spent. The time starts with the first call. */
struct time_budget {
	uint64_t last_ns, spent_ns;
};

/* Returns how much time has been spent so far. */
static inline uint64_t time_budget_spend(
	struct time_budget *budget, uint64_t step_ns, uint64_t now_ns)
{
	uint64_t passed_ns = budget->last_ns ? now_ns - budget->last_ns : 0;

	budget->last_ns = now_ns;
	budget->spent_ns += passed_ns < step_ns ? passed_ns : step_ns;
	return budget->spent_ns;
}

#endif
