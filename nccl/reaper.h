/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that finishes cleanup later, because NCCL must not wait for it, and may never call the
 * plugin again. The process has one such thread, which exists while there are chores.
 */
#ifndef FERRULE_NCCL_REAPER_H
#define FERRULE_NCCL_REAPER_H

#include <stdbool.h>
#include <stdint.h>

struct chore {
	/* Returns true when the chore is finished and freed. Called by the thread, or by
	 * net_reaper_finish(). */
	bool (*look)(struct chore *chore);
	unsigned period_ms;
	bool is_patient; /* net_reaper_finish() calls look() once, and does not wait for it */
	/* Internal: */
	struct chore *next;
	uint64_t due_ns;
};

/* Adds a chore. The reaper calls look() every period_ms, and owns the chore until look() returns
 * true. */
void net_reaper_add(struct chore *chore);

/* After the last communicator: waits, for a limited time, until all chores that are not patient are
 * finished. */
void net_reaper_finish(void);

#endif
