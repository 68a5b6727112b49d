/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Physical addresses of pinned memory. The case of real huge pages needs root and free ones, as the
 * guests of tests/interop/pmd.sh have them.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drivers/dpdk/physical.h"
#include "tests/fixtures/program.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, HUGE_PAGES = 2 };

/* ---- what lies together */

static const struct together_row {
	size_t offset;
	uint32_t len, together;
	rte_iova_t address;
} together_rows[] = {
	/* Pages 0 and 1 are adjacent, page 2 is elsewhere, page 3 is below it. */
	{ 0, 100, 100, 0x10000 },
	{ 0, PAGE, PAGE, 0x10000 },
	{ 0, PAGE + 1, PAGE + 1, 0x10000 },
	{ 0, 2 * PAGE, 2 * PAGE, 0x10000 },
	{ 0, 2 * PAGE + 1, 2 * PAGE, 0x10000 },
	{ PAGE - 1, 2, 2, 0x10fff },
	{ 2 * PAGE - 1, 2, 1, 0x11fff },
	{ PAGE + 8, 3 * PAGE - 8, PAGE - 8, 0x11008 },
	{ 2 * PAGE, 2 * PAGE, PAGE, 0x20000 },
	{ 3 * PAGE + 4095, 1, 1, 0x1ffff },
};

START_LOOP_TEST(pages_that_lie_together, ROWS(together_rows))
{
	static const rte_iova_t pages[] = { 0x10000, 0x11000, 0x20000, 0x1f000 };
	const struct together_row *row = &together_rows[_i];
	uint32_t len = row->len;

	ck_assert_uint_eq(physical_address(pages, row->offset, &len), row->address);
	ck_assert_uint_eq(len, row->together);
}
END_TEST

/* ---- what stays */

static uint8_t *map(int fd, int flags, size_t len)
{
	uint8_t *addr = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	ck_assert_ptr_ne(addr, MAP_FAILED);
	memset(addr, 1, len);
	return addr;
}

static void must_move(uint8_t *addr, size_t len)
{
	ck_assert_ptr_null(physical_pages(addr, len));
	munmap(addr, len);
}

START_TEST(ordinary_memory_may_move)
{
	must_move(map(-1, MAP_PRIVATE | MAP_ANONYMOUS, 3 * PAGE), 3 * PAGE);
	must_move(map(-1, MAP_SHARED | MAP_ANONYMOUS, 3 * PAGE), 3 * PAGE);
}
END_TEST

static int huge_file(void)
{
	int fd = memfd_create("physical", MFD_CLOEXEC | MFD_HUGETLB);

	if (fd >= 0 && posix_fallocate(fd, 0, HUGE_PAGES * HUGE_PAGE) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool has_huge_pages(void)
{
	int fd = geteuid() == 0 ? huge_file() : -1;

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* A child of this process writes to all of it. */
static void write_by_child(uint8_t *addr, size_t len)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		memset(addr, 2, len);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

START_TEST_IF(shared_huge_pages_stay, has_huge_pages())
{
	const size_t len = HUGE_PAGES * HUGE_PAGE;
	int fd = huge_file();
	uint8_t *addr = map(fd, MAP_SHARED, len);
	rte_iova_t *before = physical_pages(addr, len), *after;

	ck_assert_ptr_nonnull(before);
	for (size_t i = 0; i < len / PAGE; i++) {
		const rte_iova_t *first = &before[i - i % (HUGE_PAGE / PAGE)];

		ck_assert_uint_eq(*first % HUGE_PAGE, 0);
		ck_assert_uint_eq(before[i], *first + i * PAGE % HUGE_PAGE);
	}
	write_by_child(addr, len);
	memset(addr, 3, len);
	after = physical_pages(addr, len);
	ck_assert_ptr_nonnull(after);
	ck_assert_mem_eq(after, before, len / PAGE * sizeof(*after));
	free(before);
	free(after);
	munmap(addr, len);
	/* A private page is another one after a fork() and a write. */
	must_move(map(fd, MAP_PRIVATE, HUGE_PAGE), HUGE_PAGE);
	close(fd);
}
END_TEST

TEST_FILE(physical)
