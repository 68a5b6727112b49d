/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks in shared memory: those that cannot share or describe false pages, that start different
 * operations, that come last or late; and communicators of some of the ranks.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/shm/internal.h"
#include "tests/fixtures/program.h"
#include "tests/unit/collectives/comm_fixture.h"

enum {
	SHORT = 100,
	LONG = 90001 / JOB_SHARE, /* not whole blocks */
};

/* The information about rank 1 that rank 0 gets when they exchange their pages. */
enum lie { NO_LIE, UNWILLING, OTHER_FILE, OTHER_INODE, TOO_SHORT, OTHER_SECRET, LATE, LIES };

struct liar {
	struct rank *rank;
	enum lie lie;
	int round;
};

/* As shm.c has it. */
struct page_record {
	int32_t pid;
	uint32_t is_willing;
	uint64_t secret;
	struct shm_export page;
};

static int gather(void *ctx, const void *mine, size_t bytes, void *ret_all)
{
	struct liar *liar = ctx;
	struct frl_bootstrap *bootstrap = &liar->rank->bootstrap;
	int err = bootstrap->allgather(bootstrap->ctx, mine, bytes, ret_all);
	struct page_record *card = (struct page_record *)ret_all + 1;

	if (liar->round++ == 1 && liar->lie == LATE)
		((uint8_t *)ret_all)[1] = 0;
	if (bytes != sizeof(*card) || (liar->rank->number != 0 && liar->lie != UNWILLING))
		return err;
	card->is_willing = liar->lie != UNWILLING;
	card->page.fd += liar->lie == OTHER_FILE ? 1000000 : 0;
	card->page.inode += liar->lie == OTHER_INODE;
	card->page.size -= liar->lie == TOO_SHORT ? 4096 : 0;
	card->secret += liar->lie == OTHER_SECRET;
	return err;
}

static void run_liar(struct rank *rank)
{
	struct liar liar = { .rank = rank, .lie = *(const enum lie *)rank->job->arg };
	const struct shm_gather how = { .all = gather, .ctx = &liar };
	int32_t *memory = job_private_memory(LONG * sizeof(int32_t));

	expect(rank, frl_barrier(rank->comm) == 0);
	shm_destroy(rank->comm->shm);
	rank->comm->shm = NULL;
	expect(rank, shm_create(rank->comm, &how) == 0);
	expect(rank, (rank->comm->shm != NULL) == (liar.lie == NO_LIE));
	for (size_t i = 0; i < LONG; i++)
		memory[i] = job_input(rank->number, i);
	expect(rank, frl_allreduce(rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM) == 0);
	for (size_t i = 0; i < LONG && !rank->failure[0]; i += 97)
		expect(rank, memory[i] == job_sum(rank->ranks, i));
	free(memory);
}

START_RANGE_TEST(all_or_none, NO_LIE, LIES)
{
	enum lie lie = (enum lie)_i;
	struct job job = { .ranks = 3, .main = run_liar, .arg = &lie };

	job_run(&job);
}
END_TEST

/* Short against long, one operation against another. */
static void run_mismatch(struct rank *rank)
{
	static int32_t in[LONG], out[JOB_RANKS][LONG];
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = in,
		.recv = out[rank->number],
		.count = rank->number ? LONG : SHORT,
		.dtype = FRL_INT32 };

	expect(rank, frl_run(rank->comm, &c) == -EPROTO);
	expect(rank, strstr(frl_last_error(), "all ranks must start the same") != NULL);
}

START_TEST(mismatch)
{
	struct job job = { .ranks = 3, .main = run_mismatch };

	job_run(&job);
}
END_TEST

/* An operation whose root is alone needs no other rank; the next operation shows it. */
static void run_other_roots(struct rank *rank)
{
	int32_t value = 1, result;

	expect(rank, frl_broadcast(rank->comm, &value, &result, 1, FRL_INT32, rank->number) == 0);
	expect(rank, frl_barrier(rank->comm) == -EPROTO);
	expect(rank, strstr(frl_last_error(), "different operations before barrier #1") != NULL);
}

START_TEST(other_roots)
{
	struct job job = { .ranks = 2, .main = run_other_roots };

	job_run(&job);
}
END_TEST

/* Rank 0's SEND advances although rank 0 always comes last, and so never waits. */
static void run_last(struct rank *rank)
{
	size_t bytes = 8 * LONG * sizeof(int32_t);
	int32_t *memory = calloc(1, bytes), flag = 0, is_done = 0;
	struct frl_collective c = { .coll = rank->number ? FRL_RECV : FRL_SEND,
		.send = memory,
		.recv = memory,
		.count = 8 * LONG,
		.dtype = FRL_INT32,
		.root = !rank->number };
	struct frl_request *request;

	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	for (int i = 0; i < 200000 && !is_done && !rank->failure[0]; i++) {
		bool is_sent = flag;

		if (rank->number == 0 && !is_sent)
			expect(rank, frl_request_test(request, &is_sent) == 0);
		flag = is_sent;
		expect(rank,
			frl_allreduce(rank->comm, &flag, &is_done, 1, FRL_INT32, FRL_MAX) == 0);
	}
	expect(rank, is_done);
	if (rank->number == 1)
		expect(rank, frl_request_wait(request) == 0);
	free(memory);
}

START_TEST(sends_beside)
{
	struct job job = { .ranks = 2, .main = run_last };

	job_run(&job);
}
END_TEST

/* A rank that does not come until the others have given up is named. */
static void run_late(struct rank *rank)
{
	enum { LATE_MS = 200 };
	static int32_t in[LONG], out[JOB_RANKS][LONG];
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = in,
		.recv = out[rank->number],
		.count = *(const int *)rank->job->arg ? LONG : SHORT,
		.dtype = FRL_INT32 };

	struct frl_request *request;

	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number != 2)
		expect(rank, frl_start(rank->comm, &c, &request) == 0);
	/* Only now may a rank give up: however late this one is, the others do not fail. */
	job_meet(rank->job);
	if (rank->number == 2) {
		job_meet(rank->job);
		/* Until it gets their failure it may complete with the data that they have sent. */
		expect(rank, frl_run(rank->comm, &c) < 0 || frl_run(rank->comm, &c) < 0);
		return;
	}
	rank->comm->config.timeout_ms = LATE_MS;
	expect(rank, frl_request_wait(request) < 0);
	if (rank->number == 0)
		expect(rank, strstr(frl_last_error(), "waits for rank 2") != NULL);
	job_meet(rank->job);
}

START_LOOP_TEST(who_is_late, 2)
{
	struct job job = { .ranks = 3, .main = run_late, .arg = &_i };

	job_run(&job);
}
END_TEST

/* ---- communicators made of others share memory as well, each its own */

static void run_parts(struct rank *rank)
{
	struct frl_comm *part = NULL;
	int color = rank->number == 4 ? -1 : rank->number % 2;
	int32_t one = 1, sum = 0;

	if (!expect(rank, frl_comm_split(rank->comm, color, 0, &part) == 0) || !part)
		return;
	expect(rank, part->shm && part->shm != rank->comm->shm);
	expect(rank, frl_allreduce(part, &one, &sum, 1, FRL_INT32, FRL_SUM) == 0 && sum == 2);
	frl_comm_destroy(part);
}

START_TEST(parts)
{
	struct job job = { .ranks = 5, .main = run_parts };

	job_run(&job);
}
END_TEST

TEST_MAIN(comm_shm_ranks)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
