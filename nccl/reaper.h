/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is to be ended later, by a thread of its own: NCCL must not wait for it, and may call
 * nothing of the plugin any more. The thread is there while there are chores, one for the process.
 */
#ifndef FERRULE_NCCL_REAPER_H
#define FERRULE_NCCL_REAPER_H

#include <stdbool.h>
#include <stdint.h>

struct chore {
	/* True: it is over, and the chore gone. By the thread, or by net_reaper_finish(). */
	bool (*look)(struct chore *chore);
	unsigned period_ms;
	bool is_patient; /* net_reaper_finish() has it looked at once, and does not wait for it */
	/* Internal: */
	struct chore *next;
	uint64_t due_ns;
};

/* Looked at every period_ms from then on. The reaper's until look() has returned true. */
void net_reaper_add(struct chore *chore);

/* With the last communicator: waits until all that is to be waited for is over, but not for
 * ever. */
void net_reaper_finish(void);

#endif
