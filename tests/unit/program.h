/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A test program holds the test files of one layer. Each file ends with TEST_MAIN(name), and runs
 * in a process of its own: `test_wire psn` runs one file, `test_wire` all of them, and
 * `test_wire -k packet` those whose names contain the word. CK_RUN_CASE=case selects within a file.
 */
#ifndef FERRULE_TESTS_UNIT_PROGRAM_H
#define FERRULE_TESTS_UNIT_PROGRAM_H

#include <check.h>

#include "tests/unit/patience.h"

enum { TEST_SKIPPED = 77 }; /* exit status, as meson has it */

struct test_file {
	const char *name;
	/* argv[0] is the name; more arguments come from test_exec() and from the command line. */
	int (*run)(int argc, char **argv);
	struct test_file *next;
};

void test_file_add(struct test_file *file);

/* Runs all cases and frees the suite. Returns an exit status. Each case has a child process, unless
 * the environment has CK_FORK=no, as runs with a sanitizer do. */
int run_suite(Suite *suite);
/* Runs each case in a child process whatever the environment says. */
int run_suite_forked(Suite *suite);
/* Runs all cases in this process: for a state that is costly to set up, or that fork() would
 * break. An assertion that fails ends its case only. */
int run_suite_unforked(Suite *suite);

/* Replaces this process by another run of the same file, with `argument`. Returns on failure. */
void test_exec(const char *argument);

/* The function of a file that runs its suites and returns an exit status. */
#define TEST_MAIN(file)                                                         \
	static int run_##file(int argc, char **argv);                           \
	static struct test_file test_file_##file = { #file, run_##file, NULL }; \
	__attribute__((constructor)) static void add_##file(void)               \
	{                                                                       \
		test_file_add(&test_file_##file);                               \
	}                                                                       \
	static int run_##file(int argc, char **argv)

#endif
