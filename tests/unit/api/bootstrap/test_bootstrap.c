/* SPDX-License-Identifier: BSD-3-Clause */
/* A bootstrap through a real daemon: threads and processes as ranks, mail, deaths, restarts. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <signal.h>
#include <stdio.h>

#include <ferrule/error.h>

#include "lib/base/reminder.h"
#include "tests/fixtures/bootstrap_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/wait_limits.h"

enum { RANKS = 5, ROUNDS = 20 };

struct rank {
	pthread_t thread;
	int number;
	const char *failure; /* Check's asserts are not for threads */
	char text[512];
};

static void *gather_rounds(void *arg)
{
	struct rank *rank = arg;
	struct frl_bootstrap bootstrap;
	size_t size = 1;
	uint8_t *mine, *all;

	if (frl_bootstrap_join("test", rank->number, RANKS, JOIN_MS, &bootstrap) < 0) {
		rank->failure = "join";
		snprintf(rank->text, sizeof(rank->text), "%s", frl_last_error());
		return NULL;
	}
	mine = malloc(GATHER_MAX);
	all = malloc((size_t)RANKS * GATHER_MAX);
	for (int round = 0; round < ROUNDS && !rank->failure; round++) {
		size = round == ROUNDS - 1 ? GATHER_MAX : round == 0 ? 0 : size * 2 - (round & 1);
		memset(mine, rank->number * 50 + round, size);
		if (bootstrap.allgather(bootstrap.ctx, mine, size, all) < 0)
			rank->failure = "allgather";
		for (size_t i = 0; i < size * RANKS && !rank->failure; i++) {
			if (all[i] != (uint8_t)((int)(i / size) * 50 + round))
				rank->failure = "contents";
		}
		if (size == 0)
			size = 1;
	}
	snprintf(rank->text, sizeof(rank->text), "%s", frl_last_error());
	bootstrap.close(bootstrap.ctx);
	free(mine);
	free(all);
	return NULL;
}

START_TEST(allgather_between_threads)
{
	struct rank ranks[RANKS];

	for (int i = 0; i < RANKS; i++) {
		ranks[i] = (struct rank){ .number = i };
		pthread_create(&ranks[i].thread, NULL, gather_rounds, &ranks[i]);
		usleep(2000);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(
			!ranks[i].failure, "rank %d: %s: %s", i, ranks[i].failure, ranks[i].text);
}
END_TEST

enum { MAILS = 200, WRITERS = 3 };

/* The mail that a rank got from each other one: the number of the next mail; a larger one: they
 * were out of order. */
struct letters {
	_Atomic int next[WRITERS];
};

static void take_letter(void *arg, int rank, const void *data, size_t size)
{
	struct letters *letters = arg;
	int number;

	memcpy(&number, data, sizeof(number));
	if (size == sizeof(number) && number == letters->next[rank])
		letters->next[rank]++;
	else
		letters->next[rank] = 2 * MAILS;
}

/* Ranks of one process share one connection. Rank 2 is a process of its own, which sends its mail
 * back to rank 0. */
static void send_back(void *arg, int rank, const void *data, size_t size)
{
	struct frl_bootstrap *bootstrap = arg;

	bootstrap->post(bootstrap->ctx, 0, data, size);
}

static pid_t echo_elsewhere(void)
{
	struct frl_bootstrap bootstrap;
	int fds[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (frl_bootstrap_join("test", 2, WRITERS, JOIN_MS, &bootstrap) < 0)
			_exit(1);
		bootstrap.set_receiver(bootstrap.ctx, send_back, &bootstrap);
		if (write(fds[1], "+", 1) == 1)
			pause();
		_exit(1);
	}
	close(fds[1]);
	ck_assert_int_eq(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	return pid;
}

START_TEST(mail_between_processes)
{
	pid_t echo = echo_elsewhere();
	struct frl_bootstrap ranks[2] = { join(0, WRITERS), join(1, WRITERS) };
	struct letters letters[2] = { 0 };

	for (int i = 0; i < 2; i++)
		ranks[i].set_receiver(ranks[i].ctx, take_letter, &letters[i]);
	for (int i = 0; i < MAILS; i++) {
		ck_assert_int_eq(ranks[0].post(ranks[0].ctx, 1, &i, sizeof(i)), 0);
		ck_assert_int_eq(ranks[0].post(ranks[0].ctx, 2, &i, sizeof(i)), 0);
		ck_assert_int_eq(ranks[1].post(ranks[1].ctx, 0, &i, sizeof(i)), 0);
	}
	for (uint64_t limit_ns = hang_limit_ns(); may_wait(limit_ns) &&
		(letters[0].next[1] < MAILS || letters[0].next[2] < MAILS ||
			letters[1].next[0] < MAILS);)
		usleep(1000);
	ck_assert_int_eq(letters[0].next[1], MAILS);
	ck_assert_int_eq(letters[0].next[2], MAILS);
	ck_assert_int_eq(letters[1].next[0], MAILS);
	for (int i = 0; i < 2; i++)
		ranks[i].close(ranks[i].ctx);
	kill_process(echo);
}
END_TEST

START_TEST(death_is_told_to_all)
{
	pid_t victim = join_elsewhere(1, 3);
	struct frl_bootstrap first = join(0, 3), last;
	uint8_t mine = 1, all[3];
	int gone = -5;

	ck_assert_int_eq(first.check(first.ctx, &gone), 0);
	kill_process(victim);
	ck_assert_int_eq(wait_for_check(&first, &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 is gone: process"));
	ck_assert_int_eq(first.allgather(first.ctx, &mine, 1, all), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 is gone"));
	/* A rank that joins later is notified, too. */
	last = join(2, 3);
	gone = -5;
	ck_assert_int_eq(wait_for_check(&last, &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	first.close(first.ctx);
	last.close(last.ctx);
}
END_TEST

static void *kill_soon(void *arg)
{
	usleep(100 * 1000);
	kill_process(*(pid_t *)arg);
	return NULL;
}

START_TEST(death_ends_an_allgather)
{
	pid_t victim = join_elsewhere(1, 2);
	struct frl_bootstrap rank = join(0, 2);
	uint8_t mine = 1, all[2];
	pthread_t thread;

	pthread_create(&thread, NULL, kill_soon, &victim);
	ck_assert_int_eq(rank.allgather(rank.ctx, &mine, 1, all), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 is gone"));
	pthread_join(thread, NULL);
	rank.close(rank.ctx);
}
END_TEST

START_TEST(giving_up_is_told_and_death_comes_first)
{
	pid_t victim = join_elsewhere(2, 3);
	struct frl_bootstrap ranks[2] = { join(0, 3), join(1, 3) };
	int gone = -5;

	ranks[1].abort(ranks[1].ctx, "the tests\nare tired");
	ck_assert_int_eq(wait_for_check(&ranks[0], &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "gave up: the tests?are tired"));
	kill_process(victim);
	for (uint64_t limit_ns = hang_limit_ns(); may_wait(limit_ns) && gone != 2;) {
		ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), -ECONNRESET);
		usleep(1000);
	}
	ck_assert_int_eq(gone, 2);
	for (int i = 0; i < 2; i++)
		ranks[i].close(ranks[i].ctx);
}
END_TEST

START_TEST(good_bye_is_no_death)
{
	struct frl_bootstrap ranks[2] = { join(0, 2), join(1, 2) };
	uint8_t mine = 1, all[2];
	int gone = -5;

	ranks[1].close(ranks[1].ctx);
	for (uint64_t limit_ns = hang_limit_ns();
		may_wait(limit_ns) && !ranks[0].has_left(ranks[0].ctx, 1);) {
		ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
		usleep(1000);
	}
	ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
	ck_assert(ranks[0].has_left(ranks[0].ctx, 1));
	ck_assert(!ranks[0].has_left(ranks[0].ctx, 0));
	ck_assert(!ranks[0].has_left(ranks[0].ctx, 2));
	ck_assert(!ranks[0].has_left(ranks[0].ctx, -1));
	/* But it will never give its piece. */
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1"));
	ranks[0].close(ranks[0].ctx);
}
END_TEST

START_TEST(a_name_can_be_used_again)
{
	struct frl_bootstrap rank = join(0, 2);

	rank.close(rank.ctx);
	rank = join(0, 3);
	rank.close(rank.ctx);
}
END_TEST

START_TEST(the_end_of_the_daemon_is_noticed)
{
	struct frl_bootstrap rank = join(0, 2);
	uint8_t mine = 1, all[2];
	int gone = -5;

	set_control_lost(1);
	stop_daemon();
	ck_assert_int_eq(wait_for_check(&rank, &gone), -ECONNRESET);
	ck_assert_int_eq(gone, -1);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "was not back within 1 s"));
	set_control_lost(HANG_S);
	ck_assert_int_eq(rank.allgather(rank.ctx, &mine, 1, all), -ECONNRESET);
	rank.abort(rank.ctx, NULL);
	rank.close(rank.ctx);
}
END_TEST

static void *gather_soon(void *arg)
{
	struct frl_bootstrap *rank = arg;
	uint8_t mine = 1, all[3];

	return rank->allgather(rank->ctx, &mine, 1, all) == 0 ? rank : NULL;
}

static void gather_both(struct frl_bootstrap ranks[2])
{
	uint8_t mine = 1, all[2];
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, gather_soon, &ranks[1]);
	ck_assert_msg(ranks[0].allgather(ranks[0].ctx, &mine, 1, all) == 0, "%s", frl_last_error());
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);
}

START_LOOP_TEST(a_group_outlives_its_daemon, 2)
{
	struct frl_bootstrap ranks[2] = { join(0, 2), join(1, 2) };
	int gone = -5;

	for (int i = 0; i < 3; i++) {
		if (_i == 1 || i > 0)
			gather_both(ranks);
		stop_daemon();
		ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
		start_daemon();
	}
	gather_both(ranks);
	ranks[1].close(ranks[1].ctx);
	for (uint64_t limit_ns = hang_limit_ns();
		may_wait(limit_ns) && !ranks[0].has_left(ranks[0].ctx, 1);)
		usleep(1000);
	ck_assert(ranks[0].has_left(ranks[0].ctx, 1));
	ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
	ranks[0].close(ranks[0].ctx);
}
END_TEST

/* The piece of one is lost with the daemon; the other gives its own to the next one. */
START_TEST(an_allgather_outlives_its_daemon)
{
	struct frl_bootstrap ranks[2] = { join(0, 2), join(1, 2) };
	uint8_t mine = 1, all[2];
	pthread_t thread;
	void *result;

	for (int i = 0; i < 3; i++) {
		pthread_create(&thread, NULL, gather_soon, &ranks[1]);
		usleep(20 * 1000);
		stop_daemon();
		start_daemon();
		ck_assert_msg(ranks[0].allgather(ranks[0].ctx, &mine, 1, all) == 0, "%s",
			frl_last_error());
		pthread_join(thread, &result);
		ck_assert_ptr_nonnull(result);
	}
	for (int i = 0; i < 2; i++)
		ranks[i].close(ranks[i].ctx);
}
END_TEST

static atomic_uint n_said;

static void count_said(enum frl_log_level level, const char *line, void *arg)
{
	if (level == FRL_LOG_WARNING && strstr(line, arg))
		n_said++;
}

/* A rank that waits for another one reports it by its number. */
START_TEST(a_long_wait_is_said)
{
	static char missing[] = "job test: waiting for rank 1, 2 of 3: all need the same user";
	struct frl_bootstrap ranks[3] = { join(0, 3) };
	uint64_t limit_ns = hang_limit_ns();
	pthread_t threads[2];
	uint8_t mine = 1, all[3];
	void *result;

	limits_expire(REMIND_MS);
	frl_set_log(count_said, FRL_LOG_WARNING, missing);
	pthread_create(&threads[0], NULL, gather_soon, &ranks[0]);
	while (may_wait(limit_ns) && !n_said)
		usleep(1000);
	ck_assert_uint_eq(n_said, 1);
	limits_expire(0);
	ranks[1] = join(1, 3);
	ranks[2] = join(2, 3);
	pthread_create(&threads[1], NULL, gather_soon, &ranks[1]);
	ck_assert_int_eq(ranks[2].allgather(ranks[2].ctx, &mine, 1, all), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &result);
		ck_assert_ptr_nonnull(result);
	}
	ck_assert_uint_eq(n_said, 1);
	for (int i = 0; i < 3; i++)
		ranks[i].close(ranks[i].ctx);
}
END_TEST

TEST_MAIN(bootstrap)
{
	set_socket_path();
	return run_suite(all_tests(start_daemon, stop_daemon));
}
