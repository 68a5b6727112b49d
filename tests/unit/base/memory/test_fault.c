/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses that may fault: they end at memory that is not mapped, and at nothing else. All other
 * faults and signals have the effect that they would have without the handler. */
#include <check.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "lib/base/memory/fault.h"
#include "lib/base/process/thread.h"
#include "tests/fixtures/program.h"

enum { PAGES = 4, ENDED_WELL = 7 };

static size_t page;
static uint8_t *memory;
static volatile sig_atomic_t n_handled;

static void start(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	memory = mmap(
		NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	memset(memory, 5, PAGES * page);
	fault_start();
}

static void finish(void)
{
	munmap(memory, PAGES * page);
}

static void write_byte(void *arg)
{
	*(volatile uint8_t *)arg = 9;
}

static int unmap(void)
{
	return munmap(memory + 2 * page, page);
}

static int protect(void)
{
	return mprotect(memory + 2 * page, page, PROT_NONE);
}

/* SIGBUS: a file that has become shorter. */
static int truncate_file(void)
{
	int fd = memfd_create("fault", MFD_CLOEXEC), rc = fd < 0;

	rc |= ftruncate(fd, (off_t)(2 * page));
	rc |= mmap(memory, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		MAP_FAILED;
	close(fd);
	return rc;
}

static int (*const ways[])(void) = { unmap, protect, truncate_file };

/* Copies of all lengths around the page that is gone. */
START_LOOP_TEST(copies, ROWS(ways))
{
	uint8_t *copy = malloc(PAGES * page);
	uintptr_t at = 0;

	ck_assert_int_eq(ways[_i](), 0);
	for (size_t n = 1; n < 2 * page; n += n < 100 ? 1 : 997) {
		ck_assert(fault_copy(copy, memory + 2 * page - n, n));
		ck_assert_mem_eq(copy, memory + 2 * page - n, n);
		ck_assert(!fault_copy(copy, memory + 2 * page - n, n + 1));
		ck_assert(!fault_copy(copy, memory + 2 * page, n));
		ck_assert(fault_read(memory + 2 * page - n, n, &at));
		ck_assert(!fault_read(memory + 2 * page - n, n + 1, &at));
		ck_assert_uint_eq(at, (uintptr_t)memory + 2 * page);
	}
	ck_assert(fault_copy(copy, memory + 2 * page, 0));
	ck_assert(fault_read(memory + 2 * page, 0, &at));
	free(copy);
}
END_TEST

START_TEST(writes)
{
	const struct fault_area areas[] = { { memory, page }, { memory + 2 * page, page } };
	uintptr_t at = 0;

	unmap();
	ck_assert(fault_try(write_byte, memory, areas, 1, &at));
	ck_assert_uint_eq(memory[0], 9);
	ck_assert(!fault_try(write_byte, memory + 3 * page - 1, areas, 2, &at));
	/* ThreadSanitizer needs another attempt, which reads the page first. */
	ck_assert_uint_eq(at & ~(page - 1), (uintptr_t)memory + 2 * page);
}
END_TEST

static void *copy_in_thread(void *arg)
{
	uint8_t byte;

	return fault_copy(&byte, arg, 1) ? NULL : arg;
}

/* All signals are blocked in threads of the library, except for these two. */
START_TEST(thread_of_the_library)
{
	pthread_t thread;
	void *result;

	protect(); /* another thread of a sanitizer may map something into a hole */
	ck_assert_int_eq(thread_start(copy_in_thread, memory + 2 * page, 0, &thread), 0);
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);
}
END_TEST

/* The mask and a later attempt are not affected. */
START_TEST(leaves_no_trace)
{
	sigset_t before, after;
	uint8_t byte = 0;

	memset(&before, 0, sizeof(before));
	memset(&after, 0, sizeof(after));
	unmap();
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	for (int i = 0; i < 3; i++)
		ck_assert(!fault_copy(&byte, memory + 2 * page, 1));
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert(fault_copy(&byte, memory, 1));
	ck_assert_uint_eq(byte, 5);
}
END_TEST

static struct sigaction earlier;

static void pass_back(int signal, siginfo_t *info, void *context)
{
	n_handled++;
	earlier.sa_sigaction(signal, info, context);
}

/* A handler that the program installs later passes the fault on, with its own mask in effect. */
START_TEST(handler_before_ours)
{
	struct sigaction action = { .sa_sigaction = pass_back, .sa_flags = SA_SIGINFO };
	sigset_t now;
	uint8_t byte;

	unmap();
	n_handled = 0;
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR1);
	sigaction(SIGSEGV, &action, &earlier);
	for (int i = 0; i < 3; i++)
		ck_assert(!fault_copy(&byte, memory + 2 * page, 1));
	sigaction(SIGSEGV, &earlier, NULL);
	ck_assert_int_eq(n_handled, 3);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	ck_assert(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGUSR1));
}
END_TEST

/* From Linux' <asm/signal.h>. */
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

/* Whether the kernel disables the stack while a handler runs on it. */
static const unsigned stack_flags[] = { 0, SS_AUTODISARM };

static void *copy_on_stack(void *arg)
{
	const unsigned *flags = arg;
	const stack_t stack = {
		.ss_sp = malloc(1 << 16), .ss_size = 1 << 16, .ss_flags = (int)*flags
	};
	stack_t before, now = { .ss_sp = NULL };
	uint8_t byte;

	/* Kernels before 4.7 have no such flag. */
	if (!sigaltstack(&stack, &before)) {
		for (int i = 0; i < 3; i++)
			ck_assert(!fault_copy(&byte, memory + 2 * page, 1));
		sigaltstack(NULL, &now);
		ck_assert_ptr_eq(now.ss_sp, stack.ss_sp);
		ck_assert_uint_eq(now.ss_size, stack.ss_size);
		ck_assert_uint_eq((unsigned)now.ss_flags, *flags);
		sigaltstack(&before, NULL);
	}
	free(stack.ss_sp);
	return NULL;
}

START_LOOP_TEST(alternative_stack, ROWS(stack_flags))
{
	pthread_t thread;

	protect();
	copy_on_stack((void *)&stack_flags[_i]);
	ck_assert_int_eq(pthread_create(&thread, NULL, copy_on_stack, (void *)&stack_flags[_i]), 0);
	pthread_join(thread, NULL);
}
END_TEST

/* ---- other faults, in a process of their own: the handler is installed after the application's */

static void touch_outside(void *arg)
{
	*(volatile uint8_t *)(memory + 2 * page) = 1;
}

static void fault_outside_of_an_attempt(void)
{
	touch_outside(NULL);
}

/* The area is another one. */
static void fault_in_an_attempt(void)
{
	const struct fault_area area = { memory, page };
	uintptr_t at;

	fault_try(touch_outside, NULL, &area, 1, &at);
}

static void send_signal(void)
{
	raise(SIGSEGV);
}

/* The handler of attempts stays when the program's own is reset. */
static void send_signal_then_copy(void)
{
	uint8_t byte;

	if (n_handled == 0)
		raise(SIGSEGV);
	else if (fault_copy(&byte, memory + 2 * page, 1))
		_exit(5);
}

static sigjmp_buf env;

static void on_signal(int signal)
{
	n_handled++;
	siglongjmp(env, 1);
}

static void on_info(int signal, siginfo_t *info, void *context)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	/* As the kernel would have blocked them. */
	if (!sigismember(&now, SIGUSR1) || !sigismember(&now, SIGSEGV) || !context)
		_exit(1);
	if (info->si_code > 0 && info->si_addr != memory + 2 * page)
		_exit(2);
	n_handled++;
	siglongjmp(env, 1);
}

enum handling { DEFAULT, IGNORED, HANDLER, INFO, ONCE };

static void install(enum handling handling)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR1);
	if (handling == DEFAULT)
		action.sa_handler = SIG_DFL;
	if (handling == IGNORED)
		action.sa_handler = SIG_IGN;
	if (handling == INFO) {
		action.sa_sigaction = on_info;
		action.sa_flags = SA_SIGINFO;
	}
	if (handling == ONCE)
		action.sa_flags = (int)SA_RESETHAND;
	sigaction(SIGSEGV, &action, NULL);
}

static const struct {
	enum handling handling;
	void (*act)(void);
	int killed_by; /* 0: it goes on */
	int n_handled;
} faults[] = {
	{ DEFAULT, fault_outside_of_an_attempt, SIGSEGV, 0 },
	{ DEFAULT, fault_in_an_attempt, SIGSEGV, 0 },
	{ DEFAULT, send_signal, SIGSEGV, 0 },
	{ IGNORED, fault_outside_of_an_attempt, SIGSEGV, 0 },
	{ IGNORED, send_signal, 0, 0 },
	{ HANDLER, fault_outside_of_an_attempt, 0, 2 },
	{ HANDLER, fault_in_an_attempt, 0, 2 },
	{ HANDLER, send_signal, 0, 2 },
	{ INFO, fault_outside_of_an_attempt, 0, 2 },
	{ INFO, fault_in_an_attempt, 0, 2 },
	{ INFO, send_signal, 0, 2 },
	{ ONCE, fault_outside_of_an_attempt, SIGSEGV, 1 },
	{ ONCE, send_signal, SIGSEGV, 1 },
	{ ONCE, send_signal_then_copy, 0, 1 },
};

static void fault_twice(void (*act)(void))
{
	for (volatile int i = 0; i < 2; i++)
		if (!sigsetjmp(env, 1))
			act();
}

/* fault_start() works once in a process, so this is another run of the program. */
static void act_on_row(int row)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	memory = mmap(
		NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unmap();
	install(faults[row].handling);
	fault_start();
	fault_twice(faults[row].act);
	_exit(n_handled == faults[row].n_handled ? ENDED_WELL : 3);
}

START_LOOP_TEST(other_faults, ROWS(faults))
{
	char argument[16];
	int status = 0;
	pid_t child;

	snprintf(argument, sizeof(argument), "%d", _i);
	child = fork();
	if (child == 0) {
		test_exec(argument);
		_exit(4);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (faults[_i].killed_by) {
		ck_assert_msg(WIFSIGNALED(status), "exit status %d", WEXITSTATUS(status));
		ck_assert_int_eq(WTERMSIG(status), faults[_i].killed_by);
	} else {
		ck_assert_msg(WIFEXITED(status), "killed by %d", WTERMSIG(status));
		ck_assert_int_eq(WEXITSTATUS(status), ENDED_WELL);
	}
}
END_TEST

TEST_MAIN(fault)
{
	if (argc > 1)
		act_on_row(atoi(argv[1]));
	return run_suite_unforked(all_tests(start, finish));
}
