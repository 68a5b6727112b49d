/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of no elements send nothing, but count: if another rank has some, both get the error.
 * And the report of a rank that waits in vain about its operation.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { OPERATIONS = 3, SOME = 5, MUCH = 4096, HANGS_MS = 20000, VAIN_MS = 2000 };

static int32_t out[JOB_RANKS][MUCH], in[JOB_RANKS][MUCH * JOB_RANKS];

static struct frl_collective make(const struct rank *rank, enum frl_coll coll, int count, int root)
{
	return (struct frl_collective){ .coll = coll,
		.send = out[rank->number],
		.recv = in[rank->number],
		.count = (size_t)count,
		.dtype = FRL_INT32,
		.root = root };
}

static bool has_words(struct rank *rank, const char *const words[3])
{
	for (int i = 0; i < 3 && words[i]; i++) {
		if (!strstr(frl_last_error(), words[i]))
			return complain(
				rank, "'%s' does not have '%s'", frl_last_error(), words[i]);
	}
	return true;
}

/* The operations of ranks 0 and 1, one after the other; -1: no more. */
static struct row {
	enum frl_coll coll;
	int counts[2][OPERATIONS];
	const char *words[3];
} rows[] = {
	{ FRL_ALLREDUCE, { { 0, -1 }, { SOME, -1 } }, { "allreduce #0 of" } },
	{ FRL_ALLREDUCE, { { MUCH, -1 }, { 0, -1 } }, { "allreduce #0 of" } },
	{ FRL_ALLREDUCE, { { 0, SOME, -1 }, { SOME, 0, -1 } }, { "allreduce #0 of" } },
	{ FRL_ALLGATHER, { { SOME, 0, SOME }, { SOME, SOME, SOME } }, { "allgather #" } },
	{ FRL_BROADCAST, { { SOME, -1 }, { 0, -1 } }, { "broadcast #0 of" } },
	{ FRL_SEND, { { 0, SOME, -1 }, { SOME, 0, -1 } }, { "rank 0", "rank 1" } },
	{ FRL_SEND, { { 0, -1 }, { SOME, -1 } }, { "rank 0", "rank 1" } },
	{ FRL_SEND, { { SOME, -1 }, { 0, -1 } }, { "rank 0", "rank 1" } },
};

static void run_row(struct rank *rank)
{
	const struct row *row = rank->job->arg;
	int rc = 0;

	for (int i = 0; i < OPERATIONS && row->counts[rank->number][i] >= 0 && !rc; i++) {
		bool is_pair = row->coll == FRL_SEND;
		struct frl_collective c = make(rank,
			is_pair && rank->number == 1 ? FRL_RECV : row->coll,
			row->counts[rank->number][i], is_pair ? !rank->number : 0);

		rc = frl_run(rank->comm, &c);
	}
	/* In their next common operation at the latest; a rank that only sent may need one more. */
	for (int i = 0; i < 2 && !rc; i++)
		rc = frl_barrier(rank->comm);
	if (rc != -EPROTO)
		complain(rank, "%d instead of -EPROTO: %s", rc, frl_last_error());
	has_words(rank, row->words);
}

JOB_TEST(some_have_no_elements, ROWS(rows), job_simulate, .ranks = 2, .main = run_row,
	.arg = &rows[_i], .timeout_ms = HANGS_MS);

/* They need no other rank, and operations in between are unaffected. */
static void run_empty(struct rank *rank)
{
	int other = (rank->number + 1) % rank->ranks;
	int before = (rank->number + rank->ranks - 1) % rank->ranks;
	bool done = false;

	for (enum frl_coll coll = 0; coll < FRL_SEND; coll++) {
		struct frl_collective c = make(rank, coll, 0, 0);

		if (coll != FRL_ALLTOALLV && coll != FRL_BARRIER)
			expect(rank, frl_run(rank->comm, &c) == 0);
	}
	for (int count = 0; count <= SOME; count += SOME) {
		struct frl_collective group[] = { make(rank, FRL_SEND, count, other),
			make(rank, FRL_RECV, count, before), make(rank, FRL_ALLREDUCE, 0, 0),
			make(rank, FRL_SEND, 0, rank->number), make(rank, FRL_ALLREDUCE, count, 0),
			make(rank, FRL_RECV, 0, rank->number) };
		struct frl_request *request;

		group[4].send = &out[rank->number][SOME];
		group[4].recv = &in[rank->number][SOME];
		expect(rank, frl_start_group(rank->comm, group, 6, &request) == 0);
		if (rank->failure[0])
			return;
		if (count == 0)
			expect(rank, frl_request_test(request, &done) == 0 && done);
		else
			expect(rank, frl_request_wait(request) == 0);
	}
	expect(rank, frl_barrier(rank->comm) == 0);
}

JOB_RANGE_TEST(all_have_no_elements, 1, 4, job_simulate, .ranks = _i, .main = run_empty);

/* Sends and receives to and from this rank, as counts. */
static struct own {
	int counts[OPERATIONS]; /* sent; negative: received; more than MUCH: of none */
	int fails_at;
} owns[] = {
	{ { -SOME, MUCH + 1 }, 1 },
	{ { MUCH + 1, -SOME }, 1 },
	{ { SOME, -MUCH - 1 }, 1 },
	{ { -MUCH - 1, SOME }, 1 },
	{ { MUCH + 1, SOME, -SOME }, 2 },
	{ { -SOME, SOME - 1 }, 1 },
};

static void run_own(struct rank *rank)
{
	static const char *const words[3] = { "all ranks must start the same" };
	const struct own *own = rank->job->arg;

	for (int i = 0; i <= own->fails_at; i++) {
		int count = own->counts[i] < 0 ? -own->counts[i] : own->counts[i];
		struct frl_collective c = make(rank, own->counts[i] < 0 ? FRL_RECV : FRL_SEND,
			count > MUCH ? 0 : count, rank->number);
		struct frl_request *request;
		int rc = frl_start(rank->comm, &c, &request);

		expect(rank, rc == (i == own->fails_at ? -EPROTO : 0));
		if (i == own->fails_at)
			has_words(rank, words);
	}
}

JOB_TEST(to_itself_of_no_elements, ROWS(owns), job_simulate, .ranks = 1, .main = run_own,
	.arg = &owns[_i]);

/* Each waits for a message that the other does not send. */
static void run_in_vain(struct rank *rank)
{
	static const char *const words[3] = { "recv of 5 elements from rank 1 made no progress",
		"rank 1 waits for rank 0 in recv of 5 elements from rank 0" };
	struct frl_collective c = make(rank, FRL_RECV, SOME, !rank->number);
	struct frl_request *request;
	int rc;

	expect(rank, frl_barrier(rank->comm) == 0);
	if (!expect(rank, frl_start(rank->comm, &c, &request) == 0))
		return;
	/* Nobody gives up before both are in it. */
	job_meet(rank->job);
	if (rank->number == 0)
		rank->comm->config.timeout_ms = VAIN_MS;
	rc = frl_request_wait(request);
	if (rank->number == 0 && expect(rank, rc == -ETIMEDOUT))
		has_words(rank, words);
}

JOB_TEST(who_waits_in_vain_says_for_what, 1, job_simulate, .ranks = 2, .main = run_in_vain,
	.timeout_ms = HANGS_MS);

TEST_MAIN(comm_empty)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
