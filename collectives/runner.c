/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes progress: takes completions, lets the lanes go on that these have set going, and tells the
 * peers what is new. Never waits, allocates or makes a system call while all goes well; what is
 * done depends on what happens, not on how many ranks there are.
 */
#include "collectives/communicator.h"

#include "collectives/compute.h"
#include "lib/base/error.h"

enum {
	LOCAL_SHARE = 8,      /* segments of local work in one call */
	IDLE_POLLS = 32,      /* between two looks at the clock */
	BUSY_POLLS = 1 << 14, /* the same while things happen */
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

	/* It is woken when the channels are there. */
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

static int tell_news(struct frl_comm *comm)
{
	while (comm->news) {
		struct channel *channel = comm->news;
		int err;

		comm->news = channel->next_news;
		channel->has_news = false;
		err = channel_tell(channel);
		if (err)
			return err;
	}
	return 0;
}

/* `share`: so many segments of local work at most. */
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
	if (comm->has_selves) {
		int err = self_go_on(comm);

		if (err)
			return err;
	}
	return tell_news(comm);
}

int comm_advance(struct frl_comm *comm)
{
	int share = LOCAL_SHARE, chunks = LOCAL_SHARE;
	int err = comm->shm ? shm_go_on(comm->shm, false) : 0;

	if (err >= 0)
		err = advance_lanes(comm, &share);

	/* After each chunk the peer is told of the room in the ring, and sends the next one while
	 * this rank reduces. They have a share of their own: peers wait for them. */
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

/* The first failure of a channel that tells the reason; flushed requests only follow from it. */
static enum frl_wc_status cause_of(const struct frl_wc wc[], int n)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].status != FRL_WC_SUCCESS && wc[i].status != FRL_WC_WR_FLUSH_ERR &&
			channel_of(&wc[i]) == channel_of(&wc[0]))
			return wc[i].status;
	}
	return wc[0].status;
}

/* Some devices still tell what was done on a queue pair when it has been destroyed. */
static bool is_stale(const struct channel *channel, unsigned poller, enum work_kind kind,
	const struct frl_wc *wc)
{
	bool is_bulk = kind == WORK_BULK_SEND || kind == WORK_BULK_RECEIVE;
	const struct frl_qp *qp = is_bulk ? channel->bulk : channel->eager;

	return !qp || channel->poller != poller || frl_qp_num(qp) != wc->qp_num;
}

/* The first of the completions that are left. */
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

/* A completion queue tells all that it has before it fails. */
static int poll_failed(struct frl_comm *comm, struct poller *poller, int err)
{
	poller->is_over = true;
	err = rail_check(comm, poller->rail, err);
	return err ? comm_fail(comm, err, "polling the completion queue: %s", frl_last_error()) : 0;
}

/* Returns how many there were, or the communicator's error. The completions of a rail that is lost
 * still count: senders know that these messages have arrived. */
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
	/* There may be more pollers now, elsewhere. */
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

/* ---- the round */

/* A request that is complete may be the caller's last: what it has posted must be on its way. */
void comm_flush(struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (comm->rails[i].has_posted)
			frl_progress(comm->rails[i].device);
		comm->rails[i].has_posted = false;
	}
}

/* Nothing completed: were packets handled at least? */
static int idle(struct frl_comm *comm)
{
	int packets = 0;

	comm->member.quiet_rounds++;
	for (unsigned i = 0; i < comm->n_rails; i++)
		packets += frl_progress(comm->rails[i].device);
	if (packets == 0 && ++comm->stall.idle_polls >= IDLE_POLLS) {
		int err = comm_look_at_clock(comm);

		if (err)
			return err;
	}
	return packets;
}

/* Short operations in shared memory go on without a look at anything else, most of the time. */
static int shared_round(struct frl_comm *comm)
{
	int n = shm_go_on(comm->shm, true);

	if (n <= 0 || shm_is_due(comm->shm))
		return n < 0 ? n : 0;
	comm_finish_requests(comm);
	comm->member.quiet_rounds = 0;
	return n;
}

int comm_progress(struct frl_comm *comm)
{
	int events, err;

	if (comm->error)
		return comm_error(comm);
	err = post_is_waiting(&comm->post) ? comm_take_post(comm) : 0;
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
	if (!err && ++comm->stall.polls >= BUSY_POLLS)
		err = comm_look_at_clock(comm);
	if (err)
		return err;
	comm_finish_requests(comm);
	if (events == 0 && !comm->ready && !comm->staging.first)
		return idle(comm);
	comm->member.quiet_rounds = 0;
	return events + 1;
}
