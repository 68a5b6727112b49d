/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices that do not reduce what they receive, at all ranks or at some: results are the same, and
 * no such device gets a receive that reduces. Connections that break in the middle are in
 * test_comm_rails.c.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/net/channel.h"
#include "collectives/net/staging.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { LONG = 150000, AT_ONCE = 3, TESTS = 40 };

/* The ranks that cannot reduce: all, some of them, one. */
static const unsigned masks[] = { 0xff, 0x55, 0xaa, 0x01 };

static bool is_poor(const struct rank *rank)
{
	return rank->job->poor >> rank->number & 1;
}

static uint64_t bytes_reduced(const struct rank *rank)
{
	struct frl_stats stats;
	uint64_t bytes = 0;

	for (int i = 0; i < (rank->job->rails ? rank->job->rails : 1); i++) {
		frl_device_stats(rank->devices[i], &stats);
		bytes += stats.bytes_reduced;
	}
	return bytes;
}

static uint32_t rings_left(const struct staging *staging)
{
	uint32_t n = 0;

	for (const struct staging_ring *ring = staging->idle; ring; ring = ring->next)
		n++;
	return n;
}

/* `reduces`: a long message was sent to this rank to be reduced. Every ring is free again. */
static void check_device(struct rank *rank, struct frl_comm *comm, bool reduces)
{
	uint64_t bytes = bytes_reduced(rank);

	if (is_poor(rank) ? bytes > 0 : reduces && bytes == 0)
		complain(rank, "its device reduced %llu bytes", (unsigned long long)bytes);
	if (comm->staging.n_rings > 0 ? !is_poor(rank) : reduces && is_poor(rank))
		complain(rank, "it has %u rings", comm->staging.n_rings);
	if (rings_left(&comm->staging) != comm->staging.n_rings)
		complain(rank, "of %u rings %u are left", comm->staging.n_rings,
			rings_left(&comm->staging));
}

/* ---- all that reduces */

static int start(struct rank *rank, struct frl_comm *comm, enum frl_coll coll, float *send,
	float *recv, size_t count, struct frl_request **ret_request)
{
	const struct frl_collective c = { .coll = coll,
		.send = send,
		.recv = recv,
		.count = count,
		.dtype = FRL_FLOAT32,
		.op = FRL_SUM,
		.wire = (enum frl_wire)(size_t)rank->job->arg };

	return frl_start(comm, &c, ret_request);
}

/* Sums are of small whole numbers, so exact, except in shorter wire types. */
static bool is_right(const struct rank *rank, float got, double expected)
{
	double error = got - expected;

	return (enum frl_wire)(size_t)rank->job->arg == FRL_WIRE_SAME ? error == 0
								      : error * error < 1000;
}

static void sum_up(
	struct rank *rank, struct frl_comm *comm, enum frl_coll coll, size_t count, bool in_place)
{
	int me = frl_comm_rank(comm), ranks = frl_comm_size(comm);
	bool is_scattered = coll == FRL_REDUCE_SCATTER;
	size_t total = is_scattered ? count * (size_t)ranks : count;
	size_t own = is_scattered ? count * (size_t)me : 0;
	float *send = malloc(total * sizeof(*send) + 1), *recv = malloc(count * sizeof(*recv) + 1);
	float *target = in_place ? send + own : recv;
	struct frl_request *request;

	for (size_t i = 0; i < total; i++)
		send[i] = (float)job_input(me, i);
	memset(recv, 0xff, count * sizeof(*recv));
	if (expect(rank, start(rank, comm, coll, send, target, count, &request) == 0))
		expect(rank, frl_request_wait(request) == 0);
	for (size_t i = 0; i < count && !rank->failure[0] && (coll != FRL_REDUCE || me == 0); i++) {
		if (!is_right(rank, target[i], job_sum(ranks, own + i)))
			complain(rank, "%s of %zu: %zu is %g instead of %d", frl_coll_name(coll),
				count, i, target[i], job_sum(ranks, own + i));
	}
	free(send);
	free(recv);
}

static void run_all(struct rank *rank)
{
	static const size_t counts[] = { 100, 5000, 70001, LONG };
	static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_REDUCE, FRL_REDUCE_SCATTER };

	for (size_t i = 0; i < 2 * sizeof(counts) / sizeof(counts[0]); i++) {
		for (size_t c = 0; c < sizeof(colls) / sizeof(colls[0]); c++)
			sum_up(rank, rank->comm, colls[c], counts[i / 2], i % 2);
	}
	/* Data in another format is decoded and reduced locally. */
	check_device(rank, rank->comm, !rank->job->arg);
}

JOB_TEST(exact, 6, job_simulate, .ranks = 2 + _i % 3, .main = run_all, .rails = 1 + _i / 3 % 2,
	.poor = masks[_i % 4]);

/* A rank may have a device of each kind: then none of them reduces. */
JOB_TEST(one_of_two, 3, job_simulate, .ranks = 2 + _i % 2, .main = run_all, .rails = 2,
	.poor = masks[1 + _i % 3], .rich_rails = 1 + (unsigned)_i / 2 % 2);

JOB_TEST(shorter, 2, job_simulate, .ranks = 3, .main = run_all, .poor = masks[_i % 2],
	.arg = (void *)(size_t)(_i % 2 ? FRL_WIRE_INT8 : FRL_WIRE_BFLOAT16));

/* ---- every algorithm */

static const char *const algos[] = { "ring", "halving-doubling", "tree", "direct", "hierarchical" };

JOB_TEST(every_algorithm, 5, job_simulate, .ranks = 4 + _i % 2, .main = run_all,
	.algos = algos[_i % 5], .poor = masks[_i % 4]);

/* ---- several at once */

/* In a communicator and in a child of it, whose ranks are in the other order; waited for crosswise:
 * a ring for each of them. */
static void run_crosswise(struct rank *rank)
{
	struct frl_request *requests[2][AT_ONCE];
	float *buffers[2 * AT_ONCE];
	struct frl_comm *comms[2] = { rank->comm };

	if (!expect(rank, frl_comm_split(rank->comm, 0, -rank->number, &comms[1]) == 0))
		return;
	for (int i = 0; i < 2 * AT_ONCE; i++) {
		buffers[i] = malloc(LONG * sizeof(float));
		for (size_t k = 0; k < LONG; k++)
			buffers[i][k] = (float)job_input(rank->number, k);
		expect(rank,
			start(rank, comms[i % 2], FRL_ALLREDUCE, buffers[i], buffers[i], LONG,
				&requests[i % 2][i / 2]) == 0);
	}
	for (int i = 0; i < 2 * AT_ONCE && !rank->failure[0]; i++)
		expect(rank,
			frl_request_wait(requests[(i + rank->number) % 2][AT_ONCE - 1 - i / 2]) ==
				0);
	for (int i = 0; i < 2 * AT_ONCE; i++) {
		for (size_t k = 0; k < LONG && !rank->failure[0]; k++)
			expect(rank, buffers[i][k] == job_sum(rank->ranks, k));
		free(buffers[i]);
	}
	for (int i = 0; i < 2; i++)
		check_device(rank, comms[i], true);
	frl_comm_destroy(comms[1]);
}

JOB_TEST(crosswise, 3, job_simulate, .ranks = 2 + _i % 3, .main = run_crosswise,
	.rails = 1 + _i % 2, .poor = masks[_i % 4]);

/* ---- when it ends before its time */

/* Rank 0 aborts in the middle of its second sum: chunks wait in rings then. */
static void run_aborted(struct rank *rank)
{
	const struct staging *staging = &rank->comm->staging;
	float *values = calloc(LONG, sizeof(*values));
	struct frl_backoff backoff = { 0 };
	struct frl_request *request;
	int err = 0;

	for (int round = 0; !err; round++) {
		bool done = false;

		err = start(rank, rank->comm, FRL_ALLREDUCE, values, values, LONG, &request);
		for (int i = 0; i < TESTS && !done && !err; i++) {
			err = frl_request_test(request, &done);
			frl_backoff_idle(&backoff);
		}
		if (rank->number == 0 && round == 1) {
			expect(rank, rings_left(staging) < staging->n_rings);
			frl_comm_abort(rank->comm, "for a try");
		}
		if (!done && !err)
			err = frl_request_wait(request);
	}
	expect(rank, err == -ECANCELED);
	free(values);
}

JOB_TEST(aborted, 2, job_simulate, .ranks = 2 + _i % 2, .main = run_aborted, .poor = 0x3f);

/* Rank 0 cannot have a ring; all ranks get the error. */
static void run_without_memory(struct rank *rank)
{
	float *values = calloc(LONG, sizeof(*values));
	struct frl_request *request;
	int err;

	if (rank->number == 0)
		rank->comm->staging.ring_bytes = SIZE_MAX / 4;
	err = start(rank, rank->comm, FRL_ALLREDUCE, values, values, LONG, &request);
	if (!err)
		err = frl_request_wait(request);
	expect(rank, err == -ENOMEM);
	expect(rank, strstr(frl_last_error(), "rank 0: no staging ring of") != NULL);
	free(values);
}

JOB_TEST(no_memory, 1, job_simulate, .ranks = 3, .main = run_without_memory, .poor = 7);

/* ---- the ring itself */

struct window {
	size_t at, bytes;
};

/* Chunks of random lengths come and go: they never overlap, and an empty ring takes the longest. */
static void run_ring(struct rank *rank)
{
	struct window live[BULK_RECEIVES];
	struct peer *peer = comm_peer(rank->comm, !rank->number);
	struct channel channel = { .peer = peer };
	size_t longest = rank->comm->config.segment_bytes;
	unsigned first = 0, n = 0, most = 0;
	uint32_t seed = 1;

	for (int i = 0; i < 100000 && !rank->failure[0]; i++) {
		uint8_t *chunk = NULL;
		struct window window;

		seed = seed * 1664525 + 1013904223;
		window.bytes = 1 + (seed >> 8) % (i % 1000 < 500 ? longest : longest / 16);
		if (seed >> 30 && n < BULK_RECEIVES)
			expect(rank, staging_get(&channel, window.bytes, &chunk) == 0);
		if (chunk) {
			window.at = (size_t)(chunk - channel.ring->base);
			expect(rank, window.at % STAGING_ALIGN == 0);
			expect(rank, window.at + window.bytes <= rank->comm->staging.ring_bytes);
			for (unsigned k = 0; k < n; k++) {
				const struct window *w = &live[(first + k) % BULK_RECEIVES];

				expect(rank,
					window.at >= w->at + w->bytes ||
						w->at >= window.at + window.bytes);
			}
			live[(first + n++) % BULK_RECEIVES] = window;
			most = n > most ? n : most;
		} else if (n > 0) {
			const struct window *w = &live[first++ % BULK_RECEIVES];

			staging_put(&channel, channel.ring->base + w->at + w->bytes);
			n--;
		} else {
			expect(rank, seed >> 30 == 0); /* else there was room */
		}
	}
	expect(rank, most > 2 * STAGING_CHUNKS);
	staging_leave(&channel);
	expect(rank, rank->comm->staging.n_rings == 1 && rings_left(&rank->comm->staging) == 1);
}

JOB_TEST(ring, 1, job_simulate, .ranks = 2, .main = run_ring, .poor = 3);

TEST_MAIN(comm_staging)
{
	setenv("FRL_SEGMENT_KB", "16", 1); /* rings of 128 KiB, of which some are full at times */
	return run_suite_unforked(all_tests(NULL, NULL));
}
