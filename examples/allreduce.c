/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sum a vector over all processes of a job.
 *
 * FRL_JOB, FRL_RANKS and FRL_RANK say which rank of which job a process is. Launchers (mpirun,
 * srun, torchrun) set variables of their own, which frl_bootstrap_from_environment() reads as well.
 *
 * Build:   cc -o allreduce allreduce.c $(pkg-config --cflags --libs ferrule)
 * Run:     export FRL_JOB=sum FRL_RANKS=2
 *          FRL_RANK=0 ./allreduce &
 *          FRL_RANK=1 ./allreduce
 *    or:   mpirun -n 4 ./allreduce
 * Prints:  rank 0 of 2: the sum is 3 in all 1000000 elements
 *          rank 1 of 2: the sum is 3 in all 1000000 elements
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

enum { ELEMENTS = 1000000, JOIN_MS = 30000 };

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "allreduce: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

int main(void)
{
	struct frl_bootstrap job;
	struct frl_device *device;
	struct frl_comm *comm;
	float *vector, expected;

	check(frl_bootstrap_from_environment(JOIN_MS, &job), "join the job");
	check(frl_device_open(NULL, &device), "open a device");
	check(frl_comm_create(device, &job, &comm), "create a communicator");

	/* Any memory works. This memory is sent without a copy. */
	vector = frl_mem_alloc(ELEMENTS * sizeof(*vector));
	check(vector ? 0 : -1, "allocate the vector");
	for (int i = 0; i < ELEMENTS; i++)
		vector[i] = (float)(job.rank + 1);
	check(frl_allreduce(comm, vector, vector, ELEMENTS, FRL_FLOAT32, FRL_SUM), "sum");

	expected = (float)(job.ranks * (job.ranks + 1) / 2); /* 1 + 2 + ... + ranks */
	for (int i = 0; i < ELEMENTS; i++) {
		if (vector[i] != expected) {
			fprintf(stderr, "rank %d: element %d is %g\n", job.rank, i, vector[i]);
			return EXIT_FAILURE;
		}
	}
	printf("rank %d of %d: the sum is %g in all %d elements\n", job.rank, job.ranks, expected,
		ELEMENTS);

	frl_comm_destroy(comm);
	frl_mem_free(vector, ELEMENTS * sizeof(*vector));
	check(frl_device_close(device), "close the device");
	job.close(job.ctx);
	return EXIT_SUCCESS;
}
