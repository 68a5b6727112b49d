/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does the model choose well? Each collective runs by each algorithm that can do it, over simulated
 * links of 100 Gb/s with 2 us from rank to rank, with costs that the communicator measures there.
 * The model's choice may take at most a quarter longer than the best of all.
 *
 *	test_sim_choice             2 to 64 ranks, lengths that are quick to simulate; up to 8 ranks
 *	                            under AddressSanitizer, where test_sim_scale has 64
 *	test_sim_choice table       the same with a table of times, simulated and expected
 *	test_sim_choice table all   also what takes minutes: up to 64 MiB
 *
 * All ranks share one buffer of zeros, which every result leaves as it is.
 */
#include "tests/sim/coll/coll_world.h"

#include "collectives/api/internal.h"
#include "tests/sim/common/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SIZES_MAX = 16,
	NS_PER_S = 1000000000,
	DELAY_NS = 2000,
	RATE_GBPS = 100,
	MTU = 4096,
	ENDLESS = 1 << 30, /* frames that wait in the switch */
	LONGEST = 64 << 20,
};

static const double most_ratio = 1.25;

/* One collective among some ranks: parameters and results. */
struct trial {
	enum frl_coll coll;
	int ranks, ranks_per_host;
	size_t sizes[SIZES_MAX]; /* bytes of the longer buffer of a rank; 0: no more */
	uint8_t *zeros[2];
	uint64_t time_ns[FRL_ALGOS][SIZES_MAX]; /* 0: cannot */
	double expected_ns[FRL_ALGOS][SIZES_MAX];
	enum frl_algo chosen[SIZES_MAX];
	char costs[TUNER_TEXT];
	struct tuner *tuner; /* of the first trial among as many ranks, which has measured */
	bool measures;
};

/* ---- a rank */

static bool has_blocks(enum frl_coll coll)
{
	switch (coll) {
	case FRL_ALLREDUCE:
	case FRL_BROADCAST:
	case FRL_REDUCE: return false;
	default: return true;
	}
}

static struct frl_collective collective_of(const struct trial *t, size_t bytes)
{
	size_t elements = bytes / sizeof(float);
	bool blocks = has_blocks(t->coll);

	return (struct frl_collective){
		.coll = t->coll,
		.send = t->zeros[0],
		.recv = t->zeros[blocks],
		.count = blocks ? elements / (size_t)t->ranks : elements,
		.dtype = FRL_FLOAT32,
		.op = FRL_SUM,
	};
}

/* Once to make connections, and once more. */
static uint64_t time_of(struct frl_comm *comm, const struct frl_collective *c)
{
	uint64_t start_ns;

	SIM_CHECK(frl_run(comm, c) == 0, "%s", frl_last_error());
	coll_meet();
	start_ns = coll_now();
	SIM_CHECK(frl_run(comm, c) == 0, "%s", frl_last_error());
	start_ns = coll_now() - start_ns;
	coll_meet();
	return start_ns;
}

static void run_by(struct trial *t, struct frl_comm *parent, enum frl_algo algo)
{
	struct frl_comm *comm;

	SIM_CHECK(frl_comm_duplicate(parent, &comm) == 0, "%s", frl_last_error());
	comm->tuner.forced[t->coll] = algo;
	for (int i = 0; i < SIZES_MAX && t->sizes[i]; i++) {
		struct frl_collective c = collective_of(t, t->sizes[i]);
		struct operation operation;
		uint64_t time_ns;

		SIM_CHECK(operation_init(&operation, comm, &c) == 0, "%s", frl_last_error());
		operation.job.segment_bytes = comm->config.segment_bytes;
		if (!plan_can(algo, &operation.job))
			continue;
		t->expected_ns[algo][i] = tuner_time_ns(&comm->tuner, algo, &operation.job);
		time_ns = time_of(comm, &c);
		if (time_ns > t->time_ns[algo][i])
			t->time_ns[algo][i] = time_ns;
	}
	frl_comm_destroy(comm);
}

static void run_rank(struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg)
{
	struct trial *t = arg;
	struct frl_comm *comm;

	SIM_CHECK(frl_comm_create(devices[0], bootstrap, &comm) == 0, "%s", frl_last_error());
	if (t->measures)
		*t->tuner = comm->tuner;
	else
		tuner_take_costs(&comm->tuner, t->tuner);
	tuner_write_costs(&comm->tuner.costs, t->costs);
	for (int i = 0; i < SIZES_MAX && t->sizes[i]; i++) {
		struct frl_collective c = collective_of(t, t->sizes[i]);
		struct operation operation;
		size_t segment;

		SIM_CHECK(operation_init(&operation, comm, &c) == 0, "%s", frl_last_error());
		SIM_CHECK(tuner_choose(&comm->tuner, &operation.job, &t->chosen[i], &segment) == 0,
			"%s", frl_last_error());
	}
	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++)
		run_by(t, comm, algo);
	frl_comm_destroy(comm);
}

/* ---- all of them */

static void simulate(struct trial *t)
{
	struct link_config link = {
		.delay_ns = DELAY_NS / 2,
		.rate_bps = UINT64_C(1000000000) * RATE_GBPS,
		.queue_frames = ENDLESS,
	};
	struct coll_config config = {
		.seed = 1,
		.ranks = t->ranks,
		.rails = 1,
		.ranks_per_host = t->ranks_per_host,
		.mtu = MTU,
		.measures = t->measures,
		.mail_ns = 100000,
		.to = link,
		.from = link,
		.deadline_ns = UINT64_C(100) * NS_PER_S,
		.run = run_rank,
		.arg = t,
	};
	struct coll_world world;

	coll_world_run(&world, &config);
	coll_world_free(&world);
}

static uint64_t best_of(const struct trial *t, int size)
{
	uint64_t best = 0;

	for (enum frl_algo algo = 0; algo < FRL_ALGOS; algo++)
		if (t->time_ns[algo][size] && (!best || t->time_ns[algo][size] < best))
			best = t->time_ns[algo][size];
	return best;
}

static void print(const struct trial *t, int size)
{
	printf("%-14s %3d %2d %9zu ", frl_coll_name(t->coll), t->ranks, t->ranks_per_host,
		t->sizes[size]);
	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++)
		if (t->time_ns[algo][size])
			printf(" %s%.4s %.1f (%.1f)", algo == t->chosen[size] ? "*" : "",
				frl_algo_name(algo), (double)t->time_ns[algo][size] / 1000,
				t->expected_ns[algo][size] / 1000);
	printf("  %.2f\n", (double)t->time_ns[t->chosen[size]][size] / (double)best_of(t, size));
}

/* Returns whether all choices are good. */
static bool try(struct trial *t, bool is_shown)
{
	bool is_good = true;

	simulate(t);
	if (is_shown)
		printf("costs: %s\n", t->costs);
	for (int i = 0; i < SIZES_MAX && t->sizes[i]; i++) {
		bool fits = (double)t->time_ns[t->chosen[i]][i] <=
			most_ratio * (double)best_of(t, i);

		if (is_shown || !fits)
			print(t, i);
		is_good = is_good && fits;
	}
	fflush(stdout);
	return is_good;
}

static size_t longest(enum frl_coll coll, int ranks, bool all)
{
	size_t bytes = (size_t)LONGEST;

	if (!all && ranks > 8)
		bytes = coll == FRL_ALLREDUCE || coll == FRL_BROADCAST ? 64 << 10 : 0;
	else if (!all)
		bytes = ranks <= 4 ? 4 << 20 : 1 << 20;
	else if (ranks > 8)
		bytes = 16 << 20;
	return coll == FRL_ALLREDUCE || all ? bytes : bytes / 4;
}

int main(int argc, char **argv)
{
	static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_ALLGATHER, FRL_REDUCE_SCATTER,
		FRL_BROADCAST, FRL_REDUCE, FRL_ALLTOALL };
	static const int shapes[][2] = {
		{ 2, 1 }, { 4, 1 }, { 8, 1 }, { 8, 4 },
#ifndef __SANITIZE_ADDRESS__
		{ 64, 1 }, /* most of the time, and no code that others do not run */
#endif
	};
	bool is_shown = argc > 1 && strcmp(argv[1], "table") == 0;
	bool all = argc > 2 && strcmp(argv[2], "all") == 0, is_good = true;
	uint8_t *zeros[2] = { sim_alloc(LONGEST, 1), sim_alloc(LONGEST, 1) };
	struct tuner tuner;

	setenv("FRL_CONTROL", "off", 1);
	setenv("FRL_TUNER_CACHE", "", 1);
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (size_t c = 0; c < sizeof(colls) / sizeof(colls[0]); c++) {
			struct trial t = { .coll = colls[c],
				.ranks = shapes[s][0],
				.ranks_per_host = shapes[s][1],
				.zeros = { zeros[0], zeros[1] },
				.tuner = &tuner,
				.measures = c == 0 };
			size_t bytes = has_blocks(t.coll) ? 8 * (size_t)t.ranks : 8;

			for (int i = 0; bytes <= longest(t.coll, t.ranks, all); i++) {
				t.sizes[i] = bytes;
				bytes *= all ? 4 : 8;
			}
			if (t.sizes[0] > 0)
				is_good = try(&t, is_shown) && is_good;
		}
	free(zeros[0]);
	free(zeros[1]);
	return !is_good;
}
