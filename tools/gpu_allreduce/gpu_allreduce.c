/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_allreduce: sums tensors in GPU memory. The ranks are threads of one process that share GPU 0.
 * With a job as fourth argument this process is one rank of several, which may have different GPUs:
 *
 *	gpu_allreduce [RANKS [ELEMENTS]]
 *	gpu_allreduce RANKS ELEMENTS RANK JOB[@HOST]
 *
 * Only two things differ from a sum in host memory: the memory, and the stream. The operation
 * begins after the work launched into the stream before it, here the copy of the input.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

#include "tools/common/common.h"
#include "tools/common/gpu.h"

enum { DEFAULT_RANKS = 2, DEFAULT_ELEMENTS = 1 << 20, JOIN_MS = 30000, MOST_ELEMENTS = 1 << 28 };

struct rank {
	int rank, ranks, gpu;
	size_t count;
	const char *job;
	pthread_t thread;
	int rc;
};

/* Returns element i of a rank. Sums of small whole numbers are exact. */
static float input_of(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 13) % 251);
}

static void fill(const struct rank *r, float *values)
{
	for (size_t i = 0; i < r->count; i++)
		values[i] = input_of(r->rank, i);
}

static int check(const struct rank *r, const float *values)
{
	for (size_t i = 0; i < r->count; i++) {
		float right = 0;

		for (int rank = 0; rank < r->ranks; rank++)
			right += input_of(rank, i);
		if (values[i] == right)
			continue;
		say("rank %d: element %zu is %g, not %g", r->rank, i, (double)values[i],
			(double)right);
		return -1;
	}
	return 0;
}

/*
 * Prints how the device accesses the tensor. Only this output needs the region; the allreduce
 * registers the tensor itself.
 */
static void print_way(struct frl_device *device, const struct gpu_memory *tensor)
{
	struct frl_mr_attr attr;
	struct frl_pd *pd = NULL;
	struct frl_mr *mr = NULL;

	if (frl_pd_create(device, &pd) == 0 &&
		frl_reg_mr(pd, tensor->data, tensor->size, FRL_ACCESS_LOCAL_WRITE, &mr) == 0) {
		frl_mr_query(mr, &attr);
		printf("tensors are in memory of GPU %d, reached by way of: %s%s%s%s\n", attr.gpu,
			frl_mr_tier_name(attr.tier), *attr.reason ? " (not better: " : "",
			attr.reason, *attr.reason ? ")" : "");
	}
	frl_dereg_mr(mr);
	frl_pd_destroy(pd);
}

static int reduce(const struct rank *r, struct frl_comm *comm, const struct gpu_memory *tensor)
{
	struct frl_collective sum = {
		.coll = FRL_ALLREDUCE,
		.send = tensor->data,
		.recv = tensor->data,
		.count = r->count,
		.dtype = FRL_FLOAT32,
		.op = FRL_SUM,
		.on_stream = true,
	};
	uint64_t begin;
	int rc = gpu_stream_create(r->gpu, &sum.stream);

	if (!rc)
		rc = gpu_give_later(tensor, sum.stream);
	begin = now_ns();
	if (!rc) {
		rc = frl_run(comm, &sum);
		if (rc)
			say_failure(rc, "rank %d: allreduce", r->rank);
	}
	if (!rc && r->rank == 0)
		printf("%d ranks, %zu float32: %.1f us with the copy to the GPU and the making of "
		       "connections\n",
			r->ranks, r->count, (double)(now_ns() - begin) / 1e3);
	gpu_stream_destroy(r->gpu, sum.stream);
	return rc;
}

static int run_with(const struct rank *r, struct frl_device *device,
	struct frl_bootstrap *bootstrap, struct gpu_memory *tensor)
{
	struct frl_comm *comm = NULL;
	int rc = frl_comm_create(device, bootstrap, &comm);

	if (rc) {
		say_failure(rc, "rank %d: cannot connect to the others", r->rank);
		return rc;
	}
	if (r->rank == 0)
		print_way(device, tensor);
	fill(r, (float *)(void *)tensor->host);
	rc = reduce(r, comm, tensor);
	if (!rc)
		rc = gpu_take(tensor, 0, tensor->size);
	if (!rc)
		rc = check(r, (const float *)(const void *)tensor->host);
	if (rc)
		frl_comm_abort(comm, "another rank has failed");
	frl_comm_destroy(comm);
	return rc;
}

static void *run_rank(void *arg)
{
	struct rank *r = arg;
	struct gpu_memory tensor = { .size = 0 };
	struct frl_device *device = NULL;
	struct frl_device_config config;
	struct frl_bootstrap bootstrap;

	frl_device_config_init(&config);
	r->rc = frl_bootstrap_join(r->job, r->rank, r->ranks, JOIN_MS, &bootstrap);
	if (r->rc) {
		say_failure(r->rc, "rank %d: cannot join job %s", r->rank, r->job);
		return NULL;
	}
	r->rc = frl_device_open(&config, &device);
	if (r->rc)
		say_failure(r->rc, "rank %d: cannot open a device", r->rank);
	if (!r->rc)
		r->rc = gpu_use(r->gpu);
	if (!r->rc)
		r->rc = gpu_alloc(r->gpu, r->count * sizeof(float), &tensor);
	if (!r->rc)
		r->rc = run_with(r, device, &bootstrap, &tensor);
	if (r->rc)
		bootstrap.abort(bootstrap.ctx, NULL);
	/* Close the device before freeing memory that it may use. */
	frl_device_close(device);
	gpu_free(&tensor);
	bootstrap.close(bootstrap.ctx);
	return NULL;
}

static int run_threads(int ranks, size_t count, const char *job)
{
	struct rank all[MAX_RANKS];
	int n = 0, rc = 0;

	for (; n < ranks; n++) {
		all[n] = (struct rank){ .rank = n, .ranks = ranks, .count = count, .job = job };
		if (pthread_create(&all[n].thread, NULL, run_rank, &all[n])) {
			say("cannot start thread %d", n);
			rc = 1;
			break;
		}
	}
	for (int i = 0; i < n; i++) {
		pthread_join(all[i].thread, NULL);
		rc |= all[i].rc != 0;
	}
	return rc;
}

int main(int argc, char **argv)
{
	uint64_t ranks = DEFAULT_RANKS, count = DEFAULT_ELEMENTS, rank = 0;
	const struct mem_option any = { .is_gpu = true, .gpu = -1 };
	char job[64];
	int rc;

	if (argc > 5 || argc == 4 || (argc > 1 && !parse_number(argv[1], 1, MAX_RANKS, &ranks)) ||
		(argc > 2 && !parse_number(argv[2], 1, MOST_ELEMENTS, &count)) ||
		(argc > 3 && !parse_number(argv[3], 0, ranks - 1, &rank)))
		return usage_error("gpu_allreduce [RANKS [ELEMENTS [RANK JOB[@HOST]]]]");
	if (argc == 5) {
		struct rank one = {
			.rank = (int)rank, .ranks = (int)ranks, .count = count, .job = argv[4]
		};

		rc = gpu_of(&any, one.rank, &one.gpu);
		if (!rc)
			run_rank(&one);
		rc = rc || one.rc;
	} else {
		snprintf(job, sizeof(job), "gpu_allreduce-%llx", (unsigned long long)now_ns());
		rc = run_threads((int)ranks, count, job);
	}
	if (!rc && argc == 5)
		printf("rank %d has the right sum\n", (int)rank);
	else if (!rc)
		printf("all ranks have the right sum\n");
	return finish_output(rc ? EXIT_FAILURE : EXIT_SUCCESS);
}
