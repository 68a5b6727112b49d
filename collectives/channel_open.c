/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue pairs of channels, with the completion queues and the slots that they need. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

enum {
	FIRST_COMPLETIONS = 4096, /* of the first completion queue; each later one has twice */
	MOST_COMPLETIONS = 65536,
};

static struct poller *add_poller(struct frl_comm *comm, unsigned rail)
{
	uint32_t depth = FIRST_COMPLETIONS;
	struct poller *pollers = realloc(comm->pollers, (comm->n_pollers + 1) * sizeof(*pollers));

	if (!pollers) {
		frl_fail(-ENOMEM, "no memory for a completion queue");
		return NULL;
	}
	comm->pollers = pollers;
	for (unsigned i = 0; i < comm->n_pollers; i++) {
		if (pollers[i].rail == rail && depth < MOST_COMPLETIONS)
			depth *= 2;
	}
	pollers[comm->n_pollers] = (struct poller){ .rail = rail, .room = depth };
	if (frl_cq_create(comm->rails[rail].device, depth, &pollers[comm->n_pollers].cq) < 0)
		return NULL;
	return &pollers[comm->n_pollers++];
}

static struct poller *find_poller(struct frl_comm *comm, unsigned rail)
{
	for (unsigned i = 0; i < comm->n_pollers; i++) {
		struct poller *poller = &comm->pollers[i];

		if (poller->rail == rail && poller->room >= CHANNEL_COMPLETIONS)
			return poller;
	}
	return add_poller(comm, rail);
}

static int create_queue_pairs(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;
	struct frl_pd *pd = comm->rails[channel->rail].pd;
	struct poller *poller = find_poller(comm, channel->rail);
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
		.max_inline = FRL_MAX_INLINE,
	};
	int err;

	if (!poller)
		return -ENOMEM;
	channel->poller = (unsigned)(poller - comm->pollers);
	bulk.send_cq = bulk.recv_cq = eager.send_cq = eager.recv_cq = poller->cq;
	err = frl_qp_create(pd, &bulk, &channel->bulk);
	if (!err)
		err = frl_qp_create(pd, &eager, &channel->eager);
	if (!err)
		err = frl_qp_endpoint(channel->bulk, &channel->mine[0]);
	if (!err)
		err = frl_qp_endpoint(channel->eager, &channel->mine[1]);
	if (!err)
		poller->room -= CHANNEL_COMPLETIONS;
	return err;
}

static int create_slots(struct channel *channel)
{
	size_t bytes = (size_t)(EAGER_RECEIVES + EAGER_DATA) * EAGER_SLOT;

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
	channel->state = CHANNEL_ASKING;
	channel->their_operation.coll = FRL_SEND; /* is compared with nothing */
	return channel;
}

int channel_create_queue_pairs(struct channel *channel)
{
	int err = create_queue_pairs(channel);

	return err ? err : create_slots(channel);
}

/* -EBUSY: a NIC still holds some of the slots. */
int channel_deregister_slots(struct channel *channel)
{
	struct rail *rail = &channel->peer->comm->rails[channel->rail];
	int err = frl_dereg_mr(channel->mr);

	for (int i = 0; i < BUSY_TRIES && err == -EBUSY; i++) {
		frl_progress(rail->device);
		err = frl_dereg_mr(channel->mr);
	}
	if (!err)
		channel->mr = NULL;
	return err;
}

void channel_free(struct channel *channel)
{
	frl_qp_destroy(channel->bulk);
	frl_qp_destroy(channel->eager);
	if (!channel_deregister_slots(channel))
		free(channel->slots);
	free(channel);
}
