/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How batches of a queue get to the GPU. The queue keeps tickets, the open batch, retries and what
 * is done; a launcher has a stream, puts batches into it in the order of their numbers, and sees to
 * it that `done` says how far it is.
 *
 * Private to gpudirect/queue.c and the launchers. As the queue: one thread at a time.
 */
#ifndef FERRULE_GPUDIRECT_LAUNCHER_H
#define FERRULE_GPUDIRECT_LAUNCHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpudirect/gpu.h"
#include "gpudirect/launch.h"

struct launcher;

/* What became of an attempt. In all cases but the first frl_last_error() says why. */
enum launch_answer {
	LAUNCH_TAKEN,
	LAUNCH_PUT_OFF, /* not now: to be tried again, with the same batch */
	LAUNCH_BROKEN,  /* never more; what was launched before may still run */
	LAUNCH_GONE,    /* likewise, and nothing runs any more */
};

struct launcher_ops {
	/* Outside of the context. As gpu_queue_new(). */
	int (*make)(struct gpu *gpu, struct launcher **ret_launcher);
	/* Outside of the context. The batch, which has at least one piece, with this number: they
	 * count up by one from 1. It may be changed; when it was taken it is not referred to any
	 * more. A batch that was put off comes again, with nothing added or taken away, or more
	 * pieces at its end where it was said that this may be. */
	enum launch_answer (*launch)(
		struct launcher *launcher, struct launch *open, uint64_t sequence);
	/* In the context. The stream has come to its end and is destroyed: gives back what else is
	 * the driver's. Not called where the context is gone, or the GPU was given up. */
	void (*unmake)(struct launcher *launcher);
	/* The last call, outside of the context: launcher_forget(), and frees the struct, but for
	 * what somebody may still refer to where unmake() was not called. */
	void (*forget)(struct launcher *launcher);
};

enum { LAUNCHES_MAX = 128 }; /* taken and not done */

/* What the GPU and the processor share: launcher_map(). */
struct launcher_shared {
	_Atomic uint64_t done; /* the number of the last batch that is done */
	uint32_t zero;         /* what counters begin with */
};

/* Implementations embed this as their first member. */
struct launcher {
	const struct launcher_ops *ops;
	struct gpu *gpu; /* held by the queue */
	cu_stream stream;
	struct launcher_shared *shared;
	uint64_t shared_address; /* the GPU's */
	uint32_t max_pieces;     /* of a launch; GPU_BATCH_PIECES, unless make() says otherwise */
	pid_t owner;             /* the process that has made it */
	bool is_unmade;          /* nothing of it is in the context any more */
};

extern const struct launcher_ops launch_batch_ops;

/*
 * Memory that the GPU and the processor share, all zeros, in whole pages: the process's own, and
 * registered with the GPU. So it is there whatever the application does to contexts, and a child
 * after fork() shares it instead of getting a copy, which could be the one that the GPU does not
 * see. -ENOMEM, and as gpu_host_map().
 */
int launcher_map(struct gpu *gpu, size_t bytes, void **ret_memory, uint64_t *ret_address);
/* The reverse. NULL is fine. */
void launcher_unmap(struct gpu *gpu, void *memory, size_t bytes);

/* Outside of the context: sets the members but for the stream. On a failure, and after one of what
 * follows, launcher_forget() takes back what was made. As launcher_map(). */
int launcher_prepare(struct launcher *launcher, const struct launcher_ops *ops, struct gpu *gpu);
/* In the context: the stream, which waits for no other one, and comes before others. On a failure
 * launcher_end() is to be called. */
cu_result launcher_begin(struct launcher *launcher, const char **ret_call);

/* In the context: waits until `launched` is done, unless nothing runs any more (is_idle), destroys
 * the stream, and calls unmake(). */
void launcher_end(struct launcher *launcher, uint64_t launched, bool is_idle);

/* Outside of the context, at last: gives back the shared memory, and is true, unless the GPU may
 * still use that, which then stays for good, as does other memory of the launcher's that the GPU
 * uses: it was given up, or is another process's. */
bool launcher_forget(struct launcher *launcher);

/* Whether this process has made it: the child of a fork() has no part in its work, and touches
 * nothing that is shared. With the last error if not. */
bool launcher_is_own(const struct launcher *launcher);

/* Where the GPU sees `done`. */
uint64_t launcher_done_address(const struct launcher *launcher);

/* gpu_enter(), in the process that has made it; LAUNCH_TAKEN: to be ended by gpu_leave(). */
enum launch_answer launcher_enter(const struct launcher *launcher, struct gpu_scope *ret_scope);

/* What a call's result means for an attempt to launch. */
enum launch_answer launcher_answer(
	const struct launcher *launcher, cu_result result, const char *call);

/* Handles that are not valid any more: they went with their context. */
bool launcher_is_gone(cu_result result);

#endif
