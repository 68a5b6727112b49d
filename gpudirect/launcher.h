/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches the batches of a queue on the GPU: one kernel for each batch, with the batch as its
 * parameter. A launch therefore needs no memory that must be kept, nothing waits on the GPU, and a
 * refused launch leaves nothing behind. The queue keeps the tickets, the open batch, the retries
 * and the completed count. The launcher owns a stream, launches batches there in the order of their
 * numbers, and makes the kernels report their progress in `done`.
 *
 * Private to gpudirect/queue.c. One thread at a time, as for the queue.
 */
#ifndef FERRULE_GPUDIRECT_LAUNCHER_H
#define FERRULE_GPUDIRECT_LAUNCHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpudirect/gpu.h"
#include "gpudirect/kernels/launch.h"

/* The result of a launch attempt. For every result except LAUNCH_TAKEN, frl_last_error() gives the
 * reason. */
enum launch_answer {
	LAUNCH_TAKEN,
	LAUNCH_PUT_OFF, /* temporary failure: retry with the same batch */
	LAUNCH_BROKEN,  /* permanent failure; earlier launches may still run */
	LAUNCH_LOST,    /* permanent failure; nothing runs any more */
};

/*
 * Memory that the GPU and the processor share, in whole pages. The process allocates it and
 * registers it with the GPU, so it survives when the application destroys a context. A child after
 * fork() shares these pages. Copy-on-write could otherwise leave the parent with a copy that the
 * GPU does not see.
 */
struct launcher_shared {
	_Atomic uint64_t done; /* the number of the last completed batch */
	uint32_t zero;         /* the counter's initial value */
};

struct launcher {
	struct gpu *gpu; /* held by the queue */
	cu_stream stream;
	struct launcher_shared *shared;
	uint64_t shared_address;    /* shared memory's GPU address */
	cu_function function, many; /* `many` may be NULL */
	cu_deviceptr counter;
	uint32_t max_pieces; /* of one launch */
	uint32_t max_blocks;
	pid_t owner;          /* the process that created the launcher */
	bool is_unmade;       /* launcher_end() has freed its driver objects */
	struct gpu_batch few; /* the parameter of `function`, while a launch copies it */
};

/* Initializes a zeroed launcher, outside of the context. Leaves nothing behind after a failure.
 * Fails as gpu_queue_new(). */
int launcher_make(struct launcher *launcher, struct gpu *gpu);

/* Launches a batch, outside of the context. The batch must have at least one piece. Batch numbers
 * start at 1 and increase by 1. The call may modify the batch. After LAUNCH_TAKEN the launcher does
 * not refer to the batch any more. After LAUNCH_PUT_OFF the caller must submit the same batch
 * again; it may append pieces, but not remove any. */
enum launch_answer launcher_launch(
	struct launcher *launcher, struct launch *open, uint64_t sequence);

/* In the context: waits until batch `launched` is done, unless nothing runs any more (is_idle),
 * then frees the driver objects. Must not be called if the context is gone or the GPU was given
 * up. */
void launcher_end(struct launcher *launcher, uint64_t launched, bool is_idle);

/* Outside of the context, as the last step: frees the shared memory. The memory is leaked if the
 * GPU may still use it, because the GPU was given up or belongs to another process. */
void launcher_free_memory(struct launcher *launcher);

/* Returns whether this process created the launcher. A child of fork() must not use its work or
 * touch the shared memory. Sets the last error if it returns false. */
bool launcher_is_own(const struct launcher *launcher);

/* Returns whether a result means that handles are invalid because their context is gone. */
bool launcher_context_is_lost(cu_result result);

#endif
