/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Space in the rings of shared memory: what operations reserve, that it suffices for lengths of all
 * kinds, and that no other operation has it.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/shm/internal.h"
#include "tests/fixtures/program.h"
#include "tests/unit/collectives/comm_fixture.h"

enum {
	KEPT = 1600,                                  /* bytes: a short input that stays in place */
	FEW = 100 << 10,                              /* two blocks */
	AHEAD = 160 << 10,                            /* three blocks */
	MANY = (2 * SHM_RING_OF_TWO + 5) * SHM_BLOCK, /* more than a ring */
	AT_ONCE = 2 * SHM_SLOTS,
	MARK = 0xa5,
};

/* Operations of these lengths, one after the other, again and again. */
static const struct {
	enum frl_coll coll;
	uint32_t ranks;
	size_t lengths[3];
} mixes[] = {
	{ FRL_ALLREDUCE, 2, { 4 << 10, 4 << 10, 4 << 10 } },
	{ FRL_ALLREDUCE, 2, { 33 << 10, 33 << 10, 33 << 10 } },
	{ FRL_ALLREDUCE, 2, { SHM_BLOCK, SHM_BLOCK, SHM_BLOCK } },
	{ FRL_ALLREDUCE, 2, { 68 << 10, 68 << 10, 68 << 10 } },
	{ FRL_ALLREDUCE, 2, { 4, FEW + 4, 3 * SHM_BLOCK } },
	{ FRL_ALLREDUCE, 2, { MANY + 4, 33 << 10, MANY } },
	{ FRL_ALLREDUCE, 3, { 3 * SHM_BLOCK, 3 * SHM_BLOCK, 3 * SHM_BLOCK } },
	{ FRL_ALLREDUCE, 3, { MANY + 4, 3 << 12, (3 << 12) + 4 } },
	{ FRL_ALLGATHER, 3, { 33 << 10, 33 << 10, 33 << 10 } },
	{ FRL_ALLGATHER, 3, { 4, FEW + 4, 3 * SHM_BLOCK } },
	{ FRL_BROADCAST, 3, { MANY + 4, 0, 33 << 10 } },
};

/* Returns the bytes that a rank puts into a ring, in whole pages. */
static size_t used_by(enum frl_coll coll, uint32_t ranks, size_t bytes)
{
	size_t count = bytes / sizeof(float);
	size_t most = coll == FRL_ALLREDUCE && ranks > 2 ? (count + ranks - 1) / ranks : count;

	return (most * sizeof(float) + (4 << 10) - 1) >> 12 << 12;
}

/* Space is reserved without gaps, except that a block does not cross the end of the ring. */
START_LOOP_TEST(space_is_consecutive, ROWS(mixes))
{
	struct shm shm = { .ranks = mixes[_i].ranks };
	const uint64_t ring = (uint64_t)shm_ring_blocks(shm.ranks) * SHM_BLOCK;
	uint64_t end = 0;

	for (int turn = 0; turn < 3000; turn++) {
		size_t bytes = mixes[_i].lengths[turn % 3];
		size_t space = used_by(mixes[_i].coll, shm.ranks, bytes);
		struct run run = {
			.coll = mixes[_i].coll, .is_long = true, .count = bytes / sizeof(float)
		};
		uint64_t position = shm_ring_reserve(&shm, &run, sizeof(float));

		ck_assert_uint_ge(position, end);
		ck_assert_uint_lt(position - end, SHM_BLOCK);
		if (end % ring + space <= ring)
			ck_assert_uint_eq(position, end);
		for (size_t done = 0; done < space; done += SHM_BLOCK) {
			uint32_t round = (uint32_t)(done / SHM_BLOCK);
			size_t rest = space - done;
			size_t block = rest < SHM_BLOCK ? rest : SHM_BLOCK;

			ck_assert_uint_le(
				shm_ring_offset(shm.ranks, 0, position, round) + block, ring);
		}
		ck_assert_uint_eq(shm.ring_next, position + space);
		end = shm.ring_next;
	}
}
END_TEST

/* Only inputs that may stay in place may be copied to a ring. */
static const struct {
	enum frl_coll coll;
	enum frl_op op;
	size_t bytes;
	uint64_t space;
} shorts[] = {
	{ FRL_ALLREDUCE, FRL_SUM, SHM_IN_PLACE_FROM, 0 },
	{ FRL_ALLREDUCE, FRL_SUM, SHM_IN_PLACE_FROM + 4, 4 << 10 },
	{ FRL_ALLREDUCE, FRL_SUM, 9 << 10, 12 << 10 },
	{ FRL_ALLREDUCE, FRL_PREMUL_SUM, 9 << 10, 0 },
	{ FRL_ALLGATHER, FRL_SUM, 9 << 10, 0 },
	{ FRL_BARRIER, FRL_SUM, 0, 0 },
};

START_LOOP_TEST(space_of_short, ROWS(shorts))
{
	struct shm shm = { .ranks = 4 };
	struct run run = {
		.coll = shorts[_i].coll,
		.count = shorts[_i].bytes / sizeof(float),
		.dtype = FRL_FLOAT32,
		.scaled = shorts[_i].op,
	};

	ck_assert_uint_eq(shm_ring_reserve(&shm, &run, sizeof(float)), 0);
	ck_assert_uint_eq(shm.ring_next, shorts[_i].space);
}
END_TEST

/* Slots of finished operations may hold later ones. */
START_TEST(finished_never_decreases)
{
	static struct shm_page page;
	struct shm_peer peer = { .page = &page };

	atomic_store(&page.finished, 9);
	ck_assert_uint_eq(shm_finished(&peer, 8), 9);
	atomic_store(&page.finished, 7);
	ck_assert_uint_eq(shm_finished(&peer, 10), 9);
	atomic_store(&page.finished, 10);
	ck_assert_uint_eq(shm_finished(&peer, 10), 10);
}
END_TEST

/* Allreduces of mixed lengths, more at once than there are slots. Most are not whole pages. Some
 * are short. */
static const size_t mixed_bytes[] = { 33 << 10, 1500, 68 << 10, 4, (2 << 10) + 4, FEW + 4,
	AHEAD + 4 };

static size_t mixed_count(int i)
{
	return mixed_bytes[i % (int)ROWS(mixed_bytes)] / sizeof(int32_t);
}

static void run_mixed(struct rank *rank)
{
	struct frl_request *requests[AT_ONCE];
	size_t most = AHEAD / sizeof(int32_t) + 1;
	int32_t *send = job_private_memory((most + AT_ONCE) * sizeof(int32_t));
	int32_t *recv[AT_ONCE];

	for (size_t i = 0; i < most + AT_ONCE; i++)
		send[i] = job_input(rank->number, i);
	for (int i = 0; i < AT_ONCE; i++)
		recv[i] = job_private_memory(most * sizeof(int32_t));
	for (int turn = 0; turn < 5; turn++) {
		for (int i = 0; i < AT_ONCE; i++) {
			struct frl_collective c = { .coll = FRL_ALLREDUCE,
				.send = send + i,
				.recv = recv[i],
				.count = mixed_count(turn + i),
				.dtype = FRL_INT32 };

			expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0);
		}
		for (int i = 0; i < AT_ONCE; i++) {
			expect(rank, frl_request_wait(requests[i]) == 0);
			for (size_t k = 0; k < mixed_count(turn + i) && !rank->failure[0]; k++)
				expect(rank, recv[i][k] == job_sum(rank->ranks, (size_t)i + k));
		}
	}
	for (int i = 0; i < AT_ONCE; i++)
		free(recv[i]);
	free(send);
}

START_RANGE_TEST(mixed_lengths_at_once, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_mixed };

	job_run(&job);
}
END_TEST

/* Returns the first byte of this rank's rings that an operation has changed outside of its space,
 * or -1. All bytes were MARK before. */
static ptrdiff_t changed_outside(const struct shm *shm)
{
	uint64_t position = shm->operations[(shm->published - 1) % SHM_SLOTS].ring_position;
	size_t bytes = (size_t)shm_ring_blocks(shm->ranks) * SHM_BLOCK;
	uint64_t space = shm->ring_next - position;

	for (size_t i = 0; i < bytes * (shm->ranks + 1); i++)
		if (shm->page->rings[i] != MARK &&
			(i % bytes + bytes - position % bytes) % bytes >= space)
			return (ptrdiff_t)i;
	return -1;
}

/* Each length is run by an even and an odd operation. */
static void run_inside(struct rank *rank)
{
	struct shm *shm = rank->comm->shm;
	size_t bytes = (size_t)shm_ring_blocks(shm->ranks) * SHM_BLOCK * (shm->ranks + 1);
	int32_t *data = job_private_memory(AHEAD + 4);

	/* The data has no MARK, which might hide a change. A rank that has failed goes on, since
	 * the others meet it. */
	for (int i = 0; i < 2 * (int)ROWS(mixed_bytes); i++) {
		memset(data, 1, AHEAD + 4);
		memset(shm->page->rings, MARK, bytes);
		job_meet(rank->job);
		expect(rank,
			frl_allreduce(rank->comm, data, data, mixed_count(i / 2), FRL_INT32,
				FRL_SUM) == 0);
		job_meet(rank->job);
		expect(rank, changed_outside(shm) == -1);
	}
	free(data);
}

START_RANGE_TEST(space_is_not_exceeded, 2, 4)
{
	struct job job = { .ranks = _i, .main = run_inside };

	job_run(&job);
}
END_TEST

static struct frl_request *start_sum(
	struct rank *rank, const int32_t *send, int32_t *recv, size_t bytes)
{
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = send,
		.recv = recv,
		.count = bytes / sizeof(*send),
		.dtype = FRL_INT32 };
	struct frl_request *request = NULL;

	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	return request;
}

/* Rank 1's input stays in place and rank 0 cannot map it, so rank 1 copies it to its ring. The copy
 * and the input of the next operation, which it copies there as well, have different space. */
static void run_copied(struct rank *rank)
{
	int32_t *kept = job_shared_memory(KEPT), *sum = job_private_memory(KEPT);
	int32_t *send = job_private_memory(AHEAD), *recv = job_private_memory(AHEAD);
	const struct shm *shm = rank->comm->shm;
	struct frl_request *first, *second;
	struct shm_slot *slot;
	bool is_done = false;

	rank->comm->tuner.oversubscription = 1;
	for (size_t k = 0; k < AHEAD / sizeof(*send); k++)
		send[k] = job_input(rank->number, k);
	memcpy(kept, send + 1, KEPT);
	/* Inputs stay in place from their second use on. */
	expect(rank, frl_request_wait(start_sum(rank, kept, sum, KEPT)) == 0);
	memset(sum, 0, KEPT);
	slot = &shm->page->slots[shm->published % SHM_SLOTS];
	if (rank->number == 0)
		job_meet(rank->job);
	first = start_sum(rank, kept, sum, KEPT);
	/* Rank 0 has not seen the slot yet, and cannot map the input by this descriptor. */
	if (expect(rank, slot->input_kind == SHM_IN_PLACE) && rank->number == 1)
		slot->send.export.fd = INT32_MAX;
	second = start_sum(rank, send, recv, AHEAD);
	if (rank->number == 1)
		job_meet(rank->job);
	else /* requests the copy */
		expect(rank, frl_request_test(first, &is_done) == 0 && !is_done);
	job_meet(rank->job);
	/* Rank 1 copies the input, and blocks of the next operation. */
	for (int n = 0; n < 10 && rank->number == 1; n++)
		expect(rank, frl_request_test(first, &is_done) == 0 && !is_done);
	expect(rank, rank->number == 0 || slot->input_kind == SHM_IN_RING);
	job_meet(rank->job);
	expect(rank, (is_done || frl_request_wait(first) == 0) && frl_request_wait(second) == 0);
	for (size_t k = 0; k < KEPT / sizeof(*sum) && !rank->failure[0]; k++)
		expect(rank, sum[k] == job_sum(2, k + 1));
	for (size_t k = 0; k < AHEAD / sizeof(*recv) && !rank->failure[0]; k++)
		expect(rank, recv[k] == job_sum(2, k));
	frl_mem_free(kept, KEPT);
	free(sum);
	free(send);
	free(recv);
}

START_TEST(copied_is_kept)
{
	struct job job = { .ranks = 2, .main = run_copied };

	job_run(&job);
}
END_TEST

TEST_FILE(comm_shm_space)
