/* SPDX-License-Identifier: BSD-3-Clause */
/* Marks of memory: which flags are set when memory is unmapped. The threads and calls of the watch
 * itself are tested in test_unmap_watch.c. */
#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/base/memory/unmap_mark.h"
#include "lib/base/memory/unmap_watch.h"
#include "tests/fixtures/program.h"

enum { PAGES = 64, MARKS = 200, STEPS = 5000 };

struct mark {
	struct unmap_mark mark;
	atomic_bool is_gone;
	size_t first, end; /* bytes from the start of the memory; end 0: not added */
};

static struct mark marks[MARKS];
static struct unmap_user user;
static size_t page;
static char *memory;
static uint32_t random_state = 1;

static uint32_t any(uint32_t n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

static void map(size_t first, size_t n)
{
	ck_assert_ptr_ne(mmap(memory + first * page, n * page, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		MAP_FAILED);
}

static void start(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	memory = mmap(
		NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	memset(marks, 0, sizeof(marks));
	unmap_mark_open(&user);
}

static void finish(void)
{
	unmap_mark_close(&user);
	munmap(memory, PAGES * page);
}

static bool add(struct mark *mark, size_t first, size_t end)
{
	mark->first = first;
	mark->end = end;
	atomic_store(&mark->is_gone, false);
	return unmap_mark_add(
		&mark->mark, (uintptr_t)memory + first, (uintptr_t)memory + end, &mark->is_gone);
}

static void drop(struct mark *mark)
{
	unmap_mark_remove(&mark->mark);
	mark->end = 0;
}

static bool is_gone(const struct mark *mark)
{
	unmap_watch_settle();
	return atomic_load(&mark->is_gone);
}

/* There is no userfaultfd here. */
static bool is_off(void)
{
	bool is_on = add(&marks[0], 0, page);

	drop(&marks[0]);
	if (!is_on)
		printf("skipped: the kernel does not report unmapped memory\n");
	return !is_on;
}

/* Unmaps some pages, and maps others in their place. */
static void replace(bool gone[MARKS])
{
	size_t first = any(PAGES), n = 1 + any(PAGES - (uint32_t)first);

	if (n > 4)
		n = 4;
	for (int i = 0; i < MARKS; i++)
		gone[i] |= marks[i].end && marks[i].first < (first + n) * page &&
			first * page < marks[i].end;
	ck_assert_int_eq(munmap(memory + first * page, n * page), 0);
	for (int i = 0; i < MARKS; i++)
		ck_assert_int_eq(is_gone(&marks[i]), gone[i]);
	map(first, n);
}

/* Compared with a plain array. */
START_TEST(any_order)
{
	bool gone[MARKS] = { 0 };

	if (is_off())
		return;
	for (int step = 0; step < STEPS; step++) {
		uint32_t i = any(MARKS);

		if (step % 16 == 0) {
			replace(gone);
		} else if (marks[i].end) {
			drop(&marks[i]);
			atomic_store(&marks[i].is_gone, false);
			gone[i] = false;
		} else {
			size_t first = any((uint32_t)(PAGES * page - 1));
			size_t n = 1 + any((uint32_t)(3 * page));

			if (first + n > PAGES * page)
				n = PAGES * page - first;
			ck_assert(add(&marks[i], first, first + n));
		}
	}
	for (int i = 0; i < MARKS; i++)
		if (marks[i].end)
			drop(&marks[i]);
}
END_TEST

/* A mark that shares its page with a removed one is still watched. */
START_TEST(shared_page)
{
	if (is_off())
		return;
	ck_assert(add(&marks[0], 10, 20));
	ck_assert(add(&marks[1], 30, page + 1));
	ck_assert(add(&marks[2], 2 * page - 1, 2 * page));
	drop(&marks[0]);
	drop(&marks[2]);
	munmap(memory, page);
	ck_assert(is_gone(&marks[1]));
	ck_assert(!is_gone(&marks[0]) && !is_gone(&marks[2]));
	drop(&marks[1]);
	map(0, 1);
}
END_TEST

/* Unmapped before and after a mark has replaced another one. */
START_LOOP_TEST(moved, 2)
{
	if (is_off())
		return;
	ck_assert(add(&marks[0], 0, page));
	ck_assert(add(&marks[1], 0, page));
	if (_i == 0)
		munmap(memory, page);
	ck_assert_int_eq(is_gone(&marks[1]), _i == 0);
	drop(&marks[0]);
	atomic_store(&marks[0].is_gone, false);
	unmap_mark_move(&marks[0].mark, &marks[1].mark, &marks[0].is_gone);
	atomic_store(&marks[1].is_gone, false);
	ck_assert_int_eq(is_gone(&marks[0]), _i == 0);
	drop(&marks[1]);
	if (_i == 1)
		munmap(memory, page);
	ck_assert(is_gone(&marks[0]) && !is_gone(&marks[1]));
	drop(&marks[0]);
	map(0, 1);
}
END_TEST

START_TEST(not_mapped)
{
	if (is_off())
		return;
	munmap(memory, page);
	ck_assert(!add(&marks[0], 0, page));
	drop(&marks[0]);
	map(0, 1);
}
END_TEST

/* While is_changing, the kernel seems to have a message that never arrives. The ioctl() that
 * test_mapping.c puts in its place calls this one. */
static bool is_changing;
static unsigned n_asked;

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request == UFFDIO_WRITEPROTECT && is_changing) {
		n_asked++;
		errno = EAGAIN;
		return -1;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* A mark has its effect nevertheless, and only the first one waits. */
START_TEST(message_never_arrives)
{
	if (is_off())
		return;
	is_changing = true;
	ck_assert(add(&marks[0], 0, page));
	ck_assert_uint_gt(n_asked, 1);
	n_asked = 0;
	ck_assert(add(&marks[1], page, 2 * page));
	ck_assert_uint_eq(n_asked, 1);
	munmap(memory, page);
	ck_assert(is_gone(&marks[0]) && !is_gone(&marks[1]));
	is_changing = false;
	ck_assert(add(&marks[2], 2 * page, 3 * page));
	for (int i = 0; i < 3; i++)
		drop(&marks[i]);
	map(0, 1);
}
END_TEST

/* `is_inherited`: the child has marks in what the parent opened. Otherwise it closes that. */
static bool child_works(bool is_inherited)
{
	static struct unmap_user own;
	struct mark *mark = &marks[1];
	bool is_right;

	/* The parent's. */
	drop(&marks[0]);
	unmap_mark_open(is_inherited ? &user : &own);
	if (!add(mark, page, 2 * page))
		return false;
	if (!is_inherited)
		unmap_mark_close(&user);
	munmap(memory + page, page);
	is_right = is_gone(mark);
	drop(mark);
	unmap_mark_close(is_inherited ? &user : &own);
	return is_right;
}

/* ThreadSanitizer does not support threads in children of processes with threads. */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER 0
#endif

/* Each process has its own marks. */
START_RANGE_TEST(fork_with_marks, 0, THREAD_SANITIZER ? 0 : 2)
{
	pid_t child;
	int status;

	if (is_off())
		return;
	ck_assert(add(&marks[0], 0, page));
	child = fork();
	if (child == 0)
		_exit(!child_works(_i));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert(!is_gone(&marks[0]));
	munmap(memory, page);
	ck_assert(is_gone(&marks[0]));
	drop(&marks[0]);
	map(0, 1);
}
END_TEST

TEST_MAIN(unmap_mark)
{
	return run_suite_unforked(all_tests(start, finish));
}
