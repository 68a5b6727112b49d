/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sum gradients while the next ones are still being computed, as data-parallel training does.
 *
 * A backward pass computes the gradients of the last layer first. As soon as those of a layer are
 * final, their allreduce starts. The computation of the next layer then overlaps with it. A request
 * makes progress when the rank calls the library, so the computation calls frl_request_test() now
 * and then. All ranks start their requests in the same order.
 *
 * Build:   cc -o overlap overlap.c $(pkg-config --cflags --libs ferrule)
 * Run:     export FRL_JOB=train FRL_RANKS=2
 *          FRL_RANK=0 ./overlap &
 *          FRL_RANK=1 ./overlap
 * Prints:  rank 0: summed 8 layers over 2 ranks
 *          rank 1: summed 8 layers over 2 ranks
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

enum { LAYERS = 8, ROWS = 256, COLUMNS = 256, JOIN_MS = 30000 };

/* A layer's gradients, and the request that sums them: NULL if it has not started, or is done. */
struct layer {
	float gradients[ROWS][COLUMNS];
	struct frl_request *request;
};

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "overlap: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

/* Drives all requests by testing the oldest one, and starts with the next one when it is done. */
static void make_progress(struct layer *layers)
{
	for (int i = LAYERS - 1; i >= 0; i--) {
		bool is_done = false;

		if (!layers[i].request)
			continue;
		check(frl_request_test(layers[i].request, &is_done), "sum gradients");
		if (is_done)
			layers[i].request = NULL; /* the library has freed it */
		return;
	}
}

/* Stands for the real computation: the gradients of a layer, row by row. */
static void compute(struct layer *layers, int layer, int rank)
{
	for (int row = 0; row < ROWS; row++) {
		for (int column = 0; column < COLUMNS; column++)
			layers[layer].gradients[row][column] = (float)((rank + 1) * (layer + 1));
		make_progress(layers);
	}
}

/* Returns whether all gradients are the sums over the ranks. */
static bool is_right(const struct layer *layers, int ranks)
{
	for (int i = 0; i < LAYERS; i++) {
		float expected = (float)(ranks * (ranks + 1) / 2 * (i + 1));

		for (int row = 0; row < ROWS; row++)
			for (int column = 0; column < COLUMNS; column++)
				if (layers[i].gradients[row][column] != expected)
					return false;
	}
	return true;
}

int main(void)
{
	const size_t size = LAYERS * sizeof(struct layer);
	struct frl_bootstrap job;
	struct frl_device *device;
	struct frl_comm *comm;
	struct layer *layers;
	bool right;

	check(frl_bootstrap_from_environment(JOIN_MS, &job), "join the job");
	check(frl_device_open(NULL, &device), "open a device");
	check(frl_comm_create(device, &job, &comm), "create a communicator");
	layers = frl_mem_alloc(size); /* zeroed */
	check(layers ? 0 : -1, "allocate the layers");

	for (int i = LAYERS - 1; i >= 0; i--) {
		float *gradients = &layers[i].gradients[0][0];

		compute(layers, i, job.rank);
		check(frl_allreduce_start(comm, gradients, gradients, (size_t)ROWS * COLUMNS,
			      FRL_FLOAT32, FRL_SUM, &layers[i].request),
			"start a sum");
	}
	/* Before the optimizer's step: the sums that computation has not hidden. */
	for (int i = LAYERS - 1; i >= 0; i--) {
		if (layers[i].request)
			check(frl_request_wait(layers[i].request), "sum gradients");
	}
	right = is_right(layers, job.ranks);
	if (right)
		printf("rank %d: summed %d layers over %d ranks\n", job.rank, LAYERS, job.ranks);
	else
		fprintf(stderr, "rank %d: a sum is wrong\n", job.rank);

	frl_comm_destroy(comm);
	frl_mem_free(layers, size);
	check(frl_device_close(device), "close the device");
	job.close(job.ctx);
	return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
