/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators made from one another: used by several threads at once, waited for and destroyed in
 * different orders. tests/sim/coll/coll_rows.c has the rows about time.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "lib/base/clock.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/program.h"

enum { LONG = 20000, MUCH = 200000, ROUNDS = 30, THREADS = 3, MANY = 40, SOON_MS = 1000 };

/* One thread of a rank, and the communicator that it alone uses. */
struct user {
	struct rank *rank;
	struct frl_comm *comm;
	int number;
	pthread_t thread;
};

static void sum_ones(struct rank *rank, struct frl_comm *comm, size_t count)
{
	int32_t *ones = calloc(count, sizeof(*ones)), *sums = calloc(count, sizeof(*sums));

	for (size_t i = 0; i < count; i++)
		ones[i] = 1;
	expect(rank, frl_allreduce(comm, ones, sums, count, FRL_INT32, FRL_SUM) == 0);
	for (size_t i = 0; i < count && !rank->failure[0]; i++)
		expect(rank, sums[i] == frl_comm_size(comm));
	free(ones);
	free(sums);
}

static void *use(void *arg)
{
	struct user *user = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct frl_comm *child;

		sum_ones(user->rank, user->comm, i % 3 ? 1 : LONG);
		if (i % 10)
			continue;
		if (!expect(user->rank, frl_comm_duplicate(user->comm, &child) == 0))
			break;
		sum_ones(user->rank, child, 10);
		frl_comm_destroy(child);
	}
	frl_comm_destroy(user->comm);
	return NULL;
}

/* Complaints of several threads go to copies of the rank. */
static void use_all(struct rank *rank)
{
	struct user users[THREADS];
	struct rank copies[THREADS];

	for (int i = 0; i < THREADS; i++) {
		copies[i] = *rank;
		users[i] = (struct user){ .rank = &copies[i], .number = i };
		if (!expect(rank, frl_comm_duplicate(rank->comm, &users[i].comm) == 0))
			return;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_create(&users[i].thread, NULL, use, &users[i]);
	for (int i = 0; i < 3 * ROUNDS; i++)
		sum_ones(rank, rank->comm, i % 3 ? 1 : LONG);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(users[i].thread, NULL);
		if (copies[i].failure[0])
			complain(rank, "thread %d: %s", i, copies[i].failure);
	}
}

JOB_TEST(threads_of_a_rank, 2, job_run, .ranks = 2 + _i, .main = use_all);

/* One thread of the rank aborts a communicator while others use its siblings. */
static void *give_up(void *arg)
{
	struct user *user = arg;
	int32_t value = 1;

	if (user->rank->number == 1)
		frl_comm_abort(user->comm, "this one alone");
	while (frl_allreduce(user->comm, &value, &value, 1, FRL_INT32, FRL_SUM) == 0)
		;
	frl_comm_destroy(user->comm);
	return NULL;
}

static void fail_beside(struct rank *rank)
{
	struct user user = { .rank = rank };

	if (!expect(rank, frl_comm_duplicate(rank->comm, &user.comm) == 0))
		return;
	pthread_create(&user.thread, NULL, give_up, &user);
	for (int i = 0; i < ROUNDS; i++)
		sum_ones(rank, rank->comm, i % 3 ? 1 : LONG);
	pthread_join(user.thread, NULL);
	sum_ones(rank, rank->comm, 1);
}

JOB_TEST(one_fails_beside_others, 1, job_run, .ranks = 3, .main = fail_beside);

/* A program may wait for its communicators in any order, and destroy them in any. */
static void cross(struct rank *rank)
{
	static int32_t values[JOB_RANKS][THREADS][MUCH];
	struct frl_request *requests[THREADS];
	struct frl_comm *comms[THREADS];
	uint64_t start_ns = clock_now_ns();
	int me = rank->number;

	for (int i = 0; i < THREADS; i++)
		if (!expect(rank, frl_comm_duplicate(rank->comm, &comms[i]) == 0))
			return;
	for (int i = 0; i < THREADS; i++) {
		for (int k = 0; k < MUCH; k++)
			values[me][i][k] = 1;
		expect(rank,
			frl_allreduce_start(comms[i], values[me][i], values[me][i], MUCH, FRL_INT32,
				FRL_SUM, &requests[i]) == 0);
	}
	for (int i = 0; i < THREADS && !rank->failure[0]; i++) {
		int n = (me + i) % THREADS;

		expect(rank, frl_request_wait(requests[n]) == 0);
		for (int k = 0; k < MUCH && !rank->failure[0]; k++)
			expect(rank, values[me][n][k] == rank->ranks);
	}
	for (int i = 0; i < THREADS; i++)
		frl_comm_destroy(comms[(me + i) % THREADS]);
	if (rank->job->is_simulated)
		expect(rank, clock_now_ns() - start_ns < SOON_MS * UINT64_C(1000000));
}

JOB_TEST(any_order, 3, job_simulate, .ranks = 2 + _i, .main = cross, .rails = 1 + _i % 2);

/* Unused runs are kept for the next ones, up to a limit. */
static void start_many(struct rank *rank)
{
	static int32_t values[JOB_RANKS][MANY];
	struct frl_request *requests[MANY];

	for (int i = 0; i < MANY; i++) {
		int32_t *value = &values[rank->number][i];

		expect(rank,
			frl_allreduce_start(rank->comm, value, value, 1, FRL_INT32, FRL_SUM,
				&requests[i]) == 0);
	}
	for (int i = 0; i < MANY; i++)
		expect(rank, frl_request_wait(requests[i]) == 0);
	for (struct schedule *s = rank->comm->schedules.first; s; s = s->next) {
		unsigned n = 0;

		for (struct run *run = s->idle_runs; run; run = run->next)
			n++;
		expect(rank, n <= IDLE_RUNS && n == s->n_idle);
	}
}

JOB_TEST(idle_runs_are_few, 1, job_simulate, .ranks = 2, .main = start_many);

TEST_MAIN(comm_siblings)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
