/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/net/steps.h"

#include "collectives/communicator/communicator.h"
#include "collectives/net/channel.h"

/* ---- lanes */

void lane_wake(struct frl_comm *comm, struct lane *lane)
{
	if (lane->is_ready || !lane->first)
		return;
	lane->is_ready = true;
	lane->next_ready = NULL;
	*comm->ready_end = lane;
	comm->ready_end = &lane->next_ready;
}

static struct lane *next_ready(struct frl_comm *comm)
{
	struct lane *lane = comm->ready;

	comm->ready = lane->next_ready;
	if (!comm->ready)
		comm->ready_end = &comm->ready;
	lane->is_ready = false;
	return lane;
}

static int advance(struct lane *lane)
{
	int err = peer_open_channels(lane->peer);

	/* The lane is woken when the channels are up. */
	if (err || !lane->peer->is_up)
		return err;
	switch (lane->kind) {
	case LANE_SEND_EAGER: return lane_send_eager(lane);
	case LANE_SEND_BULK: return lane_send_bulk(lane);
	case LANE_RECV_EAGER: return lane_receive_eager(lane);
	case LANE_RECV_BULK: return lane_receive_bulk(lane);
	case LANE_LOCAL: break;
	}
	return 0;
}

static int send_reports(struct frl_comm *comm)
{
	while (comm->reports_due) {
		struct channel *channel = comm->reports_due;
		int err;

		comm->reports_due = channel->next_report;
		channel->needs_report = false;
		err = channel_report(channel);
		if (err)
			return err;
	}
	return 0;
}

int lanes_advance(struct frl_comm *comm, int *share)
{
	while (comm->ready && *share > 0) {
		struct lane *lane = next_ready(comm);
		int err = 0;

		if (!lane->first)
			continue;
		if (lane->kind != LANE_LOCAL) {
			err = advance(lane);
		} else if (lane_compute(lane)) {
			--*share;
			lane_wake(comm, lane);
		}
		if (err)
			return err;
	}
	if (comm->has_self_runs) {
		int err = self_advance(comm);

		if (err)
			return err;
	}
	return send_reports(comm);
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

static void run_enqueue(struct run *run)
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
	if (run->left > 0)
		run_enqueue(run);
	else if (!run->is_blocked)
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
