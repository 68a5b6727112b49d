/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a check in a child process with a limit of file sizes (RLIMIT_FSIZE): the test's own process
 * may have other tests to run. */
#ifndef FERRULE_TESTS_UNIT_LIMITED_CHILD_H
#define FERRULE_TESTS_UNIT_LIMITED_CHILD_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Fails the test unless `check` is true in the child, where Check's own files are limited, too: it
 * must not assert. */
static inline void check_in_limited_child(size_t limit, bool (*check)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct rlimit files = { .rlim_cur = limit, .rlim_max = limit };

		_exit(setrlimit(RLIMIT_FSIZE, &files) == 0 && check() ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!WIFSIGNALED(status), "killed by signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

#endif
