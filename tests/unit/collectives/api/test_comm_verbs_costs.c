/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs of messages over hardware: kept for devices of one kind, and used for no others. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/communicator/communicator.h"
#include "collectives/api/measure.h"
#include "tests/unit/collectives/comm_verbs_fixture.h"
#include "tests/fixtures/program.h"

static char folder[] = "/tmp/ferrule-costs-XXXXXX";

/* All costs of a kind differ: no measurement gives these. */
static struct measure_kept kept_costs(void)
{
	struct measure_kept kept = { .made_s = time(NULL), .checked_s = time(NULL) };

	for (int i = 0; i < TUNER_COSTS; i++)
		kept.costs.step[i] = (uint8_t)(TUNER_STEP_MOST - i);
	return kept;
}

static void write_costs(struct rank *rank)
{
	struct measure_kept kept = kept_costs();
	char key[MEASURE_KEY];

	expect(rank, rank->comm->tuner.is_staged);
	if (rank->number > 0)
		return;
	measure_key(rank->comm, key);
	expect(rank, measure_file_write(folder, key, &kept) == 0);
}

static void expect_kept(struct rank *rank)
{
	struct measure_kept kept = kept_costs();
	const struct tuner *tuner = &rank->comm->tuner;

	expect(rank, tuner->source == TUNER_KEPT && tuner->is_staged);
	expect(rank, memcmp(&tuner->known, &kept.costs, sizeof(kept.costs)) == 0);
}

/* And they leave the kept costs unchanged. */
static void expect_measured(struct rank *rank)
{
	struct measure_kept kept = kept_costs(), now;
	const struct tuner *tuner = &rank->comm->tuner;
	char key[MEASURE_KEY];

	expect(rank, tuner->source == TUNER_MEASURED);
	expect(rank, memcmp(&tuner->known, &kept.costs, sizeof(kept.costs)) != 0);
	if (rank->number > 0)
		return;
	measure_key(rank->comm, key);
	expect(rank, measure_file_read(folder, key, time(NULL), &now) == 0);
	expect(rank, memcmp(&now.costs, &kept.costs, sizeof(now.costs)) == 0);
}

static void run(void (*main)(struct rank *rank), const struct plug *plug)
{
	struct job job = { .ranks = 2, .main = main, .port = plug_port };

	plug_in(plug);
	job_run(&job);
	plug_out();
}

START_TEST(kinds)
{
	const struct plug same = { .is_mixed = false }, mixed = { .is_mixed = true };

	run(write_costs, &same);
	run(expect_kept, &same);
	run(expect_measured, &mixed);
	run(expect_kept, &same);
}
END_TEST

static void remove_folder(void)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(folder);
}

TEST_MAIN(comm_verbs_costs)
{
	int failed;

	if (!mkdtemp(folder))
		return EXIT_FAILURE;
	setenv("FRL_TUNER_CACHE", folder, 1);
	setenv("FRL_TUNER_COSTS", "", 1);
	failed = run_suite_unforked(all_tests(NULL, NULL));
	remove_folder();
	return failed;
}
