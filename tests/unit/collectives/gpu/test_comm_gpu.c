/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives on GPU memory between threads of one process on one GPU, over the local fabric: every
 * operation, type, reduction, wire type and algorithm, in and out of place, also where some buffers
 * are host memory. Results are compared with the same operations on host memory.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/compute.h"
#include "gpudirect/queue.h"
#include "tests/unit/collectives/gpu/comm_gpu_fixture.h"
#include "tests/unit/collectives/gpu/comm_gpu_passed.h"
#include "tests/fixtures/program.h"

enum { SEGMENTS = JOB_SHARE > 1 ? 35001 : 70001, MANY = 40 };
/* The least and the most ranks where each number of them is tried. */
enum { FEWEST = JOB_SHARE > 1 ? 3 : 1, MOST = JOB_SHARE > 1 ? 3 : 4 };

/* Small messages, lengths just above the limit, several segments. */
static const size_t counts[] = { 0, 1, 3, 1000, 1017, 5000, SEGMENTS };

/* The buffers on the GPU: all; every second rank's; one buffer each, in turns. */
enum pattern { ALL, SOME_RANKS, ONE_BUFFER, PATTERNS };

static unsigned where(enum pattern pattern, const struct rank *rank, bool in_place)
{
	unsigned turn = (unsigned)rank->number;

	if (pattern == SOME_RANKS)
		return turn % 2 ? 0 : ALL_ON_GPU;
	if (pattern == ALL || in_place)
		return ALL_ON_GPU;
	return turn % 3 == 0 ? SEND_ON_GPU : turn % 3 == 1 ? RECV_ON_GPU : ALL_ON_GPU;
}

static bool can_be_in_place(enum frl_coll coll, int root, const struct rank *rank)
{
	switch (coll) {
	case FRL_ALLTOALLV: return false;
	/* At the other ranks one of the buffers is ignored. */
	case FRL_BROADCAST:
	case FRL_REDUCE:
	case FRL_GATHER:
	case FRL_SCATTER: return rank->number == root;
	default: return true;
	}
}

static void run_operations(struct rank *rank)
{
	enum pattern pattern = *(const enum pattern *)rank->job->arg;

	for (unsigned i = 0; i < 2 * FRL_BARRIER * ROWS(counts) && !rank->failure[0]; i++) {
		struct trial trial = {
			.c = { .coll = (enum frl_coll)(i / 2 / ROWS(counts)),
				.count = counts[i / 2 % ROWS(counts)],
				.dtype = FRL_INT32,
				.root = (int)(i / 2 % (unsigned)rank->ranks) },
			.shift = i / 2 % 3 * 5,
			.seed = i,
		};

		trial.in_place = i % 2 && can_be_in_place(trial.c.coll, trial.c.root, rank);
		trial.where = where(pattern, rank, trial.in_place);
		trial_run(rank, &trial);
	}
}

START_RANGE_TEST(every_operation, (FEWEST - 1) * PATTERNS, MOST *PATTERNS)
{
	enum pattern pattern = (enum pattern)(_i % PATTERNS);
	struct job job = { .ranks = 1 + _i / PATTERNS, .main = run_operations, .arg = &pattern };

	job_run(&job);
}
END_TEST

/* ---- by every algorithm, where it can; else by another one */

static void run_by(struct rank *rank)
{
	static const size_t some[] = { 7, 1018, 40001 };
	const char *algo = frl_algo_name(*(const enum frl_algo *)rank->job->arg);

	expect(rank, tuner_init(&rank->comm->tuner, algo, 16384) == 0);
	for (int coll = 0; coll < FRL_BARRIER; coll++) {
		for (unsigned i = 0; i < 6 && !rank->failure[0]; i++) {
			struct trial trial = { .c = { .coll = (enum frl_coll)coll,
						       .count = some[i / 2],
						       .dtype = FRL_UINT8,
						       .root = rank->ranks - 1 },
				.seed = i };

			trial.in_place = i % 2 && can_be_in_place(trial.c.coll, trial.c.root, rank);
			trial.where = where(i / 2 == 1 ? SOME_RANKS : ALL, rank, trial.in_place);
			trial_run(rank, &trial);
		}
	}
}

START_LOOP_TEST(every_algorithm, JOB_SHARE > 1 ? FRL_ALGOS : 2 * FRL_ALGOS)
{
	enum frl_algo algo = (enum frl_algo)(_i % FRL_ALGOS);
	struct job job = { .ranks = 3 + _i / FRL_ALGOS, .main = run_by, .arg = &algo };

	job_run(&job);
}
END_TEST

/* ---- types, operations, formats */

static void run_types(struct rank *rank)
{
	static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_REDUCE_SCATTER, FRL_REDUCE };
	static const double scalars[] = { 1.5, 0.75, 3, 2 };

	for (unsigned i = 0; i < 2 * FRL_DTYPES * FRL_OPS && !rank->failure[0]; i++) {
		struct trial trial = {
			.c = { .coll = colls[i % 3],
				.count = i % 2 ? 20011 : 77,
				.dtype = (enum frl_dtype)(i / 2 % FRL_DTYPES),
				.op = (enum frl_op)(i / 2 / FRL_DTYPES),
				.root = 1 % rank->ranks,
				/* For other types these bits are some number as well. */
				.scalar = &scalars[rank->number] },
			.where = i % 5 == 4 ? where(ONE_BUFFER, rank, false) : ALL_ON_GPU,
			.shift = i / 2 % 16,
			.seed = i,
		};

		trial_run(rank, &trial);
	}
}

JOB_RANGE_TEST(every_type, FEWEST - 1, MOST, job_run, .ranks = 1 + _i, .main = run_types);

static void run_formats(struct rank *rank)
{
	static const size_t some[] = { 100, 5000, 40001 };

	for (unsigned i = 0; i < 6 * FRL_BARRIER && !rank->failure[0]; i++) {
		struct trial trial = {
			.c = { .coll = (enum frl_coll)(i / 6),
				.count = some[i / 2 % 3],
				.dtype = FRL_FLOAT32,
				.op = i % 5 == 0 ? FRL_AVG : FRL_SUM,
				.root = rank->ranks / 2,
				.wire = *(const enum frl_wire *)rank->job->arg },
			.shift = i % 7,
			.seed = i,
		};

		trial.in_place = i % 2 && can_be_in_place(trial.c.coll, trial.c.root, rank);
		trial.where = where(i % 6 == 2 ? SOME_RANKS : ALL, rank, trial.in_place);
		trial_run(rank, &trial);
	}
}

START_RANGE_TEST(every_format, (FEWEST - 1) * (FRL_WIRES - 1), MOST *(FRL_WIRES - 1))
{
	enum frl_wire wire = (enum frl_wire)(1 + _i % (FRL_WIRES - 1));
	struct job job = { .ranks = 1 + _i / (FRL_WIRES - 1), .main = run_formats, .arg = &wire };

	job_run(&job);
}
END_TEST

/* ---- sends and receives, also of a rank to itself */

enum { PARTNERS = 2 };

/* To the next rank and to this one, from the one before and from this one, as one request. */
static void exchange(struct rank *rank, size_t bytes, enum frl_wire wire, unsigned on_gpu)
{
	size_t total = 2 * PARTNERS * bytes;
	int next = (rank->number + 1) % rank->ranks;
	int last = (rank->number + rank->ranks - 1) % rank->ranks;
	uint8_t *host[2] = { malloc(total), malloc(total) };
	uint8_t *gpu = test_gpu_alloc(total);
	struct frl_request *request;

	for (size_t i = 0; i < total / sizeof(float); i++) {
		float value = (float)(i * 7 + (size_t)rank->number * 1013 + bytes) / 3;

		memcpy(host[0] + i * sizeof(float), &value, sizeof(value));
		memcpy(host[1] + i * sizeof(float), &value, sizeof(value));
	}
	test_gpu_put(gpu, host[0], total);
	for (int run = 0; run < 2; run++) {
		uint8_t *memory = run ? gpu : host[0];
		uint8_t *other = on_gpu == ALL_ON_GPU ? memory : host[run];
		struct frl_collective c[2 * PARTNERS];

		for (int i = 0; i < 2 * PARTNERS; i++) {
			bool sends = i % 2 == 0;

			c[i] = (struct frl_collective){ .coll = sends ? FRL_SEND : FRL_RECV,
				.count = bytes / sizeof(float),
				.dtype = FRL_FLOAT32,
				.wire = wire,
				.root = i / 2   ? rank->number
					: sends ? next
						: last };
			c[i].send = (on_gpu & SEND_ON_GPU ? memory : other) + (size_t)i * bytes;
			c[i].recv = (on_gpu & RECV_ON_GPU ? memory : other) + (size_t)i * bytes;
		}
		if (expect(rank, frl_start_group(rank->comm, c, 2 * PARTNERS, &request) == 0))
			expect(rank, frl_request_wait(request) == 0);
	}
	if (on_gpu & RECV_ON_GPU)
		test_gpu_get(host[1], gpu, total);
	for (int i = 1; i < 2 * PARTNERS; i += 2)
		expect(rank,
			memcmp(host[0] + (size_t)i * bytes, host[1] + (size_t)i * bytes, bytes) ==
				0);
	test_gpu_free(gpu);
	free(host[0]);
	free(host[1]);
}

static void run_pairs(struct rank *rank)
{
	static const size_t lengths[] = { 4, 4064, 4068, 300000 };

	for (unsigned i = 0; i < 12 * FRL_WIRES && !rank->failure[0]; i++)
		exchange(rank, lengths[i % 4], (enum frl_wire)(i / 12), 1 + i / 4 % 3);
}

JOB_RANGE_TEST(sends_and_receives, FEWEST - 1, MOST, job_run, .ranks = 1 + _i, .main = run_pairs);

/* ---- many at once, on host memory and GPU memory, waited for in any order */

static void run_many(struct rank *rank)
{
	enum { LONGEST = 6000 };
	struct frl_request *requests[MANY];
	int32_t *host[MANY], *got = malloc(LONGEST * sizeof(*got));
	uint8_t *gpu[MANY];

	for (int i = 0; i < MANY; i++) {
		size_t count = (size_t)(i * 997 % LONGEST) + 1, bytes = count * sizeof(int32_t);
		bool on_gpu = (i + rank->number) % 3 > 0;

		host[i] = malloc(LONGEST * sizeof(int32_t));
		gpu[i] = test_gpu_alloc(LONGEST * sizeof(int32_t));
		for (size_t k = 0; k < count; k++)
			host[i][k] = (int32_t)(k * 3) + rank->number * i;
		test_gpu_put(gpu[i], host[i], bytes);
		if (!expect(rank,
			    frl_allreduce_start(rank->comm, on_gpu ? gpu[i] : (void *)host[i],
				    on_gpu ? gpu[i] : (void *)host[i], count, FRL_INT32, FRL_SUM,
				    &requests[i]) == 0))
			return;
	}
	for (int n = 0; n < MANY && !rank->failure[0]; n++) {
		int i = n * 7 % MANY, sum = rank->ranks * (rank->ranks - 1) / 2;
		size_t count = (size_t)(i * 997 % LONGEST) + 1;
		bool on_gpu = (i + rank->number) % 3 > 0;

		expect(rank, frl_request_wait(requests[i]) == 0);
		if (on_gpu)
			test_gpu_get(got, gpu[i], count * sizeof(int32_t));
		for (size_t k = 0; k < count && !rank->failure[0]; k++)
			expect(rank,
				(on_gpu ? got : host[i])[k] ==
					(int32_t)(k * 3) * rank->ranks + sum * i);
	}
	for (int i = 0; i < MANY; i++) {
		test_gpu_free(gpu[i]);
		free(host[i]);
	}
	free(got);
}

JOB_TEST(many_at_once, 3, job_run, .ranks = 2 + _i, .main = run_many);

/* ---- communicators made of one that is at work: each has what it needs of the GPU */

static void run_in(struct rank *rank, struct frl_comm *comm, unsigned seed)
{
	struct rank member = *rank;
	struct trial trial = {
		.c = { .coll = FRL_ALLREDUCE, .count = 20011, .dtype = FRL_FLOAT32 },
		.where = seed % 2 ? ALL_ON_GPU : where(ONE_BUFFER, rank, false),
		.seed = seed,
	};

	member.comm = comm;
	member.number = frl_comm_rank(comm);
	member.ranks = frl_comm_size(comm);
	if (!trial_run(&member, &trial))
		complain(rank, "communicator %u: %s", seed, member.failure);
}

static void run_split(struct rank *rank)
{
	enum { LONG = 50000 };
	struct frl_comm *half = NULL, *copy = NULL;
	int32_t *values = malloc(LONG * sizeof(*values));
	uint8_t *memory = test_gpu_alloc(LONG * sizeof(*values));
	struct frl_request *request;

	for (int i = 0; i < LONG; i++)
		values[i] = i + rank->number;
	test_gpu_put(memory, values, LONG * sizeof(*values));
	if (!expect(rank,
		    frl_allreduce_start(
			    rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM, &request) == 0))
		return;
	if (expect(rank, frl_comm_split(rank->comm, rank->number % 2, 0, &half) == 0)) {
		run_in(rank, half, 1);
		expect(rank, frl_comm_duplicate(half, &copy) == 0);
		frl_comm_destroy(half);
	}
	for (unsigned i = 2; copy && i < 4; i++)
		run_in(rank, copy, i);
	frl_comm_destroy(copy);
	expect(rank, frl_request_wait(request) == 0);
	test_gpu_get(values, memory, LONG * sizeof(*values));
	for (int i = 0; i < LONG && !rank->failure[0]; i++)
		expect(rank, values[i] == i * rank->ranks + rank->ranks * (rank->ranks - 1) / 2);
	run_in(rank, rank->comm, 4);
	test_gpu_free(memory);
	free(values);
}

JOB_TEST(split_and_duplicate, 1, job_run, .ranks = 4, .main = run_split);

/* ---- what is kept */

/* The second time no slow call of the driver is made. */
static void run_again(struct rank *rank)
{
	static const char *const slow[] = { "cuMemAlloc", "cuMemFree", "cuMemHostRegister",
		"cuMemHostUnregister", "cuStreamCreateWithPriority", "cuModuleLoadData",
		"cuEventCreate" };
	enum { SLOW = sizeof(slow) / sizeof(slow[0]), LONG = 50000 };
	unsigned before[SLOW] = { 0 };
	uint8_t *send = test_gpu_alloc(LONG * 4), *recv = test_gpu_alloc(LONG * 4);

	for (int round = 0; round < 4 && !rank->failure[0]; round++) {
		for (int i = 0; i < 2; i++)
			expect(rank,
				frl_allreduce(rank->comm, send, recv, i ? LONG : 100, FRL_FLOAT32,
					FRL_AVG) == 0);
		expect(rank, frl_barrier(rank->comm) == 0);
		for (int i = 0; i < SLOW && fake; i++) {
			if (round == 2)
				before[i] = fake->calls(slow[i]);
			else if (round == 3 && fake->calls(slow[i]) != before[i])
				complain(rank, "%s was called again", slow[i]);
		}
		expect(rank, frl_barrier(rank->comm) == 0);
	}
	test_gpu_free(send);
	test_gpu_free(recv);
}

JOB_TEST(is_kept, 1, job_run, .ranks = 2, .main = run_again);

/* Memory goes back to the driver only when the driver has no more; long blocks are reused. */
static void run_blocks(struct rank *rank)
{
	const size_t mib = 1 << 20;
	struct block *small, *large, *again;
	struct compute *compute;
	unsigned frees = fake->calls("cuMemFree");

	if (!expect(rank,
		    compute_get(rank->comm, test_gpu->context, test_gpu->ordinal, &compute) == 0))
		return;
	expect(rank, block_get(compute, true, 300 * mib, &small) == 0);
	expect(rank, block_get(compute, true, 400 * mib, &large) == 0);
	block_put(small);
	block_put(large);
	expect(rank, block_get(compute, true, 3 * mib, &again) == 0 && again == small);
	block_put(again);
	expect(rank, block_get(compute, true, 301 * mib, &again) == 0 && again == large);
	block_put(again);
	expect(rank, fake->calls("cuMemFree") == frees);
	expect(rank, block_get(compute, true, 700 * mib, &again) == 0);
	expect(rank, fake->calls("cuMemFree") == frees + 2);
	block_put(again);
	expect(rank, block_get(compute, true, 2000 * mib, &again) == -ENOMEM);
	expect(rank, fake->calls("cuMemFree") == frees + 3);
}

START_TEST(blocks)
{
	struct job job = { .ranks = 1, .main = run_blocks };

	if (fake) /* which knows how much memory there is */
		job_run(&job);
}
END_TEST

/* Long messages go by reference, without a copy; short ones as copies. */
static void run_counted(struct rank *rank)
{
	enum { LONG = 50000 };
	uint8_t *memory = test_gpu_alloc(LONG * 4);
	struct gpu_queue_stats stats;

	expect(rank, rank->comm->computes == NULL);
	expect(rank, frl_allreduce(rank->comm, memory, memory, 10, FRL_FLOAT32, FRL_SUM) == 0);
	if (expect(rank, rank->comm->computes && rank->comm->computes->queue)) {
		gpu_queue_stats(rank->comm->computes->queue, &stats);
		expect(rank, stats.pieces == 2 && stats.launches == 2 && stats.bytes == 80);
	}
	test_gpu_free(memory);
}

JOB_TEST(small_ones_take_two_launches, 1, job_run, .ranks = 2, .main = run_counted);

TEST_MAIN(comm_gpu)
{
	Suite *suite;
	int failed;

	if (!test_gpu_open())
		return SKIPPED;
	suite = all_tests(NULL, NULL);
	comm_gpu_add_passed(suite);
	failed = run_suite_unforked(suite);
	failed += !test_gpu_close();
	return failed;
}
