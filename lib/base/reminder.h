/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides when to log the reason of a long wait: after 2 s, then every 30 s. Times are of the
 * monotonic clock. One thread.
 */
#ifndef FERRULE_BASE_REMINDER_H
#define FERRULE_BASE_REMINDER_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/limit.h"

enum { REMIND_MS = 2000, REMIND_AGAIN_MS = 30000 };

struct reminder {
	uint64_t due_ns;
};

/* Starts the wait. */
static inline struct reminder reminder_start(uint64_t now_ns)
{
	return (struct reminder){ .due_ns = limit_after_ms(now_ns, REMIND_MS) };
}

/* Returns true when the reason is due to be logged, and schedules the next time. */
static inline bool reminder_is_due(struct reminder *reminder, uint64_t now_ns)
{
	if (now_ns < reminder->due_ns)
		return false;
	reminder->due_ns = limit_after_ms(now_ns, REMIND_AGAIN_MS);
	return true;
}

#endif
