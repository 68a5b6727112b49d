/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/program.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/file_process.h"

enum { CASE_S = 600 }; /* catches a case that hangs */

static struct test_file *files; /* by name */
static const char *running;     /* the name of the file */

/* Shared by the processes that run the cases of one file, one after the other. */
struct progress {
	atomic_uint begun, ended; /* cases */
	atomic_bool has_failed;   /* an assertion of this process */
	char name[128];           /* of the case that was begun last */
	char folder[32];          /* "": there is none */
};

static struct progress *progress;
/* Names the folder of the process whose part this one is (test_exec()). */
static const char folder_setting[] = "FRL_TEST_FOLDER";
static bool in_process;           /* cases run in this process */
static unsigned n_skipped, n_met; /* cases to skip; cases that Check has called here */

void test_file_add(struct test_file *file)
{
	struct test_file **at = &files;

	while (*at && strcmp((*at)->name, file->name) < 0)
		at = &(*at)->next;
	file->next = *at;
	*at = file;
}

void test_case_add(struct test_case **cases, struct test_case *test_case)
{
	/* Constructors run in any order. */
	while (*cases && (*cases)->test.line < test_case->test.line)
		cases = &(*cases)->next;
	test_case->next = *cases;
	*cases = test_case;
}

Suite *test_suite_add(
	Suite *suite, struct test_case *cases, void (*before)(void), void (*after)(void))
{
	if (!suite)
		suite = suite_create(running);
	for (struct test_case *one = cases; one; one = one->next) {
		struct test_range range = one->range();
		/* Each test has a case of its own, so that CK_RUN_CASE selects it. */
		TCase *tcase = tcase_create(one->test.name);

		tcase_add_checked_fixture(tcase, before, after);
		tcase_add_loop_test(tcase, &one->test, range.first, range.end);
		suite_add_tcase(suite, tcase);
	}
	return suite;
}

static int run_as(Suite *suite, enum fork_status fork_status)
{
	SRunner *runner = srunner_create(suite);
	int failed, run;

	srunner_set_fork_status(runner, fork_status);
	in_process = srunner_fork_status(runner) == CK_NOFORK;
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	run = srunner_ntests_run(runner);
	srunner_free(runner);
	if (run == 0 && getenv("CK_RUN_CASE"))
		printf("no case \"%s\"\n", getenv("CK_RUN_CASE"));
	return failed || run == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

bool test_begin(const char *name, int i)
{
	if (!in_process || !progress)
		return true;
	if (n_met++ < n_skipped)
		return false;
	snprintf(progress->name, sizeof(progress->name), "%s:%d", name, i);
	atomic_fetch_add(&progress->begun, 1);
	alarm(CASE_S);
	return true;
}

void test_end(void)
{
	if (!in_process || !progress)
		return;
	alarm(0);
	atomic_fetch_add(&progress->ended, 1);
}

/* Linked in the place of Check's function (--wrap). Check would go on with the next case in this
 * process, where threads of the failed one may run and its objects exist. */
void __real__ck_assert_failed(const char *file, int line, const char *expression,
	const char *format, ...) CK_ATTRIBUTE_NORETURN CK_ATTRIBUTE_FORMAT(printf, 4, 5);
void __wrap__ck_assert_failed(const char *file, int line, const char *expression,
	const char *format, ...) CK_ATTRIBUTE_NORETURN CK_ATTRIBUTE_FORMAT(printf, 4, 5);

void __wrap__ck_assert_failed(
	const char *file, int line, const char *expression, const char *format, ...)
{
	char text[4096] = "";
	va_list list;

	if (format) {
		va_start(list, format);
		vsnprintf(text, sizeof(text), format, list);
		va_end(list);
	}
	if (!in_process || !progress)
		__real__ck_assert_failed(file, line, expression, format ? "%s" : NULL, text);
	printf("%s:%d: %s: %s\n", file, line, progress->name, format ? text : expression);
	fflush(stdout);
	atomic_store(&progress->has_failed, true);
	_exit(EXIT_FAILURE);
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

static struct test_file *find(const char *name)
{
	struct test_file *file = files;

	while (file && strcmp(file->name, name) != 0)
		file = file->next;
	return file;
}

const char *test_folder(void)
{
	char *folder = progress ? progress->folder : getenv(folder_setting);

	if (folder && *folder == '\0') {
		snprintf(folder, sizeof(progress->folder), "/tmp/ferrule-test-XXXXXX");
		if (!mkdtemp(folder))
			folder = NULL;
	}
	if (!folder) {
		perror("a folder for the test");
		_exit(EXIT_FAILURE);
	}
	return folder;
}

void test_exec(const char *argument)
{
	setenv(folder_setting, test_folder(), 1);
	execl("/proc/self/exe", "test", running, argument, (char *)NULL);
}

static void remove_folder(void)
{
	if (*progress->folder)
		remove_tree(progress->folder);
	*progress->folder = '\0';
}

struct call {
	const struct test_file *file;
	int argc;
	char **argv;
};

static int run_cases(void *ctx)
{
	const struct call *call = ctx;

	n_skipped = atomic_load(&progress->begun);
	return call->file->run(call->argc, call->argv);
}

static int run_in_child(const struct test_file *file, int argc, char **argv)
{
	struct call call = { file, argc, argv };
	int status = file_process_run(run_cases, remove_folder, &call);

	if (status < 0) {
		perror(file->name);
		exit(EXIT_FAILURE);
	}
	return status;
}

/* Describes what Check has not: the process has ended within a case. */
static void describe_end(int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("%s: still runs after %d s\n", progress->name, CASE_S);
	else if (WIFSIGNALED(status))
		printf("%s: killed by signal %d\n", progress->name, WTERMSIG(status));
	else
		printf("%s: exit status %d\n", progress->name, WEXITSTATUS(status));
}

/* Runs a file until a process gets to its end. Each process before that has one failed case. */
static int run_file(const struct test_file *file, int argc, char **argv)
{
	unsigned failed = 0;

	progress = mmap(
		NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED) {
		perror(file->name);
		return EXIT_FAILURE;
	}
	for (;;) {
		unsigned before = atomic_load(&progress->begun);
		int status = run_in_child(file, argc, argv);
		unsigned begun = atomic_load(&progress->begun);
		bool is_within = begun != atomic_load(&progress->ended);

		if (!is_within && !atomic_load(&progress->has_failed)) {
			if (failed)
				printf("%s: %u failed\n", file->name, failed);
			if (WIFSIGNALED(status))
				printf("%s: killed by signal %d\n", file->name, WTERMSIG(status));
			return failed || !WIFEXITED(status) ? EXIT_FAILURE : WEXITSTATUS(status);
		}
		failed++;
		if (!atomic_load(&progress->has_failed))
			describe_end(status);
		/* A fixture that fails before each case. */
		if (begun == before)
			return EXIT_FAILURE;
		atomic_store(&progress->has_failed, false);
		atomic_store(&progress->ended, begun);
	}
}

/* Returns the exit status of a process that runs this file alone. */
static int run_apart(const struct test_file *file)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
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

extern char **environ;

static bool is_setting(const char *entry)
{
	return strncmp(entry, "FRL_", 4) == 0 || strncmp(entry, "FERRULE_", 8) == 0;
}

/* tests/meson.build sets these, or a person who runs a test by hand. */
static bool is_for_tests(const char *entry)
{
	static const char *const names[] = { "FRL_BUILD_ROOT=", "FRL_CORPUS=", "FRL_KERNELS=",
		"FRL_PLAN_CHECKS=", "FRL_SEED", "FRL_SHM=", "FRL_SOURCE_ROOT=", "FRL_TEST_",
		"FRL_VECTORS=" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(entry, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* The settings that all tests begin with. A program that a test starts keeps what the test has
 * set. */
static void clear_settings(void)
{
	char limit[16];

	if (getenv("FRL_TEST_SETTINGS"))
		return;
	for (char **entry = environ; *entry;) {
		char name[256];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
		if (is_setting(*entry) && !is_for_tests(*entry) && unsetenv(name) == 0)
			entry = environ;
		else
			entry++;
	}
	setenv("FRL_TEST_SETTINGS", "1", 1);
	setenv("FRL_CONTROL", "off", 1);
	setenv("FRL_TUNER_CACHE", "", 1);
	setenv("FRL_TUNER_COSTS", "default", 1);
	setenv("FRL_SHM", "0", 0);
	snprintf(limit, sizeof(limit), "%d", CASE_S);
	setenv("CK_DEFAULT_TIMEOUT", limit, 0);
}

int main(int argc, char **argv)
{
	struct test_file *file;

	clear_settings();
	running = files->name;
	if (argc == 1)
		return files->next ? run_matching("") : run_file(files, argc, argv);
	if (argc == 3 && strcmp(argv[1], "-k") == 0)
		return run_matching(argv[2]);
	if (argc == 2 && strcmp(argv[1], "-l") == 0) {
		for (file = files; file; file = file->next)
			puts(file->name);
		return EXIT_SUCCESS;
	}
	file = find(argv[1]);
	/* A program of one file: all arguments are that file's. */
	if (!file && !files->next)
		return files->run(argc, argv);
	if (!file)
		return usage(argv[0]);
	running = file->name;
	/* With an argument it is a part of a case, started by test_exec(). */
	if (argc == 2)
		return run_file(file, argc - 1, argv + 1);
	return file->run(argc - 1, argv + 1);
}
