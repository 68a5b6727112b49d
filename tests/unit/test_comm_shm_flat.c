/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce in shared memory where each rank reduces all of it: which ranks do so, and that all
 * types, operations, lengths and addresses give the bits that plain C gives in the ranks' order.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/shm_internal.h"
#include "tests/unit/comm_fixture.h"

enum {
	LONGEST = 64 << 10, /* bytes; more than two ranks do no more than that so */
	BLOCKS = 4 << 20,   /* more blocks than are done in one call */
};

static uint8_t byte_of(int rank, size_t i)
{
	return (uint8_t)((i * 2654435761u + (size_t)rank * 40503) >> 7);
}

static bool was_flat(const struct rank *rank)
{
	const struct shm *shm = rank->comm->shm;

	return shm->operations[(shm->published - 1) % SHM_SLOTS].is_flat;
}

/* What plain C makes of the inputs of all ranks. */
static void reduce_plainly(const struct rank *rank, const struct frl_collective *c, uint8_t *sum)
{
	enum frl_op op = c->op == FRL_AVG ? FRL_SUM : c->op;
	size_t bytes = c->count * frl_dtype_size(c->dtype);
	uint8_t *next = malloc(bytes);

	if (!next)
		abort();
	for (int r = 0; r < rank->ranks; r++) {
		for (size_t i = 0; i < bytes; i++)
			next[i] = byte_of(r, i);
		if (r == 0)
			memcpy(sum, next, bytes);
		else
			frl_reduce_local_plain(sum, sum, next, c->count, c->dtype, op);
	}
	if (c->op == FRL_AVG)
		frl_divide_local(sum, sum, c->count, c->dtype, (uint32_t)rank->ranks);
	free(next);
}

/* At that offset in two allocations of BLOCKS and a page each. */
static void check_bits(
	struct rank *rank, uint8_t *const memory[2], struct frl_collective c, size_t offset)
{
	size_t bytes = c.count * frl_dtype_size(c.dtype);
	uint8_t *send = memory[0] + offset, *recv = memory[1] + offset / 2;
	uint8_t *wanted = malloc(bytes);

	if (!wanted)
		abort();
	for (size_t i = 0; i < bytes; i++)
		send[i] = byte_of(rank->number, i);
	recv[bytes] = 0x5a;
	c.coll = FRL_ALLREDUCE;
	c.send = send;
	c.recv = recv;
	reduce_plainly(rank, &c, wanted);
	expect(rank, frl_run(rank->comm, &c) == 0);
	expect(rank, was_flat(rank));
	expect(rank, recv[bytes] == 0x5a);
	for (size_t i = 0; i < bytes && !rank->failure[0]; i++) {
		expect(rank, send[i] == byte_of(rank->number, i));
		if (recv[i] != wanted[i])
			complain(rank, "%s of %zu %s: byte %zu", frl_op_name(c.op), c.count,
				frl_dtype_name(c.dtype), i);
	}
	free(wanted);
}

static void run_bits(struct rank *rank)
{
	size_t bytes = BLOCKS + 4096;
	uint8_t *memory[2] = { frl_mem_alloc(bytes), frl_mem_alloc(bytes) };

	if (!memory[0] || !memory[1])
		abort();
	for (int dtype = 0; dtype < FRL_DTYPES; dtype++) {
		size_t size = frl_dtype_size((enum frl_dtype)dtype);
		struct frl_collective c = { .dtype = (enum frl_dtype)dtype };

		for (c.op = FRL_SUM; c.op <= FRL_MIN; c.op++) {
			c.count = LONGEST / size - 3;
			check_bits(rank, memory, c, (size_t)dtype * 6 + c.op);
			c.count = (SHM_INLINE + size) / size;
			check_bits(rank, memory, c, 0);
		}
	}
	for (int i = 0; i < 4; i++)
		check_bits(rank, memory,
			(struct frl_collective){ .count = LONGEST / 4 - (size_t)i,
				.dtype = i % 2 ? FRL_INT32 : FRL_FLOAT32,
				.op = FRL_AVG },
			64);
	if (rank->ranks == 2)
		for (int i = 0; i < 3; i++)
			check_bits(rank, memory,
				(struct frl_collective){
					.count = BLOCKS / 4 - 1, .dtype = FRL_FLOAT32 },
				4);
	frl_mem_free(memory[0], bytes);
	frl_mem_free(memory[1], bytes);
}

START_TEST(bits)
{
	struct job job = { .ranks = _i, .main = run_bits };

	job_run(&job);
}
END_TEST

/* All do, or none: one whose elements lie in plain memory, or where the result goes, decides. */
static void run_decision(struct rank *rank)
{
	size_t count = LONGEST / sizeof(int32_t), bytes = LONGEST;
	int32_t *send = frl_mem_alloc(bytes), *recv = frl_mem_alloc(bytes);
	int32_t *plain = malloc(bytes);

	if (!send || !recv || !plain)
		abort();
	for (int how = 0; how < 4; how++) {
		bool is_odd = rank->number == 1;
		struct frl_collective c = { .coll = FRL_ALLREDUCE,
			.send = is_odd && how == 1 ? plain : send,
			.recv = is_odd && how == 2 ? plain : recv,
			.count = count,
			.dtype = FRL_INT32 };

		if (is_odd && how == 3)
			c.recv = send;
		for (size_t i = 0; i < count; i++)
			((int32_t *)(uintptr_t)c.send)[i] = (int32_t)i * (rank->number + 1);
		expect(rank, frl_run(rank->comm, &c) == 0);
		expect(rank, was_flat(rank) == (how == 0 || how == 2));
		for (size_t i = 0; i < count && !rank->failure[0]; i++)
			expect(rank,
				((const int32_t *)c.recv)[i] ==
					(int32_t)i * rank->ranks * (rank->ranks + 1) / 2);
	}
	frl_mem_free(send, bytes);
	frl_mem_free(recv, bytes);
	free(plain);
}

START_TEST(all_or_none)
{
	struct job job = { .ranks = _i, .main = run_decision };

	job_run(&job);
}
END_TEST

/* The next operation may overwrite what was sent: others have read it by then. */
static void run_overwritten(struct rank *rank)
{
	size_t count = LONGEST / sizeof(int32_t);
	int32_t *send = frl_mem_alloc(LONGEST), *recv = frl_mem_alloc(LONGEST);

	if (!send || !recv)
		abort();
	for (int32_t turn = 0; turn < 200 && !rank->failure[0]; turn++) {
		for (size_t i = 0; i < count; i++)
			send[i] = turn + rank->number;
		if (turn % 16 == rank->number)
			job_sleep_ms(1);
		expect(rank, frl_allreduce(rank->comm, send, recv, count, FRL_INT32, FRL_SUM) == 0);
		for (size_t i = 0; i < count && !rank->failure[0]; i++)
			expect(rank, recv[i] == 2 * turn + 1);
	}
	frl_mem_free(send, LONGEST);
	frl_mem_free(recv, LONGEST);
}

START_TEST(overwritten)
{
	struct job job = { .ranks = 2, .main = run_overwritten };

	job_run(&job);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("comm_shm_flat");
	TCase *tcase = tcase_create("comm_shm_flat");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(tcase, bits, 2, 5);
	tcase_add_loop_test(tcase, all_or_none, 2, 5);
	tcase_add_test(tcase, overwritten);
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	/* EAL starts once a process. */
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
