/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs of channels, with their completion queues and slots. */
#include "collectives/communicator/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/net/channel.h"
#include "collectives/net/staging.h"
#include "lib/base/error.h"

enum {
	/* of the first completion queue; each later one is twice as deep */
	FIRST_COMPLETIONS = 4096,
	MOST_COMPLETIONS = 65536,
	LEAST_INLINE = 64, /* the lowest inline size that is asked for before none */
};

static int add_poller(struct frl_comm *comm, unsigned rail, struct poller **ret_poller)
{
	uint32_t depth = FIRST_COMPLETIONS, most = comm->rails[rail].attr.max_cqe;
	struct poller *pollers = realloc(comm->pollers, (comm->n_pollers + 1) * sizeof(*pollers));
	int err;

	if (!pollers)
		return frl_fail(-ENOMEM, "no memory for a completion queue");
	comm->pollers = pollers;
	for (unsigned i = 0; i < comm->n_pollers; i++) {
		if (pollers[i].rail == rail && depth < MOST_COMPLETIONS)
			depth *= 2;
	}
	if (depth > most)
		depth = most;
	if (depth < CHANNEL_COMPLETIONS)
		return frl_fail(-ENOSPC,
			"%s has completion queues of %u entries at most: %d are needed",
			comm->rails[rail].attr.port, depth, CHANNEL_COMPLETIONS);
	*ret_poller = &pollers[comm->n_pollers];
	**ret_poller = (struct poller){ .rail = rail, .room = depth };
	err = frl_cq_create(comm->rails[rail].device, depth, &(*ret_poller)->cq);
	comm->n_pollers += !err;
	return err;
}

static int find_poller(struct frl_comm *comm, unsigned rail, struct poller **ret_poller)
{
	for (unsigned i = 0; i < comm->n_pollers; i++) {
		struct poller *poller = &comm->pollers[i];

		if (poller->rail != rail || poller->room < CHANNEL_COMPLETIONS)
			continue;
		*ret_poller = poller;
		return 0;
	}
	return add_poller(comm, rail, ret_poller);
}

void channel_destroy_queue_pairs(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;

	frl_qp_destroy(channel->bulk);
	frl_qp_destroy(channel->eager);
	channel->bulk = channel->eager = NULL;
	if (channel->has_room)
		comm->pollers[channel->poller].room += CHANNEL_COMPLETIONS;
	channel->has_room = false;
}

/* Creates the queue pair with as many inline bytes as the device supports: some NICs support few
 * or none. */
static int create_eager(struct frl_pd *pd, struct frl_qp_config *config, struct channel *channel)
{
	struct frl_qp_attr attr;
	int err;

	config->max_inline = FRL_MAX_INLINE;
	err = frl_qp_create(pd, config, &channel->eager);
	while (err == -EINVAL && config->max_inline) {
		config->max_inline = config->max_inline > LEAST_INLINE ? config->max_inline / 2 : 0;
		err = frl_qp_create(pd, config, &channel->eager);
	}
	if (err)
		return err;
	frl_qp_query(channel->eager, &attr);
	channel->max_inline = attr.max_inline;
	return 0;
}

static int create_queue_pairs(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;
	struct frl_pd *pd = comm->rails[channel->rail].pd;
	struct poller *poller = NULL;
	struct frl_qp_config bulk = {
		.max_send_wr = BULK_SENDS,
		.max_recv_wr = BULK_RECEIVES,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct frl_qp_config eager = {
		.max_send_wr = EAGER_SENDS,
		.max_recv_wr = EAGER_RECEIVES,
		.max_send_sge = 2,
		.max_recv_sge = 1,
	};
	int err = find_poller(comm, channel->rail, &poller);

	if (err)
		return err;
	channel->poller = (unsigned)(poller - comm->pollers);
	channel->has_room = true;
	poller->room -= CHANNEL_COMPLETIONS;
	bulk.send_cq = bulk.recv_cq = eager.send_cq = eager.recv_cq = poller->cq;
	err = frl_qp_create(pd, &bulk, &channel->bulk);
	if (!err)
		err = create_eager(pd, &eager, channel);
	if (!err)
		err = frl_qp_endpoint(channel->bulk, &channel->mine[0]);
	if (!err)
		err = frl_qp_endpoint(channel->eager, &channel->mine[1]);
	return err;
}

static int create_slots(struct channel *channel)
{
	size_t bytes = (size_t)(EAGER_RECEIVES + EAGER_DATA + 1) * EAGER_SLOT;

	if (!channel->slots)
		channel->slots = aligned_alloc(EAGER_SLOT, bytes);
	if (!channel->slots)
		return frl_fail(-ENOMEM, "no memory for %zu bytes of messages", bytes);
	return frl_reg_mr(channel->peer->comm->rails[channel->rail].pd, channel->slots, bytes,
		FRL_ACCESS_LOCAL_WRITE, &channel->mr);
}

struct channel *channel_new(struct peer *peer, unsigned number)
{
	size_t size = (sizeof(struct channel) + CHANNEL_ALIGN - 1) / CHANNEL_ALIGN * CHANNEL_ALIGN;
	struct channel *channel = aligned_alloc(CHANNEL_ALIGN, size);

	if (!channel)
		return NULL;
	memset(channel, 0, size);
	channel->peer = peer;
	channel->number = channel->rail = number;
	channel->state = CHANNEL_EXCHANGING;
	channel->their_operation.coll = FRL_SEND; /* matches no operation */
	return channel;
}

int channel_create_queue_pairs(struct channel *channel)
{
	int err = create_queue_pairs(channel);

	if (!err)
		err = create_slots(channel);
	return rail_check(channel->peer->comm, channel->rail, err);
}

int channel_deregister_slots(struct channel *channel)
{
	int err = rail_end_registration(channel->peer->comm, channel->rail, channel->mr);

	if (!err)
		channel->mr = NULL;
	return err;
}

void channel_free(struct channel *channel)
{
	channel_destroy_queue_pairs(channel);
	staging_leave(channel);
	if (!channel_deregister_slots(channel))
		free(channel->slots);
	free(channel);
}
