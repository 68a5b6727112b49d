/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rail a channel uses after its connection broke, and how often it may move. Each connection
 * of a channel has an epoch, and the epoch determines the rail. Both ends therefore use the same
 * rail when they agree on the epoch. To skip a rail, a rank skips its epoch.
 *
 * Rails may recover, so the number of moves is not limited while channels carry messages. The limit
 * is on moves without effect: as many connections in a row that carried nothing as there are rails.
 */
#include "collectives/communicator/communicator.h"
#include "collectives/communicator/rail_health.h"
#include "collectives/net/channel.h"

unsigned channel_rail_in(const struct channel *channel, uint32_t epoch)
{
	return (channel->number + epoch) % channel->peer->comm->n_rails;
}

/* Reason against a rail. Lower values are better. */
enum reservation {
	RESERVE_NOTHING,
	RESERVE_AVOIDED, /* a connection over it broke a while ago */
	RESERVE_DOWN,
	RESERVE_LOST,
};

static enum reservation reservation(const struct channel *channel, unsigned number)
{
	const struct frl_comm *comm = channel->peer->comm;
	const struct rail *rail = &comm->rails[number];

	if (rail->is_lost)
		return RESERVE_LOST;
	if (rail->is_down)
		return RESERVE_DOWN;
	return rail_is_suspected(comm, number, channel->peer->rank) ? RESERVE_AVOIDED
								    : RESERVE_NOTHING;
}

/* Returns the number of messages sent and received, except perhaps for the last ones. */
static uint32_t carried(const struct channel *channel)
{
	return channel->receives_done + channel->sends_done + channel->arrivals_received +
		channel->data_returned;
}

uint32_t channel_next_epoch(const struct channel *channel)
{
	unsigned rails = channel->peer->comm->n_rails;
	enum reservation least = RESERVE_LOST;
	uint32_t best = 0;

	if (channel->empty_epochs >= rails && channel->carried == carried(channel))
		return 0;
	for (uint32_t i = 1; i < rails; i++) {
		uint32_t epoch = channel->epoch + i;
		enum reservation its = reservation(channel, channel_rail_in(channel, epoch));

		if (its >= least)
			continue;
		least = its;
		best = epoch;
	}
	return best;
}

uint32_t channel_followed_epoch(const struct channel *channel, uint32_t epoch)
{
	const struct frl_comm *comm = channel->peer->comm;

	for (uint32_t i = 0; i < comm->n_rails; i++) {
		if (!comm->rails[channel_rail_in(channel, epoch + i)].is_lost)
			return epoch + i;
	}
	return 0;
}

bool channel_is_better_elsewhere(const struct channel *channel)
{
	uint32_t epoch = channel_next_epoch(channel);

	return epoch &&
		reservation(channel, channel_rail_in(channel, epoch)) <
		reservation(channel, channel->rail);
}

void channel_count_move(struct channel *channel)
{
	/* Only connections that the peer took part in count. */
	if (channel->carried != carried(channel))
		channel->empty_epochs = 0;
	else if (channel->has_theirs)
		channel->empty_epochs++;
	channel->carried = carried(channel);
	channel->is_proven = false;
}

void channel_prove(struct channel *channel)
{
	if (channel->state == CHANNEL_FLUSHING)
		return;
	channel->is_proven = true;
	/* While sends are pending, a small message alone does not prove that large ones get
	 * through. */
	if (channel->sends_posted == channel->sends_done)
		channel->empty_epochs = 0;
	rail_clear_peer(channel->peer->comm, channel->rail, channel->peer->rank);
}
