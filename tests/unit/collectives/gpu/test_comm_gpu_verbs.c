/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives on GPU memory over hardware, which gets dma-bufs and reads and writes them itself. It
 * does not reduce: operands arrive in rings in GPU memory, and the GPU takes them from there. The
 * hardware is tests/fakes/verbs/fake_verbs.h, which takes the double's dma-bufs.
 */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/net/channel.h"
#include "collectives/net/staging.h"
#include "collectives/gpu/compute.h"
#include "collectives/api/siblings.h"
#include "gpudirect/queue.h"
#include "tests/unit/collectives/gpu/comm_gpu_fixture.h"
#include "tests/unit/collectives/comm_verbs_fixture.h"
#include "tests/fixtures/program.h"

enum { LONG = 300000 / JOB_SHARE, BYTES = LONG * sizeof(int32_t), MANY = 12, TIMEOUT_MS = 20000 };

static void run(struct job *job, const struct plug *plug)
{
	plug_in(plug);
	job->port = plug_port;
	job->timeout_ms = TIMEOUT_MS;
	job_run(job);
	plug_out();
}

static const struct plug kinds[] = {
	{ 0 },
	{ .is_one_device = true },
	{ .has_few_inline = true },
	{ .tells_late = true },
};

static void run_plain(struct job *job)
{
	run(job, &kinds[0]);
}

/* ---- results */

static void run_operations(struct rank *rank)
{
	static const size_t counts[] = { 10, 5000, LONG / 4 };
	static const enum frl_op ops[] = { FRL_SUM, FRL_AVG, FRL_MAX };

	for (unsigned i = 0; i < 6 * FRL_BARRIER && !rank->failure[0]; i++) {
		struct trial trial = {
			.c = { .coll = (enum frl_coll)(i / 6),
				.count = counts[i / 2 % 3],
				.dtype = i % 4 ? FRL_FLOAT32 : FRL_BFLOAT16,
				.op = ops[i % 3],
				.root = rank->ranks - 1,
				.wire = i % 4 == 3 ? FRL_WIRE_INT8 : FRL_WIRE_SAME },
			.where = ALL_ON_GPU,
			.shift = i % 5 * 3,
			.seed = i,
		};
		enum frl_coll coll = trial.c.coll;
		bool is_rooted = coll == FRL_BROADCAST || coll == FRL_REDUCE ||
			coll == FRL_GATHER || coll == FRL_SCATTER;

		trial.in_place = i % 2 && coll != FRL_ALLTOALLV &&
			(!is_rooted || rank->number == trial.c.root);
		if (!trial.in_place && i % 3 == 2)
			trial.where = (unsigned)rank->number % 3 + 1;
		trial_run(rank, &trial);
	}
}

START_LOOP_TEST(every_operation, 3 * ROWS(kinds))
{
	struct job job = { .ranks = 1 + _i % 3, .main = run_operations, .rails = 1 + _i / 3 % 2 };

	run(&job, &kinds[_i / 3 % ROWS(kinds)]);
}
END_TEST

static const char *const algos[] = { "ring", "halving-doubling", "tree", "direct" };

JOB_TEST(every_algorithm, ROWS(algos), run_plain, .ranks = 3, .main = run_operations,
	.algos = algos[_i]);

/* ---- where things are */

static int32_t value(int rank, size_t i)
{
	return (int32_t)i * 5 + rank;
}

static void put_values(const struct rank *rank, uint8_t *memory)
{
	int32_t *values = malloc(BYTES);

	for (size_t i = 0; i < LONG; i++)
		values[i] = value(rank->number, i);
	test_gpu_put(memory, values, BYTES);
	free(values);
}

static void expect_sums(struct rank *rank, const uint8_t *memory)
{
	int32_t *values = malloc(BYTES), more = rank->ranks * (rank->ranks - 1) / 2;

	test_gpu_get(values, memory, BYTES);
	for (size_t i = 0; i < LONG && !rank->failure[0]; i++) {
		int32_t sum = value(0, i) * rank->ranks + more;

		if (values[i] != sum)
			complain(rank, "element %zu is %d instead of %d", i, values[i], sum);
	}
	free(values);
}

static unsigned count_rings(const struct frl_comm *comm)
{
	unsigned n = 0;

	for (const struct staging_ring *ring = comm->staging.idle_gpu; ring; ring = ring->next)
		n += ring->block->is_on_gpu && ring->block->mr[0] != NULL;
	return n;
}

/* Chunks went through GPU memory, and payload through no host memory at all. */
static void run_rings(struct rank *rank)
{
	uint8_t *memory = test_gpu_alloc(BYTES);
	struct gpu_queue_stats stats;

	put_values(rank, memory);
	expect(rank, frl_allreduce(rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM) == 0);
	expect_sums(rank, memory);
	if (expect(rank, rank->comm->computes != NULL)) {
		gpu_queue_stats(rank->comm->computes->queue, &stats);
		expect(rank, count_rings(rank->comm) > 0);
		expect(rank, stats.bytes >= BYTES / (unsigned)rank->ranks);
	}
	expect(rank, rank->comm->staging.n_rings == 0);
	test_gpu_free(memory);
}

JOB_TEST(rings, 4, run_plain, .ranks = 2 + _i % 2, .main = run_rings, .rails = 1 + _i / 2);

/* The same buffer is exported once; new memory at its address is another one. */
static void run_again(struct rank *rank)
{
	enum { TIMES = 4 };
	struct fake_cuda_stats before, after;
	uint8_t *memory = test_gpu_alloc(BYTES), *again;

	for (int i = 0; i < TIMES; i++) {
		put_values(rank, memory);
		expect(rank,
			frl_allreduce(rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM) == 0);
		expect_sums(rank, memory);
		expect(rank, frl_barrier(rank->comm) == 0);
		fake->stats(i ? &after : &before);
		expect(rank, frl_barrier(rank->comm) == 0);
	}
	expect(rank, before.exports > 0 && after.exports == before.exports);
	test_gpu_free(memory);
	again = test_gpu_alloc(BYTES);
	put_values(rank, again);
	expect(rank, frl_allreduce(rank->comm, again, again, LONG, FRL_INT32, FRL_SUM) == 0);
	expect_sums(rank, again);
	test_gpu_free(again);
}

JOB_TEST(again, 1, run_plain, .ranks = 2, .main = run_again);

/* On host and GPU memory at once, over the same connections: each has rings of its own. */
static void run_many(struct rank *rank)
{
	struct frl_request *requests[MANY];
	int32_t *host[MANY];
	uint8_t *memory[MANY];

	for (int i = 0; i < MANY; i++) {
		bool on_gpu = (i + rank->number) % 2;
		void *at;

		memory[i] = test_gpu_alloc(BYTES);
		host[i] = malloc(BYTES);
		put_values(rank, memory[i]);
		for (size_t k = 0; k < LONG; k++)
			host[i][k] = value(rank->number, k);
		at = on_gpu ? (void *)memory[i] : host[i];
		if (!expect(rank,
			    frl_allreduce_start(rank->comm, at, at, LONG, FRL_INT32, FRL_SUM,
				    &requests[i]) == 0))
			return;
	}
	for (int i = 0; i < MANY && !rank->failure[0]; i++)
		expect(rank, frl_request_wait(requests[i]) == 0);
	for (int i = 0; i < MANY; i++) {
		if (!((i + rank->number) % 2))
			test_gpu_put(memory[i], host[i], BYTES);
		expect_sums(rank, memory[i]);
		test_gpu_free(memory[i]);
		free(host[i]);
	}
	expect(rank, rank->comm->staging.n_rings > 0 && count_rings(rank->comm) > 0);
}

JOB_TEST(many_at_once, 2, run_plain, .ranks = 2 + _i, .main = run_many);

/* ---- a GPU that is slow: chunks wait, peers get no credits meanwhile, nothing is lost */

START_LOOP_TEST(slow, 2)
{
	struct job job = { .ranks = 3, .main = run_many, .rails = 1 + _i };

	fake->set_delay(300);
	run(&job, &kinds[0]);
	fake->set_delay(0);
}
END_TEST

/* ---- a rail fails while chunks are on their way, and in rings: the other one goes on with them */

/* The recovery thread may be using the communicator unless it is entered. */
static uint32_t received(struct frl_comm *comm)
{
	uint32_t n = 0;

	comm_enter(comm);
	for (const struct peer *peer = comm->first_peer; peer; peer = peer->next)
		n += peer->receives.first;
	comm_leave(comm);
	return n;
}

static void run_over_other_rail(struct rank *rank)
{
	enum { AFTER = 2 };
	const enum ibv_event_type *event = rank->job->arg;
	uint8_t *memory = test_gpu_alloc(BYTES);
	struct frl_request *request;
	bool is_due = rank->number == 0, done = false;
	uint32_t before;

	for (int round = 0; round < 3 && !rank->failure[0]; round++) {
		put_values(rank, memory);
		expect(rank, frl_barrier(rank->comm) == 0);
		before = received(rank->comm);
		if (!expect(rank,
			    frl_allreduce_start(rank->comm, memory, memory, LONG, FRL_INT32,
				    FRL_SUM, &request) == 0))
			return;
		for (done = false; !done;) {
			if (!expect(rank, frl_request_test(request, &done) == 0))
				return;
			if (round == 1 && is_due && !done &&
				received(rank->comm) - before >= AFTER) {
				fake_verbs_raise(plug_device(0, 1), *event, plug_port_number(1));
				is_due = false;
			}
			if (round == 1)
				sched_yield();
		}
		expect_sums(rank, memory);
	}
	expect(rank, !is_due);
	test_gpu_free(memory);
}

START_LOOP_TEST(other_rail, 8)
{
	enum ibv_event_type event = _i % 2 ? IBV_EVENT_DEVICE_FATAL : IBV_EVENT_PORT_ERR;
	struct job job = {
		.ranks = 2 + _i / 4, .main = run_over_other_rail, .rails = 2, .arg = &event
	};

	fake->set_delay(_i / 2 % 2 ? 300 : 0);
	run(&job, &kinds[0]);
	fake->set_delay(0);
}
END_TEST

/* ---- when it ends before its time */

static void run_aborted(struct rank *rank)
{
	enum { ROUNDS = 3, TESTS = 60 };
	uint8_t *memory = test_gpu_alloc(BYTES);
	struct frl_request *request;
	int err = 0;

	put_values(rank, memory);
	for (int round = 0; !err; round++) {
		bool done = false;

		err = frl_allreduce_start(
			rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM, &request);
		for (int i = 0; i < TESTS && !done && !err; i++)
			err = frl_request_test(request, &done);
		if (rank->number == 0 && round == ROUNDS)
			frl_comm_abort(rank->comm, "for a try");
		if (!done && !err)
			err = frl_request_wait(request);
	}
	expect(rank, err == -ECANCELED);
	/* Freed at once: a later write to it would be a fault of the GPU. */
	test_gpu_free(memory);
}

START_LOOP_TEST(aborted, 8)
{
	struct job job = { .ranks = 2 + _i % 2, .main = run_aborted };

	fake->set_delay(_i < 4 ? 200 : 0);
	run(&job, &kinds[0]);
	fake->set_delay(0);
	ck_assert_str_eq(fake->fault(), "");
}
END_TEST

/* Rank 0 cannot have a ring. All ranks get that error, even those still in the barrier. */
static void run_without_memory(struct rank *rank)
{
	uint8_t *memory = test_gpu_alloc(BYTES);
	struct frl_request *request;
	int err;

	put_values(rank, memory);
	err = frl_barrier(rank->comm);
	if (rank->number == 0) {
		expect(rank, err == 0);
		rank->comm->staging.ring_bytes = (size_t)1 << 50;
	}
	if (!err)
		err = frl_allreduce_start(
			rank->comm, memory, memory, LONG, FRL_INT32, FRL_SUM, &request);
	if (!err)
		err = frl_request_wait(request);
	expect(rank, err == -ENOMEM);
	expect(rank, strstr(frl_last_error(), "rank 0: no staging ring of") != NULL);
	expect(rank, strstr(frl_last_error(), "cuMemAlloc") != NULL);
	test_gpu_free(memory);
}

JOB_TEST(no_memory, 1, run_plain, .ranks = 3, .main = run_without_memory);

TEST_MAIN(comm_gpu_verbs)
{
	int failed;

	if (!test_gpu_open())
		return SKIPPED;
	if (!fake) {
		fprintf(stderr, "skipped: the hardware of this test is none that a GPU knows\n");
		return SKIPPED;
	}
	failed = run_suite_unforked(all_tests(NULL, NULL));
	failed += !test_gpu_close();
	return failed;
}
