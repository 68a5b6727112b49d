/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators with a thread of the library: many threads use one, and requests complete while
 * their caller does something else.
 */
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/api/driver.h"
#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/patience.h"
#include "tests/fixtures/program.h"

enum { THREADS = 4, OPERATIONS = 400 / JOB_SHARE, LONG = 300000, SHORT_MS = 5 };

static int32_t numbers[JOB_RANKS][3][LONG];
static bool yes = true;

/* A thread of a rank. Its complaints go to a copy of the rank. */
struct user {
	struct rank rank;
	struct turns *turns;
	struct frl_request *request;
	int number, expected;
	pthread_t thread;
};

/* The order in which the threads of a rank start operations: in turn, on all ranks. */
struct turns {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int next;
};

static void user_start(struct user *user, struct rank *rank, void *(*run)(void *arg))
{
	user->rank = *rank;
	pthread_create(&user->thread, NULL, run, user);
}

static void user_join(struct user *user, struct rank *rank)
{
	pthread_join(user->thread, NULL);
	if (user->rank.failure[0])
		complain(rank, "thread %d: %s", user->number, user->rank.failure);
}

static int start_in_turn(struct user *user, int operation, int32_t *value)
{
	struct turns *turns = user->turns;
	int rc;

	pthread_mutex_lock(&turns->mutex);
	while (turns->next != operation)
		pthread_cond_wait(&turns->changed, &turns->mutex);
	rc = frl_allreduce_start(
		user->rank.comm, value, value, 1, FRL_INT32, FRL_SUM, &user->request);
	turns->next++;
	pthread_cond_broadcast(&turns->changed);
	pthread_mutex_unlock(&turns->mutex);
	return rc;
}

static int wait_somehow(struct frl_request *request, int way)
{
	bool done = false;
	int rc = 0;

	switch (way) {
	case 0: return frl_request_wait(request);
	case 1:
		while (rc == 0 && !done)
			rc = frl_request_test(request, &done);
		return rc;
	case 2:
		while (rc == 0 && !done)
			rc = frl_request_wait_for(request, 1, &done);
		return rc;
	default:
		job_sleep_ms(1);
		rc = frl_request_wait_for(request, -1, &done);
		return rc == 0 && !done ? -ETIME : rc;
	}
}

static void *sum_often(void *arg)
{
	struct user *user = arg;
	struct rank *rank = &user->rank;

	for (int i = user->number; i < OPERATIONS && !rank->failure[0]; i += THREADS) {
		int32_t value = job_input(rank->number, (size_t)i);
		int rc = start_in_turn(user, i, &value);

		if (rc == 0)
			rc = wait_somehow(user->request, (i / THREADS + rank->number) % 4);
		if (rc != 0 || value != job_sum(rank->ranks, (size_t)i))
			complain(rank, "operation %d: %d (%s), %d", i, rc, frl_last_error(),
				(int)value);
	}
	return NULL;
}

static void use_in_threads(struct rank *rank)
{
	struct turns turns = { .next = 0 };
	struct user users[THREADS];

	pthread_mutex_init(&turns.mutex, NULL);
	pthread_cond_init(&turns.changed, NULL);
	for (int i = 0; i < THREADS; i++) {
		users[i].number = i;
		users[i].turns = &turns;
		user_start(&users[i], rank, sum_often);
	}
	for (int i = 0; i < THREADS; i++)
		user_join(&users[i], rank);
	pthread_mutex_destroy(&turns.mutex);
	pthread_cond_destroy(&turns.changed);
}

JOB_TEST(many_threads_use_one, 2, job_run, .ranks = 2 + _i, .comm_progress = FRL_PROGRESS_THREAD,
	.main = use_in_threads);

/* ---- the library's thread */

static struct frl_collective transfer(struct rank *rank, enum frl_coll coll, int peer, size_t count)
{
	return (struct frl_collective){ .coll = coll,
		.send = numbers[rank->number][0],
		.recv = numbers[rank->number][1],
		.count = count,
		.dtype = FRL_INT32,
		.root = peer };
}

static bool waits(struct rank *rank, struct frl_request *request)
{
	bool done = false;

	return expect(rank, frl_request_wait_for(request, -1, &done) == 0) && expect(rank, done);
}

/* Rank 0 makes no call while rank 1 sends so much that it needs rank 0. */
static void be_elsewhere(struct rank *rank)
{
	struct frl_collective c = transfer(
		rank, rank->number ? FRL_SEND : FRL_RECV, !rank->number, LONG);
	struct frl_request *request;
	bool done = false;

	for (size_t i = 0; i < LONG && rank->number == 1; i++)
		numbers[1][0][i] = (int32_t)i;
	if (rank->job->arg) /* the thread sleeps when the request starts */
		job_sleep_ms(50);
	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	if (rank->number == 1)
		waits(rank, request);
	job_meet(rank->job);
	if (rank->number == 1)
		return;
	/* The sender knows a little earlier. */
	while (!done && expect(rank, frl_request_wait_for(request, -1, &done) == 0))
		;
	for (size_t i = 0; i < LONG && !rank->failure[0]; i++)
		expect(rank, numbers[0][1][i] == (int32_t)i);
}

JOB_TEST(a_request_needs_no_caller, 2, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = be_elsewhere, .arg = _i ? &yes : NULL);

/* ---- waits with a limit */

static void wait_shortly(struct rank *rank)
{
	static const int timeouts_ms[] = { SHORT_MS, 0, 1 };
	struct frl_collective c = transfer(
		rank, rank->number ? FRL_SEND : FRL_RECV, !rank->number, 100);
	struct frl_request *request;

	if (rank->number == 0) {
		expect(rank, frl_start(rank->comm, &c, &request) == 0);
		for (int i = 0; i < ROWS(timeouts_ms); i++) {
			uint64_t start_ns = clock_now_ns();
			bool done = true;
			int rc = frl_request_wait_for(request, timeouts_ms[i], &done);

			expect(rank, rc == 0 && !done);
			expect(rank,
				clock_now_ns() - start_ns >=
					(uint64_t)timeouts_ms[i] * UINT64_C(1000000));
		}
		job_meet(rank->job);
		waits(rank, request);
	} else {
		job_meet(rank->job);
		expect(rank, frl_start(rank->comm, &c, &request) == 0);
		waits(rank, request);
	}
}

JOB_TEST(a_wait_has_a_limit, 1, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = wait_shortly);
JOB_TEST(a_wait_has_a_limit_inline, 1, job_simulate, .ranks = 2, .main = wait_shortly);

/* ---- a caller makes progress, and others sleep */

static void *receive(void *arg)
{
	struct user *user = arg;

	waits(&user->rank, user->request);
	return NULL;
}

/*
 * Two threads of rank 0 wait, one for rank 1 and one for rank 2. Only one of them makes progress.
 * Either request may complete first.
 */
static void wait_beside(struct rank *rank)
{
	int first = rank->job->arg ? 2 : 1, second = 3 - first;
	struct user users[2] = { { .number = 1 }, { .number = 2 } };
	struct frl_collective c = transfer(rank, FRL_SEND, 0, 10);
	struct frl_request *request;

	if (rank->number > 0) {
		job_meet(rank->job);
		if (rank->number == second)
			job_meet(rank->job);
		numbers[rank->number][0][0] = rank->number;
		expect(rank, frl_start(rank->comm, &c, &request) == 0);
		waits(rank, request);
		if (rank->number == first)
			job_meet(rank->job);
		return;
	}
	for (int i = 0; i < 2; i++) {
		c = transfer(rank, FRL_RECV, i + 1, 10);
		c.recv = numbers[0][i];
		expect(rank, frl_start(rank->comm, &c, &users[i].request) == 0);
		user_start(&users[i], rank, receive);
		job_sleep_ms(10); /* usually enough for the thread to wait */
	}
	job_meet(rank->job);
	user_join(&users[first - 1], rank);
	job_meet(rank->job);
	user_join(&users[second - 1], rank);
	expect(rank, numbers[0][0][0] == 1 && numbers[0][1][0] == 2);
}

JOB_TEST(threads_wait_beside_one_another, 2, job_run, .ranks = 3,
	.comm_progress = FRL_PROGRESS_THREAD, .main = wait_beside, .arg = _i ? &yes : NULL);

/* ---- failures */

static void *receive_in_vain(void *arg)
{
	struct user *user = arg;
	bool done = false;
	int rc = frl_request_wait_for(user->request, -1, &done);

	if (rc != user->expected)
		complain(&user->rank, "%d (%s)", rc, frl_last_error());
	return NULL;
}

/* Two threads of rank 0 wait until the communicator is aborted, by this rank or by another one. */
static void abort_waits(struct rank *rank)
{
	int by = rank->job->arg ? 1 : 0;
	struct user users[2] = { { .number = 1, .expected = -ECANCELED },
		{ .number = 2, .expected = -ECANCELED } };

	for (int i = 0; i < 2 && rank->number == 0; i++) {
		struct frl_collective c = transfer(rank, FRL_RECV, 1, 10);

		c.recv = numbers[0][i];
		expect(rank, frl_start(rank->comm, &c, &users[i].request) == 0);
		user_start(&users[i], rank, receive_in_vain);
	}
	job_meet(rank->job); /* an aborted communicator starts nothing */
	job_sleep_ms(10);    /* usually enough for the threads to wait */
	if (rank->number == by)
		frl_comm_abort(rank->comm, "for a try");
	for (int i = 0; i < 2 && rank->number == 0; i++)
		user_join(&users[i], rank);
	job_meet(rank->job);
}

JOB_TEST(an_abort_ends_all_waits, 2, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = abort_waits, .arg = _i ? &yes : NULL);

static void leave_pending(struct rank *rank)
{
	struct frl_collective c = transfer(rank, FRL_RECV, !rank->number, 10);
	struct frl_request *request;

	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	job_meet(rank->job);
	job_sleep_ms(rank->job->arg ? 20 : 0);
}

JOB_TEST(destroyed_with_requests, 2, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = leave_pending, .arg = _i ? &yes : NULL);

static void misuse(struct rank *rank)
{
	struct frl_comm_config config;
	struct frl_comm *comm = NULL;
	struct frl_request *request;
	int32_t value = 0;
	bool done;

	frl_comm_config_init(&config);
	expect(rank, config.progress == FRL_PROGRESS_INLINE);
	config.devices = rank->devices;
	config.n_devices = 1;
	config.progress = (enum frl_progress)(FRL_PROGRESS_THREAD + 1);
	expect(rank, frl_comm_create_with(&rank->bootstrap, &config, &comm) == -EINVAL && !comm);
	expect(rank, strstr(frl_last_error(), "enum frl_progress"));
	expect(rank, frl_request_wait_for(NULL, 1, &done) == -EINVAL);
	expect(rank,
		frl_allreduce_start(rank->comm, &value, &value, 1, FRL_INT32, FRL_SUM, &request) ==
			0);
	expect(rank, frl_request_wait_for(request, 1, NULL) == -EINVAL);
	expect(rank, frl_request_wait(request) == 0);
}

JOB_TEST(bad_arguments, 1, job_run, .ranks = 1, .comm_progress = FRL_PROGRESS_THREAD,
	.main = misuse);

/* ---- communicators made from one another */

static void *wait_for_ever(void *arg)
{
	struct user *user = arg;

	waits(&user->rank, user->request);
	return NULL;
}

/* A thread waits for an earlier request meanwhile. The new communicator has a thread, too. */
static void split_beside(struct rank *rank)
{
	struct frl_collective c = transfer(
		rank, rank->number ? FRL_SEND : FRL_RECV, !rank->number, LONG);
	struct user user = { .number = 1 };
	struct frl_comm *child = NULL, *parent = rank->comm;

	if (rank->number == 0) {
		expect(rank, frl_start(parent, &c, &user.request) == 0);
		user_start(&user, rank, wait_for_ever);
	} else {
		expect(rank, frl_start(parent, &c, &user.request) == 0);
	}
	if (!expect(rank, frl_comm_duplicate(parent, &child) == 0))
		return;
	expect(rank, child->driver);
	if (rank->number == 0)
		user_join(&user, rank);
	else
		waits(rank, user.request);
	rank->comm = child;
	be_elsewhere(rank);
	use_in_threads(rank);
	frl_comm_destroy(child);
	rank->comm = parent;
}

JOB_TEST(splits_have_a_thread, 1, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = split_beside);

static void *use_sibling(void *arg)
{
	struct user *user = arg;

	use_in_threads(&user->rank);
	frl_comm_destroy(user->rank.comm);
	return NULL;
}

/* Threads make progress on the siblings of their communicator, and complete their requests. */
static void use_siblings(struct rank *rank)
{
	struct user users[2] = { { .number = 1 }, { .number = 2 } };
	struct rank copies[2];

	for (int i = 0; i < 2; i++) {
		copies[i] = *rank;
		if (!expect(rank, frl_comm_duplicate(rank->comm, &copies[i].comm) == 0))
			return;
	}
	for (int i = 0; i < 2; i++)
		user_start(&users[i], &copies[i], use_sibling);
	use_in_threads(rank);
	for (int i = 0; i < 2; i++)
		user_join(&users[i], rank);
}

JOB_TEST(siblings_in_threads, 1, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = use_siblings);

/* ---- fork */

/* The child destroys its copies, and the parent's communicator continues. */
static void fork_once(struct rank *rank)
{
	int32_t value = 1;
	pid_t pid;

	if (rank->number == 0) {
		pid = fork();
		if (pid == 0) {
			frl_comm_destroy(rank->comm);
			_exit(0);
		}
		if (expect(rank, pid > 0)) {
			int status = -1;

			expect(rank, waitpid(pid, &status, 0) == pid && status == 0);
		}
	}
	expect(rank, frl_allreduce(rank->comm, &value, &value, 1, FRL_INT32, FRL_SUM) == 0);
	expect(rank, value == 2);
}

JOB_TEST(a_forked_child_destroys, 2, job_run, .ranks = 2,
	.comm_progress = _i ? FRL_PROGRESS_THREAD : FRL_PROGRESS_INLINE, .main = fork_once);

TEST_MAIN(comm_threads)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
