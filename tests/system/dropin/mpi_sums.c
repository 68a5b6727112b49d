/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of vectors of many lengths over MPI, all checked. Compiled by the test that runs it.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

enum { LONGEST = 1 << 18 };

/* Small integers: sums of floats are exact in any order. */
static float value(int rank, int at)
{
	return (float)((rank * 7 + at) % 13);
}

static void check(const float *sums, int n, int ranks)
{
	for (int at = 0; at < n; at++) {
		float sum = 0;

		for (int rank = 0; rank < ranks; rank++)
			sum += value(rank, at);
		if (sums[at] == sum)
			continue;
		fprintf(stderr, "sum %d of %d is %g instead of %g\n", at, n, sums[at], sum);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

int main(int argc, char **argv)
{
	float *mine = malloc(LONGEST * sizeof(*mine)), *sums = malloc(LONGEST * sizeof(*sums));
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int at = 0; at < LONGEST; at++)
		mine[at] = value(rank, at);
	for (int n = 1; n <= LONGEST; n *= 4) {
		MPI_Allreduce(mine, sums, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		check(sums, n, ranks);
	}
	if (rank == 0)
		printf("all sums of %d ranks are right\n", ranks);
	MPI_Finalize();
	free(mine);
	free(sums);
	return 0;
}
