/* SPDX-License-Identifier: BSD-3-Clause */
/* The rendezvous: threads as ranks, deaths, strangers, refusals, timeouts. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferrule/connect.h>

#include "collectives/rendezvous_address.h"
#include "collectives/rendezvous_wire.h"

enum { RANKS = 5, JOIN_MS = 3000, ROUNDS = 20 };

static const char *const servers[] = { "unix:@ferrule-test-%d", "unix:/tmp/ferrule-test-%d",
	"tcp:127.0.0.1:0", "tcp:[::1]:0" };

enum { ADDRESSES = sizeof(servers) / sizeof(servers[0]) };

static struct frl_rendezvous *serve(int which, int ranks)
{
	struct frl_rendezvous *server = NULL;
	char address[100];
	int err;

	if (which < 2)
		snprintf(address, sizeof(address),
			which == 0 ? "unix:@ferrule-test-%d" : "unix:/tmp/ferrule-test-%d",
			(int)getpid());
	else
		strcpy(address, servers[which]);
	err = frl_rendezvous_start(address, ranks, &server);
	if (which == 3 && (err == -EADDRNOTAVAIL || err == -EAFNOSUPPORT))
		return NULL; /* no IPv6 here */
	ck_assert_msg(err == 0, "%s", frl_last_error());
	return server;
}

static struct frl_bootstrap join(struct frl_rendezvous *server, int rank, int ranks)
{
	struct frl_bootstrap bootstrap = { 0 };
	int err = frl_rendezvous_join(
		frl_rendezvous_address(server), rank, ranks, JOIN_MS, &bootstrap);

	ck_assert_msg(err == 0, "%s", frl_last_error());
	return bootstrap;
}

/* A TCP or Unix connection that has not said anything yet. */
static int connect_as_stranger(struct frl_rendezvous *server)
{
	struct rendezvous_addresses addresses;
	const struct rendezvous_address *first = &addresses.list[0];
	int fd;

	ck_assert_int_eq(rendezvous_resolve(frl_rendezvous_address(server), &addresses), 0);
	fd = socket(first->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, &first->any, first->length), 0);
	return fd;
}

/* Dies as a process does: the socket closes, nothing is said. */
static void die(struct frl_bootstrap *bootstrap)
{
	/* The client's first member is its socket; closing it for good is left to close(). */
	shutdown(*(int *)bootstrap->ctx, SHUT_RDWR);
}

static int wait_for_check(struct frl_bootstrap *bootstrap, int *ret_rank)
{
	for (int i = 0; i < 2000; i++) {
		int err = bootstrap->check(bootstrap->ctx, ret_rank);

		if (err)
			return err;
		usleep(1000);
	}
	return 0;
}

struct rank {
	pthread_t thread;
	struct frl_rendezvous *server;
	int number;
	const char *failure; /* Check's asserts are not for threads */
};

static void *gather_rounds(void *arg)
{
	struct rank *rank = arg;
	struct frl_bootstrap bootstrap;
	size_t size = 1;
	uint8_t *mine, *all;

	if (frl_rendezvous_join(frl_rendezvous_address(rank->server), rank->number, RANKS, JOIN_MS,
		    &bootstrap) < 0) {
		rank->failure = "join";
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
	bootstrap.close(bootstrap.ctx);
	free(mine);
	free(all);
	return NULL;
}

START_TEST(allgather_between_threads)
{
	struct frl_rendezvous *server = serve(_i, RANKS);
	struct rank ranks[RANKS];

	if (!server)
		return;
	for (int i = 0; i < RANKS; i++) {
		ranks[i] = (struct rank){ .server = server, .number = i };
		pthread_create(&ranks[i].thread, NULL, gather_rounds, &ranks[i]);
		usleep(2000);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(!ranks[i].failure, "rank %d: %s: %s", i, ranks[i].failure,
			frl_last_error());
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(death_is_told_to_all)
{
	struct frl_rendezvous *server = serve(_i, 3);
	struct frl_bootstrap ranks[3];
	uint8_t mine = 1, all[3];
	int gone = -5;

	if (!server)
		return;
	for (int i = 0; i < 2; i++)
		ranks[i] = join(server, i, 3);
	ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
	die(&ranks[1]);
	ck_assert_int_eq(wait_for_check(&ranks[0], &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 is gone"));
	/* Who joins later learns it too. */
	ranks[2] = join(server, 2, 3);
	gone = -5;
	ck_assert_int_eq(wait_for_check(&ranks[2], &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	for (int i = 0; i < 3; i++)
		ranks[i].close(ranks[i].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

static void *die_soon(void *arg)
{
	usleep(100 * 1000);
	die(arg);
	return NULL;
}

START_TEST(death_ends_an_allgather)
{
	struct frl_rendezvous *server = serve(0, 2);
	struct frl_bootstrap ranks[2] = { join(server, 0, 2), join(server, 1, 2) };
	uint64_t start = rendezvous_now_ms();
	uint8_t mine = 1, all[2];
	pthread_t thread;

	pthread_create(&thread, NULL, die_soon, &ranks[1]);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 is gone"));
	ck_assert_uint_lt(rendezvous_now_ms() - start, 2000);
	pthread_join(thread, NULL);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(giving_up_is_told_and_death_comes_first)
{
	struct frl_rendezvous *server = serve(0, 3);
	struct frl_bootstrap ranks[3] = { join(server, 0, 3), join(server, 1, 3),
		join(server, 2, 3) };
	int gone = -5;

	ranks[1].abort(ranks[1].ctx);
	ck_assert_int_eq(wait_for_check(&ranks[0], &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	die(&ranks[2]);
	for (int i = 0; i < 2000 && gone != 2; i++) {
		ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), -ECONNRESET);
		usleep(1000);
	}
	ck_assert_int_eq(gone, 2);
	for (int i = 0; i < 3; i++)
		ranks[i].close(ranks[i].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(good_bye_is_no_death)
{
	struct frl_rendezvous *server = serve(_i, 2);
	struct frl_bootstrap ranks[2];
	uint8_t mine = 1, all[2];
	int gone = -5;

	if (!server)
		return;
	ranks[0] = join(server, 0, 2);
	ranks[1] = join(server, 1, 2);
	ranks[1].close(ranks[1].ctx);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
		usleep(1000);
	}
	ck_assert(ranks[0].has_left(ranks[0].ctx, 1));
	ck_assert(!ranks[0].has_left(ranks[0].ctx, 0));
	ck_assert(!ranks[0].has_left(ranks[0].ctx, 2));
	ck_assert(!ranks[0].has_left(ranks[0].ctx, -1));
	/* But it will never give its piece. */
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1"));
	ranks[0].close(ranks[0].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(server_end_is_noticed)
{
	struct frl_rendezvous *server = serve(_i, 2);
	struct frl_bootstrap rank;
	int gone = -5;

	if (!server)
		return;
	rank = join(server, 0, 2);
	frl_rendezvous_stop(server);
	ck_assert_int_eq(wait_for_check(&rank, &gone), -ECONNRESET);
	ck_assert_int_eq(gone, -1);
	rank.abort(rank.ctx);
	rank.close(rank.ctx);
}
END_TEST

START_TEST(refusals)
{
	struct frl_rendezvous *server = serve(0, 2);
	const char *address = frl_rendezvous_address(server);
	struct frl_bootstrap rank = join(server, 1, 2), other;
	int gone;

	ck_assert_int_eq(frl_rendezvous_join(address, 1, 2, 500, &other), -EEXIST);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 1 has joined before"));
	ck_assert_int_eq(frl_rendezvous_join(address, 2, 3, 500, &other), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "2 ranks, not 3"));
	ck_assert_int_eq(frl_rendezvous_join(address, 2, 2, 500, &other), -EINVAL);
	ck_assert_int_eq(frl_rendezvous_join(address, -1, 2, 500, &other), -EINVAL);
	ck_assert_int_eq(frl_rendezvous_join(NULL, 0, 2, 500, &other), -EINVAL);
	ck_assert_int_eq(rank.check(rank.ctx, &gone), 0);
	rank.close(rank.ctx);
	frl_rendezvous_stop(server);
}
END_TEST

static const struct {
	const char *bytes;
	size_t size;
} garbage[] = {
	{ "GET / HTTP/1.1\r\n\r\n", 18 },
	{ "F", 1 },
	{ "FRL", 3 },
	{ "FRLV\1\1\0\0\377\377\377\377", 12 },
	{ "FRLV\1\1\0\0\0\0\0\5hello", 17 },
	{ "FRLV\1\4\0\0\0\0\0\5\0\0\0\0x", 17 },
	{ "FRLV\1\6\0\0\0\0\0\0", 12 },
	{ "FRLV\2\1\0\0\0\0\0\10\0\0\0\0\0\0\0\2", 20 },
	{ "FRLV\1\1\0\0\0\0\0\10\377\377\377\377\0\0\0\2", 20 },
};

START_TEST(strangers_disturb_nobody)
{
	struct frl_rendezvous *server = serve(_i, 2);
	struct frl_bootstrap ranks[2];
	uint8_t mine = 7, all[2];
	int strangers[80], gone, n = 0;

	if (!server)
		return;
	ranks[0] = join(server, 0, 2);
	for (; n < 80; n++) {
		size_t row = (size_t)n % (sizeof(garbage) / sizeof(garbage[0]));

		strangers[n] = connect_as_stranger(server);
		ck_assert_int_ge(
			send(strangers[n], garbage[row].bytes, garbage[row].size, MSG_NOSIGNAL),
			-1);
	}
	ranks[1] = join(server, 1, 2);
	ck_assert_int_eq(ranks[0].check(ranks[0].ctx, &gone), 0);
	ck_assert_int_eq(ranks[1].check(ranks[1].ctx, &gone), 0);
	die(&ranks[1]);
	ck_assert_int_eq(wait_for_check(&ranks[0], &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), -ECONNRESET);
	while (n > 0)
		close(strangers[--n]);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(silent_strangers_are_closed)
{
	struct frl_rendezvous *server = serve(0, 1);
	int fd = connect_as_stranger(server);
	uint64_t start = rendezvous_now_ms();
	char byte;

	ck_assert_int_eq(send(fd, "FRLV", 4, MSG_NOSIGNAL), 4);
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	ck_assert_uint_ge(rendezvous_now_ms() - start, 4000);
	ck_assert_uint_le(rendezvous_now_ms() - start, 8000);
	close(fd);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(a_rank_that_talks_nonsense_is_dead)
{
	struct frl_rendezvous *server = serve(0, 2);
	struct frl_bootstrap ranks[2] = { join(server, 0, 2), join(server, 1, 2) };
	int gone = -5;

	ck_assert_int_eq(send(*(int *)ranks[1].ctx, "rubbish", 7, MSG_NOSIGNAL), 7);
	ck_assert_int_eq(wait_for_check(&ranks[0], &gone), -ECONNRESET);
	ck_assert_int_eq(gone, 1);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(timeouts)
{
	struct frl_rendezvous *server = serve(0, 3);
	struct frl_bootstrap rank = join(server, 1, 3), other;
	uint8_t mine = 1, all[3];
	uint64_t start = rendezvous_now_ms();

	frl_rendezvous_set_timeout(&rank, 100);
	ck_assert_int_eq(rank.allgather(rank.ctx, &mine, 1, all), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rank 0, 2"));
	ck_assert_uint_ge(rendezvous_now_ms() - start, 100);
	rank.close(rank.ctx);
	frl_rendezvous_stop(server);
	start = rendezvous_now_ms();
	ck_assert_int_eq(
		frl_rendezvous_join("unix:@ferrule-nobody", 0, 2, 200, &other), -ETIMEDOUT);
	ck_assert_uint_ge(rendezvous_now_ms() - start, 150);
	ck_assert_uint_le(rendezvous_now_ms() - start, 2000);
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
	struct frl_rendezvous *server = serve(0, 2);
	struct frl_bootstrap ranks[2] = { join(server, 0, 2), join(server, 1, 2) };
	uint8_t mine = 1, all[2];
	pthread_t thread;
	void *result;

	frl_rendezvous_set_timeout(&ranks[0], -1);
	pthread_create(&thread, NULL, gather_late, &ranks[1]);
	ck_assert_int_eq(ranks[0].allgather(ranks[0].ctx, &mine, 1, all), 0);
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
	frl_rendezvous_stop(server);
}
END_TEST

static void *read_late(void *arg)
{
	struct frl_bootstrap *rank = arg;
	size_t want = FRAME_HEADER + PIECE_HEADER + GATHER_MAX, have = 0;
	int fd = *(int *)rank->ctx;
	uint8_t bytes[4096];

	usleep(100 * 1000);
	while (have < want) {
		ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

		if (n < 0 && errno == EAGAIN)
			usleep(1000);
		else if (n <= 0)
			return NULL;
		else
			have += (size_t)n;
	}
	return rank;
}

static void *gather_much(void *arg)
{
	struct frl_bootstrap *rank = arg;
	uint8_t *mine = calloc(1, GATHER_MAX), *all = malloc(2 * GATHER_MAX);
	int err = rank->allgather(rank->ctx, mine, GATHER_MAX, all);

	free(mine);
	free(all);
	return err == 0 ? rank : NULL;
}

/* What rank 0 has had, rank 1 gets too, though it reads late and no socket holds that much. */
START_TEST(stop_gives_due_answers)
{
	struct frl_rendezvous *server = serve(_i, 2);
	struct frl_bootstrap ranks[2];
	uint8_t round[4] = { 0 }, header[FRAME_HEADER], *piece = calloc(1, GATHER_MAX);
	pthread_t thread, late;
	void *result;
	int fd;

	if (!server) {
		free(piece);
		return;
	}
	ranks[0] = join(server, 0, 2);
	ranks[1] = join(server, 1, 2);
	pthread_create(&thread, NULL, gather_much, &ranks[0]);
	/* Rank 1 gives its piece and does not look for the other's. */
	fd = *(int *)ranks[1].ctx;
	frame_put_header(header, FRAME_GATHER, 4 + GATHER_MAX);
	ck_assert_int_eq(send(fd, header, sizeof(header), MSG_NOSIGNAL), FRAME_HEADER);
	ck_assert_int_eq(send(fd, round, sizeof(round), MSG_NOSIGNAL), 4);
	for (size_t sent = 0; sent < GATHER_MAX;) {
		ssize_t n = send(fd, piece + sent, GATHER_MAX - sent, MSG_NOSIGNAL);

		ck_assert(n > 0 || errno == EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
	}
	free(piece);
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);
	pthread_create(&late, NULL, read_late, &ranks[1]);
	frl_rendezvous_stop(server);
	pthread_join(late, &result);
	ck_assert_ptr_nonnull(result);
	ranks[0].close(ranks[0].ctx);
	ranks[1].close(ranks[1].ctx);
}
END_TEST

static void *serve_late(void *arg)
{
	usleep(200 * 1000);
	*(struct frl_rendezvous **)arg = serve(0, 1);
	return NULL;
}

START_TEST(join_waits_for_the_server)
{
	struct frl_rendezvous *server = NULL;
	struct frl_bootstrap rank;
	char address[100];
	pthread_t thread;
	uint8_t mine = 9, all = 0;

	snprintf(address, sizeof(address), "unix:@ferrule-test-%d", (int)getpid());
	pthread_create(&thread, NULL, serve_late, &server);
	ck_assert_int_eq(frl_rendezvous_join(address, 0, 1, JOIN_MS, &rank), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(rank.allgather(rank.ctx, &mine, 1, &all), 0);
	ck_assert_uint_eq(all, 9);
	rank.close(rank.ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(address_in_use)
{
	struct frl_rendezvous *server = serve(_i, 1), *second = NULL;

	if (!server)
		return;
	ck_assert_int_eq(
		frl_rendezvous_start(frl_rendezvous_address(server), 1, &second), -EADDRINUSE);
	frl_rendezvous_stop(server);
	if (_i == 1) {
		char path[100];

		snprintf(path, sizeof(path), "/tmp/ferrule-test-%d", (int)getpid());
		ck_assert_int_ne(access(path, F_OK), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rendezvous");
	TCase *tcase = tcase_create("rendezvous");
	SRunner *runner = srunner_create(suite);
	int failures;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, allgather_between_threads, 0, ADDRESSES);
	tcase_add_loop_test(tcase, death_is_told_to_all, 0, ADDRESSES);
	tcase_add_test(tcase, death_ends_an_allgather);
	tcase_add_test(tcase, giving_up_is_told_and_death_comes_first);
	tcase_add_loop_test(tcase, good_bye_is_no_death, 0, ADDRESSES);
	tcase_add_loop_test(tcase, server_end_is_noticed, 0, ADDRESSES);
	tcase_add_test(tcase, refusals);
	tcase_add_loop_test(tcase, strangers_disturb_nobody, 0, ADDRESSES);
	tcase_add_test(tcase, silent_strangers_are_closed);
	tcase_add_test(tcase, a_rank_that_talks_nonsense_is_dead);
	tcase_add_test(tcase, timeouts);
	tcase_add_test(tcase, no_timeout);
	tcase_add_loop_test(tcase, stop_gives_due_answers, 0, ADDRESSES);
	tcase_add_test(tcase, join_waits_for_the_server);
	tcase_add_loop_test(tcase, address_in_use, 0, ADDRESSES);
	srunner_run_all(runner, CK_NORMAL);
	failures = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
