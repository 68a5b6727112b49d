/* SPDX-License-Identifier: BSD-3-Clause */
/* Splitting a communicator. The members of the new one are determined by an allgather of the
 * parent. */
#include "collectives/api/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "collectives/api/driver.h"
#include "collectives/shm/shm.h"
#include "lib/base/error.h"

/* Sent by each rank; in host byte order, as all elements of collectives. */
struct choice {
	int32_t color;
	int32_t key;
	uint8_t id[COMM_ID_SIZE]; /* random; the new communicator takes the one of its rank 0 */
};

static int gather(struct frl_comm *comm, int color, int key, struct choice choices[])
{
	struct choice *mine = &choices[comm->rank];

	*mine = (struct choice){ .color = color, .key = key };
	if (getrandom(mine->id, sizeof(mine->id), 0) != sizeof(mine->id))
		return frl_fail(-EIO, "no random numbers from the kernel");
	return frl_allgather(comm, mine, choices, sizeof(*mine), FRL_UINT8);
}

struct candidate {
	int key, rank;
};

static int compare_candidates(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Returns the number of ranks of the same color, sorted by key, then by rank; or -ENOMEM. */
static int sort_members(const struct choice choices[], int ranks, int color, int members[])
{
	struct candidate *candidates = calloc((size_t)ranks, sizeof(*candidates));
	int n = 0;

	if (!candidates)
		return frl_fail(-ENOMEM, "no memory for %d ranks", ranks);
	for (int rank = 0; rank < ranks; rank++) {
		if (choices[rank].color == color)
			candidates[n++] = (struct candidate){ choices[rank].key, rank };
	}
	qsort(candidates, (size_t)n, sizeof(*candidates), compare_candidates);
	for (int i = 0; i < n; i++)
		members[i] = candidates[i].rank;
	free(candidates);
	return n;
}

/* Takes the locations of the members from the parent. Hosts get new numbers, in the order of their
 * lowest ranks. The parent's numbers serve as ids of the hosts. */
static int copy_locations(
	struct frl_comm *child, const struct frl_comm *parent, const int members[])
{
	uint32_t ranks = (uint32_t)child->ranks;
	struct topology_location *locations = calloc(ranks, sizeof(*locations));
	struct topology_host *hosts = calloc(ranks, sizeof(*hosts));
	uint32_t *numbers = calloc(ranks, sizeof(*numbers));
	int err = locations && hosts && numbers ? 0 : -ENOMEM;

	for (uint32_t rank = 0; rank < ranks && !err; rank++) {
		locations[rank] = parent->topology.locations[members[rank]];
		hosts[rank].rank = rank;
		memcpy(hosts[rank].id, &locations[rank].host, sizeof(locations[rank].host));
	}
	if (!err)
		topology_number_hosts(hosts, ranks, numbers);
	for (uint32_t rank = 0; rank < ranks && !err; rank++)
		locations[rank].host = numbers[rank];
	if (!err)
		err = topology_init(&child->topology, locations, ranks);
	free(locations);
	free(hosts);
	free(numbers);
	return err;
}

/* Sets the members' ranks in the bootstrap: see comm_rank_of_member(). */
static int name_members(struct frl_comm *child, const struct frl_comm *parent, const int members[])
{
	size_t ranks = (size_t)child->ranks;
	struct candidate *candidates = calloc(ranks, sizeof(*candidates));

	child->members = calloc(ranks, sizeof(*child->members));
	child->rank_order = calloc(ranks, sizeof(*child->rank_order));
	if (!candidates || !child->members || !child->rank_order) {
		free(candidates);
		return -ENOMEM;
	}
	for (int rank = 0; rank < child->ranks; rank++) {
		child->members[rank] = comm_member(parent, members[rank]);
		candidates[rank] = (struct candidate){ child->members[rank], rank };
	}
	qsort(candidates, ranks, sizeof(*candidates), compare_candidates);
	for (int i = 0; i < child->ranks; i++)
		child->rank_order[i] = candidates[i].rank;
	free(candidates);
	return 0;
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
	tuner_take_costs(&child->tuner, &parent->tuner);
	child->bootstrap = parent->bootstrap;
	child->mailbox = mailbox_get(parent->mailbox);
	if (name_members(child, parent, members) < 0 ||
		copy_locations(child, parent, members) < 0) {
		comm_free(child);
		return frl_fail(-ENOMEM, "no memory for a communicator of %d ranks", n);
	}
	err = parent->driver ? driver_create(child) : 0;
	if (err) {
		comm_free(child);
		return err;
	}
	memcpy(child->inbox.id, choices[members[0]].id, COMM_ID_SIZE);
	mailbox_add(child->mailbox, &child->inbox);
	*ret_comm = child;
	return 0;
}

static bool has_failed(struct frl_comm *comm)
{
	bool ret;

	comm_enter(comm);
	ret = comm->error;
	comm_leave(comm);
	return ret;
}

/* Fails the parent communicator: others may be waiting for this rank. */
static int give_up(struct frl_comm *comm, int err)
{
	char why[256];

	snprintf(why, sizeof(why), "%s", frl_last_error());
	comm_enter(comm);
	err = comm_fail(comm, err, "rank %d cannot split its communicator: %s", comm->rank, why);
	comm_leave(comm);
	return err;
}

/*
 * All ranks of a color create the new communicator, or none does: a rank that has it would
 * otherwise request connections forever. `err` is this rank's result. Returns its error, or that of
 * a rank that failed.
 */
static int agree(struct frl_comm *comm, const struct choice choices[], int32_t results[], int err)
{
	int color = choices[comm->rank].color;
	int32_t mine = err;
	char why[256];
	int failed;

	snprintf(why, sizeof(why), "%s", frl_last_error());
	failed = frl_allgather(comm, &mine, results, 1, FRL_INT32);
	if (failed)
		return give_up(comm, failed);
	if (err)
		return frl_fail(err, "%s", why);
	for (int rank = 0; rank < comm->ranks; rank++) {
		if (choices[rank].color != color)
			continue;
		if (results[rank] < 0)
			return frl_fail(results[rank],
				"rank %d could not create its part of the new communicator: %s",
				rank, frl_strerror(results[rank]));
	}
	return 0;
}

/* An exchange by an operation of the parent, in which all its ranks take part. */
struct parents_gather {
	struct frl_comm *parent;
	const int *members; /* of the new communicator */
	int n;
};

static int gather_members(void *ctx, const void *mine, size_t bytes, void *ret_all)
{
	const struct parents_gather *gather = ctx;
	uint8_t *all = calloc((size_t)gather->parent->ranks, bytes);
	int err = all ? frl_allgather(gather->parent, mine, all, bytes, FRL_UINT8)
		      : frl_fail(-ENOMEM, "no memory for %d ranks", gather->parent->ranks);

	for (int i = 0; i < gather->n && ret_all && !err; i++)
		memcpy((uint8_t *)ret_all + (size_t)i * bytes,
			all + (size_t)gather->members[i] * bytes, bytes);
	free(all);
	return err;
}

/* Ranks without a new communicator take part as well: the others wait for them. */
static int share_memory(struct frl_comm *comm, struct frl_comm *child, const int members[], int n)
{
	struct parents_gather ctx = { .parent = comm, .members = members, .n = n };
	const struct shm_gather gather = {
		.all = gather_members, .ctx = &ctx, .is_for_others = true
	};
	int err = shm_create(child, &gather);

	return err ? give_up(comm, err) : 0;
}

/* Memory to determine the members. */
struct split {
	struct choice *choices; /* by rank */
	int32_t *results;       /* by rank */
	int *members;
};

static int split_init(struct split *split, const struct frl_comm *comm)
{
	size_t ranks = (size_t)comm->ranks;

	*split = (struct split){ .choices = calloc(ranks, sizeof(*split->choices)),
		.results = calloc(ranks, sizeof(*split->results)),
		.members = calloc(ranks, sizeof(*split->members)) };
	if (!split->choices || !split->results || !split->members)
		return frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);
	return 0;
}

int frl_comm_split(struct frl_comm *comm, int color, int key, struct frl_comm **ret_comm)
{
	struct frl_comm *child = NULL;
	struct split split;
	int n = 0, err, failed;

	if (ret_comm)
		*ret_comm = NULL;
	if (!comm || !ret_comm)
		return frl_fail(-EINVAL, "the communicator or ret_comm is NULL");
	err = split_init(&split, comm);
	if (!err)
		err = gather(comm, color, key, split.choices);
	if (err) {
		err = give_up(comm, err);
		goto out;
	}
	if (color >= 0) {
		n = sort_members(split.choices, comm->ranks, color, split.members);
		err = n < 0 ? n : make_child(comm, split.choices, split.members, n, &child);
	}
	err = agree(comm, split.choices, split.results, color < 0 ? 0 : err);
	if (!has_failed(comm)) {
		failed = share_memory(comm, err ? NULL : child, split.members, n);
		err = err ? err : failed;
	}
	if (err && child) {
		comm_free(child);
	} else if (!err && child) {
		siblings_join(child, comm);
		*ret_comm = child;
	}
out:
	free(split.choices);
	free(split.results);
	free(split.members);
	return err;
}

int frl_comm_duplicate(struct frl_comm *comm, struct frl_comm **ret_comm)
{
	return frl_comm_split(comm, 0, 0, ret_comm);
}
