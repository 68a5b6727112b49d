/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of completed requests: frl_request_detach(), frl_comm_next_done() and their kin. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/api/notices.h"
#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fixtures/patience.h"
#include "tests/fixtures/program.h"

enum {
	MANY = 50,
	FLOOD = 4000 / JOB_SHARE,
	READERS = 3,
	LONG = 300000,
	SHORT_MS = 5,
	WAKE_ID = 1000000,
};

static int32_t numbers[JOB_RANKS][2][LONG];
static int32_t values[JOB_RANKS][FLOOD];

/* Each row runs in two modes: with inline progress in virtual time, and with a thread. */
static void run_mode(int mode, int ranks, void (*main)(struct rank *rank))
{
	struct job job = { .ranks = ranks, .main = main };

	if (mode == 0) {
		job_simulate(&job);
		return;
	}
	job.comm_progress = FRL_PROGRESS_THREAD;
	job_run(&job);
}

#define MODES_TEST(name, n_ranks, function)      \
	START_LOOP_TEST(name, 2)                 \
	{                                        \
		run_mode(_i, n_ranks, function); \
	}                                        \
	struct job

static bool has_thread(const struct rank *rank)
{
	return rank->job->comm_progress == FRL_PROGRESS_THREAD;
}

static bool start_sum(struct rank *rank, int32_t *value, uint64_t id)
{
	struct frl_request *request;

	*value = job_input(rank->number, (size_t)id);
	return expect(rank,
		       frl_allreduce_start(
			       rank->comm, value, value, 1, FRL_INT32, FRL_SUM, &request) == 0) &&
		expect(rank, frl_request_detach(request, id) == 0);
}

/* Starts a RECV from rank `peer`, and leaves it to the communicator. */
static bool start_receive(struct rank *rank, int peer, size_t count, uint64_t id)
{
	struct frl_collective c = { .coll = FRL_RECV,
		.recv = numbers[rank->number][1],
		.count = count,
		.dtype = FRL_INT32,
		.root = peer };
	struct frl_request *request;

	return expect(rank, frl_start(rank->comm, &c, &request) == 0) &&
		expect(rank, frl_request_detach(request, id) == 0);
}

static void send_to(struct rank *rank, int peer, size_t count)
{
	struct frl_collective c = { .coll = FRL_SEND,
		.send = numbers[rank->number][0],
		.count = count,
		.dtype = FRL_INT32,
		.root = peer };

	expect(rank, frl_run(rank->comm, &c) == 0);
}

static bool takes(struct rank *rank, uint64_t id, int err)
{
	uint64_t got = ~id;
	int got_err = 1, rc = frl_comm_next_done(rank->comm, -1, &got, &got_err);

	if (rc != 1 || got != id || got_err != err)
		return complain(rank, "%d, id %d, error %d (%s), not id %d, error %d", rc, (int)got,
			got_err, frl_last_error(), (int)id, err);
	return true;
}

/* Nothing is to be had, and what is returned instead. */
static bool takes_nothing(struct rank *rank, int timeout_ms, int expected)
{
	uint64_t id = 7;
	int err = 8, rc = frl_comm_next_done(rank->comm, timeout_ms, &id, &err);

	if (rc != expected || id != 7 || err != 8)
		return complain(rank, "%d, id %d, error %d, not %d", rc, (int)id, err, expected);
	return true;
}

/* ---- requests */

static void detach_many(struct rank *rank)
{
	bool is_seen[MANY] = { false };

	takes_nothing(rank, 0, 0);
	for (int i = 0; i < MANY; i++) {
		if (!start_sum(rank, &values[rank->number][i], (uint64_t)i))
			return;
	}
	for (int i = 0; i < MANY; i++) {
		uint64_t id = MANY;
		int err = 1, rc = frl_comm_next_done(rank->comm, -1, &id, &err);

		if (!expect(rank, rc == 1 && err == 0 && id < MANY && !is_seen[id]))
			return;
		is_seen[id] = true;
		expect(rank, values[rank->number][id] == job_sum(rank->ranks, (size_t)id));
	}
	takes_nothing(rank, 0, 0);
	/* With inline progress nothing can be reported any more. */
	takes_nothing(rank, has_thread(rank) ? SHORT_MS : -1, 0);
}

MODES_TEST(each_request_is_reported_once, 3, detach_many);

/* A call that only looks makes progress, although nothing is detached. */
static void look(struct rank *rank)
{
	int32_t(*mine)[LONG] = numbers[rank->number];
	bool looks = rank->number == 0 && !has_thread(rank);
	struct frl_backoff backoff = { 0 };
	struct frl_request *request;

	if (!expect(rank,
		    frl_allreduce_start(
			    rank->comm, mine[0], mine[1], LONG, FRL_INT32, FRL_SUM, &request) == 0))
		return;
	while (looks && !request->done && takes_nothing(rank, 0, 0))
		frl_backoff_idle(&backoff);
	expect(rank, frl_request_wait(request) == 0);
}
MODES_TEST(looks_make_progress, 2, look);

/* With one rank an operation completes when it starts. */
static void detach_late(struct rank *rank)
{
	struct frl_request *requests[2];
	bool done = false;

	for (int i = 0; i < 2; i++)
		expect(rank,
			frl_allreduce_start(rank->comm, values[0], values[0], 1, FRL_INT32, FRL_SUM,
				&requests[i]) == 0);
	while (!requests[0]->done || !requests[1]->done)
		expect(rank, frl_barrier(rank->comm) == 0);
	expect(rank, frl_request_detach(requests[1], 1) == 0);
	takes(rank, 1, 0);
	expect(rank, frl_request_wait_for(requests[0], 0, &done) == 0 && done);
	takes_nothing(rank, 0, 0);
}

MODES_TEST(a_complete_request_is_reported_at_once, 1, detach_late);

/* The order is that of completion. Waiting has a limit. */
static void complete_backwards(struct rank *rank)
{
	if (rank->number > 0) {
		for (int i = 0; i < rank->number; i++)
			job_meet(rank->job);
		send_to(rank, 0, 10);
		for (int i = rank->number; i < 3; i++)
			job_meet(rank->job);
		return;
	}
	start_receive(rank, 2, 10, 2);
	start_receive(rank, 1, 10, 1);
	takes_nothing(rank, 0, 0);
	takes_nothing(rank, SHORT_MS, 0);
	job_meet(rank->job);
	takes(rank, 1, 0);
	takes_nothing(rank, 0, 0);
	job_meet(rank->job);
	takes(rank, 2, 0);
	job_meet(rank->job);
}

MODES_TEST(reported_in_the_order_of_completion, 3, complete_backwards);

/* ---- posts */

struct helper {
	struct rank *rank;
	pthread_t thread;
	void (*run)(struct rank *rank);
};

static void *help(void *arg)
{
	struct helper *helper = arg;

	job_sleep_ms(10); /* usually enough for the other thread to wait */
	helper->run(helper->rank);
	return NULL;
}

static void help_soon(struct helper *helper, struct rank *rank, void (*run)(struct rank *rank))
{
	*helper = (struct helper){ .rank = rank, .run = run };
	pthread_create(&helper->thread, NULL, help, helper);
}

static void post(struct rank *rank)
{
	frl_comm_post_done(rank->comm, WAKE_ID);
}

/* A thread waits for a request that does not complete before the post; or, with a thread of the
 * library, for nothing at all. */
static void wait_for_post(struct rank *rank)
{
	struct helper helper;

	expect(rank, frl_comm_post_done(rank->comm, 1) == 0);
	expect(rank, frl_comm_post_done(rank->comm, 2) == 0);
	takes(rank, 1, 0);
	takes(rank, 2, 0);
	if (rank->number == 1) {
		job_meet(rank->job);
		send_to(rank, 0, LONG);
		return;
	}
	start_receive(rank, 1, LONG, 3);
	help_soon(&helper, rank, post);
	takes(rank, WAKE_ID, 0);
	pthread_join(helper.thread, NULL);
	job_meet(rank->job);
	takes(rank, 3, 0);
	if (has_thread(rank)) {
		help_soon(&helper, rank, post);
		takes(rank, WAKE_ID, 0);
		pthread_join(helper.thread, NULL);
	}
}

JOB_TEST(a_post_wakes, 2, job_run, .ranks = 2,
	.comm_progress = _i ? FRL_PROGRESS_THREAD : FRL_PROGRESS_INLINE, .main = wait_for_post);

/* ---- several threads */

struct flood {
	struct rank *rank;
	atomic_int taken[FLOOD];
	atomic_int rest;
};

static void *read_flood(void *arg)
{
	struct flood *flood = arg;
	uint64_t id;
	int err;

	while (frl_comm_next_done(flood->rank->comm, -1, &id, &err) == 1 && id < FLOOD) {
		if (err == 0)
			atomic_fetch_add(&flood->taken[id], 1);
		atomic_fetch_sub(&flood->rest, 1);
	}
	return NULL;
}

/* One thread starts operations and never waits for them. Others take what is done. */
static void start_flood(struct rank *rank)
{
	static struct flood floods[JOB_RANKS];
	struct flood *flood = &floods[rank->number];
	pthread_t readers[READERS];

	memset(flood, 0, sizeof(*flood));
	flood->rank = rank;
	atomic_store(&flood->rest, FLOOD);
	for (int i = 0; i < READERS; i++)
		pthread_create(&readers[i], NULL, read_flood, flood);
	for (int i = 0; i < FLOOD && !rank->failure[0]; i++) {
		start_sum(rank, &values[rank->number][i], (uint64_t)i);
		if (i % (FLOOD / 4) == 0)
			job_sleep_ms(5);
	}
	for (uint64_t limit_ns = hang_limit_ns(); atomic_load(&flood->rest) > 0;) {
		if (!expect(rank, may_wait(limit_ns)))
			break;
		job_sleep_ms(1);
	}
	for (int i = 0; i < READERS; i++)
		expect(rank, frl_comm_post_done(rank->comm, WAKE_ID) == 0);
	for (int i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
	for (int i = 0; i < FLOOD; i++) {
		expect(rank, atomic_load(&flood->taken[i]) == 1);
		expect(rank, values[rank->number][i] == job_sum(rank->ranks, (size_t)i));
	}
}

JOB_TEST(several_threads_take_reports, 1, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = start_flood);

static void receive_one(struct rank *rank)
{
	start_receive(rank, 1, LONG, 4);
}

/* A thread waits before there is a request, and makes progress when there is one. */
static void detach_beside(struct rank *rank)
{
	struct helper helper;

	if (rank->number == 1) {
		send_to(rank, 0, LONG);
		return;
	}
	help_soon(&helper, rank, receive_one);
	takes(rank, 4, 0);
	pthread_join(helper.thread, NULL);
}

JOB_TEST(another_thread_detaches, 1, job_run, .ranks = 2, .comm_progress = FRL_PROGRESS_THREAD,
	.main = detach_beside);

/* ---- the descriptor */

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };

	return poll(&at, 1, timeout_ms) == 1 && at.revents == POLLIN;
}

static void watch(struct rank *rank)
{
	int fd;

	if (rank->number == 1) {
		job_meet(rank->job);
		send_to(rank, 0, LONG);
		return;
	}
	/* Made while there are reports: it is readable. */
	expect(rank, frl_comm_post_done(rank->comm, 1) == 0);
	fd = frl_comm_fd(rank->comm);
	expect(rank, fd >= 0 && frl_comm_fd(rank->comm) == fd);
	expect(rank, is_readable(fd, 0));
	expect(rank, frl_comm_post_done(rank->comm, 2) == 0);
	takes(rank, 1, 0);
	expect(rank, is_readable(fd, 0));
	takes(rank, 2, 0);
	expect(rank, !is_readable(fd, 0));
	takes_nothing(rank, 0, 0);
	/* Nobody makes a call until the request is done. */
	start_receive(rank, 1, LONG, 3);
	expect(rank, !is_readable(fd, SHORT_MS));
	job_meet(rank->job);
	expect(rank, is_readable(fd, HANG_MS));
	expect(rank, is_readable(fd, 0));
	takes(rank, 3, 0);
	expect(rank, !is_readable(fd, 0));
}

JOB_TEST(readable_while_there_are_reports, 1, job_run, .ranks = 2,
	.comm_progress = FRL_PROGRESS_THREAD, .main = watch);

/* ---- failures */

static void takes_failures(struct rank *rank, int n, int err, const char *words)
{
	bool is_seen[3] = { false };

	for (int i = 0; i < n; i++) {
		uint64_t id = 3;
		int got = 0, rc = frl_comm_next_done(rank->comm, -1, &id, &got);

		if (rc != 1 || got != err || id > 2 || is_seen[id] ||
			!strstr(frl_last_error(), words))
			complain(rank, "%d, id %d, error %d (%s)", rc, (int)id, got,
				frl_last_error());
		else
			is_seen[id] = true;
	}
	takes_nothing(rank, -1, err);
	expect(rank, strstr(frl_last_error(), words));
}

static void abort_detached(struct rank *rank)
{
	if (rank->number == 0) {
		for (int i = 0; i < 3; i++)
			start_receive(rank, 1, i == 2 ? LONG : 10, (uint64_t)i);
		takes_nothing(rank, 0, 0);
	}
	job_meet(rank->job);
	if (rank->number == 1)
		frl_comm_abort(rank->comm, "for a try");
	else
		takes_failures(rank, 3, -ECANCELED, "for a try");
	/* A failed communicator takes posts, and the requests of nobody. */
	if (rank->number == 0) {
		expect(rank, frl_comm_post_done(rank->comm, WAKE_ID) == 0);
		takes(rank, WAKE_ID, 0);
		takes_nothing(rank, 0, -ECANCELED);
	}
	job_meet(rank->job);
}

MODES_TEST(an_abort_is_reported, 2, abort_detached);

static void lose_rank(struct rank *rank)
{
	if (rank->number == 0) {
		for (int i = 0; i < 3; i++)
			start_receive(rank, 1, 10, (uint64_t)i);
	}
	job_meet(rank->job);
	if (rank->number == 1)
		rank->bootstrap.abort(rank->bootstrap.ctx, "out of data");
	else
		takes_failures(rank, 3, -ECONNRESET, "rank 1 is gone");
	job_meet(rank->job);
}

MODES_TEST(a_lost_rank_is_reported, 2, lose_rank);

/* The descriptor reports failures as well. */
static void watch_loss(struct rank *rank)
{
	if (rank->number == 0) {
		int fd = frl_comm_fd(rank->comm);

		for (int i = 0; i < 3; i++)
			start_receive(rank, 1, 10, (uint64_t)i);
		job_meet(rank->job);
		expect(rank, is_readable(fd, HANG_MS));
		takes_failures(rank, 3, -ECONNRESET, "rank 1 is gone");
		expect(rank, !is_readable(fd, 0));
	} else {
		job_meet(rank->job);
		rank->bootstrap.abort(rank->bootstrap.ctx, "out of data");
	}
	job_meet(rank->job);
}

JOB_TEST(the_descriptor_reports_a_lost_rank, 1, job_run, .ranks = 2,
	.comm_progress = FRL_PROGRESS_THREAD, .main = watch_loss);

static void give_up(struct rank *rank)
{
	frl_comm_abort(rank->comm, "for a try");
}

/* A thread that waits for nothing returns, too. */
static void abort_idle(struct rank *rank)
{
	struct helper helper;

	if (rank->number == 0) {
		help_soon(&helper, rank, give_up);
		takes_nothing(rank, -1, -ECANCELED);
		pthread_join(helper.thread, NULL);
	}
	job_meet(rank->job);
}

JOB_TEST(an_abort_wakes_an_idle_thread, 1, job_run, .ranks = 2,
	.comm_progress = FRL_PROGRESS_THREAD, .main = abort_idle);

/* The request is detached after the failure. */
static void detach_failed(struct rank *rank)
{
	struct frl_collective c = { .coll = FRL_RECV,
		.recv = numbers[rank->number][1],
		.count = 10,
		.dtype = FRL_INT32,
		.root = !rank->number };
	struct frl_request *request;

	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	job_meet(rank->job);
	frl_comm_abort(rank->comm, "for a try");
	takes_nothing(rank, 0, -ECANCELED);
	expect(rank, frl_request_detach(request, 1) == 0);
	takes(rank, 1, -ECANCELED);
	takes_nothing(rank, 0, -ECANCELED);
}

MODES_TEST(detached_after_the_failure, 2, detach_failed);

/* Reports that nobody takes, and requests that are pending, end with the communicator. */
static void leave_pending(struct rank *rank)
{
	start_receive(rank, !rank->number, 10, 1);
	expect(rank, frl_comm_post_done(rank->comm, 2) == 0);
	if (has_thread(rank))
		expect(rank, frl_comm_fd(rank->comm) >= 0);
	job_meet(rank->job);
}

MODES_TEST(destroyed_with_reports, 2, leave_pending);

static void misuse(struct rank *rank)
{
	uint64_t id;
	int err;

	expect(rank, frl_request_detach(NULL, 1) == -EINVAL);
	expect(rank, frl_comm_next_done(NULL, 0, &id, &err) == -EINVAL);
	expect(rank, frl_comm_next_done(rank->comm, 0, NULL, &err) == -EINVAL);
	expect(rank, frl_comm_next_done(rank->comm, 0, &id, NULL) == -EINVAL);
	expect(rank, frl_comm_post_done(NULL, 1) == -EINVAL);
	expect(rank, frl_comm_fd(NULL) == -EINVAL);
	if (!has_thread(rank)) {
		expect(rank, frl_comm_fd(rank->comm) == -EINVAL);
		expect(rank, strstr(frl_last_error(), "FRL_PROGRESS_THREAD"));
	}
}

MODES_TEST(bad_arguments, 1, misuse);

TEST_MAIN(comm_notices)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
