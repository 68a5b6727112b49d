/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels whose connections break while both ranks are alive. A queue pair in the error state
 * accepts nothing more, and its completions report exactly how many bytes it has placed. Both ends
 * exchange these positions, connect over another rail, and resume there.
 */
#include "collectives/communicator/communicator.h"

#include <errno.h>
#include <string.h>

#include "collectives/communicator/rail_health.h"
#include "collectives/net/channel.h"
#include "lib/base/error.h"

/* The prefix of the reason that ferruled gives to a queue pair that an operator ends. */
static const char killed[] = "killed by an operator";

static void stop(struct frl_qp *qp)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_qp_attr now;

	if (!qp)
		return; /* its rail had failed before */
	/* A queue pair that was never connected needs no stop. */
	frl_qp_query(qp, &now);
	if (now.state != FRL_QPS_RESET)
		frl_qp_modify(qp, &attr, FRL_QP_STATE);
}

/* `how`: description of the failure. */
static int fail_at_end(const struct channel *channel, const char *how)
{
	struct frl_comm *comm = channel->peer->comm;
	const struct rail *rail = &comm->rails[channel->rail];

	return comm_fail(comm, -ECONNRESET,
		"rank %d cannot be reached from rank %d: the connection over rail %u (%s) broke "
		"(%s)%s%s",
		channel->peer->rank, comm->rank, channel->rail, rail->attr.port, how,
		rail->is_down ? ", its port has no link" : "",
		comm->n_rails == 1 ? ""
			: channel->empty_epochs
			? ", and there is no other rail left to go on over: none has "
			  "carried anything since"
			: ", and there is no other rail left to go on over");
}

/* `epoch`: the next connection, or 0 if there is no other rail. */
static int restart(struct channel *channel, uint32_t epoch)
{
	struct peer *peer = channel->peer;
	struct frl_comm *comm = peer->comm;
	bool was_up = channel->state == CHANNEL_UP;

	if (epoch == 0)
		return fail_at_end(channel,
			comm->rails[channel->rail].is_lost ? "the device has failed"
							   : "as the other end reports");
	/*
	 * After stop(), all completions are in the completion queue. They have been polled when the
	 * queue has been found empty twice: the first time may be a poll that is running now.
	 */
	if (channel->state != CHANNEL_FLUSHING) {
		stop(channel->bulk);
		stop(channel->eager);
	}
	if (was_up)
		rail_suspect(comm, channel->rail, peer->rank);
	if (channel->bulk)
		channel->flushed_at = comm->pollers[channel->poller].emptied + 2;
	channel_count_move(channel);
	channel->state = CHANNEL_FLUSHING;
	channel->epoch = epoch;
	channel->has_theirs = channel->peer_ready = false;
	peer->is_up = false;
	channel_add_to_connecting(channel);
	frl_log(was_up ? FRL_LOG_WARNING : FRL_LOG_INFO,
		"communicator, rank %d: %s connection to rank %d over rail %u%s: going on over "
		"rail %u",
		comm->rank, was_up ? "a" : "no", peer->rank, channel->rail, was_up ? " broke" : "",
		channel_rail_in(channel, epoch));
	return 0;
}

int channel_restart(struct channel *channel)
{
	return restart(channel, channel_next_epoch(channel));
}

int channel_follow(struct channel *channel, uint32_t epoch)
{
	return restart(channel, channel_followed_epoch(channel, epoch));
}

/* Returns whether a connection over another rail may help. */
static bool is_broken(enum frl_wc_status status)
{
	return comm_is_broken(status) || status == FRL_WC_FATAL_ERR ||
		status == FRL_WC_RESP_TIMEOUT_ERR;
}

static bool is_down(struct rail *rail)
{
	struct frl_device_attr attr;

	if (rail->attr.local_fabric)
		return false;
	frl_device_query(rail->device, &attr);
	rail->is_down = rail->is_lost || attr.port_state != FRL_PORT_ACTIVE;
	return rail->is_down;
}

/* Returns whether the rail may be the cause, rather than the rank at the other end. With NICs
 * the cause may be anything between the two. */
static bool may_be_rail(const struct channel *channel)
{
	struct rail *rail = &channel->peer->comm->rails[channel->rail];

	return is_down(rail) || rail->attr.pins_memory || channel->peer->comm->n_rails > 1;
}

/* True if the error of the queue pair says more than the status: the peer may be alive. */
static bool is_explained(const char *how, enum frl_wc_status cause)
{
	return cause == FRL_WC_RETRY_EXC_ERR && how[0] &&
		strcmp(how, frl_wc_status_str(cause)) != 0;
}

/* Fails the communicator because no rail is left. */
static int fail_without_rail(
	const struct channel *channel, enum work_kind kind, enum frl_wc_status cause)
{
	bool is_bulk = kind == WORK_BULK_SEND || kind == WORK_BULK_RECEIVE;
	struct frl_comm *comm = channel->peer->comm;
	char how[ERROR_TEXT / 2];
	int err;

	frl_qp_error(is_bulk ? channel->bulk : channel->eager, how, sizeof(how));
	/* A device reports the failure of its GPU in this text. */
	if (cause == FRL_WC_LOC_PROT_ERR && comm->computes && how[0])
		return comm_fail(comm, -EIO, "the connection to rank %d failed: %s",
			channel->peer->rank, how);
	/* Both ranks are alive, so there is no other reason to wait for. */
	if (strncmp(how, killed, strlen(killed)) == 0)
		return comm_fail(comm, -ECANCELED, "the connection of rank %d to rank %d was %s",
			comm->rank, channel->peer->rank, how);
	if (!is_broken(cause) || !(may_be_rail(channel) || is_explained(how, cause)))
		return comm_fail_completion(comm, channel->peer->rank, cause);
	err = comm_find_reason(comm, channel->peer->rank, cause);
	if (err)
		return err;
	return fail_at_end(channel, how[0] ? how : frl_wc_status_str(cause));
}

int channel_failed(struct channel *channel, enum work_kind kind, const struct frl_wc *wc,
	enum frl_wc_status cause)
{
	struct frl_comm *comm = channel->peer->comm;
	int err = 0;

	if (channel->state != CHANNEL_FLUSHING) {
		if (!channel_next_epoch(channel) || !is_broken(cause))
			return fail_without_rail(channel, kind, cause);
		err = comm_find_reason(comm, channel->peer->rank, cause);
		/* comm_find_reason() may have received mail that restarted the channel. */
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

int channel_connecting_failed(struct channel *channel, int err)
{
	struct frl_comm *comm = channel->peer->comm;
	bool is_path = err == -EHOSTUNREACH || err == -ETIMEDOUT;

	err = rail_check(comm, channel->rail, err);
	if (!err || comm->error)
		return err;
	if (!is_path || !channel_next_epoch(channel) || comm->draining)
		return comm_fail_connecting(comm, channel->peer->rank, err);
	frl_log(FRL_LOG_WARNING, "communicator, rank %d: rail %u does not reach rank %d: %s",
		comm->rank, channel->rail, channel->peer->rank, frl_last_error());
	rail_suspect(comm, channel->rail, channel->peer->rank);
	return channel_restart(channel);
}

/* ---- rails */

/* Returns whether another rail has a link. */
static bool has_other(const struct frl_comm *comm, unsigned rail)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (i != rail && !comm->rails[i].is_down)
			return true;
	}
	return false;
}

/* Channels without another rail stay if the rail may recover, that is unless its device has
 * failed. */
int channels_leave_rail(struct frl_comm *comm, unsigned rail)
{
	int err = 0;

	for (struct peer *peer = comm->first_peer; peer && !err; peer = peer->next) {
		for (unsigned i = 0; i < comm->n_rails && !err; i++) {
			struct channel *channel = peer->channels[i];

			if (channel && channel->rail == rail &&
				channel->state != CHANNEL_FLUSHING &&
				(channel_next_epoch(channel) || comm->rails[rail].is_lost))
				err = channel_restart(channel);
		}
	}
	return err;
}

/* Tests all channels of a rail at the same time: the retry timeouts of broken ones will expire. */
static int ping_rail(struct frl_comm *comm, unsigned rail)
{
	int err = 0;

	for (struct peer *peer = comm->first_peer; peer && !err; peer = peer->next) {
		for (unsigned i = 0; i < comm->n_rails && !err; i++) {
			struct channel *channel = peer->channels[i];

			if (!channel || channel->rail != rail)
				continue;
			channel->is_proven = false;
			err = channel_ping(channel);
		}
	}
	return err;
}

int channels_check_rails(struct frl_comm *comm)
{
	struct frl_device_attr attr;
	bool was_down;
	int err = 0;

	for (unsigned i = 0; i < comm->n_rails; i++) {
		struct rail *rail = &comm->rails[i];

		/* The local fabric has no link state, and a query would visit every queue pair. */
		if (rail->attr.local_fabric)
			continue;
		frl_device_query(rail->device, &attr);
		was_down = rail->is_down;
		rail->is_down = rail->is_lost || attr.port_state != FRL_PORT_ACTIVE;
		if (was_down && !rail->is_down)
			rail_clear(comm, i);
	}
	for (unsigned i = 0; i < comm->n_rails && !err; i++) {
		struct rail *rail = &comm->rails[i];
		uint32_t suspicions = rail_suspicions(comm, i);

		if (rail->is_down && has_other(comm, i))
			err = channels_leave_rail(comm, i);
		else if (suspicions != rail->suspicions && !comm->draining)
			/* not while draining: peers that leave may be gone */
			err = ping_rail(comm, i);
		rail->suspicions = suspicions;
	}
	return err;
}

/* ---- resuming */

/* Records the position at which the peer is to resume. */
static void settle_resume(struct channel *channel)
{
	uint32_t before = channel->receives_done == channel->short_at ? channel->short_by : 0;

	channel->short_at = channel->receives_done;
	channel->short_by = before + (channel->has_partial ? channel->partial : 0);
	channel->has_partial = false;
	channel->resume = (struct resume){ .received = channel->receives_done,
		.partial = channel->short_by,
		.arrived = channel->arrivals_received,
		.credits = channel->receives_posted,
		.returned = channel->arrivals_taken };
	channel->reported_credits = channel->receives_posted;
	channel->reported_returned = channel->arrivals_taken;
	channel->eager_acked = channel->eager_signaled = channel->eager_posted;
	channel->is_reporting = false;
}

/* All completions of the old connection have been collected. */
int channel_reopen(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;
	int err;

	if (channel->is_spoiled)
		return comm_fail(comm, -ECONNRESET,
			"rank %d: the connection to rank %d over rail %u broke in the middle of a "
			"packet",
			comm->rank, channel->peer->rank, channel->rail);
	channel_destroy_queue_pairs(channel);
	err = channel_deregister_slots(channel);
	if (err)
		return err;
	channel->rail = channel_rail_in(channel, channel->epoch);
	channel->state = CHANNEL_EXCHANGING;
	settle_resume(channel);
	err = channel_create_queue_pairs(channel);
	if (!err && channel->state == CHANNEL_EXCHANGING)
		channel_send_mail(channel, false);
	return err;
}
