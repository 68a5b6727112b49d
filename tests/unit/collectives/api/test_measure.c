/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring when a communicator is made. */
#include "collectives/api/measure.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/location.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { TIMEOUT_MS = 20000, HOUR = 3600 };

/* The action of rank 1 instead of measuring. */
static enum { MEASURES, FAILS, SLEEPS } rank_1;
/* The results of a pair. */
static const struct tuner_costs costs_of_pair = { .step = { [TUNER_LATENCY] = 80,
							  [TUNER_BYTE] = 52,
							  [TUNER_LARGE] = 84,
							  [TUNER_MESSAGE] = 74 } };
static char folder[] = "/tmp/ferrule-measure-XXXXXX";

int __real_measure_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct measured *measured);
int __wrap_measure_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct measured *measured);

static void sleep_until_given_up(const struct frl_bootstrap *bootstrap)
{
	int gone;

	while (bootstrap->check(bootstrap->ctx, &gone) == 0)
		job_sleep_ms(10);
}

/* Measures, and replaces the result by the given one. */
int __wrap_measure_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct measured *measured)
{
	int err;

	if (comm->rank == 1 && rank_1 != MEASURES) {
		if (rank_1 == SLEEPS)
			sleep_until_given_up(comm->bootstrap);
		return comm_fail_quietly(comm, -EIO, "rank 1 has other plans");
	}
	err = __real_measure_pair(comm, lead_rank, other, far, buffer, measured);
	if (err || comm->rank != lead_rank)
		return err;
	if (!tuner_costs_are_plausible(&measured->costs))
		return comm_fail(comm, -ERANGE, "costs that are not plausible");
	for (int i = TUNER_LATENCY; i < TUNER_COSTS; i++)
		if (costs_of_pair.step[i])
			measured->costs.step[i] = costs_of_pair.step[i];
	return 0;
}

/* All ranks have the costs of rank 0, and so have communicators that are made from it. */
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
	expect(rank, tuner->oversubscription == first->oversubscription);
	expect(rank, tuner->known.step[TUNER_LATENCY]);
	expect(rank, tuner->known.step[TUNER_BYTE] && tuner->known.step[TUNER_LARGE]);
	expect(rank, tuner->known.step[TUNER_MESSAGE]);
	expect(rank, tuner->known.step[TUNER_REDUCE] && !tuner->known.step[TUNER_FAR_BYTE]);
	expect(rank, tuner_costs_are_plausible(&tuner->costs));
	expect(rank, frl_comm_split(rank->comm, rank->number % 2, 0, &child) == 0);
	if (rank->failure[0])
		return;
	expect(rank, memcmp(&child->tuner.costs, &tuner->costs, sizeof(tuner->costs)) == 0);
	expect(rank, child->tuner.source == source);
	frl_comm_destroy(child);
	/* The others may still read rank 0's. */
	expect(rank, frl_barrier(rank->comm) == 0);
}

/* ---- the file; its key is known when somebody has measured */

static char key[MEASURE_KEY];

static void note_key(struct rank *rank)
{
	if (rank->number == 0)
		measure_key(rank->comm, key);
	compare(rank);
}

static bool read_kept(struct measure_kept *kept)
{
	return measure_file_read(folder, key, time(NULL), kept) == 0;
}

/* An error of that many steps, measured and checked that many seconds ago. */
static void write_kept(const struct measure_kept *truth, int steps, int made_s, int checked_s)
{
	struct measure_kept kept = {
		.costs = truth->costs,
		.made_s = time(NULL) - made_s,
		.checked_s = time(NULL) - checked_s,
	};

	for (int i = 0; i < TUNER_COSTS; i++)
		kept.costs.step[i] += kept.costs.step[i] ? (uint8_t)steps : 0;
	ck_assert_int_eq(measure_file_write(folder, key, &kept), 0);
}

static void measure_and_keep(struct job *job, struct measure_kept *kept)
{
	void (*main)(struct rank *) = job->main;
	enum tuner_source source = TUNER_MEASURED, *before = job->arg;

	job->main = note_key;
	job->arg = &source;
	job_simulate(job);
	ck_assert(read_kept(kept));
	job->main = main;
	job->arg = before;
}

/* The first one measures, the second one finds it in the file. */
START_LOOP_TEST(test_measured, 5)
{
	enum tuner_source source = TUNER_KEPT;
	struct measure_kept kept, later;
	struct job job = {
		.ranks = 2 + _i % 3, .rails = 1 + _i / 3, .main = compare, .arg = &source
	};

	measure_and_keep(&job, &kept);
	job_simulate(&job);
	ck_assert(read_kept(&later));
	ck_assert_mem_eq(&later, &kept, sizeof(kept));
}
END_TEST

/* Costs that were measured while others used the processors are not for later jobs. */
START_TEST(test_loaded)
{
	enum tuner_source source = TUNER_MEASURED;
	struct job job = { .ranks = 3, .main = note_key, .arg = &source };
	struct measure_kept kept;

	job.is_busy = true;
	for (int i = 0; i < 2; i++) {
		job_simulate(&job);
		ck_assert(!read_kept(&kept));
	}
}
END_TEST

/* Within the hour nothing is checked. Later, costs that are far too large are replaced, also by
 * ones measured under load. */
START_LOOP_TEST(test_replaced, 2)
{
	enum tuner_source source = TUNER_KEPT;
	struct job job = { .ranks = 3, .main = compare, .arg = &source };
	struct measure_kept truth, kept;

	measure_and_keep(&job, &truth);
	write_kept(&truth, 12, HOUR, HOUR - 60);
	job_simulate(&job);
	source = TUNER_MEASURED;
	job.is_busy = _i;
	write_kept(&truth, 12, 2 * HOUR, HOUR + 1);
	job_simulate(&job);
	ck_assert(read_kept(&kept));
	ck_assert_int_eq(kept.costs.step[TUNER_LATENCY], costs_of_pair.step[TUNER_LATENCY]);
	ck_assert_int_gt(kept.made_s, time(NULL) - HOUR);
	source = TUNER_KEPT;
	job_simulate(&job);
}
END_TEST

/* Costs with a small error stay, so that choices stay; they were checked when the machine was
 * calm. */
START_LOOP_TEST(test_stays, 2)
{
	static const int steps[] = { -2, -12 };
	enum tuner_source source = TUNER_KEPT;
	struct job job = { .ranks = 3, .main = compare, .arg = &source };
	struct measure_kept truth, before, kept;

	measure_and_keep(&job, &truth);
	write_kept(&truth, steps[_i], 2 * HOUR, HOUR + 1);
	ck_assert(read_kept(&before));
	job.is_busy = true;
	job_simulate(&job);
	ck_assert(read_kept(&kept));
	ck_assert_mem_eq(&kept, &before, sizeof(kept));
	job.is_busy = false;
	job_simulate(&job);
	ck_assert(read_kept(&kept));
	ck_assert_int_gt(kept.checked_s, time(NULL) - HOUR);
	ck_assert_int_eq(kept.made_s, before.made_s);
	ck_assert_mem_eq(&kept.costs, &before.costs, sizeof(kept.costs));
}
END_TEST

/* Settings are read once, so tests in one process share the folder. */
static void forget(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -f %s/costs-*", folder);
	ck_assert_int_eq(system(command), 0);
	rank_1 = MEASURES;
}

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
	static char measured[] = "(measured when", words[] = "(from a file, measured on 20";
	struct job job = { .ranks = 3, .main = explain, .arg = measured };
	struct measure_kept kept;

	job_simulate(&job);
	forget();
	measure_and_keep(&job, &kept);
	job.arg = words;
	job_simulate(&job);
}
END_TEST

/* Nobody measures: rank 1 would fail. */
static void take_local(struct rank *rank)
{
	const struct tuner *tuner = &rank->comm->tuner;
	const struct tuner_costs none = { .step = { 0 } };
	struct tuner defaults;

	ck_assert_int_eq(tuner_init(&defaults, NULL, tuner->segment_bytes), 0);
	expect(rank, tuner->source == TUNER_LOCAL);
	expect(rank, memcmp(&tuner->known, &none, sizeof(none)) == 0);
	expect(rank, memcmp(&tuner->costs, &defaults.costs, sizeof(none)) == 0);
	explain(rank);
}

START_TEST(test_local_fabric)
{
	static char words[] = "(constants of the local fabric)";
	struct job job = { .ranks = 3, .main = take_local, .arg = words };

	rank_1 = FAILS;
	job_run(&job);
}
END_TEST

static void never(struct rank *rank)
{
	complain(rank, "has a communicator");
}

static void fail_to_create(struct job *job, const char *says)
{
	job_simulate(job);
	for (int rank = 0; rank < job->ranks; rank++) {
		ck_assert_int_lt(job->rank[rank].created, 0);
		ck_assert_ptr_null(job->rank[rank].comm);
	}
	ck_assert_msg(
		strstr(job->rank[0].created_text, says) != NULL, "%s", job->rank[0].created_text);
}

/* Whether rank 0 measures with it, or another rank does. */
START_LOOP_TEST(test_gives_up, 3)
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

TEST_MAIN(measure)
{
	int failed;

	if (!mkdtemp(folder))
		return EXIT_FAILURE;
	setenv("FRL_TUNER_CACHE", folder, 1);
	setenv("FRL_TUNER_COSTS", "", 1);
	failed = run_suite(all_tests(forget, forget));
	rmdir(folder);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
