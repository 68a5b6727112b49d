/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers whose two ends give different lengths: every rank fails, soon, with a text that names
 * both lengths, whichever lanes they would have used.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum {
	LITTLE = 25, /* int32: 100 bytes */
	MUCH = 2048, /* 8 KiB */
	MOST = 1 << 20,
	SOON_MS = 4000,
	HANGS_MS = 6000,
	OPERATIONS = 4,
};

static int32_t out[JOB_RANKS][MOST], in[JOB_RANKS][MOST];

/* The operations of two ranks with each other, in groups: positive counts are sent, negative
 * received. */
struct pair {
	int first[OPERATIONS], second[OPERATIONS]; /* by rank 0 and by rank 1; 0: no more */
	const char *words[3];
};

static struct pair pairs[] = {
	/* Small at one end only. */
	{ { MUCH }, { -LITTLE }, { "of 2048 int32", "of 25 int32" } },
	{ { LITTLE }, { -MUCH }, { "of 25 int32", "of 2048 int32" } },
	{ { -MUCH }, { LITTLE }, { "of 25 int32", "of 2048 int32" } },
	{ { -LITTLE }, { MUCH }, { "of 2048 int32", "of 25 int32" } },
	/* Both small, both large. */
	{ { LITTLE }, { -LITTLE + 1 }, { "of 25 int32", "of 24 int32" } },
	{ { MOST }, { -MOST / 2 }, { "of 1048576 int32", "of 524288 int32" } },
	{ { MOST / 2 }, { -MOST }, { "of 524288 int32", "of 1048576 int32" } },
	{ { MUCH }, { -MUCH - 1 }, { "of 2048 int32", "of 2049 int32" } },
	/* With others that match. */
	{ { MUCH, -MUCH }, { LITTLE, -MUCH }, { "of 25 int32", "of 2048 int32" } },
	{ { MUCH, -LITTLE }, { MUCH, -MUCH }, { "of 2048 int32", "of 25 int32" } },
	{ { 5, MUCH, 6 }, { -5, -LITTLE, -6 }, { "of 25 int32" } },
	{ { MOST, 6 }, { -MOST, -MUCH }, { "of 6 int32", "of 2048 int32" } },
	{ { MOST / 2, MOST / 2 }, { -MOST }, { "rank 0", "rank 1" } },
	{ { MOST }, { -MOST / 2, -MOST / 2 }, { "rank 0", "rank 1" } },
	/* In another order. */
	{ { 5, 6 }, { -6, -5 }, { "of 5 int32", "of 6 int32" } },
	{ { MUCH, LITTLE }, { -LITTLE, -MUCH }, { "of 2048 int32", "of 25 int32" } },
	{ { LITTLE, MUCH }, { -MUCH, -LITTLE }, { "of 2048 int32", "of 25 int32" } },
};

static void check_failure(struct rank *rank, int rc, uint64_t start_ns, const char *const words[3])
{
	if (rc != -EPROTO)
		complain(rank, "%d instead of -EPROTO: %s", rc, frl_last_error());
	for (int i = 0; i < 3 && words[i]; i++) {
		if (!strstr(frl_last_error(), words[i]))
			complain(rank, "'%s' does not have '%s'", frl_last_error(), words[i]);
	}
	if (clock_now_ns() - start_ns > (uint64_t)SOON_MS * 1000000)
		complain(rank, "that took more than %d ms", SOON_MS);
}

/* At the second barrier at the latest: the senders of right lengths know nothing before, and the
 * other one may fail in the first barrier when others need nothing more of it. */
static int run_group(struct rank *rank, const struct frl_collective group[], int n)
{
	struct frl_request *request;
	int rc = frl_start_group(rank->comm, group, n, &request);

	if (!rc)
		rc = frl_request_wait(request);
	if (!rc)
		rc = frl_barrier(rank->comm);
	return rc ? rc : frl_barrier(rank->comm);
}

static void run_pair(struct rank *rank)
{
	const struct pair *pair = rank->job->arg;
	const int *counts = rank->number ? pair->second : pair->first;
	struct frl_collective group[OPERATIONS];
	uint64_t start_ns = clock_now_ns();
	int n = 0;

	for (; n < OPERATIONS && counts[n]; n++)
		group[n] = (struct frl_collective){ .coll = counts[n] > 0 ? FRL_SEND : FRL_RECV,
			.send = out[rank->number],
			.recv = in[rank->number],
			.count = (size_t)(counts[n] > 0 ? counts[n] : -counts[n]),
			.dtype = FRL_INT32,
			.root = !rank->number };
	check_failure(rank, run_group(rank, group, n), start_ns, pair->words);
}

JOB_TEST(pairs_of_different_lengths, ROWS(pairs), job_simulate, .ranks = 2, .main = run_pair,
	.arg = &pairs[_i], .timeout_ms = HANGS_MS);

/* The sender has done its part, and computes until the other one knows: the data that came tells
 * enough. */
static void run_absent(struct rank *rank)
{
	const struct frl_collective c = { .coll = rank->number ? FRL_RECV : FRL_SEND,
		.send = out[rank->number],
		.recv = in[rank->number],
		.count = rank->number ? MUCH : LITTLE,
		.dtype = FRL_INT32,
		.root = !rank->number };
	const char *const words[3] = { "of 25 int32", "of 2048 int32" };
	uint64_t start_ns;
	int rc;

	/* Whichever comes first. */
	expect(rank, frl_barrier(rank->comm) == 0);
	job_sleep_ms(rank->number == *(const int *)rank->job->arg ? 100 : 0);
	start_ns = clock_now_ns();
	rc = frl_run(rank->comm, &c);
	if (rank->number == 0)
		expect(rank, rc == 0);
	else
		check_failure(rank, rc, start_ns, words);
	job_meet(rank->job);
}

JOB_TEST(found_by_the_receiver_alone, 2, job_simulate, .ranks = 2, .main = run_absent, .arg = &_i,
	.timeout_ms = HANGS_MS);

/* ---- pieces of alltoallv: rank 1 sends `sent` to rank 2, which expects another length */

struct piece {
	size_t sent, expected;
	const char *words[3];
};

static struct piece pieces[] = {
	{ MUCH, LITTLE, { "2048 int32", "25 int32", "alltoallv #1" } },
	{ LITTLE, MUCH, { "25 int32", "2048 int32", "alltoallv #1" } },
	{ LITTLE, LITTLE - 1, { "25 int32", "24 int32", "alltoallv #1" } },
	{ MUCH, 0, { "2048 int32", "0 int32", "alltoallv #1" } },
	{ LITTLE, 0, { "25 int32", "0 int32", "alltoallv #1" } },
	{ 0, MUCH, { "0 int32", "2048 int32", "alltoallv #1" } },
	{ 0, LITTLE, { "alltoallv #1" } }, /* it may meet the barrier behind it */
	{ MOST / 4, MOST / 8, { "262144 int32", "131072 int32", "alltoallv #1" } },
	{ MOST / 8, MOST / 4, { "131072 int32", "262144 int32", "alltoallv #1" } },
};

static void run_pieces(struct rank *rank)
{
	const struct piece *piece = rank->job->arg;
	size_t send_counts[JOB_RANKS], recv_counts[JOB_RANKS], displs[JOB_RANKS];
	const struct frl_collective c = { .coll = FRL_ALLTOALLV,
		.send = out[rank->number],
		.recv = in[rank->number],
		.dtype = FRL_INT32,
		.send_counts = send_counts,
		.send_displs = displs,
		.recv_counts = recv_counts,
		.recv_displs = displs };
	uint64_t start_ns = clock_now_ns();
	int rc;

	for (int i = 0; i < rank->ranks; i++) {
		send_counts[i] = recv_counts[i] = 3;
		displs[i] = (size_t)i * (MOST / 4);
	}
	if (rank->number == 1)
		send_counts[2] = piece->sent;
	if (rank->number == 2)
		recv_counts[1] = piece->expected;
	rc = frl_barrier(rank->comm);
	if (!rc)
		rc = run_group(rank, &c, 1);
	check_failure(rank, rc, start_ns, piece->words);
}

JOB_TEST(pieces_of_different_lengths, ROWS(pieces), job_simulate, .ranks = 3, .main = run_pieces,
	.arg = &pieces[_i], .timeout_ms = HANGS_MS);

/* ---- what fits does, however much is under way, and whoever comes first */

enum { MANY = 60 };

static void run_fitting(struct rank *rank)
{
	struct frl_request *requests[MANY];
	int next = (rank->number + 1) % rank->ranks;
	int previous = (rank->number + rank->ranks - 1) % rank->ranks;

	if (rank->number == 1)
		job_sleep_ms(250); /* the others say what they wait for */
	for (int i = 0; i < MANY && !rank->failure[0]; i++) {
		size_t count = i % 3 ? LITTLE + (size_t)i : MUCH * (size_t)(i + 1);
		struct frl_collective group[] = {
			{ .coll = FRL_SEND,
				.send = out[rank->number],
				.count = count,
				.dtype = FRL_INT32,
				.root = next },
			{ .coll = FRL_SEND, .dtype = FRL_INT32, .root = next },
			{ .coll = FRL_RECV,
				.recv = in[rank->number],
				.count = count,
				.dtype = FRL_INT32,
				.root = previous },
			{ .coll = FRL_RECV, .dtype = FRL_INT32, .root = previous },
		};

		expect(rank, frl_start_group(rank->comm, group, 4, &requests[i]) == 0);
	}
	if (rank->number == 2)
		job_sleep_ms(250);
	for (int i = 0; i < MANY && !rank->failure[0]; i++)
		expect(rank, frl_request_wait(requests[i]) == 0);
	expect(rank, frl_barrier(rank->comm) == 0);
}

JOB_TEST(many_that_fit, 1, job_simulate, .ranks = 3, .main = run_fitting);

TEST_MAIN(comm_lengths)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
