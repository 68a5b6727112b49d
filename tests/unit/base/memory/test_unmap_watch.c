/* SPDX-License-Identifier: BSD-3-Clause */
/* Watching for memory that is unmapped: which events are reported, for how long, and that no call
 * waits for ever, whatever threads, signals and children do meanwhile. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/base/clock.h"
#include "lib/base/memory/unmap_watch.h"
#include "tests/fixtures/program.h"

/* ThreadSanitizer does not support threads in children of processes with threads. */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER 0
#endif

enum { PAGES = 16, PAGE_MAX = 65536 };

/* A listener that keeps one range. */
struct keeper {
	struct unmap_listener listener;
	uintptr_t start, end;
	int told;  /* gone() */
	int after; /* and after() */
	bool is_quiet;
};

static size_t page;
static char *memory;

static struct keeper *keeper_of(struct unmap_listener *listener)
{
	return container_of(listener, struct keeper, listener);
}

static bool gone(struct unmap_listener *listener, uintptr_t start, uintptr_t end)
{
	struct keeper *keeper = keeper_of(listener);

	if (start >= keeper->end || keeper->start >= end)
		return false;
	keeper->told++;
	return !keeper->is_quiet;
}

static void after(struct unmap_listener *listener)
{
	unmap_watch_lock();
	keeper_of(listener)->after++;
	unmap_watch_unlock();
}

static bool needs(struct unmap_listener *listener, uintptr_t at, uintptr_t *until)
{
	struct keeper *keeper = keeper_of(listener);
	bool is_inside = keeper->start <= at && at < keeper->end;
	uintptr_t next = is_inside ? keeper->end : keeper->start;

	if (next > at && next < *until)
		*until = next;
	return is_inside;
}

static bool add(struct keeper *keeper)
{
	int rc;

	memset(keeper, 0, sizeof(*keeper));
	keeper->listener.gone = gone;
	keeper->listener.after = after;
	keeper->listener.needs = needs;
	rc = unmap_watch_add(&keeper->listener);
	if (rc == -ENOTSUP) {
		printf("skipped: the kernel cannot tell of unmapped memory\n");
		return false;
	}
	ck_assert_int_eq(rc, 0);
	return true;
}

/* Keeps `n` pages from `first` on, instead of the former range. */
static int keep(struct keeper *keeper, char *first, size_t n)
{
	uintptr_t start = keeper->start, end = keeper->end;
	int rc = 0;

	unmap_watch_lock();
	keeper->start = (uintptr_t)first;
	keeper->end = keeper->start + n * page;
	unmap_watch_release(start, end, page);
	if (n)
		rc = unmap_watch_range(keeper->start, keeper->end, page);
	unmap_watch_unlock();
	return rc;
}

static int told(struct keeper *keeper)
{
	int n;

	unmap_watch_lock();
	n = keeper->told;
	unmap_watch_unlock();
	return n;
}

static char *map(void *at, size_t n)
{
	char *addr = mmap(at, n * page, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	ck_assert_ptr_ne(addr, MAP_FAILED);
	return addr;
}

static void start(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	memory = map(NULL, PAGES);
}

static void finish(void)
{
	munmap(memory, PAGES * page);
}

/* Waits for the child. Returns false if it hangs or has failed. */
static bool ends_well(pid_t child)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t limit_ns = hang_limit_ns();
	int status;

	while (waitpid(child, &status, WNOHANG) == 0) {
		if (!may_wait(limit_ns)) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			return false;
		}
		nanosleep(&pause, NULL);
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- what is told of */

START_TEST(only_what_is_kept)
{
	struct keeper one, two;

	if (!add(&one))
		return;
	ck_assert(add(&two));
	ck_assert_int_eq(keep(&one, memory, 8), 0);
	ck_assert_int_eq(keep(&two, memory + 4 * page, 8), 0);
	/* The second's pages stay watched, also those that the first had as well. */
	keep(&one, NULL, 0);
	madvise(memory, 4 * page, MADV_DONTNEED);
	madvise(memory + 4 * page, page, MADV_DONTNEED);
	madvise(memory + 11 * page, page, MADV_DONTNEED);
	madvise(memory + 12 * page, page, MADV_DONTNEED);
	ck_assert_int_eq(told(&one), 0);
	ck_assert_int_eq(told(&two), 2);
	/* The listener still needs them, but the watch has ended: there is no report. */
	keep(&two, NULL, 0);
	two.start = (uintptr_t)memory;
	two.end = two.start + PAGES * page;
	madvise(memory, PAGES * page, MADV_DONTNEED);
	ck_assert_int_eq(told(&two), 2);
	unmap_watch_remove(&one.listener);
	unmap_watch_remove(&two.listener);
}
END_TEST

/* Moved memory is not watched at its new place, unless a listener keeps that. */
START_TEST(moved)
{
	struct keeper keeper;
	char *other;
	int before;

	if (!add(&keeper))
		return;
	other = map(NULL, PAGES);
	ck_assert_int_eq(keep(&keeper, memory, PAGES), 0);
	ck_assert_ptr_eq(
		mremap(memory, PAGES * page, PAGES * page, MREMAP_MAYMOVE | MREMAP_FIXED, other),
		other);
	before = told(&keeper);
	ck_assert_int_ge(before, 1);
	keeper.start = (uintptr_t)other;
	keeper.end = keeper.start + PAGES * page;
	madvise(other, PAGES * page, MADV_DONTNEED);
	ck_assert_int_eq(told(&keeper), before);
	keeper.start = keeper.end = 0;
	unmap_watch_remove(&keeper.listener);
	memory = other;
}
END_TEST

/* The old pages may exist a little longer than the report about them. */
START_TEST(given_back_a_moment_ago)
{
	struct keeper keeper;
	uint64_t before, limit_ns = hang_limit_ns();
	int rc;

	if (!add(&keeper))
		return;
	ck_assert_int_eq(keep(&keeper, memory, 4), 0);
	before = clock_now_ns();
	madvise(memory, page, MADV_DONTNEED);
	ck_assert_int_eq(keep(&keeper, memory + 8 * page, 1), 0);
	do {
		rc = keep(&keeper, memory, 2);
		ck_assert(rc == -EAGAIN || rc == 0);
	} while (rc && may_wait(limit_ns));
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_ge(clock_now_ns() - before, 50000000);
	keep(&keeper, NULL, 0);
	unmap_watch_remove(&keeper.listener);
}
END_TEST

static int afters(struct keeper *keeper)
{
	int n;

	unmap_watch_lock();
	n = keeper->after;
	unmap_watch_unlock();
	return n;
}

START_TEST(after_only_if_there_is_work)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct keeper quiet, loud;

	if (!add(&quiet))
		return;
	ck_assert(add(&loud));
	quiet.is_quiet = true;
	ck_assert_int_eq(keep(&quiet, memory, 4), 0);
	ck_assert_int_eq(keep(&loud, memory, 4), 0);
	madvise(memory, page, MADV_DONTNEED);
	for (uint64_t limit_ns = hang_limit_ns(); may_wait(limit_ns) && afters(&loud) == 0;)
		nanosleep(&pause, NULL);
	keep(&quiet, NULL, 0);
	keep(&loud, NULL, 0);
	unmap_watch_remove(&loud.listener);
	unmap_watch_remove(&quiet.listener);
	ck_assert_int_eq(loud.after, 1);
	ck_assert_int_eq(quiet.told, 1);
	ck_assert_int_eq(quiet.after, 0);
}
END_TEST

/* ---- nobody waits for ever */

static void unmap_in_handler(int number)
{
	(void)number;
	madvise(memory, page, MADV_DONTNEED);
}

START_TEST(signal_handler_unmaps)
{
	struct sigaction action = { .sa_handler = unmap_in_handler }, before;
	struct keeper keeper;

	if (!add(&keeper))
		return;
	ck_assert_int_eq(keep(&keeper, memory, 4), 0);
	sigaction(SIGUSR1, &action, &before);
	unmap_watch_lock();
	raise(SIGUSR1);
	ck_assert_int_eq(keeper.told, 0);
	unmap_watch_unlock();
	ck_assert_int_eq(told(&keeper), 1);
	sigaction(SIGUSR1, &before, NULL);
	keep(&keeper, NULL, 0);
	unmap_watch_remove(&keeper.listener);
}
END_TEST

static void *be_canceled(void *arg)
{
	(void)arg;
	unmap_watch_lock();
	pthread_cancel(pthread_self());
	unmap_watch_catch_up();
	pthread_testcancel();
	unmap_watch_unlock();
	pthread_testcancel();
	return memory;
}

START_TEST(thread_is_canceled)
{
	struct keeper keeper;
	pthread_t thread;
	void *result;

	if (!add(&keeper))
		return;
	ck_assert_int_eq(pthread_create(&thread, NULL, be_canceled, NULL), 0);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	unmap_watch_lock();
	unmap_watch_unlock();
	unmap_watch_remove(&keeper.listener);
}
END_TEST

enum { STACKS = 12, STACK = 8 << 20 };

struct stack {
	struct keeper *keeper;
	pthread_barrier_t *barrier;
};

/* Watches part of its own stack. */
static void *use_stack(void *arg)
{
	struct stack *stack = arg;
	char buffer[2 * PAGE_MAX];
	uintptr_t at = ((uintptr_t)buffer + page - 1) & ~(page - 1);

	unmap_watch_lock();
	(void)unmap_watch_range(at, at + page, page);
	unmap_watch_unlock();
	pthread_barrier_wait(stack->barrier);
	return NULL;
}

/* The C library keeps stacks of threads that have ended, and unmaps some when others end, those of
 * the watch itself included. */
START_LOOP_TEST(stacks_are_watched, 5)
{
	pthread_t threads[STACKS];
	pthread_barrier_t barrier;
	struct keeper keeper;
	struct stack stack = { .keeper = &keeper, .barrier = &barrier };
	pthread_attr_t attr;

	if (!add(&keeper))
		return;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_barrier_init(&barrier, NULL, STACKS);
	for (int i = 0; i < STACKS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], &attr, use_stack, &stack), 0);
	for (int i = 0; i < STACKS; i++)
		pthread_join(threads[i], NULL);
	unmap_watch_remove(&keeper.listener);
	pthread_barrier_destroy(&barrier);
	pthread_attr_destroy(&attr);
}
END_TEST

/* ---- children */

/* The child may remove memory that it has inherited, at any time. */
static bool use_in_child(struct keeper *inherited)
{
	struct keeper keeper;
	char *own;

	if (!add(&keeper))
		return false;
	unmap_watch_remove(&inherited->listener);
	for (int i = 0; i < 3; i++) {
		own = map(NULL, 1);
		if (keep(&keeper, own, 1))
			return false;
		munmap(own, page);
		if (told(&keeper) != i + 1)
			return false;
	}
	keep(&keeper, NULL, 0);
	unmap_watch_remove(&keeper.listener);
	return true;
}

START_TEST(child_watches_too)
{
	struct keeper one, two;
	pid_t child;

	if (THREAD_SANITIZER || !add(&one))
		return;
	ck_assert(add(&two));
	ck_assert_int_eq(keep(&one, memory, 4), 0);
	madvise(memory, page, MADV_DONTNEED);
	child = fork();
	if (child == 0) {
		unmap_watch_remove(&one.listener);
		_exit(use_in_child(&two) ? 0 : 1);
	}
	ck_assert(ends_well(child));
	keep(&one, NULL, 0);
	unmap_watch_remove(&one.listener);
	unmap_watch_remove(&two.listener);
}
END_TEST

/* An unknown child keeps the descriptor: memory is unwatched in the end. */
START_TEST(child_keeps_descriptor)
{
	struct keeper keeper;
	pid_t child;

	if (!add(&keeper))
		return;
	ck_assert_int_eq(keep(&keeper, memory, 4), 0);
	child = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	if (child == 0) {
		syscall(SYS_pause);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	keep(&keeper, NULL, 0);
	unmap_watch_remove(&keeper.listener);
	munmap(memory, PAGES * page);
	memory = map(NULL, PAGES);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}
END_TEST

static bool has_descriptor(void)
{
	DIR *dir = opendir("/proc/self/fd");
	bool found = false;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char target[64] = "";

		if (readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) > 0)
			found |= strstr(target, "userfaultfd") != NULL;
	}
	if (dir)
		closedir(dir);
	return found;
}

static volatile bool is_over;

static void *start_and_stop(void *arg)
{
	struct keeper keeper;

	(void)arg;
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		if (!add(&keeper))
			break;
		unmap_watch_remove(&keeper.listener);
	}
	return NULL;
}

enum { FORKS = 100 };

START_TEST(forks_while_it_starts_and_stops)
{
	pthread_t thread;

	is_over = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, start_and_stop, NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(has_descriptor());
		ck_assert(ends_well(child));
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}
END_TEST

TEST_MAIN(unmap_watch)
{
	return run_suite(all_tests(start, finish));
}
