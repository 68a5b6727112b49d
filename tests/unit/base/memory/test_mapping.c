/* SPDX-License-Identifier: BSD-3-Clause */
/* The kind of mapped memory, as new kernels and old ones report it. */
#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/ioctl.h>
#include <sys/mman.h>

#include "lib/base/memory/mapping.h"

#include "tests/fixtures/program.h"

enum { PAGES = 8 };

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);

static bool is_old;
static uintptr_t page;
static char *memory;

/* The linker puts this in the place of ioctl(). */
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	if (!is_old)
		return __real_ioctl(fd, request, arg);
	errno = ENOTTY;
	return -1;
}

/* Checks `n` pages, or those from `at` on. */
static char *map(char *at, size_t n, int flags, int fd)
{
	char *addr = mmap(
		at, n * page, PROT_READ | PROT_WRITE, flags | (at ? MAP_FIXED : 0), fd, 0);

	ck_assert_ptr_ne(addr, MAP_FAILED);
	return addr;
}

static size_t page_of(const char *first, size_t n)
{
	return mapping_private_page((uintptr_t)first, (uintptr_t)first + n * page);
}

static void start(void)
{
	page = (uintptr_t)sysconf(_SC_PAGESIZE);
	memory = map(NULL, PAGES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void finish(void)
{
	munmap(memory, PAGES * page);
	is_old = false;
}

START_LOOP_TEST(kinds, 2)
{
	int file = memfd_create("a file", MFD_CLOEXEC);
	char *heap;

	is_old = _i;
	ck_assert_int_eq(ftruncate(file, (off_t)(PAGES * page)), 0);
	heap = malloc(100);
	ck_assert_uint_eq(mapping_private_page((uintptr_t)heap + 3, (uintptr_t)heap + 99), page);
	free(heap);
	ck_assert_uint_eq(page_of(memory, PAGES), page);
	/* A range of several mappings. */
	mprotect(memory + 2 * page, page, PROT_READ);
	ck_assert_uint_eq(page_of(memory, PAGES), page);
	ck_assert_uint_eq(
		mapping_private_page((uintptr_t)memory + 5, (uintptr_t)memory + 3 * page), page);
	map(memory + 4 * page, 1, MAP_SHARED | MAP_ANONYMOUS, -1);
	ck_assert_uint_eq(page_of(memory, 4), page);
	ck_assert_uint_eq(page_of(memory, 5), 0);
	map(memory + 4 * page, 1, MAP_PRIVATE, file);
	ck_assert_uint_eq(page_of(memory + 4 * page, 1), 0);
	ck_assert_uint_eq(page_of(memory + 4 * page, 2), 0);
	map(memory + 4 * page, 1, MAP_SHARED, file);
	ck_assert_uint_eq(page_of(memory + 3 * page, 2), 0);
	munmap(memory + 4 * page, page);
	ck_assert_uint_eq(page_of(memory, 4), page);
	ck_assert_uint_eq(page_of(memory, 5), 0);
	ck_assert_uint_eq(page_of(memory + 4 * page, 1), 0);
	ck_assert_uint_eq(mapping_private_page(UINTPTR_MAX - page, UINTPTR_MAX), 0);
	close(file);
}
END_TEST

TEST_MAIN(mapping)
{
	return run_suite(all_tests(start, finish));
}
