/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that a bootstrap through a real daemon refuses, and events that it does not wait for. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixtures/bootstrap_fixture.h"
#include "tests/fixtures/program.h"

START_TEST(refusals)
{
	struct frl_bootstrap rank = join(1, 2), other;
	char host[300];
	int gone;

	ck_assert_int_eq(frl_bootstrap_join("test", 1, 2, JOIN_MS, &other), -EEXIST);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 of job 'test' has joined before"));
	ck_assert_int_eq(frl_bootstrap_join("test", 2, 3, JOIN_MS, &other), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "2 ranks, not 3"));
	ck_assert_int_eq(frl_bootstrap_join("test", 2, 2, JOIN_MS, &other), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_join("test", -1, 2, JOIN_MS, &other), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_join(NULL, 0, 2, JOIN_MS, &other), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_join("", 0, 2, JOIN_MS, &other), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_join("te st", 0, 2, JOIN_MS, &other), -EINVAL);
	ck_assert_int_eq(frl_bootstrap_join("test@", 0, 2, JOIN_MS, &other), -EINVAL);
	memset(host, 'h', sizeof(host) - 1);
	memcpy(host, "test@", 5);
	host[sizeof(host) - 1] = '\0';
	ck_assert_int_eq(frl_bootstrap_join(host, 0, 2, JOIN_MS, &other), -EINVAL);
	ck_assert_int_eq(rank.check(rank.ctx, &gone), 0);
	rank.close(rank.ctx);
}
END_TEST

START_TEST(no_daemon)
{
	struct frl_bootstrap rank;

	stop_daemon();
	ck_assert_int_eq(frl_bootstrap_join("test", 0, 2, JOIN_MS, &rank), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), socket_path));
}
END_TEST

START_TEST(timeouts)
{
	struct frl_bootstrap rank = join(1, 3);
	uint8_t mine = 1, all[3];
	uint64_t start = now_ms();

	frl_bootstrap_set_timeout(&rank, 100);
	ck_assert_int_eq(rank.allgather(rank.ctx, &mine, 1, all), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 0, 2"));
	ck_assert_uint_ge(now_ms() - start, 100);
	ck_assert_int_eq(rank.allgather(rank.ctx, &mine, 1, all), -ECONNRESET);
	rank.close(rank.ctx);
}
END_TEST

/* A daemon that accepts connections and never answers. */
START_TEST(a_daemon_that_hangs)
{
	struct frl_bootstrap rank;
	uint64_t start;

	kill(daemon_pid, SIGSTOP);
	start = now_ms();
	ck_assert_int_eq(frl_bootstrap_join("test", 0, 2, 300, &rank), -ETIMEDOUT);
	ck_assert_uint_ge(now_ms() - start, 300);
	kill(daemon_pid, SIGCONT);
}
END_TEST

static void *gather_late(void *arg)
{
	struct frl_bootstrap *rank = arg;
	uint8_t mine = 1, all[2];

	usleep(300 * 1000);
	return rank->allgather(rank->ctx, &mine, 1, all) == 0 ? rank : NULL;
}

START_TEST(no_timeout)
{
	struct frl_bootstrap ranks[2] = { join(0, 2), join(1, 2) };
	uint8_t mine = 1, all[2];
	pthread_t thread;
	void *result;

	frl_bootstrap_set_timeout(&ranks[0], -1);
	pthread_create(&thread, NULL, gather_late, &ranks[1]);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), 0);
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
}
END_TEST

START_TEST(ranks_that_differ)
{
	struct frl_bootstrap ranks[2] = { join(0, 2), join(1, 2) };
	uint8_t mine[2] = { 1 }, all[4];
	pthread_t thread;

	pthread_create(&thread, NULL, gather_late, &ranks[1]);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, mine, 2, all), -EPROTO);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 sent 1 bytes, this rank 2"));
	pthread_join(thread, NULL);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, mine, GATHER_MAX + 1, all), -EINVAL);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
}
END_TEST

TEST_MAIN(bootstrap_refusals)
{
	set_socket_path();
	return run_suite(all_tests(start_daemon, stop_daemon));
}
