/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm, and why: what the communicator adds to tuner.h. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdio.h>

#include "lib/base/error.h"

int comm_choose(const struct frl_comm *comm, struct plan_job *job, enum frl_algo *ret_algo)
{
	return tuner_choose(&comm->tuner, job, ret_algo, &job->segment_bytes);
}

int frl_comm_explain(
	struct frl_comm *comm, const struct frl_collective *collective, char *text, size_t size)
{
	struct operation operation;
	int err;

	if (!comm || !collective || (!text && size > 0))
		return frl_fail(-EINVAL, "the communicator, the collective or text is NULL");
	err = operation_init(&operation, comm, collective);
	if (err)
		return err;
	if (operation.is_empty || operation.to_self)
		return snprintf(text, size, "nothing is sent\n");
	return tuner_explain(&comm->tuner, &operation.job, text, size);
}
