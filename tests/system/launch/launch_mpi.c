/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ferrule and MPI in one process, both with a connection to the launcher: `launch-mpi first` joins
 * before MPI_Init(), `launch-mpi last` after it and leaves after MPI_Finalize(). Compiled by the
 * test that runs it, where there is an MPI.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <ferrule/ferrule.h>

enum { JOIN_MS = 10000, RANKS_MAX = 64 };

static int join(struct frl_bootstrap *bootstrap)
{
	int all[RANKS_MAX] = { 0 };
	int err = frl_bootstrap_from_environment(JOIN_MS, bootstrap);

	if (!err && bootstrap->ranks <= RANKS_MAX)
		err = bootstrap->allgather(bootstrap->ctx, &bootstrap->rank, sizeof(int), all);
	if (err)
		fprintf(stderr, "%s\n", frl_last_error());
	return err;
}

static int compare(const struct frl_bootstrap *bootstrap)
{
	int rank, ranks, mine = 1, sum = 0;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == bootstrap->rank && ranks == bootstrap->ranks && sum == ranks)
		return EXIT_SUCCESS;
	fprintf(stderr, "MPI: rank %d of %d, sum %d; Ferrule: rank %d of %d\n", rank, ranks, sum,
		bootstrap->rank, bootstrap->ranks);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	int is_first = argc > 1 && strcmp(argv[1], "first") == 0, status;
	struct frl_bootstrap bootstrap;

	if (is_first && join(&bootstrap))
		return EXIT_FAILURE;
	MPI_Init(&argc, &argv);
	if (!is_first && join(&bootstrap)) {
		MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
		return EXIT_FAILURE;
	}
	status = compare(&bootstrap);
	if (is_first)
		bootstrap.close(bootstrap.ctx);
	MPI_Finalize();
	if (!is_first)
		bootstrap.close(bootstrap.ctx);
	if (bootstrap.rank == 0 && !status)
		puts("both agree");
	return status;
}
