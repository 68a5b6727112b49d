/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce in which each rank writes its part to the results of all others: into which memory,
 * with the same results as without, and never into the memory of a rank that has failed.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/shm/internal.h"
#include "lib/base/memory/share.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { BYTES = 8 * SHM_BLOCK + 100, COUNT = BYTES / sizeof(int32_t) };

static int32_t input(int rank, size_t i)
{
	return (int32_t)(i * 31 + (size_t)rank * 7919);
}

static int32_t sum_at(int ranks, size_t i)
{
	int32_t sum = 0;

	for (int rank = 0; rank < ranks; rank++)
		sum += input(rank, i);
	return sum;
}

static bool has_delivered(const struct rank *rank)
{
	const struct shm *shm = rank->comm->shm;

	return shm->operations[(shm->published - 1) % SHM_SLOTS].delivers;
}

/* An allreduce in place. Returns whether this rank has written to the others. */
static bool sum(struct rank *rank, int32_t *memory, size_t count)
{
	for (size_t i = 0; i < count; i++)
		memory[i] = input(rank->number, i);
	expect(rank, frl_allreduce(rank->comm, memory, memory, count, FRL_INT32, FRL_SUM) == 0);
	for (size_t i = 0; i < count && !rank->failure[0]; i++)
		if (memory[i] != sum_at(rank->ranks, i))
			complain(rank, "%zu of %zu is %d", i, count, memory[i]);
	return has_delivered(rank);
}

/* ---- into which memory */

static void run_kinds(struct rank *rank)
{
	bool is_last = rank->number == rank->ranks - 1;
	int32_t *memory = job_shared_memory(BYTES), *plain = malloc(BYTES),
		*sealed = job_shared_memory(BYTES);
	struct share *share = share_find(sealed, BYTES);

	expect(rank, rank->comm->shm != NULL);
	expect(rank, sum(rank, memory, COUNT));
	expect(rank, sum(rank, memory, SHM_INLINE / sizeof(int32_t) + 1));
	expect(rank, !sum(rank, plain, COUNT));
	/* The last rank alone writes to all others, whose memory is shared. */
	expect(rank, sum(rank, is_last ? plain : memory, COUNT) == is_last);
	/* Memory that a peer of the fabric got is no longer written by those that come later. */
	expect(rank, share_seal(share) == 0);
	job_meet(rank->job);
	expect(rank, !sum(rank, sealed, COUNT));
	share_put(share);
	frl_mem_free(memory, BYTES);
	frl_mem_free(sealed, BYTES);
	free(plain);
}

START_RANGE_TEST(kinds_of_memory, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_kinds };

	job_run(&job);
}
END_TEST

/* ---- turned off */

static int exchange_all(void *ctx, const void *mine, size_t bytes, void *ret_all)
{
	const struct rank *rank = ctx;

	return rank->bootstrap.allgather(rank->bootstrap.ctx, mine, bytes, ret_all);
}

/* FRL_SHM_WRITE=0 counts for the rank that has it. */
static void run_forbidden(struct rank *rank)
{
	const struct shm_gather how = { .all = exchange_all, .ctx = rank };
	int32_t *memory = job_shared_memory(BYTES);

	expect(rank, frl_barrier(rank->comm) == 0);
	shm_destroy(rank->comm->shm);
	rank->comm->shm = NULL;
	rank->comm->config.writes_shared = rank->number != 1;
	expect(rank, shm_create(rank->comm, &how) == 0);
	if (!rank->comm->shm)
		abort();
	expect(rank, sum(rank, memory, COUNT) == (rank->number != 1));
	frl_mem_free(memory, BYTES);
}

START_TEST(one_forbids)
{
	struct job job = { .ranks = 3, .main = run_forbidden };

	job_run(&job);
}
END_TEST

/* ---- a rank that has failed */

/* Rank 1 gives up after it has published its buffer, and uses the memory again. */
static void run_failed(struct rank *rank)
{
	int32_t *memory = job_shared_memory(BYTES);
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = memory,
		.recv = memory,
		.count = COUNT,
		.dtype = FRL_INT32 };
	struct frl_request *request;

	for (size_t i = 0; i < COUNT; i++)
		memory[i] = input(rank->number, i);
	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number == 1) {
		expect(rank, frl_start(rank->comm, &c, &request) == 0);
		shm_give_up(rank->comm->shm);
		job_meet(rank->job);
		job_meet(rank->job);
		for (size_t i = 0; i < COUNT && !rank->failure[0]; i++)
			if (memory[i] != input(1, i))
				complain(rank, "%zu was written: %d", i, memory[i]);
		expect(rank, frl_request_wait(request) < 0);
	} else {
		job_meet(rank->job);
		expect(rank, frl_run(rank->comm, &c) < 0);
		expect(rank, strstr(frl_last_error(), "rank 1 has failed") != NULL);
		job_meet(rank->job);
	}
	frl_mem_free(memory, BYTES);
}

START_TEST(failed_rank_is_not_written)
{
	struct job job = { .ranks = 2, .main = run_failed };

	job_run(&job);
}
END_TEST

TEST_MAIN(comm_shm_write)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
