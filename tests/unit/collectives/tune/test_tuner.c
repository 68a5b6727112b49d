/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of algorithms: by cost, as FRL_ALGO says, the same on all ranks. */
#include "collectives/tune/tuner.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/communicator/location.h"
#include "tests/fixtures/program.h"

enum { SEGMENT = 128 * 1024 };

static struct topology topology;

static struct plan_job job_of(enum frl_coll coll, uint32_t ranks, uint32_t on_host, size_t count)
{
	struct topology_location *locations = calloc(ranks, sizeof(locations[0]));

	ck_assert_ptr_nonnull(locations);
	for (uint32_t rank = 0; rank < ranks; rank++)
		locations[rank].host = rank / on_host;
	topology_fini(&topology);
	ck_assert_int_eq(topology_init(&topology, locations, ranks), 0);
	free(locations);
	return (struct plan_job){ .coll = coll,
		.ranks = (int)ranks,
		.count = count,
		.elem_size = 4,
		.topology = &topology };
}

static enum frl_algo choose_oversubscribed(
	const char *algos, const struct plan_job *job, double oversubscription)
{
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	ck_assert_int_eq(tuner_init(&tuner, algos, SEGMENT), 0);
	tuner.oversubscription = oversubscription;
	ck_assert_int_eq(tuner_choose(&tuner, job, &algo, &segment), 0);
	ck_assert_uint_gt(segment, 0);
	ck_assert_uint_le(segment, SEGMENT);
	return algo;
}

static enum frl_algo choose(const char *algos, const struct plan_job *job)
{
	return choose_oversubscribed(algos, job, 1);
}

START_TEST(test_sizes)
{
	/* Few bytes: few rounds. Many: few bytes a rank. */
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 8, 2);

	ck_assert_int_eq(choose("auto", &job), FRL_ALGO_DIRECT);
	job.count = 100000000;
	ck_assert(choose(NULL, &job) != FRL_ALGO_TREE);
	job = job_of(FRL_ALLREDUCE, 64, 64, 2);
	ck_assert(
		choose("", &job) == FRL_ALGO_TREE || choose("", &job) == FRL_ALGO_HALVING_DOUBLING);
	/* Many ranks on few processors: few messages. */
	ck_assert_int_eq(choose_oversubscribed("", &job, 32), FRL_ALGO_TREE);
	job.count = 10000000;
	ck_assert(
		choose("", &job) == FRL_ALGO_HALVING_DOUBLING || choose("", &job) == FRL_ALGO_RING);
	job = job_of(FRL_ALLTOALL, 1024, 8, 1);
	ck_assert_int_eq(choose("", &job), FRL_ALGO_BRUCK);
	topology_fini(&topology);
}
END_TEST

START_TEST(test_same_on_all_ranks)
{
	static const size_t counts[] = { 1, 100, 10000, 1000000, 100000000 };

	for (enum frl_coll coll = 0; coll < FRL_SEND; coll++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			struct plan_job job = job_of(coll, 12, 4, counts[i]);
			enum frl_algo algo = choose("", &job);

			for (job.rank = 0; job.rank < 12; job.rank++) {
				job.in_place = !job.in_place;
				ck_assert_int_eq(choose("", &job), algo);
			}
		}
	topology_fini(&topology);
}
END_TEST

START_TEST(test_forced)
{
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 4, 1000);
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	for (enum frl_algo forced = 1; forced < FRL_ALGOS; forced++)
		if (plan_can(forced, &job))
			ck_assert_int_eq(choose(frl_algo_name(forced), &job), forced);
	ck_assert_int_eq(choose("allreduce=tree,ring", &job), FRL_ALGO_TREE);
	ck_assert_int_eq(choose("ring,allreduce=tree", &job), FRL_ALGO_TREE);
	ck_assert_int_eq(choose("ring,broadcast=tree", &job), FRL_ALGO_RING);
	/* A setting for all collectives applies where the algorithm can; one for this collective
	 * must. */
	ck_assert_int_ne(choose("bruck", &job), FRL_ALGO_BRUCK);
	ck_assert_int_eq(tuner_init(&tuner, "allreduce=bruck", SEGMENT), 0);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "allreduce=bruck, but bruck reduces"));
	topology_fini(&topology);
}
END_TEST

START_TEST(test_bad_words)
{
	static const struct {
		const char *algos, *says;
	} rows[] = {
		{ "rings", "'rings' is not an algorithm" },
		{ "allreduce=", "'' is not an algorithm" },
		{ "allreduce=ring,", NULL },
		{ "=ring", "'' is not a collective" },
		{ "reduceall=ring", "'reduceall' is not a collective" },
		{ ",", "'' is not an algorithm" },
		{ "allreduce=ring=tree", "'ring=tree' is not an algorithm" },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			"too long" },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=ring", "is not a collective" },
	};
	struct tuner tuner;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int err = tuner_init(&tuner, rows[i].algos, SEGMENT);

		ck_assert_int_eq(err, rows[i].says ? -EINVAL : 0);
		if (rows[i].says)
			ck_assert_msg(strstr(frl_last_error(), rows[i].says) != NULL, "%s: %s",
				rows[i].algos, frl_last_error());
	}
}
END_TEST

START_TEST(test_none_can)
{
	struct plan_job job = job_of(FRL_ALLREDUCE, PLAN_RANKS_MAX + 1, 64, 1000);
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;
	char text[100];

	ck_assert_int_eq(tuner_init(&tuner, "", SEGMENT), 0);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), -ENOTSUP);
	ck_assert_ptr_nonnull(
		strstr(frl_last_error(), "no algorithm can do allreduce of 32769 ranks"));
	ck_assert_int_eq(tuner_explain(&tuner, &job, text, sizeof(text)), -ENOTSUP);
	topology_fini(&topology);
}
END_TEST

START_TEST(test_measured)
{
	/* With costly bytes and cheap messages rounds do not matter, and the other way round. */
	struct tuner_costs slow_bytes, slow_messages;
	struct plan_job job = job_of(FRL_ALLTOALL, 16, 16, 1000);
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	ck_assert_int_eq(tuner_read_costs("latency=1,byte=100,large=1,message=1", &slow_bytes), 0);
	ck_assert_int_eq(tuner_read_costs("latency=1e9,byte=0.001", &slow_messages), 0);
	ck_assert_int_eq(tuner_init(&tuner, "", SEGMENT), 0);
	tuner_set_costs(&tuner, &slow_bytes, TUNER_GIVEN);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), 0);
	ck_assert_int_ne(algo, FRL_ALGO_BRUCK);
	job = job_of(FRL_ALLREDUCE, 64, 64, 10000000);
	tuner_set_costs(&tuner, &slow_messages, TUNER_GIVEN);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), 0);
	ck_assert_int_ne(algo, FRL_ALGO_RING);
	topology_fini(&topology);
}
END_TEST

/* The slower the links between hosts, the fewer bytes must use them. */
START_TEST(test_hosts)
{
	struct plan_job job = job_of(FRL_ALLREDUCE, 32, 8, 4000000);
	struct tuner_costs slow, even;
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	ck_assert_int_eq(tuner_read_costs("latency=1000,byte=0.05,large=500,far-latency=20000,"
					  "far-byte=2,far-large=5000,reduce=0.02",
				 &slow),
		0);
	ck_assert_int_eq(tuner_read_costs("latency=2000,byte=0.1,large=500,far-latency=2000,"
					  "far-byte=0.1,far-large=500,reduce=0.001",
				 &even),
		0);
	ck_assert_int_eq(tuner_init(&tuner, "", SEGMENT), 0);
	tuner_set_costs(&tuner, &slow, TUNER_MEASURED);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), 0);
	ck_assert_int_eq(algo, FRL_ALGO_HIERARCHICAL);
	ck_assert(tuner_time_ns(&tuner, FRL_ALGO_RING, &job) >
		3 * tuner_time_ns(&tuner, FRL_ALGO_HIERARCHICAL, &job));
	/* Equal links: no reason for it, and not much against it. */
	tuner_set_costs(&tuner, &even, TUNER_MEASURED);
	ck_assert(tuner_time_ns(&tuner, FRL_ALGO_RING, &job) <
		1.5 * tuner_time_ns(&tuner, FRL_ALGO_HIERARCHICAL, &job));
	topology_fini(&topology);
}
END_TEST

/* Through rings, operands of large messages are read once more. */
START_TEST(test_staged)
{
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 8, 1000000);
	struct tuner tuner, staged;
	char text[2000];

	ck_assert_int_eq(tuner_init(&tuner, "", SEGMENT), 0);
	staged = tuner;
	staged.is_staged = true;
	job.segment_bytes = SEGMENT;
	for (enum frl_algo algo = FRL_ALGO_AUTO + 1; algo < FRL_ALGOS; algo++) {
		static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_REDUCE_SCATTER,
			FRL_REDUCE };

		for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
			struct plan_cost cost;
			double more;

			job.coll = colls[i];
			job.wire = FRL_WIRE_SAME;
			if (!plan_can(algo, &job))
				continue;
			plan_cost(algo, &job, &cost);
			ck_assert_msg(cost.staged > 0 && cost.staged == cost.reduced, "%s %s %g %g",
				frl_algo_name(algo), frl_coll_name(job.coll), cost.staged,
				cost.reduced);
			more = tuner_time_ns(&staged, algo, &job) -
				tuner_time_ns(&tuner, algo, &job);
			ck_assert(more >
				0.9 * cost.staged * tuner_step_ns(tuner.costs.step[TUNER_REDUCE]));
			/* Decoded from scratch memory, or reduced out of slots. */
			job.wire = FRL_WIRE_BFLOAT16;
			ck_assert(!plan_can(algo, &job) ||
				tuner_time_ns(&staged, algo, &job) ==
					tuner_time_ns(&tuner, algo, &job));
			job.wire = FRL_WIRE_SAME;
			job.count = 10;
			ck_assert(tuner_time_ns(&staged, algo, &job) ==
				tuner_time_ns(&tuner, algo, &job));
			job.count = 1000000;
		}
		job.coll = FRL_ALLGATHER;
		ck_assert(!plan_can(algo, &job) ||
			tuner_time_ns(&staged, algo, &job) == tuner_time_ns(&tuner, algo, &job));
	}
	job.coll = FRL_ALLREDUCE;
	ck_assert_int_gt(tuner_explain(&staged, &job, text, sizeof(text)), 0);
	ck_assert_ptr_nonnull(strstr(text, "; data to reduce is staged\n"));
	topology_fini(&topology);
}
END_TEST

START_TEST(test_explain)
{
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 4, 1000);
	struct tuner tuner;
	char text[2000], small[20];
	const char *mark;
	int length;

	ck_assert_int_eq(tuner_init(&tuner, "allreduce=ring", SEGMENT), 0);
	length = tuner_explain(&tuner, &job, text, sizeof(text));
	ck_assert_int_eq(length, (int)strlen(text));
	ck_assert_ptr_nonnull(strstr(text, "halving-doubling"));
	ck_assert_ptr_null(strstr(text, "bruck"));
	mark = strstr(text, "<- chosen: FRL_ALGO\n");
	ck_assert_ptr_nonnull(mark);
	ck_assert_ptr_null(strstr(mark + 1, "<-"));
	ck_assert_ptr_nonnull(strstr(mark, "costs in ns: latency="));
	ck_assert_ptr_nonnull(strstr(mark, "(defaults)"));
	ck_assert_int_eq(tuner_explain(&tuner, &job, small, sizeof(small)), length);
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
	ck_assert_int_eq(tuner_explain(&tuner, &job, NULL, 0), length);
	topology_fini(&topology);
}
END_TEST

/* Whether ranks have processors of their own does not depend on their order. */
START_TEST(test_oversubscription)
{
	static const struct {
		double oversubscription;
		uint32_t n;
		struct location_share ranks[6];
	} rows[] = {
		{ 1, 1, { { 0, 0, 1 } } },
		{ 1, 2, { { 0, 0, 8 }, { 0, 0, 8 } } },
		{ 3, 6,
			{ { 0, 0, 2 }, { 0, 0, 2 }, { 0, 0, 2 }, { 0, 0, 2 }, { 0, 0, 2 },
				{ 0, 0, 2 } } },
		{ 1, 4, { { 0, 0, 1 }, { 0, 1, 1 }, { 0, 2, 1 }, { 0, 3, 1 } } },
		{ 2, 4, { { 0, 0, 1 }, { 0, 0, 1 }, { 0, 1, 1 }, { 0, 1, 1 } } },
		{ 2, 4, { { 0, 0, 1 }, { 0, 1, 1 }, { 0, 0, 1 }, { 0, 1, 1 } } },
		/* The host with the most ranks counts. */
		{ 1, 4, { { 0, 0, 2 }, { 1, 0, 2 }, { 0, 0, 2 }, { 1, 0, 2 } } },
		{ 3, 4, { { 0, 0, 1 }, { 1, 0, 1 }, { 1, 0, 1 }, { 1, 0, 1 } } },
		{ 1.5, 3, { { 0, 4, 1 }, { 0, 4, 2 }, { 0, 4, 1 } } },
		{ 1, 2, { { 0, 0, 0 }, { 0, 0, 0 } } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct location_share ranks[6];

		memcpy(ranks, rows[i].ranks, sizeof(ranks));
		ck_assert_double_eq_tol(location_oversubscription(ranks, rows[i].n),
			rows[i].oversubscription, 1e-9);
	}
}
END_TEST

TEST_FILE(tuner)
