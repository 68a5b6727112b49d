/* SPDX-License-Identifier: BSD-3-Clause */
/* What is done to elements in this process: local steps, small messages out of their slots, and
 * chunks out of their rings. */
#include "collectives/communicator.h"

#include <string.h>

enum { LOCAL_ELEMENTS = 16384 }; /* at a time; a multiple of PLAN_WIRE_BLOCK */

static void scale(const struct run *run, uint8_t *target, const uint8_t *source, size_t count)
{
	if (run->scaled == FRL_AVG)
		frl_divide_local(target, source, count, run->dtype, (uint32_t)run->comm->ranks);
	else
		frl_scale_local(target, source, count, run->dtype, run->scalar);
}

/* What is done to elements from `first` on; `source` is where the first of them is. Elements that
 * travel in another format are float32: whatever holds them is aligned, or copied by the callee. */
static void act(const struct run *run, const struct plan_step *step, size_t first, size_t count,
	const uint8_t *source)
{
	enum frl_wire wire = run->schedule->wire;
	uint8_t *target = run_at(run, &step->target, first);

	switch (step->action) {
	case PLAN_COPY:
		memcpy(target, source, schedule_bytes(run->schedule, &step->target, count));
		return;
	case PLAN_REDUCE:
		frl_reduce_local(target, run_at(run, &step->operand, first), source, count,
			run->dtype, run->op);
		return;
	case PLAN_SCALE: scale(run, target, source, count); return;
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

bool lane_compute(struct lane *lane)
{
	const struct lane_work *work = lane->first;
	struct run *run = work->run;
	uint32_t number = work->step;
	const struct plan_step *step = run_step(run, number);
	size_t first = work->begun, end = run_limit(run, number);

	if (end <= first)
		return false;
	if (end - first > LOCAL_ELEMENTS)
		end = first + LOCAL_ELEMENTS;
	if (end < step->count)
		end -= end % PLAN_WIRE_BLOCK;
	if (end == first)
		return false;
	act(run, step, first, end - first, run_at(run, &step->source, first));
	lane_move(lane, end - first);
	run_advance(run, number, end - first);
	return true;
}
