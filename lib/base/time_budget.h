/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time that a wait may take, counted in bounded steps: of the time between two calls at most
 * `step_ns` counts. A process that was stopped, or got no processor, does not return to a wait that
 * is over. No I/O and no lock; one thread at a time.
 */
#ifndef FERRULE_BASE_TIME_BUDGET_H
#define FERRULE_BASE_TIME_BUDGET_H

#include <stdint.h>

/* Zeroed: nothing is spent. The time begins with the first call. */
struct time_budget {
	uint64_t last_ns, spent_ns;
};

/* Returns how much has been spent until now. */
static inline uint64_t time_budget_spend(
	struct time_budget *budget, uint64_t step_ns, uint64_t now_ns)
{
	uint64_t passed_ns = budget->last_ns ? now_ns - budget->last_ns : 0;

	budget->last_ns = now_ns;
	budget->spent_ns += passed_ns < step_ns ? passed_ns : step_ns;
	return budget->spent_ns;
}

#endif
