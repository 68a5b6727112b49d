/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels whose connections break while both ranks live. A queue pair that went to the error state
 * takes nothing any more, and its completions say what it has taken, to the byte: both ends tell
 * each other, connect again over another rail, and go on from there.
 */
#include "collectives/communicator.h"

#include <errno.h>

#include "lib/base/error.h"

static void stop(struct frl_qp *qp)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_qp_attr now;

	/* One that was never connected has nothing to stop. */
	frl_qp_query(qp, &now);
	if (now.state != FRL_QPS_RESET)
		frl_qp_modify(qp, &attr, FRL_QP_STATE);
}

int channel_restart(struct channel *channel)
{
	struct peer *peer = channel->peer;
	struct frl_comm *comm = peer->comm;

	/* What is done until now is in the completion queue when these return; and it has been
	 * polled when it was found empty, but not by the poll that may be running. */
	if (channel->state != CHANNEL_FLUSHING) {
		stop(channel->bulk);
		stop(channel->eager);
	}
	family_suspect(comm, channel->rail, peer->rank);
	channel->flushed_at = comm->pollers[channel->poller].emptied + 2;
	channel->state = CHANNEL_FLUSHING;
	channel->epoch++;
	channel->has_theirs = channel->peer_ready = false;
	peer->is_up = false;
	channel_add_to_connecting(channel);
	frl_log(FRL_LOG_WARNING,
		"communicator, rank %d: a connection to rank %d over rail %u broke: going on over "
		"rail %u",
		comm->rank, peer->rank, channel->rail,
		(channel->number + channel->epoch) % comm->n_rails);
	return 0;
}

/* No rail is left to go on over. */
static int fail_without_rail(struct channel *channel, enum frl_wc_status cause)
{
	struct frl_comm *comm = channel->peer->comm;
	int err;

	if (comm->n_rails == 1 || !comm_is_broken(cause))
		return comm_fail_completion(comm, channel->peer->rank, cause);
	err = comm_find_reason(comm, channel->peer->rank, cause);
	if (err)
		return err;
	return comm_fail(comm, -ECONNRESET,
		"rank %d cannot be reached from rank %d: the connection over rail %u broke (%s), "
		"and there is no other rail left to go on over",
		channel->peer->rank, comm->rank, channel->rail, frl_wc_status_str(cause));
}

int channel_failed(struct channel *channel, enum work_kind kind, const struct frl_wc *wc,
	enum frl_wc_status cause)
{
	struct frl_comm *comm = channel->peer->comm;
	int err = 0;

	if (channel->state != CHANNEL_FLUSHING) {
		if (channel->epoch + 1 >= comm->n_rails || !comm_is_broken(cause))
			return fail_without_rail(channel, cause);
		err = comm_find_reason(comm, channel->peer->rank, cause);
		/* While it looked, the peer may have said that the connection broke. */
		if (!err && channel->state != CHANNEL_FLUSHING)
			err = channel_restart(channel);
	}
	if (err || kind != WORK_BULK_RECEIVE || channel->has_partial)
		return err;
	channel->has_partial = true;
	channel->is_spoiled = wc->status == FRL_WC_REM_ABORT_ERR;
	channel->partial = wc->byte_len;
	return 0;
}

/* ---- rails */

/* Another rail that has a link. */
static bool has_other(const struct frl_comm *comm, unsigned rail)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (i != rail && !comm->rails[i].is_down)
			return true;
	}
	return false;
}

/* All channels of a rail go on elsewhere; those that cannot stay, for a link may come back. */
static int leave_rail(struct frl_comm *comm, unsigned rail)
{
	int err = 0;

	for (struct peer *peer = comm->first_peer; peer && !err; peer = peer->next) {
		for (unsigned i = 0; i < comm->n_rails && !err; i++) {
			struct channel *channel = peer->channels[i];

			if (channel && channel->rail == rail &&
				channel->state != CHANNEL_FLUSHING &&
				channel->epoch + 1 < comm->n_rails)
				err = channel_restart(channel);
		}
	}
	return err;
}

/* Whether its channels are broken, their retries tell; all at the same time. */
static int ping_rail(struct frl_comm *comm, unsigned rail)
{
	int err = 0;

	for (struct peer *peer = comm->first_peer; peer && !err; peer = peer->next) {
		for (unsigned i = 0; i < comm->n_rails && !err; i++) {
			struct channel *channel = peer->channels[i];

			if (channel && channel->rail == rail)
				err = channel_ping(channel);
		}
	}
	return err;
}

int channels_check_rails(struct frl_comm *comm)
{
	struct frl_device_attr attr;
	int err = 0;

	for (unsigned i = 0; i < comm->n_rails; i++) {
		struct rail *rail = &comm->rails[i];

		/* The local fabric is always there; asking after it looks at every queue pair. */
		if (rail->attr.local_fabric)
			continue;
		frl_device_query(rail->device, &attr);
		rail->is_down = attr.port_state != FRL_PORT_ACTIVE;
	}
	for (unsigned i = 0; i < comm->n_rails && !err; i++) {
		struct rail *rail = &comm->rails[i];
		uint32_t suspicions = family_suspicions(comm, i);

		if (rail->is_down && has_other(comm, i))
			err = leave_rail(comm, i);
		else if (suspicions != rail->suspicions && !comm->draining)
			err = ping_rail(comm, i); /* who is leaving may be gone */
		rail->suspicions = suspicions;
	}
	return err;
}

/* ---- going on */

/* What is done is certain: the peer is to go on behind it. */
static void settle_resume(struct channel *channel)
{
	uint32_t before = channel->receives_done == channel->short_at ? channel->short_by : 0;

	channel->short_at = channel->receives_done;
	channel->short_by = before + (channel->has_partial ? channel->partial : 0);
	channel->has_partial = false;
	channel->resume = (struct resume){ .received = channel->receives_done,
		.partial = channel->short_by,
		.arrived = channel->arrivals_come,
		.credits = channel->receives_posted,
		.returned = channel->arrivals_taken };
	channel->told_credits = channel->receives_posted;
	channel->told_returned = channel->arrivals_taken;
	channel->eager_acked = channel->eager_signaled = channel->eager_posted;
	channel->is_telling = false;
}

/* Nothing can happen to it any more: what was done is certain. */
int channel_reopen(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;
	int err;

	if (channel->is_spoiled)
		return comm_fail(comm, -ECONNRESET,
			"rank %d: the connection to rank %d over rail %u broke in the middle of a "
			"packet",
			comm->rank, channel->peer->rank, channel->rail);
	frl_qp_destroy(channel->bulk);
	frl_qp_destroy(channel->eager);
	channel->bulk = channel->eager = NULL;
	comm->pollers[channel->poller].room += CHANNEL_COMPLETIONS;
	err = channel_deregister_slots(channel);
	if (err)
		return err;
	channel->rail = (channel->number + channel->epoch) % comm->n_rails;
	settle_resume(channel);
	err = channel_create_queue_pairs(channel);
	if (err)
		return err;
	channel->state = CHANNEL_ASKING;
	channel_send_mail(channel, false);
	return 0;
}
