/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of an algorithm, and its explanation: what the communicator adds to tune/tuner.h. */
#include "collectives/api/internal.h"

#include <errno.h>
#include <stdio.h>

#include "collectives/plan/shapes.h"
#include "collectives/plan/thresholds.h"
#include "collectives/shm/shm.h"
#include "lib/base/error.h"

int comm_choose(const struct frl_comm *comm, struct plan_job *job, enum frl_algo *ret_algo)
{
	return tuner_choose(&comm->tuner, job, ret_algo, &job->segment_bytes);
}

/*
 * A rank does not know what other ranks send, and all ranks must make the same choice. The choice
 * is therefore made for pieces of equal length, and the actual lengths of this rank follow in the
 * text.
 */
static int explain_pieces(const struct plan_job *job, char *text, size_t size)
{
	size_t elements[2] = { 0 };

	for (int rank = 0; rank < job->ranks; rank++) {
		if (rank == job->rank)
			continue;
		elements[0] += job->send_counts[rank];
		elements[1] += job->recv_counts[rank];
	}
	return snprintf(text, size,
		"rank %d sends %zu bytes to others and receives %zu; times are for pieces of %zu "
		"bytes, regardless of the counts, since all ranks must choose the same\n",
		job->rank, elements[0] * job->elem_size, elements[1] * job->elem_size,
		job->segment_bytes);
}

/* A text that is written in parts by snprintf(). */
struct explanation {
	char *at;
	size_t room;
	int length; /* so far, or a negative error */
};

static void advance(struct explanation *e, int length)
{
	size_t written = length < 0 ? 0 : (size_t)length;

	if (written > e->room)
		written = e->room;
	if (e->at)
		e->at += written;
	e->room -= written;
	e->length = length < 0 ? length : e->length + length;
}

static const char *way_in_shm(const struct frl_comm *comm, const struct operation *operation)
{
	enum frl_coll coll = operation->key.coll;

	if (!shm_is_long(comm, operation))
		return "in one exchange";
	if (shm_may_be_flat(comm, operation))
		return comm->ranks == 2 ? "each rank reduces the whole vector, or one part if an "
					  "input of frl_mem_alloc() is reduced in place"
					: "each rank reduces the whole vector if all inputs can be "
					  "read in place, else one part";
	if (shape_reduces_to_all(coll))
		return "each rank reduces one part";
	return shape_reduces(coll) ? "each rank reduces its block" : "block by block";
}

static void explain_shm(
	const struct frl_comm *comm, const struct operation *operation, struct explanation *e)
{
	advance(e,
		snprintf(e->at, e->room,
			"in memory that the ranks of this machine share (FRL_SHM), %s\n",
			way_in_shm(comm, operation)));
	advance(e, thresholds_of_shm(e->at, e->room));
}

static void explain_packets(
	const struct frl_comm *comm, const struct operation *operation, struct explanation *e)
{
	advance(e, tuner_explain(&comm->tuner, &operation->job, e->at, e->room));
	if (e->length >= 0 && shape_has_pieces(operation->key.coll))
		advance(e, explain_pieces(&operation->job, e->at, e->room));
	if (e->length >= 0)
		advance(e, thresholds_of_packets(e->at, e->room));
}

/* Returns as snprintf(), or a negative error. */
static int explain(const struct frl_comm *comm, const struct frl_collective *collective, char *text,
	size_t size)
{
	struct explanation e = { .at = text, .room = size };
	struct operation operation;
	int err = operation_init(&operation, comm, collective);

	if (err)
		return err;
	if (operation.is_empty || operation.to_self)
		return snprintf(text, size, "nothing is sent\n");
	if (shm_can(comm, &operation))
		explain_shm(comm, &operation, &e);
	else
		explain_packets(comm, &operation, &e);
	return e.length;
}

int frl_comm_explain(
	struct frl_comm *comm, const struct frl_collective *collective, char *text, size_t size)
{
	int ret;

	if (!comm || !collective || (!text && size > 0))
		return frl_fail(-EINVAL, "the communicator, the collective or text is NULL");
	comm_enter(comm);
	ret = explain(comm, collective, text, size);
	comm_leave(comm);
	return ret;
}
