/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a rendezvous can be: several addresses of a host, sockets left behind, other users. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/connect.h>

#include "collectives/rendezvous_address.h"

enum { JOIN_MS = 3000 };

/* A host of several addresses: the server is at one of them, clients find it. */
START_TEST(addresses_of_a_host)
{
	struct rendezvous_addresses addresses;
	struct frl_rendezvous *server = NULL;
	struct frl_bootstrap rank;
	char address[100];
	const char *colon;

	ck_assert_int_eq(frl_rendezvous_start("tcp:127.0.0.1:0", 1, &server), 0);
	colon = strrchr(frl_rendezvous_address(server), ':');
	/* "[::]" is first an IPv6 address, where nobody listens. */
	snprintf(address, sizeof(address), _i == 0 ? "tcp:[::]%s" : "tcp:localhost%s", colon);
	/* A container may have no name for itself. */
	if (rendezvous_resolve(address, &addresses) != 0) {
		ck_assert_int_eq(_i, 1);
		frl_rendezvous_stop(server);
		return;
	}
	ck_assert_msg(
		frl_rendezvous_join(address, 0, 1, JOIN_MS, &rank) == 0, "%s", frl_last_error());
	rank.close(rank.ctx);
	frl_rendezvous_stop(server);
}
END_TEST

START_TEST(any_address_is_for_both_families)
{
	struct frl_rendezvous *server = NULL;
	struct frl_bootstrap rank;
	char address[100];

	ck_assert_msg(frl_rendezvous_start("tcp:[::]:0", 2, &server) == 0, "%s", frl_last_error());
	ck_assert_msg(
		frl_rendezvous_join(frl_rendezvous_address(server), 0, 2, JOIN_MS, &rank) == 0,
		"%s", frl_last_error());
	rank.close(rank.ctx);
	snprintf(address, sizeof(address), "tcp:127.0.0.1%s",
		strrchr(frl_rendezvous_address(server), ':'));
	ck_assert_msg(
		frl_rendezvous_join(address, 1, 2, JOIN_MS, &rank) == 0, "%s", frl_last_error());
	rank.close(rank.ctx);
	frl_rendezvous_stop(server);
}
END_TEST

/* A killed server leaves its socket; a file that is none stays. */
START_TEST(left_socket)
{
	struct frl_rendezvous *server = NULL;
	struct rendezvous_addresses addresses;
	char address[100];
	const char *path = address + 5;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address, sizeof(address), "unix:/tmp/ferrule-left-%d", (int)getpid());
	ck_assert_int_eq(rendezvous_resolve(address, &addresses), 0);
	ck_assert_int_eq(bind(fd, &addresses.list[0].any, addresses.list[0].length), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(frl_rendezvous_start(address, 1, &server), -EADDRINUSE);
	close(fd);
	ck_assert_msg(frl_rendezvous_start(address, 1, &server) == 0, "%s", frl_last_error());
	frl_rendezvous_stop(server);
	ck_assert_int_ne(access(path, F_OK), 0);
	fclose(fopen(path, "w"));
	ck_assert_int_eq(frl_rendezvous_start(address, 1, &server), -EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "a file of that name"));
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* In a process of another user: 0 when it is refused for that. */
static int join_as_nobody(const char *address)
{
	struct frl_bootstrap rank;

	if (setgid(65534) || setuid(65534))
		return 1;
	if (frl_rendezvous_join(address, 0, 2, JOIN_MS, &rank) != -ECONNREFUSED)
		return 2;
	return strstr(frl_last_error(), "another user") ? 0 : 3;
}

START_TEST(other_users_are_refused)
{
	struct frl_rendezvous *server = NULL;
	char address[100];
	int status = -1;
	pid_t child;

	if (geteuid() != 0)
		return;
	snprintf(address, sizeof(address), "unix:@ferrule-test-%d", (int)getpid());
	child = fork(); /* before there is a thread */
	if (child == 0)
		_exit(join_as_nobody(address));
	ck_assert_msg(frl_rendezvous_start(address, 2, &server) == 0, "%s", frl_last_error());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	frl_rendezvous_stop(server);
}
END_TEST

static const struct {
	const char *address;
	int ranks;
	int err;
} bad_starts[] = {
	{ NULL, 1, -EINVAL },
	{ "", 1, -EINVAL },
	{ "unix:", 1, -EINVAL },
	{ "unix:@", 1, -EINVAL },
	{ "tcp:", 1, -EINVAL },
	{ "tcp:127.0.0.1", 1, -EINVAL },
	{ "tcp::1", 1, -EINVAL },
	{ "tcp:127.0.0.1:", 1, -EINVAL },
	{ "tcp:::1:0", 1, -EINVAL },
	{ "tcp:[]:1", 1, -EINVAL },
	{ "tcp:127.0.0.1:x", 1, -EINVAL },
	{ "udp:1", 1, -EINVAL },
	{ "unix:@x", 0, -EINVAL },
	{ "unix:@x", -1, -EINVAL },
	{ "unix:/nowhere/at/all", 1, -ENOENT },
};

START_TEST(bad_addresses)
{
	struct frl_rendezvous *server = NULL;

	ck_assert_int_eq(
		frl_rendezvous_start(bad_starts[_i].address, bad_starts[_i].ranks, &server),
		bad_starts[_i].err);
	ck_assert_ptr_null(server);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rendezvous_addresses");
	TCase *tcase = tcase_create("rendezvous_addresses");
	SRunner *runner = srunner_create(suite);
	int failures;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, addresses_of_a_host, 0, 2);
	tcase_add_test(tcase, any_address_is_for_both_families);
	tcase_add_test(tcase, left_socket);
	tcase_add_test(tcase, other_users_are_refused);
	tcase_add_loop_test(
		tcase, bad_addresses, 0, (int)(sizeof(bad_starts) / sizeof(bad_starts[0])));
	srunner_run_all(runner, CK_NORMAL);
	failures = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
