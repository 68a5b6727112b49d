/* SPDX-License-Identifier: BSD-3-Clause */
/* A test file leaves nothing behind, however it ends. Another process of this program runs it
 * (program_leaves, below): it starts processes and makes a folder. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixtures/program.h"

static const struct row {
	const char *end; /* of the file */
	bool is_stopped; /* its program is ended by a signal before that */
	int status;
} rows[] = {
	{ "pass", false, EXIT_SUCCESS << 8 },
	{ "fail", false, EXIT_FAILURE << 8 },
	{ "crash", false, EXIT_FAILURE << 8 },
	{ "hang", true, SIGTERM },
};

enum { REPORT_FD = 40 };

static pid_t run_leaves(const struct row *row, int report)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (dup2(report, REPORT_FD) < 0 || !freopen("/dev/null", "w", stdout))
		_exit(127);
	setenv("FRL_TEST_LEAVES", row->end, 1);
	setenv("CK_FORK", "no", 1);
	unsetenv("CK_RUN_CASE");
	execl("/proc/self/exe", "test", "program_leaves", (char *)NULL);
	_exit(127);
}

START_TEST(leaves_nothing)
{
	const struct row *row = &rows[_i];
	char folder[32] = "";
	int ends[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	pid = run_leaves(row, ends[1]);
	close(ends[1]);
	/* All that it leaves exists by now. */
	ck_assert_int_eq(read(ends[0], folder, sizeof(folder)), sizeof(folder));
	if (row->is_stopped)
		ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, row->status);
	/* The pipe was open in each of them. */
	ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(read(ends[0], folder, 1), 0);
	ck_assert(access(folder, F_OK) != 0 && errno == ENOENT);
	close(ends[0]);
}
END_TEST

TEST_MAIN(program)
{
	Suite *suite = suite_create("program");
	TCase *tcase = tcase_create("program");

	tcase_add_loop_test(tcase, leaves_nothing, 0, sizeof(rows) / sizeof(rows[0]));
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}

/* Starts a process of this group, and a daemon. */
static void start_two(void)
{
	pid_t pid = fork();

	while (pid == 0)
		pause();
	pid = fork();
	if (pid == 0) {
		/* Its parent ends before the file does. */
		if (setsid() < 0 || fork())
			_exit(EXIT_SUCCESS);
		for (;;)
			pause();
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(leaves)
{
	const char *end = getenv("FRL_TEST_LEAVES");
	char folder[32] = "", path[64];
	int fd;

	snprintf(folder, sizeof(folder), "%s", test_folder());
	snprintf(path, sizeof(path), "%s/file", folder);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	start_two();
	ck_assert_int_eq(write(REPORT_FD, folder, sizeof(folder)), sizeof(folder));
	if (strcmp(end, "crash") == 0)
		abort();
	while (strcmp(end, "hang") == 0)
		pause();
	ck_assert_str_eq(end, "pass");
}
END_TEST

TEST_MAIN(program_leaves)
{
	Suite *suite;
	TCase *tcase;

	/* It does not end by itself. */
	if (!getenv("FRL_TEST_LEAVES"))
		return TEST_SKIPPED;
	suite = suite_create("program_leaves");
	tcase = tcase_create("program_leaves");
	tcase_add_test(tcase, leaves);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
