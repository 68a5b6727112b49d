/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions of all channels. */
#include "collectives/communicator/communicator.h"
#include "collectives/net/channel.h"
#include "lib/base/error.h"

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

int channels_poll(struct frl_comm *comm)
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
