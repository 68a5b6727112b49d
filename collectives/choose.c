/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm, and why: what the communicator adds to tuner.h. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdio.h>

#include "collectives/shapes.h"
#include "lib/base/error.h"

int comm_choose(const struct frl_comm *comm, struct plan_job *job, enum frl_algo *ret_algo)
{
	return tuner_choose(&comm->tuner, job, ret_algo, &job->segment_bytes);
}

/*
 * What other ranks send is not known, and all must choose alike, so the choice is made for pieces
 * of one length; what this rank really sends is told behind it.
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
		"bytes, whatever the counts are, as all ranks must choose alike\n",
		job->rank, elements[0] * job->elem_size, elements[1] * job->elem_size,
		job->segment_bytes);
}

int frl_comm_explain(
	struct frl_comm *comm, const struct frl_collective *collective, char *text, size_t size)
{
	struct operation operation;
	int err, length, more;

	if (!comm || !collective || (!text && size > 0))
		return frl_fail(-EINVAL, "the communicator, the collective or text is NULL");
	err = operation_init(&operation, comm, collective);
	if (err)
		return err;
	if (operation.is_empty || operation.to_self)
		return snprintf(text, size, "nothing is sent\n");
	if (shm_can(comm, &operation))
		return snprintf(text, size,
			"in memory that the ranks of this machine share (FRL_SHM), %s\n",
			shm_is_long(comm, &operation) ? "each reducing a part for all"
						      : "in one exchange");
	length = tuner_explain(&comm->tuner, &operation.job, text, size);
	if (length < 0 || !shape_has_pieces(collective->coll))
		return length;
	more = explain_pieces(&operation.job, (size_t)length < size ? text + length : NULL,
		(size_t)length < size ? size - (size_t)length : 0);
	return more < 0 ? -EINVAL : length + more;
}
