/* SPDX-License-Identifier: BSD-3-Clause */
/* Shorthands for frl_start_group(). */
#include "collectives/api/internal.h"

#include <errno.h>

#include "lib/base/error.h"

int frl_start(struct frl_comm *comm, const struct frl_collective *collective,
	struct frl_request **ret_request)
{
	return frl_start_group(comm, collective, 1, ret_request);
}

int frl_allreduce_start(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op, struct frl_request **ret_request)
{
	return frl_start(comm,
		&(struct frl_collective){ .coll = FRL_ALLREDUCE,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype,
			.op = op },
		ret_request);
}

int frl_allreduce(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op)
{
	return frl_run(comm,
		&(struct frl_collective){ .coll = FRL_ALLREDUCE,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype,
			.op = op });
}

int frl_reduce_scatter(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op)
{
	return frl_run(comm,
		&(struct frl_collective){ .coll = FRL_REDUCE_SCATTER,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype,
			.op = op });
}

int frl_allgather(
	struct frl_comm *comm, const void *send, void *recv, size_t count, enum frl_dtype dtype)
{
	return frl_run(comm,
		&(struct frl_collective){ .coll = FRL_ALLGATHER,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype });
}

int frl_broadcast(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, int root)
{
	return frl_run(comm,
		&(struct frl_collective){ .coll = FRL_BROADCAST,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype,
			.root = root });
}

int frl_reduce(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op, int root)
{
	return frl_run(comm,
		&(struct frl_collective){ .coll = FRL_REDUCE,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype,
			.op = op,
			.root = root });
}

int frl_alltoall(
	struct frl_comm *comm, const void *send, void *recv, size_t count, enum frl_dtype dtype)
{
	return frl_run(comm,
		&(struct frl_collective){ .coll = FRL_ALLTOALL,
			.send = send,
			.recv = recv,
			.count = count,
			.dtype = dtype });
}

int frl_barrier(struct frl_comm *comm)
{
	return frl_run(comm, &(struct frl_collective){ .coll = FRL_BARRIER });
}
