/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators made out of another one: who is in it is found out by an operation of that one. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/error.h"

/* What each rank tells the others; in host order, as all elements of collectives. */
struct choice {
	int32_t color;
	int32_t key;
	uint8_t id[COMM_ID_SIZE]; /* random; the new rank 0's is the communicator's */
};

static int gather(struct frl_comm *comm, int color, int key, struct choice choices[])
{
	struct choice *mine = &choices[comm->rank];

	*mine = (struct choice){ .color = color, .key = key };
	if (getrandom(mine->id, sizeof(mine->id), 0) != sizeof(mine->id))
		return frl_fail(-EIO, "no random numbers from the kernel");
	return frl_allgather(comm, mine, choices, sizeof(*mine), FRL_UINT8);
}

/* Ranks of the same color, by key, then by rank. Returns how many. */
static int sort_members(const struct choice choices[], int ranks, int color, int members[])
{
	int n = 0;

	for (int rank = 0; rank < ranks; rank++) {
		int at = n;

		if (choices[rank].color != color)
			continue;
		for (; at > 0 && choices[members[at - 1]].key > choices[rank].key; at--)
			members[at] = members[at - 1];
		members[at] = rank;
		n++;
	}
	return n;
}

/* Hosts are numbered anew, in the order of their lowest ranks. */
static int copy_places(struct frl_comm *child, const struct frl_comm *parent, const int members[])
{
	struct topology_place *places = calloc((size_t)child->ranks, sizeof(*places));
	uint32_t hosts = 0;
	int err;

	if (!places)
		return -ENOMEM;
	for (int rank = 0; rank < child->ranks; rank++) {
		const struct topology_place *from = &parent->topology.places[members[rank]];
		uint32_t host = hosts;

		for (int before = 0; before < rank && host == hosts; before++) {
			if (parent->topology.places[members[before]].host == from->host)
				host = places[before].host;
		}
		hosts += host == hosts;
		places[rank] = *from;
		places[rank].host = host;
	}
	err = topology_init(
		&child->topology, places, (uint32_t)child->ranks, parent->topology.peers_max);
	free(places);
	return err;
}

static int make_child(struct frl_comm *parent, const struct choice choices[], int members[], int n,
	struct frl_comm **ret_comm)
{
	struct frl_device *devices[RAILS_MAX];
	struct frl_comm_config config = {
		.devices = devices,
		.n_devices = (int)parent->n_rails,
		.timeout_ms = parent->config.timeout_ms,
		.algos = parent->config.algos,
	};
	struct frl_comm *child;
	int rank = 0, err;

	for (unsigned i = 0; i < parent->n_rails; i++)
		devices[i] = parent->rails[i].device;
	while (members[rank] != parent->rank)
		rank++;
	err = comm_new(&config, rank, n, &child);
	if (err)
		return err;
	child->is_child = true;
	child->bootstrap = parent->bootstrap;
	child->board = board_get(parent->board);
	child->members = calloc((size_t)n, sizeof(*child->members));
	if (!child->members || copy_places(child, parent, members) < 0) {
		comm_free(child);
		return frl_fail(-ENOMEM, "no memory for a communicator of %d ranks", n);
	}
	for (int i = 0; i < n; i++)
		child->members[i] = comm_member(parent, members[i]);
	memcpy(child->post.id, choices[members[0]].id, COMM_ID_SIZE);
	board_add(child->board, &child->post);
	*ret_comm = child;
	return 0;
}

int frl_comm_split(struct frl_comm *comm, int color, int key, struct frl_comm **ret_comm)
{
	struct choice *choices;
	int *members, n, err;

	if (!comm || !ret_comm)
		return frl_fail(-EINVAL, "the communicator or ret_comm is NULL");
	choices = calloc((size_t)comm->ranks, sizeof(*choices));
	members = calloc((size_t)comm->ranks, sizeof(*members));
	err = choices && members ? gather(comm, color, key, choices)
				 : frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);
	if (!err && color < 0) {
		*ret_comm = NULL;
	} else if (!err) {
		n = sort_members(choices, comm->ranks, color, members);
		err = make_child(comm, choices, members, n, ret_comm);
		if (err)
			comm_fail(comm, err, "rank %d cannot make its part of a communicator: %s",
				comm->rank, frl_last_error());
	}
	free(choices);
	free(members);
	return err;
}

int frl_comm_duplicate(struct frl_comm *comm, struct frl_comm **ret_comm)
{
	return frl_comm_split(comm, 0, 0, ret_comm);
}
