/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long operations on private memory: others read it themselves if all ranks can and may, and it
 * goes through rings otherwise, with the same results. Memory that is gone is an error.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "collectives/shm/internal.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum {
	BYTES = SHM_PRIVATE_FROM + SHM_BLOCK + 100, /* the last block of each part is short */
	COUNT = BYTES / sizeof(int32_t),
	PAGE = 4096,
};

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

static const struct shm_operation *last_of(const struct rank *rank)
{
	const struct shm *shm = rank->comm->shm;

	return &shm->operations[(shm->published - 1) % SHM_SLOTS];
}

static bool has_read_private(const struct rank *rank, int other)
{
	return last_of(rank)->peer[other].private_send != 0;
}

/* An allreduce in place, at 16 bytes from a page's start as in large blocks of malloc(). */
static void sum(struct rank *rank, size_t count, bool is_shared)
{
	size_t bytes = count * sizeof(int32_t) + PAGE;
	uint8_t *memory = is_shared ? frl_mem_alloc(bytes)
				    : aligned_alloc(PAGE, 2 * BYTES / PAGE * PAGE);
	int32_t *numbers = (int32_t *)(void *)(memory + 16);

	for (size_t i = 0; i < count; i++)
		numbers[i] = input(rank->number, i);
	expect(rank, frl_allreduce(rank->comm, numbers, numbers, count, FRL_INT32, FRL_SUM) == 0);
	for (size_t i = 0; i < count && !rank->failure[0]; i++)
		if (numbers[i] != sum_at(rank->ranks, i))
			complain(rank, "%zu of %zu is %d", i, count, numbers[i]);
	if (is_shared)
		frl_mem_free(memory, bytes);
	else
		free(memory);
}

/* ---- which memory is read */

static int exchange_all(void *ctx, const void *mine, size_t bytes, void *ret_all)
{
	const struct rank *rank = ctx;

	return rank->bootstrap.allgather(rank->bootstrap.ctx, mine, bytes, ret_all);
}

/* Sets up shared memory again, as with FRL_READ_PRIVATE. */
static void set_up(struct rank *rank, bool reads_private, const struct shm_gather *how)
{
	const struct shm_gather honest = { .all = exchange_all, .ctx = rank };

	expect(rank, frl_barrier(rank->comm) == 0);
	shm_destroy(rank->comm->shm);
	rank->comm->shm = NULL;
	rank->comm->config.reads_private = reads_private;
	expect(rank, shm_create(rank->comm, how ? how : &honest) == 0);
	if (!rank->comm->shm)
		abort();
}

static void run_kinds(struct rank *rank)
{
	int other = (rank->number + 1) % rank->ranks;

	/* Off by default. */
	sum(rank, COUNT, false);
	expect(rank, !has_read_private(rank, other));
	set_up(rank, true, NULL);
	expect(rank, rank->comm->shm->scratch && !shm_no_private(rank->comm));
	sum(rank, COUNT, false);
	expect(rank, has_read_private(rank, other));
	sum(rank, SHM_PRIVATE_FROM / sizeof(int32_t) - 1, false);
	expect(rank, !has_read_private(rank, other));
	sum(rank, COUNT, true);
	expect(rank, !has_read_private(rank, other));
	/* Only the last rank's is private. */
	sum(rank, COUNT, rank->number < rank->ranks - 1);
	expect(rank, has_read_private(rank, other) == (other == rank->ranks - 1));
}

START_RANGE_TEST(long_private_memory_is_read, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_kinds };

	job_run(&job);
}
END_TEST

/* ---- all ranks or none */

/* The information about rank 1 that others get when they exchange it. */
enum told { HONEST, OTHER_ADDRESS, UNABLE, TOLD };

struct teller {
	struct rank *rank;
	enum told told;
	int round;
};

/* As shm.c has them. */
struct page_record {
	int32_t pid;
	uint32_t is_willing;
	uint64_t secret, secret_at;
	struct shm_export page;
};

struct abilities {
	uint8_t has_mapped, reads_private;
};

static int gather(void *ctx, const void *mine, size_t bytes, void *ret_all)
{
	struct teller *teller = ctx;
	struct frl_bootstrap *bootstrap = &teller->rank->bootstrap;
	int err = bootstrap->allgather(bootstrap->ctx, mine, bytes, ret_all);
	int round = teller->round++;

	/* To rank 0 alone. */
	if (round == 0 && teller->told == OTHER_ADDRESS && teller->rank->number == 0)
		((struct page_record *)ret_all)[1].secret_at += sizeof(uint64_t);
	if (round == 1 && teller->told == UNABLE)
		((struct abilities *)ret_all)[1].reads_private = 0;
	return err;
}

static void run_told(struct rank *rank)
{
	struct teller teller = { .rank = rank, .told = *(const enum told *)rank->job->arg };
	const struct shm_gather how = { .all = gather, .ctx = &teller };
	const char *why;

	set_up(rank, true, &how);
	expect(rank, (rank->comm->shm->scratch != NULL) == (teller.told == HONEST));
	why = rank->comm->shm->no_private;
	if (teller.told == OTHER_ADDRESS && rank->number == 0)
		expect(rank, strstr(why, "rank 0: ") && strstr(why, "another process"));
	else if (teller.told == OTHER_ADDRESS)
		expect(rank, strstr(why, "rank 0 cannot or may not") != NULL);
	else if (teller.told == UNABLE)
		expect(rank, strstr(why, "rank 1 cannot or may not") != NULL);
	else
		expect(rank, !why[0]);
	sum(rank, COUNT, false);
}

START_RANGE_TEST(all_or_none, HONEST, TOLD)
{
	enum told told = (enum told)_i;
	struct job job = { .ranks = 3, .main = run_told, .arg = &told };

	job_run(&job);
}
END_TEST

/* FRL_READ_PRIVATE=0 of one rank counts for all. */
static void run_forbidden(struct rank *rank)
{
	set_up(rank, rank->number != 1, NULL);
	expect(rank, !rank->comm->shm->scratch);
	expect(rank,
		strstr(rank->comm->shm->no_private,
			rank->number == 1 ? "rank 1: FRL_READ_PRIVATE is 0"
					  : "rank 1 cannot or may not") != NULL);
	sum(rank, COUNT, false);
}

START_TEST(one_forbids)
{
	struct job job = { .ranks = 2, .main = run_forbidden };

	job_run(&job);
}
END_TEST

/* ---- memory that is gone */

static void run_gone(struct rank *rank)
{
	void *memory = mmap(
		NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = memory,
		.recv = memory,
		.count = COUNT,
		.dtype = FRL_INT32 };
	struct frl_request *request;

	ck_assert_ptr_ne(memory, MAP_FAILED);
	set_up(rank, true, NULL);
	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number == 1) {
		/* The other rank has not come, so this one only publishes its buffer. */
		expect(rank, frl_start(rank->comm, &c, &request) == 0);
		munmap(memory, BYTES);
		job_meet(rank->job);
		job_meet(rank->job);
		ck_assert_ptr_eq(mmap(memory, BYTES, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			memory);
		expect(rank, frl_request_wait(request) < 0);
	} else {
		job_meet(rank->job);
		expect(rank, frl_run(rank->comm, &c) == -EFAULT);
		expect(rank, strstr(frl_last_error(), "cannot read the buffers of rank 1") != NULL);
		expect(rank, strstr(frl_last_error(), "the memory is not there") != NULL);
		job_meet(rank->job);
	}
	munmap(memory, BYTES);
}

START_TEST(memory_that_is_gone)
{
	struct job job = { .ranks = 2, .main = run_gone };

	job_run(&job);
}
END_TEST

TEST_MAIN(comm_shm_private)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
