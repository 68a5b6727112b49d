/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring when a communicator is made: between threads over the local fabric. */
#include "collectives/measure.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/communicator.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "tests/unit/comm_fixture.h"

enum { TIMEOUT_MS = 200, SOON_MS = 20000 };

/* What rank 1 does instead of measuring. */
static enum { MEASURES, FAILS, SLEEPS } rank_1;
static char folder[] = "/tmp/ferrule-measure-XXXXXX";

int __real_comm_measure(struct frl_comm *comm);
int __wrap_comm_measure(struct frl_comm *comm);

static void sleep_until_given_up(const struct frl_bootstrap *bootstrap)
{
	int gone;

	for (int ms = 0; ms < SOON_MS && bootstrap->check(bootstrap->ctx, &gone) == 0; ms += 10)
		job_sleep_ms(10);
}

int __wrap_comm_measure(struct frl_comm *comm)
{
	if (comm->rank != 1 || rank_1 == MEASURES)
		return __real_comm_measure(comm);
	if (rank_1 == SLEEPS)
		sleep_until_given_up(comm->bootstrap);
	return comm_fail_quietly(comm, -EIO, "rank 1 has other plans");
}

/* All ranks have what rank 0 has, and so have communicators that are made out of it. */
static void compare(struct rank *rank)
{
	const struct tuner *tuner = &rank->comm->tuner;
	enum tuner_source source = *(const enum tuner_source *)rank->job->arg;
	const struct tuner *first;
	struct frl_comm *child;

	if (!expect(rank, frl_barrier(rank->comm) == 0))
		return;
	first = &rank->job->rank[0].comm->tuner;
	expect(rank, tuner->source == source);
	expect(rank, memcmp(&tuner->costs, &first->costs, sizeof(tuner->costs)) == 0);
	expect(rank, memcmp(&tuner->known, &first->known, sizeof(tuner->known)) == 0);
	expect(rank, tuner->crowd == first->crowd);
	expect(rank, tuner->known.step[TUNER_LATENCY] && tuner->known.step[TUNER_BYTE]);
	expect(rank, tuner->known.step[TUNER_LARGE] && tuner->known.step[TUNER_MESSAGE]);
	expect(rank, tuner->known.step[TUNER_REDUCE] && !tuner->known.step[TUNER_FAR_BYTE]);
	/* Between 10 ns and 1 s, 1 TB/s and 1 MB/s. */
	expect(rank, tuner_step_ns(tuner->costs.step[TUNER_LATENCY]) > 10);
	expect(rank, tuner_step_ns(tuner->costs.step[TUNER_LATENCY]) < 1e9);
	expect(rank, tuner_step_ns(tuner->costs.step[TUNER_BYTE]) > 0.001);
	expect(rank, tuner_step_ns(tuner->costs.step[TUNER_BYTE]) < 1000);
	expect(rank, frl_comm_split(rank->comm, rank->number % 2, 0, &child) == 0);
	if (rank->failure[0])
		return;
	expect(rank, memcmp(&child->tuner.costs, &tuner->costs, sizeof(tuner->costs)) == 0);
	expect(rank, child->tuner.source == source);
	frl_comm_destroy(child);
	/* The others may still look at rank 0's. */
	expect(rank, frl_barrier(rank->comm) == 0);
}

/* The first one measures, the second one finds it in the file. */
START_TEST(test_measured)
{
	enum tuner_source source = TUNER_MEASURED;
	struct job job = {
		.ranks = 2 + _i % 3, .rails = 1 + _i / 3, .main = compare, .arg = &source
	};

	rank_1 = MEASURES;
	job_run(&job);
	source = TUNER_KEPT;
	job_run(&job);
}
END_TEST

static void explain(struct rank *rank)
{
	struct frl_collective c = { .coll = FRL_BARRIER };
	char text[4000];

	expect(rank, frl_comm_explain(rank->comm, &c, text, sizeof(text)) > 0);
	expect(rank, strstr(text, "latency=") != NULL);
	expect(rank, strstr(text, rank->job->arg) != NULL);
}

START_TEST(test_explained)
{
	static char measured[] = "(measured when", kept[] = "(kept since they were measured on 20";
	struct job job = { .ranks = 3, .main = explain, .arg = measured };

	rank_1 = MEASURES;
	job_run(&job);
	job.arg = kept;
	job_run(&job);
}
END_TEST

static void never(struct rank *rank)
{
	complain(rank, "has a communicator");
}

static void fail_to_create(struct job *job, const char *says)
{
	uint64_t start_ns = clock_now_ns();

	job_run(job);
	ck_assert_uint_lt((clock_now_ns() - start_ns) / 1000000, SOON_MS);
	for (int rank = 0; rank < job->ranks; rank++) {
		ck_assert_int_lt(job->rank[rank].created, 0);
		ck_assert_ptr_null(job->rank[rank].comm);
	}
	ck_assert_msg(
		strstr(job->rank[0].created_text, says) != NULL, "%s", job->rank[0].created_text);
}

/* Whether rank 0 measures with it, or another one does. */
START_TEST(test_gives_up)
{
	struct job job = { .ranks = 2 + _i, .main = never, .may_fail = true };

	rank_1 = FAILS;
	fail_to_create(&job, "rank 1");
}
END_TEST

START_TEST(test_times_out)
{
	struct job job = { .ranks = 3, .main = never, .may_fail = true, .timeout_ms = TIMEOUT_MS };

	rank_1 = SLEEPS;
	fail_to_create(&job, "no progress on rank 0");
}
END_TEST

/* Settings are read once, so where tests share a process they share the folder. */
static void forget(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -f %s/costs-*", folder);
	ck_assert_int_eq(system(command), 0);
}

int main(void)
{
	Suite *suite = suite_create("measure");
	TCase *tcase = tcase_create("measure");
	SRunner *runner = srunner_create(suite);
	int failed;

	if (!mkdtemp(folder))
		return EXIT_FAILURE;
	setenv("FRL_TUNER_CACHE", folder, 1);
	setenv("FRL_TUNER_COSTS", "", 1);
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, forget, forget);
	tcase_add_loop_test(tcase, test_measured, 0, 5);
	tcase_add_test(tcase, test_explained);
	tcase_add_loop_test(tcase, test_gives_up, 0, 3);
	tcase_add_test(tcase, test_times_out);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	rmdir(folder);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
