/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs this test file once more, by exec(): for what a process does once only, such as reading the
 * environment or loading a library. TEST_MAIN() looks for the argument. */
#ifndef FERRULE_TESTS_RUN_SELF_H
#define FERRULE_TESTS_RUN_SELF_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include "tests/unit/program.h"

/* With `variable` set to `value` (NULL: not set); its standard output goes to `text`. Returns its
 * exit status, or -1. */
static inline int run_self(
	const char *argument, const char *variable, const char *value, char *text, size_t size)
{
	int pipe_fds[2], status;
	size_t length = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(pipe_fds) < 0)
		return -1;
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0) {
		dup2(pipe_fds[1], STDOUT_FILENO);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		if (value)
			setenv(variable, value, 1);
		else
			unsetenv(variable);
		test_exec(argument);
		_exit(127);
	}
	close(pipe_fds[1]);
	while (length + 1 < size && (got = read(pipe_fds[0], text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(pipe_fds[0]);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Row `i` runs in a process of its own, which gets its number as the argument: all cases of the
 * file, or `test_case`. */
static inline void run_row(int i, const char *variable, const char *value, const char *test_case)
{
	char row[12], text[4096];

	snprintf(row, sizeof(row), "%d", i);
	if (test_case)
		setenv("CK_RUN_CASE", test_case, 1);
	ck_assert_msg(
		run_self(row, variable, value, text, sizeof(text)) == 0, "row %s: %s", row, text);
}

#endif
