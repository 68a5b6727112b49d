/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How batches of a queue get to the GPU: one kernel for each batch, which is its parameter. So
 * nothing has to be kept for it, nothing waits on the GPU, and a launch that was refused has left
 * nothing behind. The queue keeps tickets, the open batch, retries and what is done; the launcher
 * has a stream, puts batches into it in the order of their numbers, and sees to it that `done` says
 * how far it is.
 *
 * Private to gpudirect/queue.c. As the queue: one thread at a time.
 */
#ifndef FERRULE_GPUDIRECT_LAUNCHER_H
#define FERRULE_GPUDIRECT_LAUNCHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpudirect/gpu.h"
#include "gpudirect/launch.h"

/* What became of an attempt. In all cases but the first frl_last_error() says why. */
enum launch_answer {
	LAUNCH_TAKEN,
	LAUNCH_PUT_OFF, /* not now: to be tried again, with the same batch */
	LAUNCH_BROKEN,  /* never more; what was launched before may still run */
	LAUNCH_GONE,    /* likewise, and nothing runs any more */
};

/*
 * What the GPU and the processor share, in whole pages: the process's own, and registered with the
 * GPU. So it is there whatever the application does to contexts, and a child after fork() shares it
 * instead of getting a copy, which could be the one that the GPU does not see.
 */
struct launcher_shared {
	_Atomic uint64_t done; /* the number of the last batch that is done */
	uint32_t zero;         /* what the counter begins with */
};

struct launcher {
	struct gpu *gpu; /* held by the queue */
	cu_stream stream;
	struct launcher_shared *shared;
	uint64_t shared_address;    /* the GPU's */
	cu_function function, many; /* `many` is NULL where there is none */
	cu_deviceptr counter;
	uint32_t max_pieces; /* of a launch */
	uint32_t max_blocks;
	pid_t owner;          /* the process that has made it */
	bool is_unmade;       /* nothing of it is in the context any more */
	struct gpu_batch few; /* the parameter of `function`, while a launch copies it */
};

/* Outside of the context. The struct is zeroed; after a failure nothing is left. As
 * gpu_queue_new(). */
int launcher_make(struct launcher *launcher, struct gpu *gpu);

/* Outside of the context. The batch, which has at least one piece, with this number: they count up
 * by one from 1. It may be changed; when it was taken it is not referred to any more. A batch that
 * was put off comes again, with nothing taken away, and perhaps more pieces at its end. */
enum launch_answer launcher_launch(
	struct launcher *launcher, struct launch *open, uint64_t sequence);

/* In the context: waits until `launched` is done, unless nothing runs any more (is_idle), and gives
 * back what is the driver's. Not called where the context is gone, or the GPU was given up. */
void launcher_end(struct launcher *launcher, uint64_t launched, bool is_idle);

/* Outside of the context, at last: gives back the shared memory, unless the GPU may still use it,
 * which then stays for good: it was given up, or is another process's. */
void launcher_forget(struct launcher *launcher);

/* Whether this process has made it: the child of a fork() has no part in its work, and touches
 * nothing that is shared. With the last error if not. */
bool launcher_is_own(const struct launcher *launcher);

/* Handles that are not valid any more: they went with their context. */
bool launcher_is_gone(cu_result result);

#endif
