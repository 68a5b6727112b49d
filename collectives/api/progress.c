/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes progress: handles completions, advances the lanes that they woke, and reports credits to
 * peers. In normal operation it never waits, allocates or makes a system call. Its cost depends on
 * the number of events, not of ranks.
 */
#include "collectives/communicator/communicator.h"

#include "collectives/gpu/compute.h"
#include "lib/base/error.h"

enum {
	LOCAL_SHARE = 8,      /* segments of local work per call */
	IDLE_POLLS = 32,      /* between two clock checks */
	BUSY_POLLS = 1 << 14, /* the same while there are events */
};

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
	int err = peer_want(lane->peer);

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

/* Advances all ready lanes. `share`: the most segments of local work. */
static int advance_lanes(struct frl_comm *comm, int *share)
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

int comm_advance(struct frl_comm *comm)
{
	int share = LOCAL_SHARE, chunks = LOCAL_SHARE;
	int err = comm->shm ? shm_advance(comm->shm, false) : 0;

	if (err >= 0)
		err = advance_lanes(comm, &share);

	/*
	 * After each chunk the peer gets credits for the free room, and sends the next chunk while
	 * this rank reduces. Chunks have a share of their own, because peers wait for them.
	 */
	while (!err && comm->staging.first && chunks-- > 0) {
		comm_flush(comm);
		if (!bulk_reduce(comm))
			break;
		err = advance_lanes(comm, &share);
	}
	if (comm->computes)
		computes_launch(comm);
	return err;
}

/* ---- completions */

static struct channel *channel_of(const struct frl_wc *wc)
{
	return (struct channel *)(uintptr_t)(wc->wr_id & ~(uint64_t)(CHANNEL_ALIGN - 1));
}

/* Returns the first status that shows the cause; flushed requests are only its consequence. */
static enum frl_wc_status cause_of(const struct frl_wc wc[], int n)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].status != FRL_WC_SUCCESS && wc[i].status != FRL_WC_WR_FLUSH_ERR &&
			channel_of(&wc[i]) == channel_of(&wc[0]))
			return wc[i].status;
	}
	return wc[0].status;
}

/* Some devices report completions of queue pairs that have been destroyed. */
static bool is_stale(const struct channel *channel, unsigned poller, enum work_kind kind,
	const struct frl_wc *wc)
{
	bool is_bulk = kind == WORK_BULK_SEND || kind == WORK_BULK_RECEIVE;
	const struct frl_qp *qp = is_bulk ? channel->bulk : channel->eager;

	return !qp || channel->poller != poller || frl_qp_num(qp) != wc->qp_num;
}

/* Handles the first of the remaining completions. */
static int handle(unsigned poller, const struct frl_wc wc[], int n)
{
	struct channel *channel = channel_of(wc);
	uint32_t slot = wc->wr_id % WORK_SLOTS;
	enum work_kind kind = (enum work_kind)(wc->wr_id % CHANNEL_ALIGN / WORK_SLOTS);

	if (is_stale(channel, poller, kind, wc))
		return 0;
	if (wc->status != FRL_WC_SUCCESS)
		return channel_failed(channel, kind, wc, cause_of(wc, n));
	if (!channel->is_proven)
		channel_prove(channel);
	switch (kind) {
	case WORK_BULK_SEND: return bulk_sent(channel);
	case WORK_BULK_RECEIVE: return bulk_received(channel, wc);
	case WORK_EAGER_SEND: return eager_sent(channel, slot);
	case WORK_EAGER_RECEIVE: return eager_received(channel, wc, slot);
	}
	return 0;
}

/* A completion queue reports all its completions before it fails. */
static int poll_failed(struct frl_comm *comm, struct poller *poller, int err)
{
	poller->is_over = true;
	err = rail_check(comm, poller->rail, err);
	return err ? comm_fail(comm, err, "polling the completion queue: %s", frl_last_error()) : 0;
}

/* Polls a completion queue. Returns the number of completions, or the communicator's error.
 * Completions of a lost rail still count: senders know that these messages have arrived. */
static int poll_one(struct frl_comm *comm, unsigned number)
{
	struct poller *poller = &comm->pollers[number];
	struct frl_wc wc[POLL_BATCH];
	int n;

	if (poller->is_over)
		return 0;
	comm->rails[poller->rail].has_posted = false;
	n = frl_poll_cq(poller->cq, POLL_BATCH, wc);
	if (n < 0)
		return poll_failed(comm, poller, n);
	for (int i = 0; i < n; i++) {
		int err = handle(number, &wc[i], n - i);

		if (err)
			return err;
	}
	/* The array may have moved: handling may add pollers. */
	if (n < POLL_BATCH)
		comm->pollers[number].emptied++;
	return n;
}

static int poll_all(struct frl_comm *comm)
{
	int events = 0;

	for (unsigned i = 0; i < comm->n_pollers; i++) {
		int n = poll_one(comm, i);

		if (n < 0)
			return n;
		events += n;
	}
	return events;
}

/* ---- progress */

/* A completed request may be the caller's last call, so posted work must be handed over. */
void comm_flush(struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (comm->rails[i].has_posted)
			frl_progress(comm->rails[i].device);
		comm->rails[i].has_posted = false;
	}
}

/* There were no completions. Returns the number of packets handled. */
static int idle(struct frl_comm *comm)
{
	int packets = 0;

	comm->sibling.quiet_rounds++;
	for (unsigned i = 0; i < comm->n_rails; i++)
		packets += frl_progress(comm->rails[i].device);
	if (packets == 0 && ++comm->hang.idle_polls >= IDLE_POLLS) {
		int err = comm_check_clock(comm);

		if (err)
			return err;
	}
	return packets;
}

/* Most of the time, short operations in shared memory proceed without a check of anything else. */
static int shared_round(struct frl_comm *comm)
{
	int n = shm_advance(comm->shm, true);

	if (n <= 0 || shm_is_due(comm->shm))
		return n < 0 ? n : 0;
	comm_finish_requests(comm);
	comm->sibling.quiet_rounds = 0;
	return n;
}

int comm_progress(struct frl_comm *comm)
{
	int events, err;

	if (comm->error)
		return comm_error(comm);
	err = inbox_is_waiting(&comm->inbox) ? comm_take_mail(comm) : 0;
	if (!err && comm->shm)
		err = shared_round(comm);
	if (err != 0)
		return err;
	if (comm->connecting)
		err = channels_step(comm);
	if (err)
		return err;
	events = poll_all(comm);
	if (events >= 0 && comm->computes) {
		int n = computes_poll(comm);

		events = n < 0 ? n : events + n;
	}
	if (events < 0)
		return events;
	err = comm_advance(comm);
	if (!err && ++comm->hang.polls >= BUSY_POLLS)
		err = comm_check_clock(comm);
	if (err)
		return err;
	comm_finish_requests(comm);
	if (events == 0 && !comm->ready && !comm->staging.first)
		return idle(comm);
	comm->sibling.quiet_rounds = 0;
	return events + 1;
}
