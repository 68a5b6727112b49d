/* SPDX-License-Identifier: BSD-3-Clause */
/* Introductions on the local fabric: devices of other users, and a process without descriptors. */
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/fixtures/program.h"
#include "tests/unit/drivers/local/introduction_fixture.h"

enum { NOBODY = 65534 };

static void send_as_other_user(void)
{
	struct introduction_message message = question();
	struct pollfd state = { .events = POLLRDHUP };

	if (setresuid(NOBODY, NOBODY, NOBODY))
		_exit(1);
	for (int i = 0; i < 2 * FABRIC_PENDING_CLIENTS; i++)
		state.fd = connect_to_other();
	(void)handshake_send(state.fd, &message, sizeof(message));
	poll(&state, 1, -1);
	_exit(0);
}

/* Another user's clients are dropped unread, and need no place. The asking end does not even send
 * its nonce. */
START_TEST_IF(other_user, geteuid() == 0)
{
	int status, fd;
	pid_t pid;

	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		send_as_other_user();
	while (waitpid(pid, &status, WNOHANG) == 0) {
		step(&other);
		ck_assert_uint_eq(other.introductions->clients.n_pending, 0);
	}
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(other.n_accepted, 0);
	ck_assert_int_eq(seteuid(NOBODY), 0);
	ck_assert_int_eq(introductions_start(asker.introductions, &other.own.ip), -EACCES);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert(strstr(frl_last_error(), "another user"));
	ck_assert(is_idle(&asker));
	fd = handshake_accept(other.introductions->clients.listen_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(handshake_receive(fd, &status, sizeof(status)), -EPIPE);
	close(fd);
}
END_TEST

/* In a user namespace that maps no user, all have the same id, and this process, too. */
START_TEST(unknown_user)
{
	struct introduction_message message = question();
	int fd;

	/* Not everybody may make one. */
	if (unshare(CLONE_NEWUSER))
		return;
	ck_assert_int_eq(introductions_start(asker.introductions, &other.own.ip), -EACCES);
	ck_assert(strstr(frl_last_error(), "user namespace"));
	ck_assert(is_idle(&asker));
	fd = connect_to_other();
	(void)handshake_send(fd, &message, sizeof(message));
	is_refused(fd);
}
END_TEST

/* Without descriptors, a device tries seldom, and only if somebody has connected. */
START_TEST(no_descriptor_to_accept)
{
	struct rlimit before, limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	step(&other);
	ck_assert_uint_eq(pass.wake_ns, UINT64_MAX);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ask();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	step(&other);
	ck_assert_uint_eq(pass.wake_ns, now_ns + SECOND_NS / 10);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	now_ns += SECOND_NS / 10;
	step(&other);
	ck_assert_uint_eq(other.n_accepted, 1);
}
END_TEST

TEST_MAIN(introduction_users)
{
	return run_suite_forked(all_tests(setup, teardown));
}
