/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans of all algorithms and collectives, run together without a network (plan_checker.h). There
 * are too many combinations for every run: a run takes some at random. FRL_PLAN_CHECKS=all takes
 * all, FRL_PLAN_CHECKS=N a share of N in 10000; FRL_SEED= repeats one that failed.
 */
#include "tests/unit/collectives/plan/plan_checker.h"
#include "tests/fixtures/program.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"

enum {
	ALL = 10000,
#ifdef __SANITIZE_ADDRESS__
	SHARE = 5, /* three times as slow: the same code, for its memory errors */
#else
	SHARE = 30, /* of ALL, that an ordinary run takes */
#endif
	CELLS = 40000,       /* elements in all buffers of an ordinary case, at most */
	CELLS_ALL = 4000000, /* of any */
	MESSAGES = 40000,    /* of an ordinary case, at most */
	PAIRS = 34,          /* of algorithms and collectives, at least, for 1000 ranks */
};

static uint64_t share;
static uint64_t seed;

/* The placement of ranks on hosts. */
enum layout {
	ONE_HOST,
	EVEN_HOSTS,   /* 4 ranks each, or 3, or 2 */
	UNEVEN_HOSTS, /* round robin over hosts, some with fewer */
	LAYOUTS
};

static uint32_t host_of(enum layout layout, uint32_t ranks, uint32_t rank)
{
	switch (layout) {
	case EVEN_HOSTS:
		for (uint32_t size = 4; size > 1; size--)
			if (ranks % size == 0)
				return rank / size;
		return rank / 2;
	case UNEVEN_HOSTS: return rank % 5 == 4 ? 1 : rank % 3;
	default: return 0;
	}
}

static void make_topology(struct topology *topology, enum layout layout, uint32_t ranks)
{
	struct topology_location *locations = calloc(ranks, sizeof(locations[0]));

	ck_assert_ptr_nonnull(locations);
	for (uint32_t rank = 0; rank < ranks; rank++)
		locations[rank] = (struct topology_location){
			.host = host_of(layout, ranks, rank), .numa = rank % 2, .rails = 1
		};
	ck_assert_int_eq(topology_init(topology, locations, ranks), 0);
	free(locations);
}

static bool reduces(enum frl_coll coll)
{
	return coll == FRL_ALLREDUCE || coll == FRL_REDUCE_SCATTER || coll == FRL_REDUCE;
}

/* Kinds of reductions and of transport; collectives that only copy have the first and the last. */
static const struct variant {
	enum frl_op op;
	enum frl_wire wire;
	size_t elem_size;
	size_t segment_bytes;
	bool is_float_narrow;
} variants[] = {
	{ FRL_SUM, FRL_WIRE_SAME, 1, 1 << 20, false },
	{ FRL_SUM, FRL_WIRE_SAME, 2, 14, false },
	{ FRL_SUM, FRL_WIRE_SAME, 1, 1, false },
	{ FRL_AVG, FRL_WIRE_SAME, 4, 40, false },
	{ FRL_AVG, FRL_WIRE_SAME, 2, 16, true },
	{ FRL_PREMUL_SUM, FRL_WIRE_SAME, 1, 5, false },
	{ FRL_SUM, FRL_WIRE_FLOAT16, 4, 1 << 20, false },
	{ FRL_SUM, FRL_WIRE_FLOAT16, 4, 512, false },
	{ FRL_AVG, FRL_WIRE_BFLOAT16, 4, 512, false },
	{ FRL_PREMUL_SUM, FRL_WIRE_BFLOAT16, 4, 1024, false },
	{ FRL_SUM, FRL_WIRE_INT8, 4, 512, false },
	{ FRL_AVG, FRL_WIRE_INT8, 4, 1 << 20, false },
	{ FRL_PREMUL_SUM, FRL_WIRE_INT8, 4, 1536, false },
	{ FRL_MAX, FRL_WIRE_INT8, 4, 512, false },
	{ FRL_PROD, FRL_WIRE_FLOAT16, 4, 1024, false },
};

enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

/* Awkward counts; a negative one is a multiple of the ranks, plus some. */
static const int counts[] = { 0, 1, 2, 3, 7, 64, 131, 500, -1, -2, -3, -5, -70, -300 };

enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

static size_t count_of(int count, uint32_t ranks)
{
	if (count >= 0)
		return (size_t)count;
	/* -1: one less than the ranks, -2: as many, -3: one more. */
	if (count >= -3)
		return ranks - 2 + (size_t)-count;
	return (size_t)-count * ranks + 3;
}

static const uint32_t ranks_small[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 };
static const uint32_t ranks_large[] = { 31, 32, 33, 64 };
static const uint32_t ranks_huge[] = { 128, 256, 512, 1000, 1024 };

static const char *const coll_names[FRL_COLLS] = { "allreduce", "reduce_scatter", "allgather",
	"broadcast", "reduce", "alltoall", "alltoallv", "gather", "scatter", "barrier", "send",
	"recv" };

static struct plan_job job_of(const struct check_case *c)
{
	return (struct plan_job){ .coll = c->coll,
		.ranks = (int)c->ranks,
		.root = (int)c->root,
		.count = c->count,
		.elem_size = c->elem_size,
		.op = c->op,
		.wire = c->wire,
		.is_float_narrow = c->is_float_narrow,
		.topology = c->topology,
		.segment_bytes = c->segment_bytes };
}

static void check_case(const struct check_case *c)
{
	struct check_result result;

	ck_assert_msg(plan_check(c, &result),
		"%s by algorithm %d, %u ranks on %u hosts, root %u, count %zu of %zu bytes, op %d, "
		"wire %d%s, in place %d, segments of %zu bytes, FRL_SEED=%" PRIu64 ": %s",
		coll_names[c->coll], c->algo, c->ranks, c->topology->hosts, c->root, c->count,
		c->elem_size, c->op, c->wire, c->is_float_narrow ? ", narrow" : "", c->in_place,
		c->segment_bytes, seed, result.error);
}

/* Bytes of all buffers together: the work of a check. */
static uint64_t cells_of(const struct check_case *c)
{
	bool has_blocks = c->coll == FRL_REDUCE_SCATTER || c->coll == FRL_ALLGATHER ||
		c->coll == FRL_ALLTOALL || c->coll == FRL_GATHER || c->coll == FRL_SCATTER;
	uint64_t cells = (c->count + 1) * c->elem_size * c->ranks;

	/* Chunks of whole blocks, however few elements there are; cheap ones, as most are empty. */
	if (c->algo != FRL_ALGO_DIRECT && c->wire != FRL_WIRE_SAME)
		cells += (uint64_t)c->ranks * c->ranks * PLAN_WIRE_BLOCK / 10;
	return has_blocks || c->coll == FRL_ALLTOALLV ? cells * c->ranks : cells;
}

/* The limits of a case: segments of one element take a lot of work. */
static uint64_t most_cells(const struct check_case *c, uint64_t some)
{
	uint64_t most = some < ALL ? CELLS : CELLS_ALL;

	return c->segment_bytes == 1 ? most / 20 : most;
}

/* Messages of all ranks of the algorithms that have many. */
static uint64_t messages_of(const struct check_case *c)
{
	uint64_t n = c->ranks;
	bool is_ring = c->algo == FRL_ALGO_RING || c->algo == FRL_ALGO_HIERARCHICAL;
	uint64_t step = is_ring && c->coll == FRL_ALLREDUCE ? c->count / n : c->count;

	if (!is_ring && c->algo != FRL_ALGO_DIRECT && c->algo != FRL_ALGO_PAIRWISE)
		return 0;
	return n * n * (1 + step * c->elem_size / c->segment_bytes);
}

static uint64_t cases;

/* All counts and layouts of one algorithm, collective and number of ranks. */
static void check_ranks(struct random_state *random, enum frl_algo algo, enum frl_coll coll,
	uint32_t ranks, uint64_t some)
{
	for (enum layout layout = 0; layout < LAYOUTS; layout++) {
		struct topology topology;

		make_topology(&topology, layout, ranks);
		for (size_t i = 0; i < (size_t)COUNTS * VARIANTS * 3; i++) {
			const struct variant *v = &variants[i / 3 % VARIANTS];
			struct check_case c = { .coll = coll,
				.algo = algo,
				.ranks = ranks,
				.root = (uint32_t)random_below(random, ranks),
				.count = count_of(counts[i / 3 / VARIANTS], ranks),
				.elem_size = v->elem_size,
				.op = reduces(coll) ? v->op : FRL_SUM,
				.wire = v->wire,
				.is_float_narrow = v->is_float_narrow,
				.in_place = (enum check_in_place)(i % 3),
				.topology = &topology,
				.segment_bytes = v->segment_bytes,
				.seed = random_u64(random) };
			struct plan_job job = job_of(&c);
			bool is_big = cells_of(&c) > most_cells(&c, some);

			if (some < ALL / 10 && messages_of(&c) > MESSAGES)
				continue;
			if (random_below(random, ALL) >= some || is_big || !plan_can(algo, &job))
				continue;
			cases++;
			check_case(&c);
		}
		topology_fini(&topology);
	}
}

static void check_all(const uint32_t ranks[], size_t n, uint64_t some)
{
	struct random_state random;

	random_seed(&random, seed);
	cases = 0;
	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++)
		for (enum frl_coll coll = 0; coll < FRL_SEND; coll++)
			for (size_t i = 0; i < n; i++)
				check_ranks(&random, algo, coll, ranks[i], some);
	printf("%" PRIu64 " cases\n", cases);
}

/* Messages, or blocks, from all to all: their checks take too long for every run. */
static bool is_square(enum frl_algo algo, enum frl_coll coll)
{
	if (coll == FRL_ALLTOALL || coll == FRL_ALLTOALLV)
		return true;
	if (coll != FRL_ALLREDUCE && coll != FRL_REDUCE_SCATTER && coll != FRL_ALLGATHER &&
		coll != FRL_BARRIER)
		return false;
	return algo == FRL_ALGO_RING || algo == FRL_ALGO_DIRECT || algo == FRL_ALGO_PAIRWISE ||
		algo == FRL_ALGO_HIERARCHICAL;
}

/* One case, of little data. Returns false if the algorithm does not support the collective. */
static bool check_huge(enum frl_algo algo, enum frl_coll coll, uint32_t ranks, uint64_t case_seed)
{
	bool is_vector = coll == FRL_ALLREDUCE || coll == FRL_REDUCE;
	struct topology topology;
	struct check_case c = { .coll = coll,
		.algo = algo,
		.ranks = ranks,
		.root = (uint32_t)(case_seed % ranks),
		.count = is_vector ? ranks + 3 : 1,
		.elem_size = 1,
		.in_place = (enum check_in_place)(case_seed % 3),
		.topology = &topology,
		.segment_bytes = 1 << 20,
		.seed = case_seed };
	struct plan_job job;
	bool can;

	make_topology(&topology, EVEN_HOSTS, ranks);
	job = job_of(&c);
	can = plan_can(algo, &job);
	if (can)
		check_case(&c);
	topology_fini(&topology);
	return can;
}

START_TEST(test_small)
{
	check_all(ranks_small, sizeof(ranks_small) / sizeof(ranks_small[0]), share);
	ck_assert_uint_gt(cases, 0);
}
END_TEST

START_TEST(test_large)
{
	check_all(ranks_large, sizeof(ranks_large) / sizeof(ranks_large[0]), share);
	ck_assert_uint_gt(cases, 0);
}
END_TEST

/* A share so small that it may be none: test_huge_once() runs every time. */
START_TEST(test_huge)
{
	check_all(ranks_huge, sizeof(ranks_huge) / sizeof(ranks_huge[0]), (share + 9) / 10);
}
END_TEST

/* Each algorithm in each collective that it supports. */
START_TEST(test_huge_once)
{
	enum { SQUARE_RANKS = 200 };
	uint32_t ranks = seed % 2 ? 1000 : 1024;
	uint64_t start = seed * FRL_ALGOS * FRL_SEND;
	int pairs = 0;

	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++)
		for (enum frl_coll coll = 0; coll < FRL_SEND; coll++)
			pairs += check_huge(algo, coll,
				share < ALL && is_square(algo, coll) ? SQUARE_RANKS : ranks,
				start++);
	ck_assert_int_ge(pairs, PAIRS);
}
END_TEST

/* Long enough for scratch that is reused, and for rings in both directions. */
START_TEST(test_long)
{
	static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_REDUCE_SCATTER, FRL_ALLGATHER,
		FRL_BROADCAST, FRL_REDUCE };
	static const enum frl_algo algos[] = { FRL_ALGO_RING, FRL_ALGO_TREE,
		FRL_ALGO_HIERARCHICAL };
	struct topology topology;

	make_topology(&topology, EVEN_HOSTS, 4);
	for (enum check_in_place in_place = 0; in_place <= CHECK_MIXED; in_place++)
		for (size_t i = 0; i < 5 * 3 * 3; i++) {
			static const enum frl_wire wires[] = { FRL_WIRE_SAME, FRL_WIRE_FLOAT16,
				FRL_WIRE_INT8 };
			enum frl_wire wire = wires[i / 15];
			struct check_case c = { .coll = colls[i % 5],
				.algo = algos[i / 5 % 3],
				.ranks = 4,
				.root = 2,
				.count = 4600,
				.elem_size = wire == FRL_WIRE_SAME ? 1 : 4,
				.op = FRL_AVG,
				.wire = wire,
				.in_place = in_place,
				.topology = &topology,
				.segment_bytes = wire == FRL_WIRE_SAME ? 128 : 512,
				.seed = seed + i };
			struct plan_job job = job_of(&c);

			if (plan_can(c.algo, &job))
				check_case(&c);
		}
	topology_fini(&topology);
}
END_TEST

TEST_MAIN(plans)
{
	const char *checks = getenv("FRL_PLAN_CHECKS");
	const char *from = getenv("FRL_SEED");

	share = !checks ? SHARE : strcmp(checks, "all") == 0 ? ALL : strtoull(checks, NULL, 10);
	seed = from ? strtoull(from, NULL, 10) : random_entropy() % 1000000;
	return run_suite(all_tests(NULL, NULL));
}
