/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings of shared memory, through which ranks pass private memory: two ranks reduce the whole
 * vector, with either kind of stores, and blocks are reused only when they have been read, also by
 * operations that follow at once.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/shm/internal.h"
#include "lib/base/memory/store_times.h"
#include "lib/reduce/nontemporal.h"
#include "tests/fixtures/program.h"
#include "tests/unit/collectives/comm_fixture.h"

enum {
	FEW = 100 << 10,   /* bytes: two blocks */
	AHEAD = 160 << 10, /* three blocks; SHM_SLOTS of them exceed a ring */
	MANY = (2 * SHM_RING_OF_TWO + 5) * SHM_BLOCK, /* more than a ring */
	AT_ONCE = 2 * SHM_SLOTS,
};

/* ---- vectors */

static bool was_flat(const struct rank *rank)
{
	const struct shm *shm = rank->comm->shm;

	return shm->operations[(shm->published - 1) % SHM_SLOTS].is_flat;
}

/* Sets the times of all rings to those of near or far processors. */
static void set_times(struct rank *rank, bool is_far)
{
	struct shm *shm = rank->comm->shm;

	for (uint32_t ring = 0; ring <= shm->ranks; ring++)
		shm->store_times[ring] = (struct store_times){
			.normal = is_far ? UINT32_MAX : 1000,
			.nontemporal = is_far ? 1000 : UINT32_MAX,
		};
}

/* Bits: buffers in memory of frl_mem_alloc(), and whether the result is in place. */
enum { SEND = 1, RECV = 2, IN_PLACE = 4 };

static const struct {
	int first, second; /* of rank 0, and of all others */
	bool is_flat;      /* if there are two ranks */
} buffers[] = {
	{ 0, 0, true },
	{ IN_PLACE, IN_PLACE, true },
	{ IN_PLACE, 0, true },
	{ RECV, RECV, true },
	{ SEND, 0, true },
	{ SEND | RECV, IN_PLACE, true },
	/* Rank 0 overwrites a shared input, so each rank reduces one part. */
	{ SEND | RECV | IN_PLACE, IN_PLACE, false },
};

static void run_buffers(struct rank *rank)
{
	int row = *(const int *)rank->job->arg;
	int kind = rank->number == 0 ? buffers[row].first : buffers[row].second;
	int32_t *shared[2] = { job_shared_memory(MANY), job_shared_memory(MANY) };
	int32_t *plain[2] = { job_private_memory(MANY), job_private_memory(MANY) };
	int32_t *send = kind & SEND ? shared[0] : plain[0];
	int32_t *recv = kind & IN_PLACE ? send : kind & RECV ? shared[1] : plain[1];

	for (int turn = 0; turn < 4 && !rank->failure[0]; turn++) {
		size_t count = (turn / 2 ? FEW : MANY) / sizeof(int32_t) - 3;

		set_times(rank, turn % 2);
		for (size_t i = 0; i < count; i++)
			send[i] = job_input(rank->number, i);
		expect(rank, frl_allreduce(rank->comm, send, recv, count, FRL_INT32, FRL_SUM) == 0);
		expect(rank, was_flat(rank) == (buffers[row].is_flat && rank->ranks == 2));
		for (size_t i = 0; i < count && !rank->failure[0]; i++) {
			expect(rank, recv[i] == job_sum(rank->ranks, i));
			expect(rank, send == recv || send[i] == job_input(rank->number, i));
		}
	}
	for (int i = 0; i < 2; i++) {
		frl_mem_free(shared[i], MANY);
		free(plain[i]);
	}
}

START_LOOP_TEST(whole_by_kind_of_buffer, 2 * ROWS(buffers))
{
	int row = _i / 2;
	struct job job = { .ranks = 2 + _i % 2, .main = run_buffers, .arg = &row };

	job_run(&job);
}
END_TEST

/* Rank 0 copies its inputs, and needs nothing of rank 1 but its published operations. Rank 1's
 * inputs stay in place, and it makes no progress. Rank 0 runs ahead until the ring is full of what
 * rank 1 has not read, and no further. */
static void run_ahead(struct rank *rank)
{
	struct frl_request *requests[SHM_SLOTS];
	size_t count = AHEAD / sizeof(int32_t);
	int32_t *send[SHM_SLOTS], *recv[SHM_SLOTS];
	bool is_done[SHM_SLOTS] = { false };

	for (int i = 0; i < SHM_SLOTS; i++) {
		struct frl_collective c = {
			.coll = FRL_ALLREDUCE, .count = count, .dtype = FRL_INT32
		};

		send[i] = rank->number ? job_shared_memory(AHEAD) : job_private_memory(AHEAD);
		recv[i] = job_private_memory(AHEAD);
		for (size_t k = 0; k < count; k++)
			send[i][k] = i + job_input(rank->number, k);
		c.send = send[i];
		c.recv = recv[i];
		if (rank->number == 0 && i == 0)
			job_meet(rank->job);
		expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0);
	}
	if (rank->number == 1) {
		expect(rank, frl_request_test(requests[0], &is_done[0]) == 0 && !is_done[0]);
		job_meet(rank->job);
	} else {
		for (int n = 0; n < 10; n++)
			for (int i = 0; i < SHM_SLOTS; i++)
				if (!is_done[i])
					expect(rank,
						frl_request_test(requests[i], &is_done[i]) == 0);
		expect(rank, is_done[0] && !is_done[SHM_SLOTS - 1]);
	}
	job_meet(rank->job);
	for (int i = 0; i < SHM_SLOTS; i++) {
		if (!is_done[i])
			expect(rank, frl_request_wait(requests[i]) == 0);
		for (size_t k = 0; k < count && !rank->failure[0]; k++)
			expect(rank, recv[i][k] == 2 * i + job_sum(2, k));
		if (rank->number)
			frl_mem_free(send[i], AHEAD);
		else
			free(send[i]);
		free(recv[i]);
	}
}

START_TEST(ahead_until_full)
{
	struct job job = { .ranks = 2, .main = run_ahead };

	job_run(&job);
}
END_TEST

/* Longer vectors than those that are reduced whole without non-temporal stores. Rank 0's is in
 * place, and stored normally. */
static void run_long(struct rank *rank)
{
	size_t bytes = SHM_WHOLE_BYTES_OF_TWO + 12345 * sizeof(float),
	       count = bytes / sizeof(float);
	float *send = job_private_memory(bytes), *recv = job_private_memory(bytes);
	float *to = rank->number == 0 ? send : recv;

	for (size_t i = 0; i < count; i++)
		send[i] = (float)(i % 1000) * (1.0F + (float)rank->number);
	expect(rank, frl_allreduce(rank->comm, send, to, count, FRL_FLOAT32, FRL_SUM) == 0);
	expect(rank, was_flat(rank) == reduce_has_nontemporal(FRL_FLOAT32, FRL_SUM));
	for (size_t i = 0; i < count && !rank->failure[0]; i++)
		expect(rank, to[i] == (float)(i % 1000) * 3);
	free(send);
	free(recv);
}

START_TEST(whole_beyond_limit)
{
	struct job job = { .ranks = 2, .main = run_long };

	job_run(&job);
}
END_TEST

/* Rank 0 must not overwrite ring blocks of the first operation that rank 1 has not read, even if
 * rank 0 has completed it and the second operation has the same blocks. */
static const size_t unread_bytes[] = { 8 << 10, SHM_BLOCK };

static void start_sum(struct rank *rank, int32_t *data, struct frl_request **ret)
{
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = data,
		.recv = data,
		.count = *(const size_t *)rank->job->arg / sizeof(*data),
		.dtype = FRL_INT32 };

	expect(rank, frl_start(rank->comm, &c, ret) == 0);
}

/* Leaves out space of the rings, so that the next operation has that of the last one. */
static void skip_space(struct rank *rank)
{
	struct shm *shm = rank->comm->shm;
	uint64_t last = shm->operations[(shm->published - 1) % SHM_SLOTS].ring_position;

	shm->ring_next = last + (uint64_t)shm_ring_blocks(shm->ranks) * SHM_BLOCK;
}

static void run_unread(struct rank *rank)
{
	size_t bytes = *(const size_t *)rank->job->arg;
	int32_t *first = job_private_memory(bytes), *second = job_private_memory(bytes);
	struct frl_request *requests[2];
	bool is_done;

	for (size_t i = 0; i < bytes / sizeof(*first); i++) {
		first[i] = 1000 + rank->number;
		second[i] = 2000 + rank->number;
	}
	if (rank->number == 0) {
		start_sum(rank, first, &requests[0]);
		expect(rank, frl_request_test(requests[0], &is_done) == 0 && !is_done);
		skip_space(rank);
	}
	job_meet(rank->job);
	if (rank->number == 1) {
		start_sum(rank, first, &requests[0]);
		expect(rank, frl_request_test(requests[0], &is_done) == 0 && !is_done);
		skip_space(rank);
		start_sum(rank, second, &requests[1]);
		expect(rank, frl_request_test(requests[0], &is_done) == 0 && !is_done);
	}
	job_meet(rank->job);
	if (rank->number == 0) {
		expect(rank, frl_request_wait(requests[0]) == 0);
		start_sum(rank, second, &requests[1]);
		/* Time to copy, if it did. */
		for (int i = 0; i < 10; i++)
			expect(rank, frl_request_test(requests[1], &is_done) == 0 && !is_done);
	}
	job_meet(rank->job);
	if (rank->number == 1)
		expect(rank, frl_request_wait(requests[0]) == 0);
	expect(rank, frl_request_wait(requests[1]) == 0);
	for (size_t i = 0; i < bytes / sizeof(*first) && !rank->failure[0]; i++)
		expect(rank, first[i] == 2001 && second[i] == 4001);
	free(first);
	free(second);
}

START_LOOP_TEST(unread_is_kept, 2)
{
	size_t bytes = unread_bytes[_i];
	struct job job = { .ranks = 2, .main = run_unread, .arg = &bytes };

	job_run(&job);
}
END_TEST

/* Rank 0's input is in shared memory, and rank 0 makes no progress. Rank 1 has its result, but is
 * not complete while rank 0 may still map its shared result. */
static void run_mapped(struct rank *rank)
{
	bool has_shared = rank->number == 0 || *(const int *)rank->job->arg;
	int32_t *shared[2] = { job_shared_memory(FEW), job_shared_memory(FEW) };
	int32_t *plain[2] = { job_private_memory(FEW), job_private_memory(FEW) };
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = rank->number == 0 ? shared[0] : plain[0],
		.recv = has_shared ? shared[1] : plain[1],
		.count = FEW / sizeof(int32_t),
		.dtype = FRL_INT32 };
	struct frl_request *request;
	bool is_done = false;

	memset(shared[0], 1, FEW);
	memset(plain[0], 1, FEW);
	if (rank->number == 1)
		job_meet(rank->job);
	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	expect(rank, frl_request_test(request, &is_done) == 0);
	if (rank->number == 0) {
		expect(rank, !is_done);
		job_meet(rank->job);
	} else {
		for (int i = 0; i < 10 && !is_done; i++)
			expect(rank, frl_request_test(request, &is_done) == 0);
		expect(rank, is_done == !has_shared);
	}
	job_meet(rank->job);
	if (!is_done)
		expect(rank, frl_request_wait(request) == 0);
	for (int i = 0; i < 2; i++) {
		frl_mem_free(shared[i], FEW);
		free(plain[i]);
	}
}

START_LOOP_TEST(mapped_is_awaited, 2)
{
	struct job job = { .ranks = 2, .main = run_mapped, .arg = &_i };

	job_run(&job);
}
END_TEST

/* More operations at once than there are slots, of all kinds of long ones. */
static void run_at_once(struct rank *rank)
{
	struct frl_request *requests[AT_ONCE];
	size_t ranks = (size_t)rank->ranks, count = FEW / sizeof(int32_t), all = count * ranks;
	int32_t *send = job_private_memory((all + AT_ONCE) * sizeof(int32_t));
	int32_t *recv[AT_ONCE];

	/* Each operation has other inputs. */
	for (size_t i = 0; i < all + AT_ONCE; i++)
		send[i] = job_input(rank->number, i);
	for (int i = 0; i < AT_ONCE; i++) {
		static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_ALLTOALL, FRL_ALLGATHER };
		struct frl_collective c = {
			.coll = colls[i % 3],
			.send = send + i,
			.count = count,
			.dtype = FRL_INT32,
		};

		recv[i] = job_private_memory(all * sizeof(int32_t));
		c.recv = recv[i];
		expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0);
	}
	for (int i = 0; i < AT_ONCE; i++)
		expect(rank, frl_request_wait(requests[i]) == 0);
	for (int i = 0; i < AT_ONCE; i++) {
		for (size_t k = 0; k < (i % 3 ? all : count) && !rank->failure[0]; k++) {
			int from = (int)(k / count);
			size_t at = (size_t)i + k % count +
				(i % 3 == 1 ? (size_t)rank->number * count : 0);

			expect(rank,
				recv[i][k] ==
					(i % 3 ? job_input(from, at)
					       : job_sum(rank->ranks, (size_t)i + k)));
		}
		free(recv[i]);
	}
	free(send);
}

START_RANGE_TEST(many_at_once, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_at_once };

	job_run(&job);
}
END_TEST

TEST_FILE(comm_shm_rings)
