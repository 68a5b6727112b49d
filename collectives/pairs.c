/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ALLTOALLV where not all ranks can be connected: some pass on what others send to each other, and
 * have to know how much that is. So the operation has two runs. In the first one all ranks tell
 * each other what they send; with that, all make the plan of the second. What was started after it
 * waits meanwhile, because lanes are worked through in the order of starting, on all ranks alike.
 */
#include "collectives/communicator.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/compute.h"
#include "lib/base/error.h"

enum { ROUNDS_MAX = 64 }; /* all that is sent passes through a rank less often */

struct pairs {
	struct frl_collective collective; /* its numbers are copies, in `numbers` */
	struct where where;
	uint64_t *counts; /* as plan_job.pair_counts */
	uint64_t *own;    /* this rank's row of it */
	size_t numbers[]; /* four for each rank */
};

static const size_t *copy_numbers(size_t **at, const size_t numbers[], size_t ranks)
{
	size_t *copy = *at;

	memcpy(copy, numbers, ranks * sizeof(copy[0]));
	*at += ranks;
	return copy;
}

static void pairs_delete(struct pairs *pairs)
{
	free(pairs->counts);
	free(pairs->own);
	free(pairs);
}

static struct pairs *pairs_new(size_t ranks, const struct frl_collective *collective)
{
	struct pairs *pairs = malloc(sizeof(*pairs) + 4 * ranks * sizeof(pairs->numbers[0]));
	size_t *at;

	if (!pairs)
		return NULL;
	at = pairs->numbers;
	pairs->collective = *collective;
	pairs->collective.send_counts = copy_numbers(&at, collective->send_counts, ranks);
	pairs->collective.send_displs = copy_numbers(&at, collective->send_displs, ranks);
	pairs->collective.recv_counts = copy_numbers(&at, collective->recv_counts, ranks);
	pairs->collective.recv_displs = copy_numbers(&at, collective->recv_displs, ranks);
	pairs->counts = calloc(ranks * ranks, sizeof(pairs->counts[0]));
	pairs->own = calloc(ranks, sizeof(pairs->own[0]));
	if (!pairs->counts || !pairs->own) {
		pairs_delete(pairs);
		return NULL;
	}
	for (size_t rank = 0; rank < ranks; rank++)
		pairs->own[rank] = collective->send_counts[rank];
	return pairs;
}

void pairs_free(struct run *run)
{
	if (run->pairs) {
		gate_put(run->pairs->where.gate);
		pairs_delete(run->pairs);
	}
	run->pairs = NULL;
}

int pairs_add_run(struct frl_request *request, struct run **at, const struct operation *operation,
	const struct frl_collective *collective, struct where *where)
{
	struct frl_comm *comm = request->comm;
	struct where in_host = { 0 };
	struct pairs *pairs = pairs_new((size_t)comm->ranks, collective);
	struct plan_job job = operation->job;
	struct frl_collective tell = {
		.coll = FRL_ALLGATHER, .count = (size_t)comm->ranks, .dtype = FRL_UINT64
	};
	struct operation telling;
	enum frl_algo algo;
	int err;

	if (!pairs)
		return frl_fail(
			-ENOMEM, "no memory for what %d ranks send to each other", comm->ranks);
	tell.send = pairs->own;
	tell.recv = pairs->counts;
	/* Better to be refused now than when the others wait. */
	err = comm_choose(comm, &job, &algo);
	if (!err)
		err = operation_init(&telling, comm, &tell);
	if (err) {
		pairs_delete(pairs);
		return err;
	}
	/* To the others it is the operation that it belongs to. */
	telling.signature = operation->signature;
	err = request_add_run(request, at, &telling, &tell, &in_host, pairs);
	if (!*at || (*at)->pairs != pairs) {
		pairs_delete(pairs);
		return err;
	}
	pairs->where = *where;
	where->gate = NULL;
	return err;
}

/* What others say decides how much memory a plan takes: nothing that is summed up may wrap. */
static bool is_too_much(const struct frl_comm *comm, const struct pairs *pairs)
{
	size_t n = (size_t)comm->ranks * (size_t)comm->ranks;
	size_t most = SIZE_MAX / ROUNDS_MAX / frl_dtype_size(pairs->collective.dtype), total = 0;

	for (size_t i = 0; i < n; i++) {
		if (pairs->counts[i] > most - total)
			return true;
		total += pairs->counts[i];
	}
	return most - total < n * PLAN_WIRE_BLOCK;
}

/* What others say that they send to this rank is what it has room for. */
static int check_counts(const struct frl_comm *comm, const struct pairs *pairs)
{
	size_t ranks = (size_t)comm->ranks;

	if (is_too_much(comm, pairs))
		return frl_fail(-EPROTO,
			"alltoallv: what the ranks say that they send to each other does not fit "
			"the address space");

	for (size_t from = 0; from < ranks; from++) {
		uint64_t theirs = pairs->counts[from * ranks + (size_t)comm->rank];
		size_t mine = pairs->collective.recv_counts[from];

		if (theirs != mine)
			return frl_fail(-EPROTO,
				"alltoallv: rank %zu sends %" PRIu64 " elements to rank %d, which "
				"expects %zu: what a rank sends to another is what that one "
				"receives",
				from, theirs, comm->rank, mine);
	}
	return 0;
}

static int start_second(struct run *first)
{
	struct frl_comm *comm = first->comm;
	struct pairs *pairs = first->pairs;
	struct operation operation;
	struct run *second;
	int err = check_counts(comm, pairs);

	if (!err)
		err = operation_init(&operation, comm, &pairs->collective);
	if (err)
		return err;
	operation.job.pair_counts = pairs->counts;
	err = request_add_run(
		first->request, &first->next, &operation, &pairs->collective, &pairs->where, NULL);
	if (err)
		return err;
	second = first->next;
	second->signature.number = first->signature.number;
	run_begin(second);
	request_run_done(first->request);
	return 0;
}

int pairs_go_on(struct frl_comm *comm)
{
	struct run *first = comm->held;
	int err;

	comm->has_pairs = false;
	comm->held = NULL;
	err = start_second(first);
	if (err)
		return comm_fail(comm, err, "%s", frl_last_error());
	return requests_go_on(comm);
}
