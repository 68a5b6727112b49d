/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deferred cleanup, in a thread: NCCL must not wait for it, and may never call the plugin again.
 * The process has one such thread, which exists while there are cleanups.
 */
#ifndef FERRULE_NCCL_CLEANUP_H
#define FERRULE_NCCL_CLEANUP_H

#include <stdbool.h>
#include <stdint.h>

struct cleanup {
	/* Returns true when the cleanup is finished and freed. Called by the thread, or by
	 * net_cleanup_wait(). */
	bool (*try_finish)(struct cleanup *cleanup);
	unsigned period_ms;
	bool is_background; /* net_cleanup_wait() calls try_finish() only once */
	/* Internal: */
	struct cleanup *next;
	uint64_t due_ns;
};

/* Adds a cleanup. The thread calls try_finish() every period_ms, and owns the cleanup until the
 * call returns true. */
void net_cleanup_add(struct cleanup *cleanup);

/* After the last communicator: waits, for a limited time, until all cleanups except background ones
 * are finished. */
void net_cleanup_wait(void);

#endif
