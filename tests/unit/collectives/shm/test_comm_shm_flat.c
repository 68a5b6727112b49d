/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce in shared memory where each rank reduces the whole vector out of the others' memory:
 * which ranks do so, and that all types, operations, lengths and addresses give the bits that plain
 * C gives in the ranks' order. For short vectors each rank reports where its own lies.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "collectives/shm/internal.h"
#include "lib/base/error.h"
#include "lib/reduce/nontemporal.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum {
	LONGEST = 64 << 10, /* bytes; more than two ranks do no more than that so */
	BLOCKS = 4 << 20,   /* more blocks than are done in one call */
	BEYOND = 12 << 20,  /* of two: only with non-temporal stores */
	SHORT = 2000,       /* bytes: not copied into the slot */
	SETTLED = 3,        /* uses of a buffer by when it is known where it lies */
	IN_TURN = 3 * SHM_SEEN,
};

static uint8_t byte_of(int rank, size_t i)
{
	return (uint8_t)((i * 2654435761u + (size_t)rank * 40503) >> 7);
}

static const struct shm_operation *last_of(const struct rank *rank)
{
	const struct shm *shm = rank->comm->shm;

	return &shm->operations[(shm->published - 1) % SHM_SLOTS];
}

static bool was_flat(const struct rank *rank)
{
	return last_of(rank)->is_flat;
}

/* Others have read it in place. */
static bool was_left(const struct rank *rank)
{
	return !last_of(rank)->is_long && last_of(rank)->peer[rank->number].send;
}

/* All ranks' elements, which differ; `send` may be `recv`. */
static void sum_up(struct rank *rank, int32_t *send, int32_t *recv, size_t bytes)
{
	size_t count = bytes / sizeof(int32_t);

	memset(recv, 0, bytes);
	for (size_t i = 0; i < count; i++)
		send[i] = (int32_t)i * (rank->number + 1);
	expect(rank, frl_allreduce(rank->comm, send, recv, count, FRL_INT32, FRL_SUM) == 0);
	for (size_t i = 0; i < count && !rank->failure[0]; i++)
		expect(rank, recv[i] == (int32_t)i * rank->ranks * (rank->ranks + 1) / 2);
}

/* The result of plain C for the inputs of all ranks. */
static void reduce_plainly(const struct rank *rank, const struct frl_collective *c, uint8_t *sum)
{
	enum frl_op op = c->op == FRL_AVG ? FRL_SUM : c->op;
	size_t bytes = c->count * frl_dtype_size(c->dtype);
	uint8_t *next = job_private_memory(bytes);

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
	uint8_t *wanted = job_private_memory(bytes);

	for (size_t i = 0; i < bytes; i++)
		send[i] = byte_of(rank->number, i);
	recv[bytes] = 0x5a;
	c.coll = FRL_ALLREDUCE;
	c.send = send;
	c.recv = recv;
	reduce_plainly(rank, &c, wanted);
	for (int i = 0; i < (bytes > SHM_INLINE ? 1 : SETTLED); i++)
		expect(rank, frl_run(rank->comm, &c) == 0);
	expect(rank, bytes > SHM_INLINE ? was_flat(rank) : was_left(rank));
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
	uint8_t *memory[2] = { job_shared_memory(bytes), job_shared_memory(bytes) };

	rank->comm->tuner.oversubscription = 1; /* however many processors there are */
	for (int dtype = 0; dtype < FRL_DTYPES; dtype += (JOB_SHARE + 1) / 2) {
		size_t size = frl_dtype_size((enum frl_dtype)dtype);
		struct frl_collective c = { .dtype = (enum frl_dtype)dtype };

		for (c.op = FRL_SUM; c.op <= FRL_MIN; c.op++) {
			c.count = LONGEST / size - 3;
			check_bits(rank, memory, c, (size_t)dtype * 6 + c.op);
			c.count = (SHM_INLINE + size) / size;
			check_bits(rank, memory, c, 0);
			c.count = SHORT / size - 1;
			check_bits(rank, memory, c, (size_t)dtype * 6 + c.op);
		}
	}
	for (int i = 0; i < 4; i++) {
		struct frl_collective c = { .dtype = i % 2 ? FRL_INT32 : FRL_FLOAT32 };

		c.count = LONGEST / 4 - (size_t)i;
		c.op = FRL_AVG;
		check_bits(rank, memory, c, 64);
	}
	/* Non-temporal stores with a partial last line; to addresses in the middle of a line, and
	 * in the middle of an element. */
	if (rank->ranks == 2)
		for (size_t i = 0; i < 3; i++)
			check_bits(rank, memory,
				(struct frl_collective){
					.count = BLOCKS / 4 + 21, .dtype = FRL_FLOAT32 },
				i * 72 + i / 2 * 4);
	frl_mem_free(memory[0], bytes);
	frl_mem_free(memory[1], bytes);
}

START_RANGE_TEST(bits, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_bits };

	job_run(&job);
}
END_TEST

/* All ranks reduce whole vectors, or none does: one private input, or one shared input in place,
 * suffices for none. Two ranks copy private inputs instead. */
static void run_decision(struct rank *rank)
{
	int32_t *send = job_shared_memory(LONGEST), *recv = job_shared_memory(LONGEST);
	int32_t *plain = job_private_memory(LONGEST);

	for (int how = 0; how < 4; how++) {
		bool is_odd = rank->number == 1;
		int32_t *from = is_odd && how == 1 ? plain : send;
		int32_t *to = recv;

		if (is_odd && how > 1)
			to = how == 2 ? plain : send;
		sum_up(rank, from, to, LONGEST);
		expect(rank,
			was_flat(rank) == (how == 0 || how == 2 || (how == 1 && rank->ranks == 2)));
	}
	frl_mem_free(send, LONGEST);
	frl_mem_free(recv, LONGEST);
	free(plain);
}

START_RANGE_TEST(all_or_none, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_decision };

	job_run(&job);
}
END_TEST

/* Vectors beyond SHM_WHOLE_BYTES_OF_TWO: only with non-temporal stores. */
static void run_beyond(struct rank *rank)
{
	size_t count = BEYOND / sizeof(float);
	float *send = job_shared_memory(BEYOND), *recv = job_shared_memory(BEYOND);

	for (int how = 0; how < 3; how++) {
		enum frl_op op = how == 1 ? FRL_MAX : how == 2 ? FRL_AVG : FRL_SUM;
		float one = op == FRL_MAX ? 1
			: op == FRL_AVG   ? 0.5f
					  : 1,
		      all = op == FRL_SUM ? 3 : 1;

		for (size_t i = 0; i < count; i++)
			send[i] = (float)(i % 1000) * one *
				(op == FRL_SUM ? 1.0f + (float)rank->number : 1);
		expect(rank, frl_allreduce(rank->comm, send, recv, count, FRL_FLOAT32, op) == 0);
		expect(rank,
			was_flat(rank) == (how == 0 && reduce_has_nontemporal(FRL_FLOAT32, op)));
		for (size_t i = 0; i < count && !rank->failure[0]; i++)
			expect(rank, recv[i] == (float)(i % 1000) * one * all);
	}
	frl_mem_free(send, BEYOND);
	frl_mem_free(recv, BEYOND);
}

START_TEST(beyond)
{
	struct job job = { .ranks = 2, .main = run_beyond };

	job_run(&job);
}
END_TEST

/* A rank whose process lacks the function reports it: no rank uses it. */
static void run_unlike(struct rank *rank)
{
	static _Atomic bool is_told;
	size_t count = BEYOND / sizeof(float);
	float *send = job_shared_memory(BEYOND), *recv = job_shared_memory(BEYOND);
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = send,
		.recv = recv,
		.count = count,
		.dtype = FRL_FLOAT32 };
	struct shm *shm = rank->comm->shm;
	struct frl_request *request;

	for (size_t i = 0; i < count; i++)
		send[i] = (float)(i % 1000);
	while (rank->number == 0 && !atomic_load(&is_told))
		job_sleep_ms(1);
	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	if (rank->number == 1) {
		unsigned slot = (shm->published - 1) % SHM_SLOTS;

		shm->page->slots[slot].passes_cache = false;
		shm->operations[slot].nontemporal = 0;
		atomic_store(&is_told, true);
	}
	expect(rank, frl_request_wait(request) == 0);
	expect(rank, !was_flat(rank));
	for (size_t i = 0; i < count && !rank->failure[0]; i++)
		expect(rank, recv[i] == (float)(i % 1000) * 2);
	frl_mem_free(send, BEYOND);
	frl_mem_free(recv, BEYOND);
}

START_TEST(unlike)
{
	struct job job = { .ranks = 2, .main = run_unlike };

	job_run(&job);
}
END_TEST

/* For short vectors each rank leaves its elements in place, or does not. */
static void run_left(struct rank *rank)
{
	int32_t *shared = job_shared_memory(SHORT), *recv = job_shared_memory(SHORT);
	int32_t *plain = job_private_memory(SHORT);

	for (int how = 0; how < 4; how++) {
		bool is_odd = rank->number == 1;
		int32_t *send = is_odd && how == 1 ? plain : shared;
		int32_t *to = is_odd && how == 2 ? shared : recv;

		/* If ranks share processors, none does. */
		rank->comm->tuner.oversubscription = is_odd && how == 3 ? 2 : 1;
		for (int i = 0; i < (how == 2 ? 1 : SETTLED); i++)
			sum_up(rank, send, to, SHORT);
		expect(rank, was_left(rank) == (how == 0 || !is_odd));
	}
	frl_mem_free(shared, SHORT);
	frl_mem_free(recv, SHORT);
	free(plain);
}

START_RANGE_TEST(left, 2, 5)
{
	struct job job = { .ranks = _i, .main = run_left };

	job_run(&job);
}
END_TEST

static struct frl_collective sum_of(const void *send, void *recv, size_t bytes)
{
	return (struct frl_collective){ .coll = FRL_ALLREDUCE,
		.send = send,
		.recv = recv,
		.count = bytes,
		.dtype = FRL_UINT8 };
}

/* Rank 1 sends false information about the place of its elements before rank 0 reads it: for short
 * vectors that it left there, and for long ones. */
static void run_false_place(struct rank *rank)
{
	static _Atomic bool is_told;
	int row = *(const int *)rank->job->arg, what = row / 2;
	bool is_long = row % 2;
	size_t bytes = is_long ? LONGEST : SHORT;
	uint8_t *send = job_shared_memory(bytes), *recv = is_long ? send : job_shared_memory(bytes);
	struct frl_collective c = sum_of(send, recv, bytes);
	struct shm *shm = rank->comm->shm;
	struct frl_request *request;

	rank->comm->tuner.oversubscription = 1;
	/* From the second use on they are left in place; nobody has mapped them by then. */
	if (!is_long)
		expect(rank, frl_run(rank->comm, &c) == 0);
	if (rank->number == 1) {
		struct shm_location *location;

		expect(rank, frl_start(rank->comm, &c, &request) == 0);
		expect(rank, was_left(rank) == !is_long);
		location = &shm->page->slots[(shm->published - 1) % SHM_SLOTS].send;
		location->offset = what == 0 ? 4096 : what == 1 ? UINT64_MAX : location->offset;
		location->export.size += what == 2 ? UINT64_C(1) << 30 : 0;
		location->export.inode += what == 3;
		atomic_store(&is_told, true);
		expect(rank, frl_request_wait(request) < 0);
		return;
	}
	while (!atomic_load(&is_told))
		job_sleep_ms(1);
	atomic_store(&is_told, false);
	expect(rank, frl_run(rank->comm, &c) < 0);
	expect(rank, strstr(frl_last_error(), "rank 0 cannot read the buffers of rank 1") != NULL);
}

START_LOOP_TEST(false_places, 8)
{
	struct job job = { .ranks = 2, .main = run_false_place, .arg = &_i };

	job_run(&job);
}
END_TEST

/* Rank 0 may no longer open the memory of rank 1, or it is not there: rank 1 copies it. */
static void run_no_access(struct rank *rank)
{
	static _Atomic bool is_told;
	uint8_t *send = job_shared_memory(SHORT), *recv = job_shared_memory(SHORT);
	struct frl_collective c = sum_of(send, recv, SHORT);
	struct shm *shm = rank->comm->shm;
	struct frl_request *request;
	struct shm_slot *slot;

	rank->comm->tuner.oversubscription = 1;
	memset(send, 3 + rank->number, SHORT);
	expect(rank, frl_run(rank->comm, &c) == 0);
	while (rank->number == 0 && !atomic_load(&is_told))
		job_sleep_ms(1);
	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	slot = &shm->page->slots[(shm->published - 1) % SHM_SLOTS];
	expect(rank, was_left(rank));
	if (rank->number == 1)
		slot->send.export.fd = INT32_MAX;
	atomic_store(&is_told, true);
	expect(rank, frl_request_wait(request) == 0);
	expect(rank, rank->number == 0 || slot->input_kind == SHM_IN_RING);
	for (size_t i = 0; i < SHORT && !rank->failure[0]; i++)
		expect(rank, recv[i] == 7);
	frl_mem_free(send, SHORT);
	frl_mem_free(recv, SHORT);
}

START_TEST(no_access)
{
	struct job job = { .ranks = 2, .main = run_no_access };

	job_run(&job);
}
END_TEST

/* Buffers that take turns, and buffers that are used once, are copied: nobody maps them again and
 * again. */
static void run_in_turn(struct rank *rank)
{
	_Atomic uint64_t *changed = &rank->comm->shm->page->exports_changed;
	int32_t *send[IN_TURN], *recv = job_shared_memory(SHORT);
	uint64_t before;

	rank->comm->tuner.oversubscription = 1;
	for (int i = 0; i < IN_TURN; i++)
		send[i] = job_shared_memory(SHORT);
	before = atomic_load(changed);
	for (int turn = 0; turn < 3; turn++)
		for (int i = 0; i < IN_TURN && !rank->failure[0]; i++)
			sum_up(rank, send[i], recv, SHORT);
	/* However often each was used since. */
	for (int i = 0; i < SETTLED * IN_TURN && !rank->failure[0]; i++)
		sum_up(rank, send[i / SETTLED], recv, SHORT);
	expect(rank, atomic_load(changed) == before);
	expect(rank, frl_barrier(rank->comm) == 0);
	for (int i = 0; i < IN_TURN; i++)
		frl_mem_free(send[i], SHORT);
	frl_mem_free(recv, SHORT);
}

START_TEST(in_turn)
{
	struct job job = { .ranks = 2, .main = run_in_turn };

	job_run(&job);
}
END_TEST

static void limit_files(struct rank *rank, rlim_t most, struct rlimit *ret_before)
{
	struct rlimit limit;

	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number == 0) {
		expect(rank, getrlimit(RLIMIT_NOFILE, &limit) == 0);
		*ret_before = limit;
		limit.rlim_cur = most;
		expect(rank, setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	expect(rank, frl_barrier(rank->comm) == 0);
}

/* Ranks that may open no more descriptors cannot map the others' memory: these copy it. */
static void run_out_of_files(struct rank *rank)
{
	int32_t *send = job_shared_memory(SHORT), *recv = job_shared_memory(SHORT),
		*plain = job_private_memory(SHORT);
	const struct shm *shm = rank->comm->shm;
	struct rlimit limit = { 0 }, unused;

	rank->comm->tuner.oversubscription = 1;
	sum_up(rank, send, recv, SHORT);
	limit_files(rank, 3, &limit);
	for (int i = 0; i < 3 * SHM_SLOTS; i++) {
		bool is_plain = rank->number == 1 && i % 2;

		frl_fail(-EINVAL, "before");
		/* Twice: one may have replaced the other among the remembered ones. */
		for (int k = 0; k < 2; k++)
			sum_up(rank, is_plain ? plain : send, recv, SHORT);
		expect(rank, strcmp(frl_last_error(), "before") == 0);
		expect(rank, was_left(rank) == !is_plain);
		expect(rank,
			is_plain ||
				shm_slot_of(shm, shm->me, shm->published - 1)->input_kind ==
					SHM_IN_RING);
	}
	limit_files(rank, limit.rlim_cur, &unused);
	for (int k = 0; k < 2; k++)
		sum_up(rank, send, recv, SHORT);
	expect(rank, was_left(rank));
	expect(rank, shm_slot_of(shm, shm->me, shm->published - 1)->input_kind == SHM_IN_PLACE);
	expect(rank, frl_barrier(rank->comm) == 0);
	frl_mem_free(send, SHORT);
	frl_mem_free(recv, SHORT);
	free(plain);
}

START_TEST(out_of_files)
{
	struct job job = { .ranks = 3, .main = run_out_of_files };

	job_run(&job);
}
END_TEST

/* Rank 0 never calls the library again: the data that it would read is incomplete, and that is
 * reported. When it comes rank 1's elements are gone, which it detects even without a report. */
struct unread {
	int uses; /* of the buffer before: with one nobody has mapped it */
};

static void run_unread(struct rank *rank)
{
	int32_t *send = job_shared_memory(SHORT), *recv = job_shared_memory(SHORT);
	struct frl_collective c = sum_of(send, recv, SHORT);
	struct unread *how = rank->job->arg;
	struct frl_request *request;
	bool is_done = true;

	rank->comm->tuner.oversubscription = 1;
	for (int i = 0; i < how->uses; i++)
		expect(rank, frl_run(rank->comm, &c) == 0);
	if (rank->number == 1)
		job_meet(rank->job);
	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	if (rank->number == 0)
		job_meet(rank->job);
	if (rank->number == 1) {
		expect(rank, frl_request_test(request, &is_done) == 0 && !is_done);
		rank->comm->config.timeout_ms = 200;
		rank->comm->is_child = true; /* of those mail alone tells */
		expect(rank, frl_request_wait(request) == -ETIMEDOUT);
		rank->comm->is_child = false;
		expect(rank, strstr(frl_last_error(), "waits for rank 0") != NULL);
		memset(send, 0x55, SHORT);
		frl_mem_free(send, SHORT);
	}
	job_meet(rank->job);
	if (rank->number == 0) {
		expect(rank, frl_request_wait(request) < 0);
		frl_mem_free(send, SHORT);
	}
	job_meet(rank->job); /* rank 1 has not left */
	frl_mem_free(recv, SHORT);
}

START_LOOP_TEST(unread, 4)
{
	struct unread how = { .uses = _i / 2 ? 1 : SETTLED };
	struct job job = {
		.ranks = 2, .main = run_unread, .arg = &how, .losses = (unsigned)_i % 2
	};

	job_run(&job);
}
END_TEST

/* The next operation may overwrite the sent data: others have read it by then. */
static void run_overwritten(struct rank *rank)
{
	size_t count = (size_t) * (const int *)rank->job->arg / sizeof(int32_t);
	int32_t *send = job_shared_memory(LONGEST), *recv = job_shared_memory(LONGEST);

	rank->comm->tuner.oversubscription = 1;
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

START_LOOP_TEST(overwritten, 2)
{
	static int lengths[] = { SHORT, LONGEST };
	struct job job = { .ranks = 2, .main = run_overwritten, .arg = &lengths[_i] };

	job_run(&job);
}
END_TEST

TEST_MAIN(comm_shm_flat)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
