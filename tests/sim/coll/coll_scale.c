/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long collectives take on many ranks, against theory: in virtual time, over links of 100 Gb/s
 * with 2 us from rank to rank and without losses. Processors take no time here, so what is left is
 * the network's and what the protocol and the plans make of it.
 *
 *	test_sim_scale          8 and 64 ranks, up to 1 MiB
 *	test_sim_scale 512      up to so many ranks, and 16 MiB
 *
 * Fails where a time is far from theory.
 *
 * All ranks share one buffer of zeros, which every result leaves as it is.
 */
#include "tests/sim/coll/coll_world.h"

#include "tests/sim/common/fail.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	SIZES = 3,
	NS_PER_S = 1000000000,
	DELAY_NS = 2000,
	RATE_GBPS = 100,
	MTU = 4096,
	ENDLESS = 1 << 30, /* frames that wait in the switch */
};

static const double byte_ns = 8.0 / RATE_GBPS;
static const double least_ratio = 0.7;
/* Limits by size. Two delays count as one for short messages that wait for credits. */
static const double most_ratio[SIZES] = { 1.3, 3, 2.25 };

/* The parameters and results of the measurement. */
struct scale {
	enum frl_coll coll;
	enum frl_algo algo;
	int ranks;
	size_t bytes[SIZES]; /* of the longer buffer of a rank */
	uint8_t *zeros[2];
	uint64_t time_ns[SIZES];
};

/* ---- theory: rounds of messages that follow each other, and bytes that a rank sends */

static double theory_ns(const struct scale *s, size_t bytes)
{
	double n = s->ranks, levels = ceil(log2(n)), rounds = 0, sent = 0;
	double all = (double)bytes, rest = all * (n - 1) / n;

	switch (s->algo) {
	case FRL_ALGO_RING:
		rounds = n - 1;
		sent = rest;
		break;
	case FRL_ALGO_HALVING_DOUBLING:
		rounds = levels;
		sent = rest;
		break;
	case FRL_ALGO_TREE:
		rounds = levels;
		sent = all;
		break;
	case FRL_ALGO_DIRECT:
		rounds = 1;
		sent = rest;
		break;
	case FRL_ALGO_BRUCK:
		rounds = levels;
		sent = s->coll == FRL_ALLTOALL ? levels * all / 2 : rest;
		break;
	case FRL_ALGO_PAIRWISE:
	case FRL_ALGO_HIERARCHICAL:
	case FRL_ALGO_AUTO:
	case FRL_ALGOS: break;
	}
	/* Reducing is half of it, gathering the other half. */
	return (s->coll == FRL_ALLREDUCE ? 2 : 1) * (rounds * DELAY_NS + sent * byte_ns);
}

/* ---- a rank */

static void operate(const struct scale *s, struct frl_comm *comm, size_t bytes)
{
	size_t elements = bytes / sizeof(float);
	const struct frl_collective c = {
		.coll = s->coll,
		.send = s->zeros[0],
		.recv = s->zeros[s->coll != FRL_ALLREDUCE],
		.count = s->coll == FRL_ALLREDUCE ? elements : elements / (size_t)s->ranks,
		.dtype = FRL_FLOAT32,
		.op = FRL_SUM,
	};

	SIM_CHECK(frl_run(comm, &c) == 0, "%s", frl_last_error());
}

static void run_rank(struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg)
{
	struct scale *s = arg;
	struct frl_comm_config config;
	struct frl_comm *comm;

	frl_comm_config_init(&config);
	config.devices = devices;
	config.n_devices = 1;
	config.algos = frl_algo_name(s->algo);
	SIM_CHECK(frl_comm_create_with(bootstrap, &config, &comm) == 0, "%s", frl_last_error());
	/* The first operation makes the connections. */
	operate(s, comm, s->bytes[1]);
	for (int i = 0; i < SIZES; i++) {
		uint64_t start_ns;

		coll_meet();
		start_ns = coll_now();
		operate(s, comm, s->bytes[i]);
		if (coll_now() - start_ns > s->time_ns[i])
			s->time_ns[i] = coll_now() - start_ns;
		coll_meet();
	}
	frl_comm_destroy(comm);
}

/* ---- all of them */

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now); /* no world: the real one */
	return (double)now.tv_sec + (double)now.tv_nsec / NS_PER_S;
}

static void simulate(struct scale *s)
{
	struct link_config link = {
		.delay_ns = DELAY_NS / 2,
		.rate_bps = UINT64_C(1000000000) * RATE_GBPS,
		.queue_frames = ENDLESS,
	};
	struct coll_config config = {
		.seed = 1,
		.ranks = s->ranks,
		.rails = 1,
		.ranks_per_host = 1,
		.mtu = MTU,
		.measures = true,
		.mail_ns = 100000,
		.to = link,
		.from = link,
		.deadline_ns = UINT64_C(100) * NS_PER_S,
		.run = run_rank,
		.arg = s,
	};
	struct coll_world world;

	coll_world_run(&world, &config);
	coll_world_free(&world);
}

static const char *size_name(size_t bytes, char text[16])
{
	if (bytes >= 1 << 20)
		snprintf(text, 16, "%u MiB", (unsigned)(bytes >> 20));
	else if (bytes >= 1 << 10)
		snprintf(text, 16, "%u KiB", (unsigned)(bytes >> 10));
	else
		snprintf(text, 16, "%u B", (unsigned)bytes);
	return text;
}

/* Returns whether all times are near theory. */
static bool run(const struct scale *kind, int ranks, size_t most, uint8_t *zeros[2])
{
	/* For operations on pieces: each piece has at least 8 bytes. */
	size_t least = kind->coll == FRL_ALLREDUCE ? 8 : 8 * (size_t)ranks;
	struct scale s = { .coll = kind->coll,
		.algo = kind->algo,
		.ranks = ranks,
		.bytes = { least, 64 << 10, most },
		.zeros = { zeros[0], zeros[1] } };
	double start = seconds(), took;
	bool is_near = true;

	simulate(&s);
	took = seconds() - start;
	for (int i = 0; i < SIZES; i++) {
		double theory = theory_ns(&s, s.bytes[i]), ratio = (double)s.time_ns[i] / theory;
		char size[16];

		printf("%-10s %-16s %5d %8s %12.1f %12.1f %6.2f", frl_coll_name(s.coll),
			frl_algo_name(s.algo), ranks, size_name(s.bytes[i], size),
			(double)s.time_ns[i] / 1000, theory / 1000, ratio);
		if (i == SIZES - 1)
			printf(" %8.1f s", took);
		printf("\n");
		is_near = is_near && ratio > least_ratio && ratio < most_ratio[i];
	}
	fflush(stdout);
	return is_near;
}

/* The plan's data of each rank, and connections of all to all, must fit the memory. */
static size_t largest(const struct scale *kind, int ranks)
{
	if (kind->algo == FRL_ALGO_DIRECT && ranks > 64)
		return 0;
	return kind->algo == FRL_ALGO_BRUCK && ranks > 64 ? 1 << 20 : 16 << 20;
}

#ifdef __SANITIZE_ADDRESS__
enum { MOST = 8 }; /* with more, most of the time goes into code that these run as well */
#else
enum { MOST = 64 };
#endif

int main(int argc, char **argv)
{
	static const struct scale kinds[] = {
		{ .coll = FRL_ALLREDUCE, .algo = FRL_ALGO_RING },
		{ .coll = FRL_ALLREDUCE, .algo = FRL_ALGO_HALVING_DOUBLING },
		{ .coll = FRL_ALLREDUCE, .algo = FRL_ALGO_TREE },
		{ .coll = FRL_ALLGATHER, .algo = FRL_ALGO_RING },
		{ .coll = FRL_ALLGATHER, .algo = FRL_ALGO_BRUCK },
		{ .coll = FRL_ALLTOALL, .algo = FRL_ALGO_DIRECT },
		{ .coll = FRL_ALLTOALL, .algo = FRL_ALGO_BRUCK },
	};
	int most = argc > 1 ? atoi(argv[1]) : MOST;
	uint8_t *zeros[2] = { sim_alloc(16 << 20, 1), sim_alloc(16 << 20, 1) };
	bool is_near = true;

	setenv("FRL_CONTROL", "off", 1);
	setenv("FRL_TUNER_CACHE", "", 1);
	printf("%-10s %-16s %5s %8s %12s %12s %6s %10s\n", "collective", "algorithm", "ranks",
		"bytes", "time, us", "theory, us", "ratio", "host");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (int ranks = 8; ranks <= most; ranks *= 8) {
			size_t bytes = argc > 1 ? largest(&kinds[i], ranks) : 1 << 20;

			if (bytes)
				is_near = run(&kinds[i], ranks, bytes, zeros) && is_near;
		}
	}
	free(zeros[0]);
	free(zeros[1]);
	return !is_near;
}
