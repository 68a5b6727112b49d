/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/program.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_file *files; /* by name */
static const char *running;

void test_file_add(struct test_file *file)
{
	struct test_file **at = &files;

	while (*at && strcmp((*at)->name, file->name) < 0)
		at = &(*at)->next;
	file->next = *at;
	*at = file;
}

static int run_as(Suite *suite, enum fork_status fork_status)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_set_fork_status(runner, fork_status);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int run_suite(Suite *suite)
{
	return run_as(suite, CK_FORK_GETENV);
}

int run_suite_forked(Suite *suite)
{
	return run_as(suite, CK_FORK);
}

int run_suite_unforked(Suite *suite)
{
	return run_as(suite, CK_NOFORK);
}

void test_exec(const char *argument)
{
	execl("/proc/self/exe", "test", running, argument, (char *)NULL);
}

static struct test_file *find(const char *name)
{
	struct test_file *file = files;

	while (file && strcmp(file->name, name) != 0)
		file = file->next;
	return file;
}

/* Returns the exit status of a process that runs this file alone. */
static int run_apart(const struct test_file *file)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "test", file->name, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		perror(file->name);
		return EXIT_FAILURE;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

static int run_matching(const char *word)
{
	int passed = 0, failed = 0, skipped = 0;

	for (const struct test_file *file = files; file; file = file->next) {
		int status;

		if (!strstr(file->name, word))
			continue;
		status = run_apart(file);
		if (status == 0)
			passed++;
		else if (status == TEST_SKIPPED)
			skipped++;
		else
			failed++;
		if (status != 0)
			printf("%s: %s\n", file->name,
				status == TEST_SKIPPED ? "skipped" : "FAILED");
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed || passed + skipped == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int usage(const char *program)
{
	printf("usage: %s [-l | -k WORD | FILE [ARGUMENT...]]\n"
	       "  -l       list the test files\n"
	       "  -k WORD  run the test files whose names contain WORD (default: all)\n"
	       "CK_RUN_CASE=NAME runs one case of a file.\n",
		program);
	return 2;
}

int main(int argc, char **argv)
{
	struct test_file *file;

	/* The limit catches hangs. It is no measure of speed. */
	setenv("CK_DEFAULT_TIMEOUT", "600", 0);
	/* A program of one file: all arguments are that file's. */
	if (!files->next)
		return files->run(argc, argv);
	if (argc == 1)
		return run_matching("");
	if (argc == 3 && strcmp(argv[1], "-k") == 0)
		return run_matching(argv[2]);
	if (argc == 2 && strcmp(argv[1], "-l") == 0) {
		for (file = files; file; file = file->next)
			puts(file->name);
		return EXIT_SUCCESS;
	}
	file = find(argv[1]);
	if (!file)
		return usage(argv[0]);
	running = file->name;
	return file->run(argc - 1, argv + 1);
}
