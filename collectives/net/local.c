/* SPDX-License-Identifier: BSD-3-Clause */
/* Work on elements by the processor: local steps, small messages in their slots, and chunks in
 * staging rings. */
#include "collectives/communicator/communicator.h"

#include <string.h>

#include "collectives/communicator/gpu_ops.h"
#include "collectives/net/channel.h"
#include "collectives/net/steps.h"
#include "lib/base/memory/copy.h"

/* Elements per piece; multiples of PLAN_WIRE_BLOCK. GPUs get more, since launching is slow. */
enum { LOCAL_ELEMENTS = 16384, GPU_ELEMENTS = 1 << 20 };

/*
 * Performs the action of a step on `count` elements from `first` on; `source` points to the first
 * of them. Encoded elements are float32 in memory: buffers are aligned, or the callee copies.
 */
static void act(const struct run *run, const struct plan_step *step, size_t first, size_t count,
	const uint8_t *source)
{
	enum frl_wire wire = run->schedule->wire;
	uint8_t *target = run_at(run, &step->target, first);

	switch (step->action) {
	case PLAN_COPY:
		copy_bulk(target, source, schedule_bytes(run->schedule, &step->target, count));
		return;
	case PLAN_REDUCE:
		frl_reduce_local(target, run_at(run, &step->operand, first), source, count,
			run->dtype, run->op);
		return;
	case PLAN_SCALE: run_scale(run, target, source, count); return;
	case PLAN_ENCODE:
		frl_wire_encode(target, (const float *)(const void *)source, count, wire);
		return;
	case PLAN_DECODE: frl_wire_decode((float *)(void *)target, source, count, wire); return;
	case PLAN_DECODE_REDUCE:
		frl_wire_decode_reduce((float *)(void *)target,
			(const float *)(const void *)run_at(run, &step->operand, first), source,
			count, wire, run->op);
		return;
	}
}

void run_place(struct run *run, uint32_t number, size_t first, size_t count, const uint8_t *payload)
{
	act(run, run_step(run, number), first, count, payload);
}

static void step_done(const struct gpu_task *task)
{
	run_advance(task->run, task->step, task->count);
}

/* Adds work to the GPU's queue. It completes later, in order. */
static void compute_segment(struct lane *lane, size_t first, size_t count)
{
	struct run *run = lane->first->run;
	uint32_t number = lane->first->step;
	const struct plan_step *step = run_step(run, number);
	const struct gpu_task task = {
		.done = step_done, .run = run, .step = number, .count = count
	};

	/* If the queue is full, the lane tries again. */
	if (run->comm->gpu_ops->act(
		    run, step, first, count, run_at(run, &step->source, first), &task))
		lane_move(lane, count);
}

bool lane_compute(struct lane *lane)
{
	const struct lane_work *work = lane->first;
	struct run *run = work->run;
	size_t most = run->compute ? GPU_ELEMENTS : LOCAL_ELEMENTS;
	uint32_t number = work->step;
	const struct plan_step *step = run_step(run, number);
	size_t first = work->begun, end = run_limit(run, number);

	if (end <= first)
		return false;
	if (end - first > most)
		end = first + most;
	if (end < step->count)
		end -= end % PLAN_WIRE_BLOCK;
	if (end == first)
		return false;
	if (run->compute) {
		compute_segment(lane, first, end - first);
		return true;
	}
	act(run, step, first, end - first, run_at(run, &step->source, first));
	lane_move(lane, end - first);
	run_advance(run, number, end - first);
	return true;
}
