/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A test program holds the test files of one layer. Each file ends with TEST_FILE(name), and runs
 * in a process of its own: `test_wire psn` runs one file, `test_wire` all of them, and
 * `test_wire -k packet` those whose names contain the word. CK_RUN_CASE=case selects within a file.
 *
 *	START_TEST(name)                      a case
 *	START_LOOP_TEST(name, n)              a case for each _i from 0 to n - 1
 *	START_RANGE_TEST(name, first, end)    a case for each _i from first to end - 1
 *	START_TEST_IF(name, condition)        a case that runs only where the condition holds
 *
 * Cases end with END_TEST and run in the order of their lines.
 *
 * A case that fails, crashes or hangs never affects another one. Check runs the cases of most
 * suites in child processes. The cases of the others share a process, which ends at the first
 * failure: a new process starts the file again and skips the cases that have run. When a file has
 * ended, so have all processes that it has started, and its folder is gone (file_process.h).
 *
 * Settings of the caller's shell (FRL_*, FERRULE_*) do not reach the tests, except those that
 * tests/meson.build sets (program.c).
 */
#ifndef FERRULE_TESTS_UNIT_PROGRAM_H
#define FERRULE_TESTS_UNIT_PROGRAM_H

#include <stdbool.h>

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
/* Runs all cases in one process, up to the first that fails: for a state that is costly to set up,
 * or that fork() would break. */
int run_suite_unforked(Suite *suite);

/* Replaces this process by another run of the same file, with `argument`. Returns on failure. */
void test_exec(const char *argument);

/* A folder with mode 0700 in /tmp, for the processes of one file. It is removed with what is in it
 * when the file has ended. */
const char *test_folder(void);

/* For START_TEST(): false when the case has run already, in an earlier process. */
bool test_begin(const char *name, int i);
void test_end(void);

struct test_range {
	int first, end;
};

/* The range is found when the cases run: it may depend on the environment. */
struct test_case {
	TTest test;
	struct test_range (*range)(void);
	struct test_case *next;
};

/* The cases of the file that includes this header. */
static struct test_case *test_cases CK_ATTRIBUTE_UNUSED;

void test_case_add(struct test_case **cases, struct test_case *test_case);
Suite *test_suite_add(
	Suite *suite, struct test_case *cases, void (*before)(void), void (*after)(void));

/* Adds all cases of the file to the suite, a new one if it is NULL, and returns it. Either function
 * may be NULL; they run in the process of the case. */
static inline Suite *add_tests(Suite *suite, void (*before)(void), void (*after)(void))
{
	return test_suite_add(suite, test_cases, before, after);
}

static inline Suite *all_tests(void (*before)(void), void (*after)(void))
{
	return add_tests(NULL, before, after);
}

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))
/* Each of n with each of m. */
#define PAIRS(n, m) ((n) * (m))

#undef START_TEST
#define START_TEST(name)               START_RANGE_TEST(name, 0, 1)
#define START_TEST_IF(name, condition) START_RANGE_TEST(name, 0, !!(condition))
#define START_LOOP_TEST(name, n)       START_RANGE_TEST(name, 0, n)
#define START_RANGE_TEST(name, first_i, end_i)                                               \
	static void name##_fn(int _i);                                                       \
	static void name##_case(int i)                                                       \
	{                                                                                    \
		if (!test_begin(#name, i))                                                   \
			return;                                                              \
		name##_fn(i);                                                                \
		test_end();                                                                  \
	}                                                                                    \
	static struct test_range name##_range(void)                                          \
	{                                                                                    \
		return (struct test_range){ (int)(first_i), (int)(end_i) };                  \
	}                                                                                    \
	static struct test_case name##_entry = { { #name, name##_case, __FILE__, __LINE__ }, \
		name##_range, NULL };                                                        \
	static const TTest *name CK_ATTRIBUTE_UNUSED = &name##_entry.test;                   \
	__attribute__((constructor)) static void add_case_##name(void)                       \
	{                                                                                    \
		test_case_add(&test_cases, &name##_entry);                                   \
	}                                                                                    \
	static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)

/* The end of a file whose cases need nothing. */
#define TEST_FILE(file)                                  \
	TEST_MAIN(file)                                  \
	{                                                \
		return run_suite(all_tests(NULL, NULL)); \
	}

/* The function of a file that runs its cases and returns an exit status. */
#define TEST_MAIN(file)                                                         \
	static int run_##file(int argc, char **argv);                           \
	static struct test_file test_file_##file = { #file, run_##file, NULL }; \
	__attribute__((constructor)) static void add_##file(void)               \
	{                                                                       \
		test_file_add(&test_file_##file);                               \
	}                                                                       \
	static int run_##file(int argc, char **argv)

#endif
