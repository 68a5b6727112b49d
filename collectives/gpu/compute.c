/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/gpu/compute.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/bounce.h"
#include "gpudirect/gpu.h"
#include "gpudirect/queue.h"
#include "gpudirect/stream.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	STILL_MS = 20000, /* work of a GPU takes less, else it hangs */
	TIMED_OUT = 1,
};

/* ---- creating and freeing */

static int get_registered(struct compute *compute, size_t bytes, struct block **ret_block)
{
	struct block *block;
	int err = block_get(compute, true, bytes, &block);

	if (err)
		return err;
	err = block_register(block);
	if (err)
		block_put(block);
	else
		*ret_block = block;
	return err;
}

static const struct gpu_ops ops = {
	.act = compute_act,
	.get_block = get_registered,
	.put_block = block_put,
	.copy_out = bounce_copy_out,
};

int compute_get(
	struct frl_comm *comm, cu_context context, int ordinal, struct compute **ret_compute)
{
	struct compute *compute = comm->computes;
	struct gpu *gpu;
	int err = gpu_hold(context, ordinal, &gpu);

	if (err)
		return err;
	while (compute && compute->gpu != gpu)
		compute = compute->next;
	if (compute) {
		gpu_release(gpu);
		*ret_compute = compute;
		return 0;
	}
	compute = calloc(1, sizeof(*compute));
	if (!compute) {
		gpu_release(gpu);
		return frl_fail(-ENOMEM, "no memory for the work queue of a GPU");
	}
	compute->comm = comm;
	compute->gpu = gpu;
	compute->next = comm->computes;
	comm->computes = compute;
	comm->gpu_ops = &ops;
	*ret_compute = compute;
	return 0;
}

int compute_need_queue(struct compute *compute)
{
	int err;

	if (compute->queue)
		return 0;
	if (!compute->tasks)
		compute->tasks = calloc(GPU_QUEUE_PIECES, sizeof(*compute->tasks));
	if (!compute->tasks)
		return frl_fail(-ENOMEM, "no memory for the work queue of a GPU");
	err = gpu_queue_new(compute->gpu, &compute->queue);
	if (!err)
		frl_log(FRL_LOG_INFO,
			"communicator, rank %d: uses memory of GPU %d, and its kernels",
			compute->comm->rank, compute->gpu->ordinal);
	return err;
}

void computes_free(struct frl_comm *comm)
{
	while (comm->computes) {
		struct compute *compute = comm->computes;

		comm->computes = compute->next;
		gpu_queue_free(compute->queue);
		blocks_free(compute);
		while (compute->idle_stream_waits) {
			struct stream_wait *stream_wait = compute->idle_stream_waits;

			compute->idle_stream_waits = stream_wait->next;
			gpu_event_free(stream_wait->event);
			free(stream_wait);
		}
		gpu_release(compute->gpu);
		free(compute->tasks);
		free(compute);
	}
}

/* ---- work */

bool compute_add(struct compute *compute, const struct gpu_work *work, const struct gpu_task *task)
{
	struct gpu_task *entry = &compute->tasks[compute->behind % GPU_QUEUE_PIECES];
	uint64_t ticket;

	if (compute->behind - compute->first == GPU_QUEUE_PIECES)
		return false;
	ticket = gpu_queue_add(compute->queue, work);
	if (ticket == 0)
		return false;
	*entry = *task;
	entry->ticket = compute->last = ticket;
	compute->behind++;
	return true;
}

static uint64_t address(const uint8_t *at)
{
	return (uint64_t)(uintptr_t)at;
}

static void set_scale(struct gpu_work *work, const struct run *run)
{
	if (run->scaled == FRL_AVG) {
		work->action = GPU_DIVIDE;
		work->divisor = (uint32_t)run->comm->ranks;
	} else {
		work->action = GPU_SCALE;
		memcpy(work->scalar, run->scalar, sizeof(work->scalar));
	}
}

bool compute_act(struct run *run, const struct plan_step *step, size_t first, size_t count,
	const uint8_t *source, const struct gpu_task *task)
{
	struct gpu_work work = {
		.dst = address(run_at(run, &step->target, first)),
		.src = address(source),
		.count = count,
		.dtype = (uint8_t)run->dtype,
		.op = (uint8_t)run->op,
		.wire = (uint8_t)run->schedule->wire,
	};

	_Static_assert(sizeof(work.scalar) == SCALAR_MAX, "a scalar is copied whole");
	if (step->action == PLAN_REDUCE || step->action == PLAN_DECODE_REDUCE)
		work.operand = address(run_at(run, &step->operand, first));
	switch (step->action) {
	case PLAN_COPY:
		work.action = GPU_COPY;
		work.count = schedule_bytes(run->schedule, &step->target, count);
		break;
	case PLAN_REDUCE: work.action = GPU_REDUCE; break;
	case PLAN_SCALE: set_scale(&work, run); break;
	case PLAN_ENCODE: work.action = GPU_ENCODE; break;
	case PLAN_DECODE: work.action = GPU_DECODE; break;
	case PLAN_DECODE_REDUCE: work.action = GPU_DECODE_REDUCE; break;
	}
	return compute_add(run->compute, &work, task);
}

int compute_get_scratch(struct run *run)
{
	size_t bytes = run->bytes[PLAN_SCRATCH];
	int err;

	if (bytes == 0)
		return 0;
	if (!run->schedule->in_bulk[PLAN_SCRATCH])
		err = block_get(run->compute, true, bytes, &run->scratch);
	else
		err = get_registered(run->compute, bytes, &run->scratch);
	if (err)
		return err;
	run->base[PLAN_SCRATCH] = run->scratch->base;
	if (run->schedule->in_bulk[PLAN_SCRATCH])
		run_borrow(run, PLAN_SCRATCH, run->scratch->mr);
	return 0;
}

void compute_release_run(struct run *run)
{
	bounce_free(run);
	if (run->scratch) {
		block_put(run->scratch);
		run->base[PLAN_SCRATCH] = NULL;
	}
	stream_wait_put(run->stream_wait);
	run->stream_wait = NULL;
	run->scratch = NULL;
}

void computes_launch(struct frl_comm *comm)
{
	for (struct compute *compute = comm->computes; compute; compute = compute->next) {
		if (compute->first != compute->behind)
			gpu_queue_launch(compute->queue);
	}
}

/* After a failure all tickets count as done, so check for an error first. */
static int poll_one(struct compute *compute)
{
	uint64_t done = gpu_queue_done(compute->queue);
	const char *why;
	int events = 0;
	int err = gpu_queue_error(compute->queue, &why);

	if (err)
		return comm_fail(compute->comm, err, "GPU %d of rank %d has failed: %s",
			compute->gpu->ordinal, compute->comm->rank, why);
	while (compute->first != compute->behind) {
		/* A copy: completing a task may add tasks. */
		struct gpu_task task = compute->tasks[compute->first % GPU_QUEUE_PIECES];

		if (task.ticket > done)
			break;
		compute->first++;
		events++;
		if (task.done)
			task.done(&task);
	}
	return events;
}

int computes_poll(struct frl_comm *comm)
{
	int events = stream_waits_poll(comm);

	for (struct compute *compute = comm->computes; compute && events >= 0;
		compute = compute->next) {
		int n = compute->queue ? poll_one(compute) : 0;

		events = n < 0 ? n : events + n;
	}
	if (events >= 0)
		events += bounce_continue_all(comm);
	return events;
}

/* ---- after a failure */

void computes_drop(struct frl_comm *comm)
{
	for (struct compute *compute = comm->computes; compute; compute = compute->next) {
		if (compute->queue)
			gpu_queue_drop(compute->queue);
	}
}

static bool is_still(struct compute *compute)
{
	return !compute->queue || gpu_queue_done(compute->queue) >= compute->last;
}

/* A device that transfers payload for a GPU ends registrations only after the transfers. */
static bool are_devices_still(struct frl_request *request)
{
	bool is_done = true;

	for (struct run *run = request->runs; run; run = run->next) {
		if (run->compute)
			is_done = run_deregister(run) && is_done;
	}
	for (unsigned rail = 0; rail < request->comm->n_rails && !is_done; rail++)
		frl_progress(request->comm->rails[rail].device);
	return is_done;
}

bool computes_are_still(struct frl_request *request)
{
	struct frl_comm *comm = request->comm;
	uint64_t now_ns;
	bool are_still = true;

	for (struct compute *compute = comm->computes; compute; compute = compute->next)
		are_still = is_still(compute) && are_still;
	if (comm->computes)
		are_still = are_devices_still(request) && are_still;
	if (are_still)
		return true;
	now_ns = clock_now_ns();
	if (comm->still_by_ns == 0)
		comm->still_by_ns = now_ns + (uint64_t)STILL_MS * NS_PER_MS;
	if (now_ns < comm->still_by_ns)
		return false;
	if (comm->still_by_ns != TIMED_OUT)
		frl_log(FRL_LOG_ERROR,
			"communicator, rank %d: a GPU was still working %d s after the failure, "
			"and may write to buffers that are returned now",
			comm->rank, STILL_MS / 1000);
	comm->still_by_ns = TIMED_OUT;
	return true;
}

void computes_settle(struct frl_request *request)
{
	struct frl_backoff backoff = { 0 };

	frl_backoff_reset(&backoff);
	while (!computes_are_still(request))
		frl_backoff_idle(&backoff);
}
