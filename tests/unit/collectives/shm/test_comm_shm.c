/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in memory that the ranks of a machine share: buffers that others can read, and
 * others, in all mixtures; more operations than slots; memory that is mapped and unmapped.
 * test_comm and test_comm_siblings run this way as well.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/shm/internal.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum {
	SHORT = 100,
	KEPT = 1600 / 4,          /* short, and stays in place if others can read it */
	LONG = 90001 / JOB_SHARE, /* not whole blocks */
	MANY = 3 * SHM_SLOTS,
	COMINGS = SHM_EXPORTS + 10,
};

/* ---- buffers */

/* Whether others can read the buffer: by rank, one bit a buffer. */
enum { SEND_SHARED = 1, RECV_SHARED = 2 };

static void *get(bool is_shared, size_t bytes)
{
	return is_shared ? frl_mem_alloc(bytes) : calloc(1, bytes);
}

static void put(bool is_shared, void *memory, size_t bytes)
{
	if (is_shared)
		frl_mem_free(memory, bytes);
	else
		free(memory);
}

static int32_t input(int rank, size_t i)
{
	return (int32_t)((i * 31 + (size_t)rank * 7919) % 1000) - 500;
}

static int32_t sum_at(int ranks, size_t i)
{
	int32_t sum = 0;

	for (int rank = 0; rank < ranks; rank++)
		sum += input(rank, i);
	return sum;
}

static int32_t expected(const struct rank *rank, enum frl_coll coll, size_t count, size_t i)
{
	size_t own = (size_t)rank->number * count;

	switch (coll) {
	case FRL_ALLREDUCE: return sum_at(rank->ranks, i);
	case FRL_REDUCE_SCATTER: return sum_at(rank->ranks, own + i);
	case FRL_ALLGATHER: return input((int)(i / count), i % count);
	case FRL_BROADCAST: return input(1, i);
	default: return input((int)(i / count), own + i % count);
	}
}

/* The layout of the ranks' buffers: `kinds` has two bits a rank, in_place one. */
struct lay {
	unsigned kinds, in_place;
};

static void run_one(struct rank *rank, enum frl_coll coll, size_t count, struct lay lay)
{
	unsigned kind = lay.kinds >> 2 * rank->number & 3;
	bool in_place = lay.in_place >> rank->number & 1, many_out, many_in;
	size_t n = (size_t)rank->ranks, own = (size_t)rank->number * count, sent, received;
	size_t bytes = n * count * sizeof(int32_t);
	int32_t *send = get(kind & SEND_SHARED, bytes), *recv = get(kind & RECV_SHARED, bytes);
	struct frl_collective c = { .coll = coll,
		.send = send,
		.recv = recv,
		.count = count,
		.dtype = FRL_INT32,
		.root = 1 };

	many_out = coll == FRL_REDUCE_SCATTER || coll == FRL_ALLTOALL;
	many_in = coll == FRL_ALLGATHER || coll == FRL_ALLTOALL;
	sent = many_out ? n * count : count;
	received = many_in ? n * count : count;
	for (size_t i = 0; i < sent; i++)
		send[i] = input(rank->number, i);
	if (in_place && many_in && !many_out) {
		memcpy(recv + own, send, count * sizeof(*send));
		c.send = recv + own;
	} else if (in_place) {
		c.recv = many_out && !many_in ? send + own : send;
	}
	if (expect(rank, frl_run(rank->comm, &c) == 0))
		for (size_t i = 0; i < received && !rank->failure[0]; i++) {
			int32_t is = ((const int32_t *)c.recv)[i];

			if (is != expected(rank, coll, count, i))
				complain(rank, "%s of %zu, kinds %x, in place %x: %zu is %d",
					frl_coll_name(coll), count, lay.kinds, lay.in_place, i, is);
		}
	put(kind & SEND_SHARED, send, bytes);
	put(kind & RECV_SHARED, recv, bytes);
}

static void run_mixtures(struct rank *rank)
{
	static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_REDUCE_SCATTER, FRL_ALLGATHER,
		FRL_BROADCAST, FRL_ALLTOALL };
	static const struct lay lays[] = { { 0xff, 0 }, { 0, 0 }, { 0x1b, 0 }, { 0xe4, 0xa },
		{ 0xff, 0xf }, { 0, 0xf }, { 0x36, 5 } };

	expect(rank, rank->comm->shm != NULL);
	for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
		for (size_t k = 0; k < sizeof(lays) / sizeof(lays[0]); k++) {
			run_one(rank, colls[i], SHORT, lays[k]);
			run_one(rank, colls[i], LONG, lays[k]);
			/* As long as a long one, but for one element, and parts without any. */
			run_one(rank, colls[i], SHM_INLINE / sizeof(int32_t) + 1, lays[k]);
		}
	}
}

START_RANGE_TEST(mixtures, 2, JOB_SHARE > 1 ? 4 : 5)
{
	struct job job = { .ranks = _i, .main = run_mixtures };

	job_run(&job);
}
END_TEST

/* ---- what frl_comm_explain() says of it */

static const struct {
	enum frl_coll coll;
	int ranks;
	size_t count; /* of int32 */
	const char *text;
} explained[] = {
	{ FRL_ALLREDUCE, 2, 100, "in one exchange\n" },
	{ FRL_ALLREDUCE, 2, SHM_SHORT_OF_TWO / 4, "in one exchange\n" },
	{ FRL_ALLREDUCE, 2, SHM_SHORT_OF_TWO / 4 + 1, "each rank reduces the whole vector," },
	{ FRL_ALLREDUCE, 2, SHM_WHOLE_BYTES_OF_TWO / 4,
		"each rank reduces the whole vector, or one part if an input" },
	{ FRL_ALLREDUCE, 4, SHM_WHOLE_BYTES / 4, "each rank reduces the whole vector if" },
	{ FRL_ALLREDUCE, 4, SHM_WHOLE_BYTES / 4 + 1, "each rank reduces one part\n" },
	{ FRL_ALLREDUCE, 2, SHM_WHOLE_BYTES_OF_TWO / 4 + 1, "each rank reduces one part\n" },
	{ FRL_REDUCE_SCATTER, 3, 100000, "each rank reduces its block\n" },
	{ FRL_BROADCAST, 3, 100000, "block by block\n" },
	{ FRL_ALLTOALL, 3, 100000, "block by block\n" },
	{ FRL_GATHER, 3, 100, "in one exchange\n" },
	/* Too long for one exchange: by packets. */
	{ FRL_GATHER, 3, 100000, "thresholds: eager 4064 bytes" },
};

static void explain(struct rank *rank)
{
	const int row = *(const int *)rank->job->arg;
	int32_t *memory = calloc(explained[row].count, 2 * 4 * sizeof(*memory));
	struct frl_collective c = { .coll = explained[row].coll,
		.send = memory,
		.recv = memory + 4 * explained[row].count,
		.count = explained[row].count,
		.dtype = FRL_INT32 };
	char text[2048];

	expect(rank, frl_comm_explain(rank->comm, &c, text, sizeof(text)) > 0);
	if (!strstr(text, explained[row].text))
		complain(rank, "%s of %zu: %s", frl_coll_name(c.coll), c.count, text);
	free(memory);
}

START_LOOP_TEST(ways_are_explained, ROWS(explained))
{
	struct job job = { .ranks = explained[_i].ranks, .main = explain, .arg = &_i };

	job_run(&job);
}
END_TEST

/* Inputs that are scaled first have no long operation. Two ranks sum them in one exchange beyond
 * the usual limit. */
static void explain_scaled(struct rank *rank)
{
	size_t count = SHM_SHORT_OF_TWO / 2 + 1;
	uint16_t *memory = calloc(count, 2 * sizeof(*memory));
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = memory,
		.recv = memory + count,
		.count = count,
		.dtype = FRL_FLOAT16,
		.op = FRL_AVG };
	char text[2048];

	expect(rank, frl_comm_explain(rank->comm, &c, text, sizeof(text)) > 0);
	expect(rank, strstr(text, "in one exchange\n") != NULL);
	free(memory);
}

START_TEST(scaled_inputs_are_exchanged)
{
	struct job job = { .ranks = 2, .main = explain_scaled };

	job_run(&job);
}
END_TEST

/* ---- what is computed */

/* Numbers that the type can hold, and their sums and products with scalars as well. */
static float value(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 3) % 16);
}

static void fill(const struct rank *rank, enum frl_dtype dtype, void *memory, size_t count)
{
	float *floats = malloc(count * sizeof(float));

	for (size_t i = 0; i < count; i++)
		floats[i] = value(rank->number, i);
	if (dtype == FRL_FLOAT32)
		memcpy(memory, floats, count * sizeof(float));
	else
		frl_wire_encode(memory, floats, count, FRL_WIRE_BFLOAT16);
	free(floats);
}

static void check_scaled(struct rank *rank, enum frl_dtype dtype, enum frl_op op, size_t count)
{
	size_t bytes = count * sizeof(float);
	void *memory = malloc(bytes);
	float *results = malloc(bytes), scalar = (float)(rank->number + 1);
	uint16_t narrow;
	struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = memory,
		.recv = memory,
		.count = count,
		.dtype = dtype,
		.op = op,
		.scalar = dtype == FRL_FLOAT32 ? (void *)&scalar : (void *)&narrow };

	frl_wire_encode(&narrow, &scalar, 1, FRL_WIRE_BFLOAT16);
	fill(rank, dtype, memory, count);
	expect(rank, frl_run(rank->comm, &c) == 0);
	if (dtype == FRL_FLOAT32)
		memcpy(results, memory, bytes);
	else
		frl_wire_decode(results, memory, count, FRL_WIRE_BFLOAT16);
	for (size_t i = 0; i < count && !rank->failure[0]; i++) {
		float sum = 0, most = 0;

		for (int r = 0; r < rank->ranks; r++) {
			sum += value(r, i) * (op == FRL_PREMUL_SUM ? (float)(r + 1) : 1);
			most = value(r, i) > most ? value(r, i) : most;
		}
		sum = op == FRL_AVG ? sum / 4 : op == FRL_MAX ? most : sum;
		if (results[i] != sum)
			complain(rank, "%s of %zu %s: %zu is %g instead of %g", frl_op_name(op),
				count, frl_dtype_name(dtype), i, (double)results[i], (double)sum);
	}
	free(memory);
	free(results);
}

static void run_scaled(struct rank *rank)
{
	static const enum frl_op ops[] = { FRL_SUM, FRL_MAX, FRL_AVG, FRL_PREMUL_SUM };

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		check_scaled(rank, FRL_FLOAT32, ops[i], 3);
		check_scaled(rank, FRL_FLOAT32, ops[i], LONG);
		check_scaled(rank, FRL_BFLOAT16, ops[i], 3);
		check_scaled(rank, FRL_BFLOAT16, ops[i], LONG);
	}
}

START_TEST(scaled)
{
	struct job job = { .ranks = 4, .main = run_scaled };

	job_run(&job);
}
END_TEST

/* ---- many at once, waited for in the opposite order */

static size_t count_of(int i)
{
	return i % 2 ? LONG : i % 4 ? KEPT : SHORT;
}

/* Counts its buffers. Inputs that stay in place share a buffer. */
static size_t first_of(int i)
{
	return count_of(i) == KEPT ? 0 : (size_t)i;
}

static void run_many(struct rank *rank)
{
	struct frl_request *requests[MANY];
	int32_t *in[MANY], *out[MANY], *kept = frl_mem_alloc(KEPT * sizeof(int32_t));
	const struct shm *shm = rank->comm->shm;

	if (!kept)
		abort();
	rank->comm->tuner.oversubscription = 1;
	for (int i = 0; i < MANY; i++) {
		size_t count = count_of(i);
		struct frl_collective c = { .coll = i % 3 == 2 ? FRL_BROADCAST : FRL_ALLREDUCE,
			.count = count,
			.dtype = FRL_INT32,
			.root = i % rank->ranks };

		in[i] = count == KEPT ? kept : malloc(count * sizeof(int32_t));
		c.send = in[i];
		c.recv = out[i] = malloc(count * sizeof(int32_t));
		for (size_t k = 0; k < count; k++)
			in[i][k] = input(rank->number, k + first_of(i));
		if (!expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0))
			return;
	}
	for (int i = MANY - 1; i >= 0; i--) {
		expect(rank, frl_request_wait(requests[i]) == 0);
		for (size_t k = 0; k < count_of(i) && !rank->failure[0]; k++)
			expect(rank,
				out[i][k] ==
					(i % 3 == 2 ? input(i % rank->ranks, k + first_of(i))
						    : sum_at(rank->ranks, k + first_of(i))));
		if (in[i] != kept)
			free(in[i]);
		free(out[i]);
	}
	expect(rank,
		shm->operations[(shm->published - 2) % SHM_SLOTS].peer[rank->number].send ==
			(const uint8_t *)kept);
	expect(rank, frl_barrier(rank->comm) == 0);
	frl_mem_free(kept, KEPT * sizeof(int32_t));
}

START_TEST(more_than_slots)
{
	struct job job = { .ranks = 3, .main = run_many };

	job_run(&job);
}
END_TEST

/* ---- memory that comes and goes */

static unsigned mappings_of(const struct rank *rank)
{
	unsigned n = 0;

	for (int peer = 0; peer < rank->ranks; peer++)
		for (int i = 0; i < SHM_MAPPINGS; i++)
			n += rank->comm->shm->peers[peer].mappings[i].addr != NULL;
	return n;
}

static void sum_in(struct rank *rank, int32_t *memory)
{
	for (size_t i = 0; i < LONG; i++)
		memory[i] = input(rank->number, i);
	expect(rank, frl_allreduce(rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM) == 0);
	for (size_t i = 0; i < LONG && !rank->failure[0]; i += 97)
		expect(rank, memory[i] == sum_at(rank->ranks, i));
}

/* The same for short inputs, which stay in place from the second use on. */
static void sum_kept_in(struct rank *rank, int32_t *memory)
{
	int32_t *recv = memory + KEPT;

	for (int turn = 0; turn < 3; turn++) {
		for (size_t i = 0; i < KEPT; i++)
			memory[i] = input(rank->number, i + (size_t)turn);
		expect(rank,
			frl_allreduce(rank->comm, memory, recv, KEPT, FRL_INT32, FRL_SUM) == 0);
		for (size_t i = 0; i < KEPT && !rank->failure[0]; i++)
			expect(rank, recv[i] == sum_at(rank->ranks, i + (size_t)turn));
	}
}

/* Others drop freed memory once this rank brings anything again. */
static void run_comings(struct rank *rank)
{
	size_t bytes = LONG * sizeof(int32_t);
	int32_t *kept[COMINGS], *other;

	rank->comm->tuner.oversubscription = 1;
	for (int i = 0; i < COMINGS; i++) {
		int32_t *memory = frl_mem_alloc(bytes);

		sum_kept_in(rank, memory);
		sum_in(rank, memory);
		frl_mem_free(memory, bytes);
	}
	kept[0] = frl_mem_alloc(bytes);
	other = frl_mem_alloc(bytes);
	sum_in(rank, kept[0]);
	sum_in(rank, other);
	expect(rank, mappings_of(rank) == 2);
	frl_mem_free(rank->number ? other : kept[0], bytes);
	sum_in(rank, rank->number ? kept[0] : other);
	expect(rank, frl_barrier(rank->comm) == 0);
	sum_in(rank, rank->number ? kept[0] : other);
	expect(rank, mappings_of(rank) == 1);
	frl_mem_free(rank->number ? kept[0] : other, bytes);
	/* Also if nothing else arrives that others could map. */
	for (int i = 0; i < 2; i++)
		expect(rank, frl_barrier(rank->comm) == 0);
	expect(rank, mappings_of(rank) == 0);
	for (int i = 0; i < COMINGS; i++)
		kept[i] = frl_mem_alloc(bytes);
	for (int i = 0; i < 2 * COMINGS; i++)
		sum_in(rank, kept[i % COMINGS]);
	expect(rank, mappings_of(rank) > SHM_MAPPINGS / 2);
	for (int i = 0; i < COMINGS; i++)
		frl_mem_free(kept[i], bytes);
}

START_TEST(comes_and_goes)
{
	struct job job = { .ranks = 2, .main = run_comings };

	job_run(&job);
}
END_TEST

TEST_MAIN(comm_shm)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
