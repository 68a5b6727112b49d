/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: introductions of devices of several processes. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixtures/child.h"
#include "tests/fixtures/program.h"
#include "tests/unit/api/connect/gid_fixture.h"

enum { NOBODY = 65534 };

struct report {
	struct frl_ip ip;
	int rc;
};

/* As another user: opens a device, and asks a's device. It lives until the pipe is closed. */
static void live_as_other_user(struct frl_ip to, int report_fd, int keep_fd)
{
	struct report report = { .rc = 0 };
	char byte;

	ck_assert_int_eq(setresuid(NOBODY, NOBODY, NOBODY), 0);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	renew(&b, FRL_QPT_RC, false);
	report.ip = gid_of(&b, 1);
	report.rc = to_rtr(&b, to, 5, MTU);
	ck_assert_int_eq(write(report_fd, &report, sizeof(report)), sizeof(report));
	(void)!read(keep_fd, &byte, 1);
	_exit(0);
}

START_TEST_IF(other_user, geteuid() == 0)
{
	struct report report;
	int to[2], from[2];
	pid_t pid;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	renew(&a, FRL_QPT_RC, false);
	ck_assert(!pipe(to) && !pipe(from));
	pid = start_child();
	if (pid == 0) {
		close(to[1]);
		live_as_other_user(gid_of(&a, 1), from[1], to[0]);
	}
	close(from[1]);
	ck_assert_int_eq(read(from[0], &report, sizeof(report)), sizeof(report));
	ck_assert_int_eq(report.rc, -EACCES);
	refused(to_rtr(&a, report.ip, 5, MTU), -EACCES, "another user");
	ck_assert_uint_eq(links_of(&a), 0);
	close(to[1]);
	child_is_well(pid);
}
END_TEST

/* The parent's device serves its child, and others after that. */
START_LOOP_TEST(forked, 2)
{
	struct frl_ip to;
	pid_t pid;

	open_both(FRL_QPT_RC, false);
	to = gid_of(&a, 1);
	if (_i)
		connect_by_gid(&a);
	pid = start_child();
	if (pid == 0) {
		open_end(&b, false, FRL_PROGRESS_INLINE);
		renew(&b, FRL_QPT_RC, false);
		ok(to_rtr(&b, to, 5, MTU));
		close_end(&b);
		_exit(0);
	}
	child_is_well(pid);
	if (!_i)
		connect_by_gid(&a);
	ok(a.rc);
	connect_by_gid(&b);
	ok(b.rc);
	send_one();
}
END_TEST

TEST_MAIN(api_introduce_fork)
{
	if (test_port()) {
		say_skipped("all_fn", 0, "only the local fabric has introductions");
		return 0;
	}
	return run_suite_forked(all_tests(NULL, close_ends));
}
