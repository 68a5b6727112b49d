/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/run.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/gpu_ops.h"
#include "lib/base/error.h"

enum { SCRATCH_KEPT = 64 << 20 }; /* bytes, of all idle runs of a communicator */

/* ---- memory */

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
	if (run->done && (!has_scratch || get_scratch(run)))
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
	*ret_run = run;
	return 0;
}

void run_borrow(struct run *run, enum plan_buffer buffer, struct frl_mr *const mr[])
{
	run->is_borrowed[buffer] = true;
	for (unsigned rail = 0; rail < run->comm->n_rails; rail++)
		run->mr[rail][buffer] = mr[rail];
}

void run_return_borrowed(struct run *run)
{
	for (int buffer = 0; buffer < PLAN_BUFFERS; buffer++) {
		for (unsigned rail = 0; rail < RAILS_MAX && run->is_borrowed[buffer]; rail++)
			run->mr[rail][buffer] = NULL;
		run->is_borrowed[buffer] = false;
	}
}

void run_put(struct run *run)
{
	struct schedule *schedule = run->schedule;
	size_t *idle = &run->comm->idle_scratch;

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
	uint8_t *scratch = run->base[PLAN_SCRATCH];

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

/* ---- elements and completion */

void run_scale(const struct run *run, uint8_t *target, const uint8_t *source, size_t count)
{
	if (run->scaled == FRL_AVG)
		frl_divide_local(target, source, count, run->dtype, (uint32_t)run->comm->ranks);
	else
		frl_scale_local(target, source, count, run->dtype, run->scalar);
}

void run_complete(struct run *run)
{
	if (run->bounce)
		run->comm->gpu_ops->copy_out(run);
	else
		request_run_done(run->request);
}
