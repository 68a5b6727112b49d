/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective operation against a reference, in and out of place, small and large, several at
 * once, in groups and in communicators made from others. Also between threads with shared memory.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { CANARY = 0x5a5a5a5a, MARGIN = 16, MANY = 40 };

static int32_t expected(const struct rank *rank, const struct frl_collective *c, size_t i)
{
	int from = c->count ? (int)(i / c->count) : 0;
	size_t at = c->count ? i % c->count : 0, own = (size_t)rank->number * c->count;

	switch (c->coll) {
	case FRL_ALLREDUCE:
	case FRL_REDUCE: return job_sum(rank->ranks, i);
	case FRL_REDUCE_SCATTER: return job_sum(rank->ranks, own + i);
	case FRL_ALLGATHER:
	case FRL_GATHER: return job_input(from, at);
	case FRL_BROADCAST: return job_input(c->root, i);
	case FRL_ALLTOALL: return job_input(from, own + at);
	case FRL_SCATTER: return job_input(c->root, own + i);
	case FRL_ALLTOALLV:
		for (int r = 0; r < rank->ranks; r++) {
			size_t displ = c->recv_displs[r];

			if (i >= displ && i < displ + c->recv_counts[r])
				return job_input(r, i - displ);
		}
		return CANARY;
	default: return CANARY;
	}
}

struct buffers {
	int32_t *send, *recv, *memory;
	size_t received;
};

static size_t elements(const struct rank *rank, const struct frl_collective *c, bool is_many)
{
	return c->count * (is_many ? (size_t)rank->ranks : 1);
}

static void make_buffers(struct buffers *b, const struct rank *rank, const struct frl_collective *c,
	const struct job_vectors *v, bool in_place)
{
	bool many_out = c->coll == FRL_REDUCE_SCATTER || c->coll == FRL_ALLTOALL ||
		c->coll == FRL_SCATTER;
	bool many_in = c->coll == FRL_ALLGATHER || c->coll == FRL_ALLTOALL || c->coll == FRL_GATHER;
	bool is_v = c->coll == FRL_ALLTOALLV;
	size_t sent = is_v ? v->sent : elements(rank, c, many_out);
	size_t received = is_v ? v->received : elements(rank, c, many_in);
	size_t own = (size_t)rank->number * c->count, room = 2 * MARGIN + sent + received;

	b->memory = malloc((room + MARGIN) * sizeof(int32_t));
	for (size_t i = 0; i < room + MARGIN; i++)
		b->memory[i] = CANARY;
	b->received = received;
	b->recv = b->memory + MARGIN;
	b->send = b->recv + received + MARGIN;
	if (in_place && many_out && !many_in) {
		b->send = b->recv;
		b->recv = b->send + own;
	} else if (in_place) {
		b->send = b->recv + (many_in && !many_out ? own : 0);
	}
	for (size_t i = 0; i < sent && !is_v; i++)
		b->send[i] = job_input(rank->number, i);
	for (int r = 0; r < rank->ranks && is_v; r++) {
		for (size_t i = 0; i < v->send_counts[r]; i++)
			b->send[v->send_displs[r] + i] = job_input(rank->number, i);
	}
}

static bool gets_result(const struct rank *rank, const struct frl_collective *c)
{
	return rank->number == c->root || (c->coll != FRL_REDUCE && c->coll != FRL_GATHER);
}

static void check_one(struct rank *rank, struct frl_collective c, bool in_place)
{
	struct job_vectors v;
	struct buffers b;

	job_make_vectors(&v, rank, c.count);
	c.send_counts = v.send_counts;
	c.send_displs = v.send_displs;
	c.recv_counts = v.recv_counts;
	c.recv_displs = v.recv_displs;
	make_buffers(&b, rank, &c, &v, in_place);
	c.send = b.send;
	c.recv = b.recv;
	c.dtype = FRL_INT32;
	if (!expect(rank, frl_run(rank->comm, &c) == 0)) {
		free(b.memory);
		return;
	}
	for (size_t i = 0; i < b.received && gets_result(rank, &c) && !rank->failure[0]; i++) {
		if (b.recv[i] != expected(rank, &c, i))
			complain(rank, "%s of %zu%s, root %d: element %zu is %d instead of %d",
				frl_coll_name(c.coll), c.count, in_place ? " in place" : "", c.root,
				i, b.recv[i], expected(rank, &c, i));
	}
	for (size_t i = 0; i < MARGIN && !rank->failure[0]; i++)
		expect(rank, b.memory[i] == CANARY);
	free(b.memory);
}

/* The last length takes most of the time: three segments, or two under the thread sanitizer. */
enum { SEGMENTS = JOB_SHARE > 1 ? 35001 : 70001 };

static const size_t counts[] = { 0, 1, 2, 3, 5, 64, 1000, 1017, 1018, 5000, SEGMENTS };

static void run_all(struct rank *rank)
{
	for (int coll = 0; coll <= FRL_BARRIER && !rank->failure[0]; coll++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			struct frl_collective c = { .coll = (enum frl_coll)coll,
				.count = counts[i],
				.root = (int)(i % (size_t)rank->ranks) };

			check_one(rank, c, false);
			if (coll != FRL_ALLTOALLV && coll != FRL_BARRIER)
				check_one(rank, c, true);
		}
	}
}

/* The largest number of ranks is the slowest, and runs no code that fewer do not run. */
JOB_RANGE_TEST(every_operation, JOB_SHARE > 1 ? 3 : 1, JOB_SHARE > 1 ? 4 : 6, job_simulate,
	.ranks = _i, .main = run_all);

/* ---- by every algorithm, where it can; else by another one */

static void run_by(struct rank *rank)
{
	static const size_t some[] = { 1, 7, 1018, SEGMENTS };
	const char *algo = frl_algo_name(*(const enum frl_algo *)rank->job->arg);

	expect(rank, tuner_init(&rank->comm->tuner, algo, 16384) == 0);
	for (int coll = 0; coll < FRL_BARRIER && !rank->failure[0]; coll++) {
		for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
			struct frl_collective c = { .coll = (enum frl_coll)coll,
				.count = some[i],
				.root = rank->ranks - 1 };

			check_one(rank, c, false);
			if (coll != FRL_ALLTOALLV)
				check_one(rank, c, true);
		}
	}
}

enum { ALGOS = FRL_ALGOS - FRL_ALGO_RING, FEWEST = JOB_SHARE > 1 ? 4 : 3, MOST = 4 };

START_LOOP_TEST(every_algorithm, PAIRS(MOST - FEWEST + 1, ALGOS))
{
	enum frl_algo algo = (enum frl_algo)(FRL_ALGO_RING + _i % ALGOS);
	struct job job = { .ranks = FEWEST + _i / ALGOS, .main = run_by, .arg = &algo };

	job_simulate(&job);
}
END_TEST

/* ---- the same bits everywhere, and every time */

enum { FLOATS = 30011 };

static float results[2][5][FLOATS];

static void sum_floats(struct rank *rank)
{
	float *mine = malloc(FLOATS * sizeof(float));

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < FLOATS; i++)
			mine[i] = 1.0f / (float)(i * 7 + (size_t)rank->number * 13 + 1);
		expect(rank,
			frl_allreduce(rank->comm, mine, results[round][rank->number], FLOATS,
				FRL_FLOAT32, FRL_SUM) == 0);
	}
	free(mine);
}

START_TEST(results_are_the_same_bits)
{
	struct job job = { .ranks = 5, .main = sum_floats };

	job_simulate(&job);
	for (int round = 0; round < 2; round++) {
		for (int r = 0; r < 5; r++)
			ck_assert_mem_eq(results[round][r], results[0][0], sizeof(results[0][0]));
	}
}
END_TEST

/* ---- several at once */

static void run_many(struct rank *rank)
{
	static const size_t sizes[] = { 3, 900, 2500, 40000 };
	struct frl_request *requests[MANY];
	int32_t *buffers[MANY];

	for (int k = 0; k < MANY; k++) {
		size_t count = sizes[k % 4];

		buffers[k] = malloc(count * sizeof(int32_t));
		for (size_t i = 0; i < count; i++)
			buffers[k][i] = job_input(rank->number, i + (size_t)k);
		expect(rank,
			frl_allreduce_start(rank->comm, buffers[k], buffers[k], count, FRL_INT32,
				FRL_SUM, &requests[k]) == 0);
	}
	/* The last one first: all of them advance. */
	for (int k = MANY - 1; k >= 0 && !rank->failure[0]; k--) {
		expect(rank, frl_request_wait(requests[k]) == 0);
		for (size_t i = 0; i < sizes[k % 4] && !rank->failure[0]; i++)
			expect(rank, buffers[k][i] == job_sum(rank->ranks, i + (size_t)k));
	}
	for (int k = 0; k < MANY; k++)
		free(buffers[k]);
}

JOB_RANGE_TEST(several_in_flight, 2, 5, job_simulate, .ranks = _i, .main = run_many);

/* ---- pairs and groups */

static void run_pairs(struct rank *rank)
{
	enum { LONG = 20000 };
	int32_t *out = malloc(LONG * sizeof(int32_t)), *in = malloc(LONG * sizeof(int32_t));
	int next = (rank->number + 1) % rank->ranks;
	int previous = (rank->number + rank->ranks - 1) % rank->ranks;
	int32_t self = 17 + rank->number, got[2] = { 0 };
	struct frl_collective group[] = {
		{ .coll = FRL_RECV,
			.recv = in,
			.count = LONG,
			.dtype = FRL_INT32,
			.root = previous },
		{ .coll = FRL_SEND, .send = out, .count = LONG, .dtype = FRL_INT32, .root = next },
		{ .coll = FRL_RECV,
			.recv = &got[0],
			.count = 1,
			.dtype = FRL_INT32,
			.root = previous },
		{ .coll = FRL_SEND, .send = &self, .count = 1, .dtype = FRL_INT32, .root = next },
		{ .coll = FRL_SEND,
			.send = &self,
			.count = 1,
			.dtype = FRL_INT32,
			.root = rank->number },
		{ .coll = FRL_RECV,
			.recv = &got[1],
			.count = 1,
			.dtype = FRL_INT32,
			.root = rank->number },
	};
	struct frl_request *request;

	for (int round = 0; round < 3 && !rank->failure[0]; round++) {
		for (size_t i = 0; i < LONG; i++)
			out[i] = job_input(rank->number, i + (size_t)round);
		if (!expect(rank,
			    frl_start_group(rank->comm, group, sizeof(group) / sizeof(group[0]),
				    &request) == 0) ||
			!expect(rank, frl_request_wait(request) == 0))
			break;
		for (size_t i = 0; i < LONG && !rank->failure[0]; i++)
			expect(rank, in[i] == job_input(previous, i + (size_t)round));
		expect(rank, got[0] == 17 + previous);
		expect(rank, got[1] == self);
		/* Collectives and pairs in between. */
		expect(rank, frl_barrier(rank->comm) == 0);
	}
	free(out);
	free(in);
}

JOB_RANGE_TEST(pairs_and_groups, 1, 5, job_simulate, .ranks = _i, .main = run_pairs);

static _Atomic unsigned n_yields;

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
	n_yields++;
	return __real_sched_yield();
}

/* To itself, across requests: in the order of starting. Tests in vain sometimes yield. */
static void run_alone(struct rank *rank)
{
	int32_t out[2] = { 1, 2 }, in[2] = { 0 };
	struct frl_collective c = { .count = 1, .dtype = FRL_INT32 };
	struct frl_request *requests[4];
	bool done = true;

	for (int i = 0; i < 4; i++) {
		c.coll = i < 2 ? FRL_SEND : FRL_RECV;
		c.send = &out[i % 2];
		c.recv = &in[i % 2];
		expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0);
		if (i != 1)
			continue;
		n_yields = 0;
		for (int test = 0; test < 200; test++)
			expect(rank, frl_request_test(requests[0], &done) == 0 && !done);
		expect(rank, n_yields > 0);
	}
	for (int i = 0; i < 4; i++)
		expect(rank, frl_request_wait(requests[i]) == 0);
	expect(rank, in[0] == 1 && in[1] == 2);
}

JOB_TEST(to_itself, 1, job_simulate, .ranks = 1, .main = run_alone);

/* ---- communicators made of others */

static void run_split(struct rank *rank)
{
	struct frl_comm *half = NULL, *copy = NULL, *none = NULL;
	int32_t value = rank->number, sum = 0;
	int members = (rank->ranks + 1 - rank->number % 2) / 2;

	/* Odd and even ranks, each in the opposite order. */
	if (!expect(rank, frl_comm_split(rank->comm, rank->number % 2, -rank->number, &half) == 0))
		return;
	expect(rank, frl_comm_size(half) == members);
	expect(rank, frl_comm_rank(half) == members - 1 - rank->number / 2);
	expect(rank, frl_allreduce(half, &value, &sum, 1, FRL_INT32, FRL_SUM) == 0);
	expect(rank, sum == members * (members - 1) + members * (rank->number % 2));
	expect(rank, frl_broadcast(half, &value, &sum, 1, FRL_INT32, 0) == 0);
	expect(rank, sum == 2 * (members - 1) + rank->number % 2);
	expect(rank, frl_comm_duplicate(half, &copy) == 0);
	expect(rank, frl_allreduce(copy, &value, &sum, 1, FRL_INT32, FRL_MAX) == 0);
	expect(rank, sum == 2 * (members - 1) + rank->number % 2);
	expect(rank, frl_comm_split(rank->comm, rank->number == 0 ? 0 : -1, 0, &none) == 0);
	expect(rank, (rank->number == 0) == (none != NULL));
	frl_comm_destroy(none);
	frl_comm_destroy(copy);
	frl_comm_destroy(half);
	expect(rank, frl_allreduce(rank->comm, &value, &sum, 1, FRL_INT32, FRL_SUM) == 0);
	expect(rank, sum == rank->ranks * (rank->ranks - 1) / 2);
}

JOB_RANGE_TEST(split_and_duplicate, 1, 6, job_simulate, .ranks = _i, .main = run_split);

/* ---- mail that is lost is asked for again */

JOB_TEST(lost_mail, 1, job_simulate, .ranks = 3, .main = run_many, .losses = 3);

TEST_MAIN(comm)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
