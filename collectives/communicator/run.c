/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/run.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/bounce.h"
#include "collectives/gpu/compute.h"
#include "collectives/net/channel.h"
#include "lib/base/error.h"

enum { SCRATCH_KEPT = 64 << 20 }; /* bytes, of all idle runs of a communicator */

/* ---- memory */

/* Creates the state of all peers of the schedule. Returns false if there is no memory. */
static bool create_peers(struct frl_comm *comm, const struct schedule *schedule)
{
	for (uint32_t i = 0; i < schedule->n_lanes; i++) {
		const struct schedule_lane *lane = &schedule->lanes[i];

		if (lane->kind != LANE_LOCAL && !comm_peer(comm, (int)lane->peer))
			return false;
	}
	return true;
}

/* Peers on this machine read scratch in place if frl_mem_alloc() gave it. */
static bool get_scratch(struct run *run)
{
	size_t bytes = run->bytes[PLAN_SCRATCH];

	if (bytes == 0)
		return true;
	run->base[PLAN_SCRATCH] = run->schedule->in_bulk[PLAN_SCRATCH] ? frl_mem_alloc(bytes)
								       : malloc(bytes);
	return run->base[PLAN_SCRATCH] != NULL;
}

/* Scratch is in the memory of the GPU that reduces there. */
static int get_gpu_scratch(struct run *run)
{
	int err;

	if (run->bytes[PLAN_SCRATCH] == 0)
		return 0;
	err = block_get(run->compute, true, run->bytes[PLAN_SCRATCH], &run->scratch);
	if (err)
		return err;
	run->base[PLAN_SCRATCH] = run->scratch->base;
	if (!run->schedule->in_bulk[PLAN_SCRATCH])
		return 0;
	err = block_register(run->scratch);
	if (!err)
		run_borrow(run, PLAN_SCRATCH, run->scratch->mr);
	return err;
}

static struct run *run_new(struct frl_comm *comm, struct schedule *schedule, bool has_scratch)
{
	size_t steps = schedule->plan.n_steps, works = schedule->n_lanes;
	struct run *run = calloc(1, sizeof(*run) + works * sizeof(struct lane_work));

	if (!run)
		return NULL;
	run->comm = comm;
	run->schedule = schedule;
	run->local.kind = LANE_LOCAL;
	run->done = calloc(steps + 1, sizeof(*run->done));
	run->bytes[PLAN_SCRATCH] = schedule->plan.scratch_bytes;
	if (run->done && (!has_scratch || get_scratch(run)) && create_peers(comm, schedule))
		return run;
	run_free(run);
	return NULL;
}

/* Tokens are unique in a process; addresses are not, since another operation or communicator may
 * reuse one. */
static uint64_t take_tokens(uint32_t n)
{
	static atomic_uint_least64_t next = UINT64_C(1) << 63;

	return atomic_fetch_add_explicit(&next, n, memory_order_relaxed);
}

int run_get(struct frl_comm *comm, struct schedule *schedule, struct compute *compute,
	struct run **ret_run)
{
	struct run *run = schedule->idle_runs;
	int err;

	if (compute) {
		run = run_new(comm, schedule, false);
	} else if (run) {
		schedule->idle_runs = run->next;
		schedule->n_idle--;
		comm->idle_scratch -= run->bytes[PLAN_SCRATCH];
	} else {
		run = run_new(comm, schedule, true);
	}
	if (!run)
		return frl_fail(-ENOMEM, "no memory for an operation of %u steps and %zu bytes",
			schedule->plan.n_steps, schedule->plan.scratch_bytes);
	run->next = NULL;
	run->left = schedule->plan.n_steps;
	memset(run->done, 0, schedule->plan.n_steps * sizeof(*run->done));
	run->compute = compute;
	run->token = compute ? take_tokens(schedule->plan.n_steps) : 0;
	err = compute ? get_gpu_scratch(run) : 0;
	if (err) {
		run_free(run);
		return err;
	}
	*ret_run = run;
	return 0;
}

void run_borrow(struct run *run, enum plan_buffer buffer, struct frl_mr *const mr[])
{
	run->is_borrowed[buffer] = true;
	for (unsigned rail = 0; rail < run->comm->n_rails; rail++)
		run->mr[rail][buffer] = mr[rail];
}

/* Returns everything that belongs to blocks. */
static void return_blocks(struct run *run)
{
	for (int buffer = 0; buffer < PLAN_BUFFERS; buffer++) {
		for (unsigned rail = 0; rail < RAILS_MAX && run->is_borrowed[buffer]; rail++)
			run->mr[rail][buffer] = NULL;
		run->is_borrowed[buffer] = false;
	}
	bounce_free(run);
	if (run->scratch) {
		block_put(run->scratch);
		run->base[PLAN_SCRATCH] = NULL;
	}
	stream_wait_put(run->stream_wait);
	run->stream_wait = NULL;
	run->scratch = NULL;
	run->is_blocked = false;
}

void run_put(struct run *run)
{
	struct schedule *schedule = run->schedule;
	size_t *idle = &run->comm->idle_scratch;

	return_blocks(run);
	if (run->is_shm) {
		shm_put_run(run);
		return;
	}
	if (!schedule || run->compute || schedule->n_idle == IDLE_RUNS ||
		run->bytes[PLAN_SCRATCH] > SCRATCH_KEPT - *idle) {
		run_free(run);
	} else {
		*idle += run->bytes[PLAN_SCRATCH];
		run->request = NULL;
		run->next = schedule->idle_runs;
		schedule->idle_runs = run;
		schedule->n_idle++;
	}
	if (schedule)
		schedule_put(schedule);
}

/* Returns false if a NIC still uses a registration. */
static bool deregister_scratch(struct run *run)
{
	bool is_done = true;

	for (unsigned rail = 0; rail < run->comm->n_rails; rail++) {
		is_done = rail_end_registration(run->comm, rail, run->mr[rail][PLAN_SCRATCH]) ==
				0 &&
			is_done;
	}
	return is_done;
}

void run_free(struct run *run)
{
	uint8_t *scratch;

	return_blocks(run);
	scratch = run->base[PLAN_SCRATCH];
	if (scratch && deregister_scratch(run)) {
		if (run->schedule->in_bulk[PLAN_SCRATCH])
			frl_mem_free(scratch, run->bytes[PLAN_SCRATCH]);
		else
			free(scratch);
	}
	free(run->done);
	free(run);
}

/* ---- registrations */

static int register_buffer(struct run *run, enum plan_buffer buffer)
{
	int err = 0;

	for (unsigned rail = 0; rail < run->comm->n_rails && !err; rail++) {
		if (run->mr[rail][buffer])
			continue; /* a block's, or scratch of an earlier operation */
		err = rail_register(run->comm, rail, buffer, run->base[buffer], run->bytes[buffer],
			&run->mr[rail][buffer]);
	}
	return err;
}

int run_register(struct run *run)
{
	/* Register the receive buffer first, with write access: the send buffer may lie inside
	 * it. */
	static const enum plan_buffer order[] = { PLAN_RECV, PLAN_SEND, PLAN_SCRATCH };
	int err = 0;

	for (int i = 0; i < PLAN_BUFFERS && !err; i++) {
		if (run->schedule->in_bulk[order[i]])
			err = register_buffer(run, order[i]);
	}
	return err;
}

bool run_deregister(struct run *run)
{
	/* Scratch stays registered for the next run, unless the schedule is not kept. */
	bool is_last = run->schedule && !run->schedule->kept;
	int end = is_last ? PLAN_BUFFERS : PLAN_SCRATCH;

	for (unsigned rail = 0; rail < run->comm->n_rails; rail++) {
		for (int buffer = 0; buffer < end; buffer++) {
			struct frl_mr **mr = &run->mr[rail][buffer];

			if (run->is_borrowed[buffer])
				continue;
			if (*mr &&
				rail_deregister(run->comm, rail, (enum plan_buffer)buffer, *mr) < 0)
				return false;
			*mr = NULL;
		}
	}
	return true;
}

/* ---- steps */

size_t run_limit(const struct run *run, uint32_t number)
{
	const struct plan_step *steps = run->schedule->plan.steps;
	const struct plan_step *step = &steps[number];
	size_t limit = step->count;

	if (run->is_blocked)
		return 0;
	for (int i = 0; i < PLAN_AFTER; i++) {
		const struct plan_after *after = &step->after[i];
		int64_t reach;

		if (after->step == PLAN_NOTHING ||
			run->done[after->step] == steps[after->step].count)
			continue;
		if (after->shift == PLAN_WHOLE)
			return 0;
		reach = (int64_t)run->done[after->step] - after->shift;
		if (reach <= 0)
			return 0;
		if ((size_t)reach < limit)
			limit = (size_t)reach;
	}
	return limit;
}

static void lane_append(struct lane *lane, struct lane_work *work)
{
	work->next = NULL;
	work->lane = lane;
	if (lane->last)
		lane->last->next = work;
	else
		lane->first = work;
	lane->last = work;
}

void run_enqueue(struct run *run)
{
	const struct schedule *schedule = run->schedule;
	struct frl_comm *comm = run->comm;

	run->local.first = run->local.last = NULL;
	for (uint32_t i = 0; i < schedule->n_lanes; i++) {
		const struct schedule_lane *from = &schedule->lanes[i];
		struct lane *lane = from->kind == LANE_LOCAL
			? &run->local
			: &comm->peers[from->peer]->lanes[from->kind];

		run->works[i] = (struct lane_work){ .run = run, .step = from->first };
		lane_append(lane, &run->works[i]);
		lane_wake(comm, lane);
	}
}

void run_advance(struct run *run, uint32_t step, size_t count)
{
	const struct schedule *schedule = run->schedule;

	run->request->moves++;
	run->done[step] += count;
	for (uint32_t i = schedule->watchers_at[step]; i < schedule->watchers_at[step + 1]; i++) {
		struct lane_work *work = &run->works[schedule->watchers[i]];

		if (work->lane->first == work)
			lane_wake(run->comm, work->lane);
	}
	if (run->done[step] < schedule->plan.steps[step].count || --run->left > 0)
		return;
	run_complete(run);
}

void run_begin(struct run *run)
{
	bool waits = run->stream_wait || run->bounce;

	run->is_blocked = waits;
	if (run->left > 0)
		run_enqueue(run);
	if (waits)
		stream_wait_start(run);
	else if (run->left == 0)
		run_complete(run);
}

void run_open(struct run *run)
{
	run->is_blocked = false;
	if (!run->schedule) {
		if (!run->is_shm)
			run->comm->has_self_runs = true;
		return;
	}
	if (run->left == 0) {
		run_complete(run);
		return;
	}
	for (uint32_t i = 0; i < run->schedule->n_lanes; i++) {
		if (run->works[i].lane->first == &run->works[i])
			lane_wake(run->comm, run->works[i].lane);
	}
}

void run_complete(struct run *run)
{
	if (run->bounce)
		bounce_copy_out(run);
	else
		request_run_done(run->request);
}

void lane_move(struct lane *lane, size_t count)
{
	struct lane_work *work = lane->first;

	work->begun += count;
	if (work->begun < run_step(work->run, work->step)->count)
		return;
	work->begun = 0;
	work->step = work->run->schedule->next_step[work->step];
	if (work->step != PLAN_NOTHING)
		return;
	lane->first = work->next;
	if (!lane->first)
		lane->last = NULL;
}
