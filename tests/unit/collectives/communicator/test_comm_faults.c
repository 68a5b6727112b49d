/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that fail: with an error on every rank, in time, and with a text that names the
 * event and the rank at fault.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "lib/base/clock.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { LONG = 300000, SOON_MS = 5000, LATE_MS = 200 };

static int32_t numbers[JOB_RANKS][2 * LONG];

static uint64_t now_ms(void)
{
	return clock_now_ns() / 1000000;
}

/* Checks that it failed with `err` and a text that has all of the words. */
static void has_failed(struct rank *rank, int rc, int err, const char *const words[])
{
	if (rc != err)
		complain(rank, "%d instead of %d: %s", rc, err, frl_last_error());
	for (int i = 0; words[i]; i++) {
		if (!strstr(frl_last_error(), words[i]))
			complain(rank, "'%s' does not have '%s'", frl_last_error(), words[i]);
	}
}

/* The operation fails. */
static void fails(
	struct rank *rank, const struct frl_collective *c, int err, const char *const words[])
{
	uint64_t start = now_ms();

	has_failed(rank, frl_run(rank->comm, c), err, words);
	if (now_ms() - start > SOON_MS && rank->job->is_simulated)
		complain(rank, "that took %d ms", (int)(now_ms() - start));
}

static struct frl_collective allreduce_of(const struct rank *rank, size_t count)
{
	return (struct frl_collective){ .coll = FRL_ALLREDUCE,
		.send = numbers[rank->number],
		.recv = numbers[rank->number],
		.count = count,
		.dtype = FRL_INT32 };
}

static bool works(struct rank *rank)
{
	return expect(rank, frl_barrier(rank->comm) == 0);
}

/* The same, but others may be ahead, and the expected failure may have arrived already. */
static bool works_unless(struct rank *rank, int err)
{
	int rc = frl_barrier(rank->comm);

	expect(rank, rc == 0 || rc == err);
	return rc == 0;
}

/* ---- bad arguments are refused, and nothing else happens */

static void refused(struct rank *rank, const struct frl_collective *c, int err, const char *word)
{
	struct frl_request *request = NULL;
	int rc = frl_start(rank->comm, c, &request);

	if (rc != err || !strstr(frl_last_error(), word) || request)
		complain(rank, "%s: %d, %s", word, rc, frl_last_error());
}

static void misuse(struct rank *rank)
{
	int32_t *mine = numbers[rank->number];
	struct frl_collective c = allreduce_of(rank, 10);
	bool done;

	c.recv = mine + 1;
	refused(rank, &c, -EINVAL, "overlap");
	c.recv = NULL;
	refused(rank, &c, -EINVAL, "the receive buffer is NULL");
	c = allreduce_of(rank, SIZE_MAX / 2);
	refused(rank, &c, -EINVAL, "address space");
	c = allreduce_of(rank, 10);
	c.dtype = FRL_DTYPES;
	refused(rank, &c, -EINVAL, "element type");
	c = allreduce_of(rank, 10);
	c.op = FRL_OPS;
	refused(rank, &c, -EINVAL, "operation");
	c.op = FRL_PREMUL_SUM;
	refused(rank, &c, -EINVAL, "scalar");
	c = allreduce_of(rank, 10);
	c.wire = FRL_WIRE_INT8;
	refused(rank, &c, -EINVAL, "wire types are for float32, not for int32");
	c.wire = FRL_WIRES;
	refused(rank, &c, -EINVAL, "not a wire type");
	c = allreduce_of(rank, 10);
	c.coll = FRL_BROADCAST;
	c.root = rank->ranks;
	refused(rank, &c, -EINVAL, "there is no rank 2");
	c.coll = FRL_COLLS;
	refused(rank, &c, -EINVAL, "not a collective");
	c.coll = FRL_ALLTOALLV;
	refused(rank, &c, -EINVAL, "alltoallv needs all counts");
	c.send_counts = (size_t[2]){ 4, 4 };
	c.recv_counts = (size_t[2]){ 2, 2 };
	c.send_displs = c.recv_displs = (size_t[2]){ 0, 0 };
	refused(rank, &c, -EINVAL, "sends 4 elements to itself and receives 2");
	c.recv_counts = (size_t[2]){ 4, 4 };
	c.recv = mine + 100;
	c.recv_displs = (size_t[2]){ 0, 3 };
	refused(rank, &c, -EINVAL, "received pieces overlap: 4 elements from 0 on, and 4 from 3");
	c.recv_displs = (size_t[2]){ 7, 4 };
	refused(rank, &c, -EINVAL, "received pieces overlap: 4 elements from 4 on, and 4 from 7");
	expect(rank, frl_start(NULL, &c, NULL) == -EINVAL);
	expect(rank, frl_request_test(NULL, &done) == -EINVAL);
	expect(rank, frl_request_wait(NULL) == -EINVAL);
	works(rank);
}

JOB_TEST(bad_arguments, 1, job_simulate, .ranks = 2, .main = misuse);

/* ---- ranks that do different things */

struct difference {
	enum frl_coll coll;
	size_t count, other;
	const char *words[4];
};

static struct difference differences[] = {
	{ FRL_BROADCAST, 4, 4, { "runs broadcast", "runs allreduce", "#1" } },
	{ FRL_BROADCAST, LONG, LONG, { "runs broadcast", "runs allreduce", "#1" } },
	{ FRL_BROADCAST, 4, LONG, { "runs broadcast", "runs allreduce" } },
	{ FRL_ALLREDUCE, 4, 5, { "allreduce #1 of 4 int32", "allreduce #1 of 5 int32" } },
	{ FRL_ALLREDUCE, 4, LONG, { "of 4 int32", "of 300000 int32" } },
	{ FRL_BARRIER, 0, LONG, { "runs barrier", "runs allreduce" } },
};

static void differ(struct rank *rank)
{
	const struct difference *difference = rank->job->arg;
	struct frl_collective c = allreduce_of(rank, difference->other);

	if (rank->number == 1) {
		c.coll = difference->coll;
		c.count = difference->count;
	}
	if (works_unless(rank, -EPROTO))
		fails(rank, &c, -EPROTO, difference->words);
}

JOB_TEST(different_operations, ROWS(differences), job_simulate, .ranks = 3, .main = differ,
	.arg = &differences[_i]);

/* Rank 1 destroys its communicator while the others go on. */
static void leave_early(struct rank *rank)
{
	static const char *const words[] = { "rank 1 is gone", NULL };
	struct frl_collective c = allreduce_of(rank, *(const size_t *)rank->job->arg);

	if (!works_unless(rank, -ECONNRESET) || rank->number == 1)
		return;
	if (c.count == 0)
		c.coll = FRL_BARRIER;
	fails(rank, &c, -ECONNRESET, words);
}

static size_t early_counts[] = { 0, 4, LONG };

JOB_TEST(destroyed_early, ROWS(early_counts), job_simulate, .ranks = 3, .main = leave_early,
	.arg = &early_counts[_i]);

/* Two ranks: the sender has another number of elements than the receiver. */
static void send_other_count(struct rank *rank)
{
	struct frl_collective c = allreduce_of(rank, rank->number ? 7 : 8);
	int rc;

	c.coll = rank->number ? FRL_SEND : FRL_RECV;
	c.root = !rank->number;
	if (rank->number == 0) {
		fails(rank, &c, -EPROTO, (const char *const[]){ "of 7 int32", "of 8 int32", NULL });
		return;
	}
	/* A sender does not wait for the other rank, but may get its failure first. */
	rc = frl_run(rank->comm, &c);
	expect(rank, rc == 0 || rc == -EPROTO);
}

JOB_TEST(different_counts, 1, job_simulate, .ranks = 2, .main = send_other_count);

/* ---- abort */

static pthread_barrier_t meeting; /* of the thread that aborts and rank 0 */

static void *abort_soon(void *arg)
{
	struct rank *rank = arg;

	job_sleep_ms(50);
	frl_comm_abort(rank->comm, "the loss is NaN");
	frl_comm_abort(rank->comm, "too late");
	pthread_barrier_wait(&meeting);
	return NULL;
}

/* Rank 0 does not take part before that: the others would wait for ever. */
static void wait_for_abort(struct rank *rank)
{
	const char *const words[] = { "rank 1 aborted: the loss is NaN", NULL };
	struct frl_collective c = allreduce_of(rank, LONG);
	pthread_t thread;

	works_unless(rank, -ECANCELED);
	if (rank->number == 1)
		pthread_create(&thread, NULL, abort_soon, rank);
	if (rank->number == 0)
		pthread_barrier_wait(&meeting);
	fails(rank, &c, -ECANCELED, words);
	fails(rank, &c, -ECANCELED, words);
	if (rank->number == 1)
		pthread_join(thread, NULL);
}

START_TEST(abort_ends_all)
{
	struct job job = { .ranks = 3, .main = wait_for_abort };

	pthread_barrier_init(&meeting, NULL, 2);
	job_run(&job);
	pthread_barrier_destroy(&meeting);
}
END_TEST

/* Another thread of rank 0 is about to send the reason: the others get it from the failing one. */
static void abort_untold(struct rank *rank)
{
	struct frl_collective c = allreduce_of(rank, 4);

	if (rank->number == 0)
		mailbox_abort(rank->comm->mailbox, &rank->comm->inbox, "rank 0 aborted: for a try");
	fails(rank, &c, -ECANCELED, (const char *const[]){ "rank 0 aborted: for a try", NULL });
}

JOB_TEST(abort_is_told_by_whoever_fails, 1, job_simulate, .ranks = 3, .main = abort_untold);

/* A part that is aborted does not affect the whole. */
static void abort_part(struct rank *rank)
{
	int32_t value = 1, sum = 0;
	struct frl_comm *half;

	if (!expect(rank, frl_comm_split(rank->comm, rank->number / 2, 0, &half) == 0))
		return;
	if (rank->number == 0)
		frl_comm_abort(half, NULL);
	if (rank->number < 2)
		expect(rank,
			frl_allreduce(half, &value, &sum, 1, FRL_INT32, FRL_SUM) == -ECANCELED);
	else
		expect(rank, frl_allreduce(half, &value, &sum, 1, FRL_INT32, FRL_SUM) == 0);
	frl_comm_destroy(half);
	expect(rank, frl_allreduce(rank->comm, &value, &sum, 1, FRL_INT32, FRL_SUM) == 0);
	expect(rank, sum == 4);
}

JOB_TEST(abort_of_a_part, 1, job_simulate, .ranks = 4, .main = abort_part);

/* ---- ranks that are late, gone, or have left */

/* Rank 2 has not started the operation that the others wait for, and does not poll either, until
 * they stop waiting. They have sent it everything that it needs: until it gets their failure, it
 * may complete. */
static void be_late(struct rank *rank)
{
	static const char *const words[] = { "allreduce #2 made no progress", "for 200 ms",
		"rank 2 has not started it: 2 so far", NULL };
	struct frl_collective c = allreduce_of(rank, 1000);
	struct frl_request *request = NULL;
	uint64_t start = now_ms();

	works(rank);
	works(rank);
	if (rank->number != 2 && !expect(rank, frl_start(rank->comm, &c, &request) == 0))
		return;
	/* Nobody gives up before the others are in it. */
	job_meet(rank->job);
	if (rank->number == 2) {
		job_meet(rank->job);
		if (frl_run(rank->comm, &c) == 0)
			fails(rank, &c, -ETIMEDOUT, words);
		else
			has_failed(rank, rank->comm->error, -ETIMEDOUT, words);
	} else {
		rank->comm->config.timeout_ms = LATE_MS;
		has_failed(rank, frl_request_wait(request), -ETIMEDOUT, words);
		job_meet(rank->job);
	}
	expect(rank, now_ms() - start >= LATE_MS);
}

JOB_TEST(timeouts_name_who_is_late, 1, job_simulate, .ranks = 3, .main = be_late);

static void one_gives_up(struct rank *rank)
{
	struct frl_collective c = allreduce_of(rank, LONG);

	if (!works_unless(rank, -ECONNRESET))
		return;
	if (rank->number == 1)
		rank->bootstrap.abort(rank->bootstrap.ctx, "out of data");
	else
		fails(rank, &c, -ECONNRESET, (const char *const[]){ "rank 1 is gone", NULL });
}

JOB_TEST(a_rank_gives_up, 1, job_simulate, .ranks = 3, .main = one_gives_up);

/* Its drain must not delay the others, nor their waiting its own. */
static void one_leaves(struct rank *rank)
{
	struct frl_collective c = allreduce_of(rank, 100);
	struct frl_request *request;

	if (rank->number == 1) {
		works(rank);
		return;
	}
	if (frl_barrier(rank->comm) == 0 && frl_start(rank->comm, &c, &request) == 0)
		expect(rank, frl_request_wait(request) < 0);
}

JOB_TEST(a_rank_leaves_early, 1, job_simulate, .ranks = 3, .main = one_leaves);

/* Requests that nobody has tested to their end. */
static void leave_requests(struct rank *rank)
{
	struct frl_collective c = allreduce_of(rank, LONG);
	struct frl_request *request;

	if (rank->number != 1) {
		frl_start(rank->comm, &c, &request); /* the other one may have left already */
		return;
	}
	fails(rank, &c, -ECANCELED, (const char *const[]){ "destroyed its communicator", NULL });
}

JOB_TEST(requests_left_behind, 1, job_simulate, .ranks = 3, .main = leave_requests);

TEST_MAIN(comm_faults)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
