/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of algorithms: by cost, as FRL_ALGO says, the same on all ranks. */
#include "collectives/tuner.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENT = 128 * 1024 };

static struct topology topology;

static struct plan_job job_of(
	enum frl_coll coll, uint32_t ranks, uint32_t on_host, uint32_t peers_max, size_t count)
{
	struct topology_place *places = calloc(ranks, sizeof(places[0]));

	ck_assert_ptr_nonnull(places);
	for (uint32_t rank = 0; rank < ranks; rank++)
		places[rank].host = rank / on_host;
	topology_fini(&topology);
	ck_assert_int_eq(topology_init(&topology, places, ranks, peers_max), 0);
	free(places);
	return (struct plan_job){ .coll = coll,
		.ranks = (int)ranks,
		.count = count,
		.elem_size = 4,
		.topology = &topology };
}

static enum frl_algo choose(const char *algos, const struct plan_job *job)
{
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	ck_assert_int_eq(tuner_init(&tuner, NULL, algos, SEGMENT), 0);
	ck_assert_int_eq(tuner_choose(&tuner, job, &algo, &segment), 0);
	ck_assert_uint_gt(segment, 0);
	ck_assert_uint_le(segment, SEGMENT);
	return algo;
}

START_TEST(test_sizes)
{
	/* Few bytes: few rounds. Many: few bytes a rank. */
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 8, 7, 2);

	ck_assert_int_eq(choose("auto", &job), FRL_ALGO_DIRECT);
	job.count = 100000000;
	ck_assert(choose(NULL, &job) != FRL_ALGO_TREE);
	job = job_of(FRL_ALLREDUCE, 64, 64, 31, 2);
	ck_assert_int_eq(choose("", &job), FRL_ALGO_TREE);
	job.count = 10000000;
	ck_assert(
		choose("", &job) == FRL_ALGO_HALVING_DOUBLING || choose("", &job) == FRL_ALGO_RING);
	job = job_of(FRL_ALLTOALL, 1024, 8, 31, 1);
	ck_assert_int_eq(choose("", &job), FRL_ALGO_BRUCK);
	topology_fini(&topology);
}
END_TEST

START_TEST(test_same_on_all_ranks)
{
	static const size_t counts[] = { 1, 100, 10000, 1000000, 100000000 };

	for (enum frl_coll coll = 0; coll < FRL_SEND; coll++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			struct plan_job job = job_of(coll, 12, 4, 11, counts[i]);
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
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 4, 7, 1000);
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	for (enum frl_algo forced = 1; forced < FRL_ALGOS; forced++)
		if (plan_can(forced, &job))
			ck_assert_int_eq(choose(frl_algo_name(forced), &job), forced);
	ck_assert_int_eq(choose("allreduce=tree,ring", &job), FRL_ALGO_TREE);
	ck_assert_int_eq(choose("ring,allreduce=tree", &job), FRL_ALGO_TREE);
	ck_assert_int_eq(choose("ring,broadcast=tree", &job), FRL_ALGO_RING);
	/* One for all goes where it can; one for this collective has to. */
	ck_assert_int_ne(choose("bruck", &job), FRL_ALGO_BRUCK);
	ck_assert_int_eq(tuner_init(&tuner, NULL, "allreduce=bruck", SEGMENT), 0);
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
		{ "rings", "'rings' is no algorithm" },
		{ "allreduce=", "'' is no algorithm" },
		{ "allreduce=ring,", NULL },
		{ "=ring", "'' is no collective" },
		{ "reduceall=ring", "'reduceall' is no collective" },
		{ ",", "'' is no algorithm" },
		{ "allreduce=ring=tree", "'ring=tree' is no algorithm" },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			"too long" },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=ring", "is no collective" },
	};
	struct tuner tuner;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int err = tuner_init(&tuner, NULL, rows[i].algos, SEGMENT);

		ck_assert_int_eq(err, rows[i].says ? -EINVAL : 0);
		if (rows[i].says)
			ck_assert_msg(strstr(frl_last_error(), rows[i].says) != NULL, "%s: %s",
				rows[i].algos, frl_last_error());
	}
}
END_TEST

START_TEST(test_none_can)
{
	struct plan_job job = job_of(FRL_ALLTOALLV, 64, 64, 31, 0);
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;
	char text[100];

	ck_assert_int_eq(tuner_init(&tuner, NULL, "", SEGMENT), 0);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "none knows what the others send"));
	ck_assert_int_eq(tuner_explain(&tuner, &job, text, sizeof(text)), -ENOTSUP);
	topology_fini(&topology);
}
END_TEST

START_TEST(test_measured)
{
	/* With costly bytes and cheap messages rounds do not matter, and the other way round. */
	struct tuner_measured slow_bytes = { .latency_ns = 1, .byte_ns = 100, .connection_ns = 1 };
	struct tuner_measured slow_messages = { .latency_ns = 1e9, .byte_ns = 0.001 };
	struct plan_job job = job_of(FRL_ALLTOALL, 16, 16, 15, 1000);
	struct tuner tuner;
	enum frl_algo algo;
	size_t segment;

	ck_assert_int_eq(tuner_init(&tuner, &slow_bytes, "", SEGMENT), 0);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), 0);
	ck_assert_int_ne(algo, FRL_ALGO_BRUCK);
	job = job_of(FRL_ALLREDUCE, 64, 64, 31, 10000000);
	ck_assert_int_eq(tuner_init(&tuner, &slow_messages, "", SEGMENT), 0);
	ck_assert_int_eq(tuner_choose(&tuner, &job, &algo, &segment), 0);
	ck_assert_int_ne(algo, FRL_ALGO_RING);
	topology_fini(&topology);
}
END_TEST

START_TEST(test_explain)
{
	struct plan_job job = job_of(FRL_ALLREDUCE, 8, 4, 7, 1000);
	struct tuner tuner;
	char text[2000], small[20];
	const char *mark;
	int length;

	ck_assert_int_eq(tuner_init(&tuner, NULL, "allreduce=ring", SEGMENT), 0);
	length = tuner_explain(&tuner, &job, text, sizeof(text));
	ck_assert_int_eq(length, (int)strlen(text));
	ck_assert_ptr_nonnull(strstr(text, "halving-doubling"));
	ck_assert_ptr_null(strstr(text, "bruck"));
	mark = strstr(text, "<- chosen: FRL_ALGO\n");
	ck_assert_ptr_nonnull(mark);
	ck_assert_ptr_null(strstr(mark + 1, "<-"));
	ck_assert_int_eq(tuner_explain(&tuner, &job, small, sizeof(small)), length);
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
	ck_assert_int_eq(tuner_explain(&tuner, &job, NULL, 0), length);
	topology_fini(&topology);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tuner");
	TCase *tuner = tcase_create("tuner");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tuner, test_sizes);
	tcase_add_test(tuner, test_same_on_all_ranks);
	tcase_add_test(tuner, test_forced);
	tcase_add_test(tuner, test_bad_words);
	tcase_add_test(tuner, test_none_can);
	tcase_add_test(tuner, test_measured);
	tcase_add_test(tuner, test_explain);
	suite_add_tcase(suite, tuner);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
