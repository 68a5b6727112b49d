/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No kernels: a batch becomes copies and calls of the processor, staged.h, in one stream, the last
 * of which says that it is done. Its ops are given to the driver one by one. When it refuses one
 * for now, the batch counts as taken if some are in the stream, and poll() goes on; nothing
 * overtakes it.
 *
 * A call runs in a thread of the driver's, which does not run calls of a context that has failed,
 * but may be in one of them when that is noticed: what batches refer to is given back only when
 * none is, and those that come later find that they are to do nothing. Whether any still comes is
 * not to be found out then, so what they would look at is kept for good.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpudirect/launcher.h"
#include "gpudirect/staged.h"
#include "lib/base/error.h"

enum {
	MAX_BATCHES = 16, /* in the stream at a time, */
	MAX_OPS = 512,    /* of so many ops: a driver's list takes some 1000, then it waits */
	SCRATCH_BYTES = 4 << 20,
};

struct staged {
	struct launcher base;
	struct staged *next_kept;
	uint8_t *scratch;
	/* Of batch i at i % MAX_BATCHES. The last one of them is not all in the stream as long as
	 * next_op is not n_ops. */
	struct staged_plan plans[MAX_BATCHES];
	struct staged_plan *last;
	uint32_t next_op;
	bool is_dropped;
	uint64_t n_given, calls; /* ops given to the stream, and those of them that are calls */
	/* Told by the calls themselves; of all ops they know those up to the last call. */
	_Atomic uint64_t begun, ended, n_ended;
	_Atomic bool is_stopped; /* they do nothing any more */
};

/* Of queues whose context failed: calls may still come. */
static struct {
	pthread_mutex_t mutex;
	struct staged *first;
} kept = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct staged *of(struct launcher *launcher)
{
	return (struct staged *)launcher;
}

/* ---- calls */

/* When the number of a batch is there, its calls are not. */
static void run(void *data)
{
	const struct staged_call *call = data;
	struct staged *own = call->owner;
	uint64_t sequence = call->sequence, n_ops = call->n_ops;

	atomic_fetch_add(&own->begun, 1);
	if (!atomic_load(&own->is_stopped)) {
		staged_run(call);
		if (sequence)
			atomic_store_explicit(
				&own->base.shared->done, sequence, memory_order_release);
	}
	atomic_store(&own->n_ended, n_ops);
	atomic_fetch_add(&own->ended, 1);
}

/* From here on calls do nothing; true: and none is doing anything. In the child of a fork() there
 * are no threads to run any. */
static bool stop(struct staged *own)
{
	uint64_t ended;

	if (own->base.owner != getpid())
		return true;
	atomic_store(&own->is_stopped, true);
	ended = atomic_load(&own->ended);
	return atomic_load(&own->begun) == ended;
}

/* What a call does takes it some milliseconds at most. */
static void stop_and_wait(struct staged *own)
{
	while (!stop(own))
		sched_yield();
}

/* ---- launching */

/* In the context. */
static cu_result give(struct staged *own, const struct staged_op *op, const char **ret_call)
{
	const struct cuda_api *cuda = own->base.gpu->cuda;
	cu_stream stream = own->base.stream;
	cu_result result;

	switch (op->kind) {
	case STAGED_TO_GPU:
		*ret_call = "cuMemcpyHtoDAsync";
		return cuda->cuMemcpyHtoDAsync(
			op->dst, (const void *)(uintptr_t)op->src, op->bytes, stream);
	case STAGED_TO_HOST:
		*ret_call = "cuMemcpyDtoHAsync";
		return cuda->cuMemcpyDtoHAsync(
			(void *)(uintptr_t)op->dst, op->src, op->bytes, stream);
	case STAGED_ON_GPU:
		*ret_call = "cuMemcpyDtoDAsync";
		return cuda->cuMemcpyDtoDAsync(op->dst, op->src, op->bytes, stream);
	case STAGED_CALL: break;
	}
	*ret_call = "cuLaunchHostFunc";
	own->last->calls[op->call].n_ops = own->n_given + 1;
	result = cuda->cuLaunchHostFunc(stream, run, &own->last->calls[op->call]);
	own->calls += !result;
	return result;
}

static bool has_rest(const struct staged *own)
{
	return own->last && own->next_op < own->last->n_ops;
}

/* How far copies are only the next call tells, so without one under way nothing is known. */
static bool is_full(const struct staged *own)
{
	return own->n_given - atomic_load(&own->n_ended) >= MAX_OPS &&
		own->calls != atomic_load(&own->ended);
}

/* What is not in the stream yet, as far as there is room in that; of a queue that was dropped it is
 * only the last call, which says that the others have ended. */
static enum launch_answer give_rest(struct staged *own)
{
	struct gpu_scope scope;
	const char *call = "";
	cu_result result = CUDA_SUCCESS;
	enum launch_answer answer = launcher_enter(&own->base, &scope);

	if (answer != LAUNCH_TAKEN)
		return answer;
	if (own->is_dropped)
		own->next_op = own->last->n_ops - 1;
	while (has_rest(own) && !is_full(own) && !result) {
		result = give(own, &own->last->ops[own->next_op], &call);
		own->next_op += !result;
		own->n_given += !result;
	}
	gpu_leave(&scope);
	return launcher_answer(&own->base, result, call);
}

static enum launch_answer launch(struct launcher *launcher, struct launch *open, uint64_t sequence)
{
	struct staged *own = of(launcher);
	struct staged_plan *plan = &own->plans[sequence % MAX_BATCHES];
	enum launch_answer answer;

	if (staged_plan_make(plan, launcher->gpu, open->batch.pieces, open->batch.n_pieces,
		    own->scratch, SCRATCH_BYTES, sequence, own))
		return LAUNCH_PUT_OFF;
	own->last = plan;
	own->next_op = 0;
	answer = give_rest(own);
	if (own->next_op)
		return LAUNCH_TAKEN;
	/* It is as if it had not been tried. */
	own->last = NULL;
	return answer;
}

static bool has_room(struct launcher *launcher)
{
	return !has_rest(of(launcher)) && !is_full(of(launcher));
}

static enum launch_answer poll(struct launcher *launcher)
{
	return has_rest(of(launcher)) ? give_rest(of(launcher)) : LAUNCH_TAKEN;
}

static bool rests(struct launcher *launcher)
{
	return has_rest(of(launcher)) && !of(launcher)->is_dropped;
}

static void drop(struct launcher *launcher)
{
	of(launcher)->is_dropped = true;
}

static bool is_still(struct launcher *launcher)
{
	return stop(of(launcher));
}

/* ---- beginning and end */

static void unmake(struct launcher *launcher)
{
	stop_and_wait(of(launcher));
}

static void forget(struct launcher *launcher)
{
	struct staged *own = of(launcher);

	stop_and_wait(own);
	if (launcher_forget(launcher))
		launcher_unmap(launcher->gpu, own->scratch, SCRATCH_BYTES);
	if (own->calls == atomic_load(&own->ended) || own->base.owner != getpid()) {
		for (int i = 0; i < MAX_BATCHES; i++)
			staged_plan_free(&own->plans[i]);
		free(own);
		return;
	}
	pthread_mutex_lock(&kept.mutex);
	own->next_kept = kept.first;
	kept.first = own;
	pthread_mutex_unlock(&kept.mutex);
}

static int prepare(struct staged *own, struct gpu *gpu)
{
	uint64_t address;
	void *scratch = NULL;
	int rc = launcher_prepare(&own->base, &launch_staged_ops, gpu);

	if (!rc)
		rc = launcher_map(gpu, SCRATCH_BYTES, &scratch, &address);
	if (!rc)
		own->scratch = scratch;
	return rc;
}

/* Once. */
static void tell(const struct gpu *gpu)
{
	static atomic_bool is_told;

	if (!atomic_exchange(&is_told, true))
		frl_log(FRL_LOG_WARNING,
			"GPU %d: FRL_GPU_TIER is staged, so the driver copies payload and the "
			"processor reduces it, which is slow: unset it where Ferrule's kernels "
			"run, "
			"or a NIC reaches the GPU",
			gpu->ordinal);
}

static int make(struct gpu *gpu, struct launcher **ret_launcher)
{
	struct gpu_scope scope;
	struct staged *own;
	const char *call;
	cu_result result;
	int rc;

	/* Copies from other memory would be done in the call itself. */
	if (!gpu->caps.host_register)
		return frl_fail(-ENOTSUP,
			"GPU %d cannot copy in the background: host memory cannot be registered "
			"with it (HOST_REGISTER_SUPPORTED is 0)",
			gpu->ordinal);
	own = calloc(1, sizeof(*own));
	if (!own)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	rc = prepare(own, gpu);
	if (!rc)
		rc = gpu_enter(gpu, &scope);
	if (!rc) {
		result = launcher_begin(&own->base, &call);
		if (result) {
			rc = cuda_fail(result, call, "making a queue of copies for a GPU");
			launcher_end(&own->base, 0, true);
		}
		gpu_leave(&scope);
	}
	if (rc) {
		forget(&own->base);
		return rc;
	}
	tell(gpu);
	*ret_launcher = &own->base;
	return 0;
}

const struct launcher_ops launch_staged_ops = {
	.max_launches = MAX_BATCHES,
	.make = make,
	.has_room = has_room,
	.launch = launch,
	.poll = poll,
	.rests = rests,
	.drop = drop,
	.is_still = is_still,
	.unmake = unmake,
	.forget = forget,
};
