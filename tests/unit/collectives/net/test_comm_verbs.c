/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators over hardware: user buffers are registered once and not each time, new memory at
 * the same address is registered again, and any call of libibverbs may fail. Rails that fail are in
 * test_comm_verbs_rails.c.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include "collectives/communicator/communicator.h"
#include "lib/base/error.h"
#include "lib/base/memory/unmap_watch.h"
#include "tests/unit/collectives/comm_verbs_fixture.h"
#include "tests/fixtures/program.h"

enum {
	COUNT = 300000,
	BYTES = COUNT * sizeof(int32_t),
	TIMES = 10,
	FIRST_FAULT = 40,
	FAULTS = 30,
	FAULTS_STEP = JOB_SHARE > 4 ? 3 : 1,
	TIMEOUT_MS = 20000,
};

/* Joins all ranks of a job without messages. */

static void run(struct job *job, const struct plug *plug)
{
	plug_in(plug);
	job->port = plug_port;
	if (job->timeout_ms == 0)
		job->timeout_ms = TIMEOUT_MS;
	job_run(job);
	plug_out();
}

static void run_plain(struct job *job)
{
	run(job, &(struct plug){ 0 });
}

static int32_t *map(void *at, int flags, int fd)
{
	void *addr = mmap(at, BYTES, PROT_READ | PROT_WRITE, flags | (at ? MAP_FIXED : 0), fd, 0);

	ck_assert_ptr_ne(addr, MAP_FAILED);
	return addr;
}

static int32_t *map_private(void *at)
{
	return map(at, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static struct frl_mr_cache_stats stats_of(const struct rank *rank, int rail)
{
	struct frl_mr_cache_stats stats;

	frl_mr_cache_query(rank->comm->rails[rail].cache, &stats);
	return stats;
}

static bool is_gone(struct unmap_listener *listener, uintptr_t start, uintptr_t end)
{
	return false;
}

static bool is_needed(struct unmap_listener *listener, uintptr_t at, uintptr_t *until)
{
	return false;
}

static bool can_keep;

/* Without userfaultfd nothing is kept. Otherwise nearly everything is, except memory that was
 * requested while another thread was just unmapping something. */
static void find_out(void)
{
	struct unmap_listener listener = { .gone = is_gone, .needs = is_needed };

	can_keep = unmap_watch_add(&listener) == 0;
	if (can_keep)
		unmap_watch_remove(&listener);
	else
		printf("skipped: the kernel cannot tell of unmapped memory\n");
}

static unsigned registrations(void)
{
	return fake_verbs_calls("ibv_reg_mr") + fake_verbs_calls("ibv_reg_mr_iova2");
}

/* ---- the same buffer again and again */

/* For all ranks: registrations since the last call. */
static atomic_uint asked_for;

/* By its caches, and of rings: it has as many as channels needed one at the same time. */
static unsigned asked(const struct rank *rank)
{
	unsigned n = rank->comm->staging.n_rings * (unsigned)rank->job->rails;

	for (int rail = 0; rail < rank->job->rails; rail++)
		n += (unsigned)stats_of(rank, rail).misses;
	return n;
}

/* Memory that cannot be kept at that moment, as another thread is just unmapping something, is
 * registered once more. */
static void run_again(struct rank *rank)
{
	int32_t *values = map_private(NULL);
	unsigned before, asked_before;

	/* Makes the connections and the scratch memory. */
	expect(rank, plug_allreduce(rank, values, COUNT) == 0);
	atomic_store(&asked_for, 0);
	job_meet(rank->job);
	before = registrations();
	asked_before = asked(rank);
	job_meet(rank->job);
	for (int i = 0; i < TIMES; i++)
		expect(rank, plug_allreduce(rank, values, COUNT) == 0);
	atomic_fetch_add(&asked_for, asked(rank) - asked_before);
	job_meet(rank->job);
	expect(rank, registrations() - before == atomic_load(&asked_for));
	for (int rail = 0; can_keep && rail < rank->job->rails; rail++) {
		struct frl_mr_cache_stats stats = stats_of(rank, rail);

		expect(rank, stats.misses == 1 + stats.unwatched);
		expect(rank, stats.hits + stats.unwatched >= TIMES);
	}
	job_meet(rank->job);
	munmap(values, BYTES);
}

START_LOOP_TEST(registered_once, 4)
{
	const struct plug plug = { .is_one_device = _i % 2 };
	struct job job = { .ranks = 2 + _i / 2 % 2, .rails = 1 + _i % 2, .main = run_again };

	run(&job, &plug);
}
END_TEST

/* ---- other memory at the same address */

/* Unmapped, and mapped again: one rank after the other, so that no other thread takes the place. */
static void replace(struct rank *rank, int32_t *values)
{
	for (int turn = 0; turn < rank->ranks; turn++) {
		job_meet(rank->job);
		if (turn == rank->number) {
			munmap(values, BYTES);
			expect(rank, map_private(values) == values);
		}
		job_meet(rank->job);
	}
}

static void run_unmapped(struct rank *rank)
{
	int32_t *values = map_private(NULL);

	expect(rank, plug_allreduce(rank, values, COUNT) == 0);
	if (can_keep) {
		for (uint64_t i = 1; i <= TIMES; i++) {
			uint64_t unwatched = stats_of(rank, 0).unwatched;

			replace(rank, values);
			expect(rank, plug_allreduce(rank, values, COUNT) == 0);
			expect(rank, stats_of(rank, 0).misses == 1 + i);
			expect(rank, stats_of(rank, 0).invalidated == i - unwatched);
		}
		/* Mapped over: the pages are others. */
		map_private(values);
		expect(rank, plug_allreduce(rank, values, COUNT) == 0);
		expect(rank, stats_of(rank, 0).misses == 2 + TIMES);
	}
	munmap(values, BYTES);
}

JOB_TEST(unmapped, 1, run_plain, .ranks = 2, .rails = 1, .main = run_unmapped);

/* ---- memory that the kernel cannot tell of */

static void run_file(struct rank *rank)
{
	FILE *file = tmpfile();
	int32_t *values;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(ftruncate(fileno(file), BYTES), 0);
	values = map(NULL, MAP_SHARED, fileno(file));
	for (uint64_t i = 1; i <= 3; i++) {
		expect(rank, plug_allreduce(rank, values, COUNT) == 0);
		/* If it were kept, nobody could tell whether it is still the same memory. */
		if (stats_of(rank, 0).unwatched)
			expect(rank, stats_of(rank, 0).deregistered == stats_of(rank, 0).misses);
	}
	munmap(values, BYTES);
	fclose(file);
}

JOB_TEST(not_watched, 1, run_plain, .ranks = 2, .rails = 1, .main = run_file);

/* ---- no more memory may be locked */

enum { LOCKED = 9 << 20, BUFFERS = 8, TOO_LONG = 16 << 20, LIMIT_STEP = 150000 };

static void run_limited(struct rank *rank)
{
	int32_t *values[BUFFERS], *long_ones = calloc(1, TOO_LONG);
	struct frl_request *request;
	uint64_t evicted = 0;

	/* Together they are too many, for each rail and for all of them. */
	for (int i = 0; i < BUFFERS; i++)
		values[i] = map_private(NULL);
	for (int i = 0; i < 2 * BUFFERS; i++)
		expect(rank, plug_allreduce(rank, values[i % BUFFERS], COUNT) == 0);
	for (int rail = 0; rail < rank->job->rails; rail++)
		evicted += stats_of(rank, rail).evicted;
	if (can_keep)
		expect(rank, evicted > 0);
	job_meet(rank->job);
	/* One alone is too long: the operation is refused, and the communicator continues. */
	expect(rank, plug_start(rank, long_ones, TOO_LONG / sizeof(int32_t), &request) == -ENOMEM);
	expect(rank, strstr(frl_last_error(), "no memory") != NULL);
	expect(rank, strstr(frl_last_error(), rank->number ? "rank 1 " : "rank 0 ") != NULL);
	expect(rank, strstr(frl_last_error(), "rail 0 (verbs:nic") != NULL);
	expect(rank, plug_allreduce(rank, values[0], COUNT) == 0);
	for (int i = 0; i < BUFFERS; i++)
		munmap(values[i], BYTES);
	free(long_ones);
}

START_LOOP_TEST(limited, 2)
{
	const struct plug plug = { .is_one_device = _i, .memlock = (uint64_t)LOCKED << _i };
	struct job job = { .ranks = 2, .rails = 1 + _i, .main = run_limited };

	run(&job, &plug);
}
END_TEST

/* Unused registrations of the parent make room for a child's messages. */
static void run_child_limited(struct rank *rank)
{
	int32_t *values[BUFFERS];
	struct frl_comm *parent = rank->comm, *child;

	for (int i = 0; i < BUFFERS; i++) {
		values[i] = map_private(NULL);
		expect(rank, plug_allreduce(rank, values[i], COUNT) == 0);
	}
	expect(rank, frl_comm_duplicate(parent, &child) == 0);
	rank->comm = child;
	expect(rank, plug_allreduce(rank, values[0], 1) == 0);
	rank->comm = parent;
	frl_comm_destroy(child);
	for (int i = 0; i < BUFFERS; i++)
		munmap(values[i], BYTES);
}

START_LOOP_TEST(child_limited, BYTES / LIMIT_STEP + 1)
{
	const struct plug plug = { .memlock = LOCKED + (uint64_t)_i * LIMIT_STEP };
	struct job job = { .ranks = 2, .rails = 1, .main = run_child_limited };

	run(&job, &plug);
}
END_TEST

/* ---- NICs that take few bytes inline, or none */

static void run_short(struct rank *rank)
{
	int32_t *values = map_private(NULL);

	/* Lengths around the limit, and many, so that credits travel in headers alone. */
	for (size_t count = 1; count <= COUNT; count = 2 * count + 3)
		for (int i = 0; i < 4; i++)
			expect(rank, plug_allreduce(rank, values, count) == 0);
	munmap(values, BYTES);
}

START_LOOP_TEST(few_inline, 6)
{
	static const uint32_t bytes[] = { 0, 16, 31, 32, 96, 512 };
	const struct plug plug = { .has_few_inline = true, .max_inline = bytes[_i] };
	struct job job = { .ranks = 2, .rails = 1, .main = run_short };

	run(&job, &plug);
}
END_TEST

/* A cache of the application's own makes room as well. */
START_TEST(cache_is_limited)
{
	const struct plug plug = { .memlock = BYTES + BYTES / 2 };
	struct frl_mr_cache_stats stats;
	struct frl_device_config config;
	struct frl_mr_cache *cache;
	struct frl_device *device;
	int32_t *values[BUFFERS];
	struct frl_pd *pd;
	struct frl_mr *mr, *none;

	plug_in(&plug);
	frl_device_config_init(&config);
	config.port = plug_port(0, 0);
	ck_assert_int_eq(frl_device_open(&config, &device), 0);
	ck_assert_int_eq(frl_pd_create(device, &pd), 0);
	ck_assert_int_eq(frl_mr_cache_create(pd, NULL, &cache), 0);
	for (int i = 0; i < BUFFERS; i++) {
		values[i] = map_private(NULL);
		ck_assert_int_eq(frl_mr_cache_get(cache, values[i], BYTES, 0, &mr), 0);
		/* Memory in use stays. */
		ck_assert_int_eq(frl_mr_cache_get(cache, values[0], BYTES, 1, &none), -ENOMEM);
		frl_mr_cache_put(cache, mr);
	}
	frl_mr_cache_query(cache, &stats);
	ck_assert(stats.unwatched || stats.evicted == BUFFERS - 1);
	for (int i = 0; i < BUFFERS; i++)
		munmap(values[i], BYTES);
	ck_assert_int_eq(frl_mr_cache_destroy(cache), 0);
	ck_assert_int_eq(frl_pd_destroy(pd), 0);
	ck_assert_int_eq(frl_device_close(device), 0);
	plug_out();
}
END_TEST

/* ---- what cannot be destroyed */

static char line[512];

static void keep_line(enum frl_log_level level, const char *text, void *arg)
{
	snprintf(line, sizeof(line), "%s", text);
}

/* The log has the reason, not that the protection domain still has objects. */
START_LOOP_TEST(what_stays, 2)
{
	static const char why[ERROR_TEXT_MAX] = "cannot deregister memory";
	const struct plug plug = { .is_one_device = false };
	struct frl_comm *comm = calloc(1, sizeof(*comm));
	struct frl_device_config config;
	struct frl_mr *mr;
	struct frl_pd *pd;

	plug_in(&plug);
	frl_device_config_init(&config);
	config.port = plug_port(0, 0);
	comm->n_rails = 1;
	ck_assert_int_eq(frl_device_open(&config, &comm->rails[0].device), 0);
	ck_assert_int_eq(frl_pd_create(comm->rails[0].device, &pd), 0);
	ck_assert_int_eq(frl_reg_mr(pd, line, sizeof(line), FRL_ACCESS_LOCAL_WRITE, &mr), 0);
	comm->rails[0].pd = pd;
	frl_set_log(keep_line, FRL_LOG_WARNING, NULL);
	error_restore(_i == 0 ? why : (const char[ERROR_TEXT_MAX]){ "" });
	rails_close(comm);
	ck_assert_msg(
		strstr(line, _i == 0 ? why : "the protection domain still has 1"), "%s", line);
	frl_set_log(NULL, FRL_LOG_WARNING, NULL);
	ck_assert_int_eq(frl_dereg_mr(mr), 0);
	ck_assert_int_eq(frl_pd_destroy(pd), 0);
	ck_assert_int_eq(frl_device_close(comm->rails[0].device), 0);
	free(comm);
	plug_out();
}
END_TEST

/* ---- any call may fail */

/* Not in time, but with a reason: the rank that fails reports it, and the others get it. */
static void run_with_faults(struct rank *rank)
{
	int32_t *values = map_private(NULL);
	int err = 0;

	for (int i = 0; i < 3 && !err; i++)
		err = plug_allreduce(rank, values, COUNT);
	/* A failure after all work is done is noticed by the others only by waiting in vain. */
	fake_verbs_fail_nth_made(0, 0);
	if (err) {
		expect(rank, err != -ETIMEDOUT);
		expect(rank, frl_last_error()[0] != '\0');
		frl_comm_abort(rank->comm, frl_last_error());
	}
	munmap(values, BYTES);
}

START_LOOP_TEST(faults, 4)
{
	const struct plug plug = { .is_one_device = false };
	struct job job = {
		.ranks = 2, .rails = 1 + _i % 2, .main = run_with_faults, .may_fail = true
	};

	for (int n = 1; n <= FAULTS; n += FAULTS_STEP) {
		plug_in(&plug);
		job.port = plug_port;
		job.timeout_ms = TIMEOUT_MS;
		/* Devices are open then: test_verbs_faults.c has failures of opening. */
		fake_verbs_fail_nth_made(FIRST_FAULT + 7 * n + _i, _i < 2 ? ENOMEM : EIO);
		job_run(&job);
		fake_verbs_fail_nth_made(0, 0);
		plug_out();
	}
}
END_TEST

TEST_MAIN(comm_verbs)
{
	return run_suite_unforked(all_tests(find_out, NULL));
}
