/* SPDX-License-Identifier: BSD-3-Clause */
/* See the kernel's Documentation/admin-guide/mm/pagemap.rst. */
#include "drivers/dpdk/physical.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bits of an entry in /proc/self/pagemap. */
#define PFN_MASK   ((UINT64_C(1) << 55) - 1)
#define IS_FILE    (UINT64_C(1) << 61) /* file or shared anonymous memory */
#define IS_PRESENT (UINT64_C(1) << 63)
/* Bit of an entry in /proc/kpageflags: the page belongs to hugetlbfs. */
#define IS_HUGE (UINT64_C(1) << 17)

enum { BATCH = 512 };

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Reads entries from `first` on. Both files are arrays of entries. */
static bool read_entries(int fd, uint64_t first, uint64_t entries[], size_t n)
{
	size_t size = n * sizeof(entries[0]);

	return pread(fd, entries, size, (off_t)(first * sizeof(entries[0]))) == (ssize_t)size;
}

/* Returns the length of the contiguous run of hugetlbfs pages, or 0. */
static size_t huge_run(int flags_fd, const uint64_t frames[], size_t n)
{
	uint64_t flags[BATCH];
	size_t run = 1;

	while (run < n && frames[run] == frames[0] + run)
		run++;
	if (!read_entries(flags_fd, frames[0], flags, run))
		return 0;
	for (size_t i = 0; i < run; i++)
		if (!(flags[i] & IS_HUGE))
			return 0;
	return run;
}

static bool find_batch(int map_fd, int flags_fd, const uint8_t *addr, size_t n, rte_iova_t to[])
{
	uint64_t frames[BATCH];
	size_t page = page_size();

	if (madvise((void *)(uintptr_t)addr, n * page, MADV_POPULATE_WRITE))
		return false;
	if (!read_entries(map_fd, (uintptr_t)addr / page, frames, n))
		return false;
	for (size_t i = 0; i < n; i++) {
		bool stays = (frames[i] & IS_PRESENT) && (frames[i] & IS_FILE);

		frames[i] &= PFN_MASK;
		if (!stays || !frames[i])
			return false;
		to[i] = frames[i] * page;
	}
	for (size_t i = 0, run; i < n; i += run) {
		run = huge_run(flags_fd, frames + i, n - i);
		if (!run)
			return false;
	}
	return true;
}

rte_iova_t *physical_pages(const uint8_t *addr, size_t len)
{
	size_t page = page_size(), n = len / page;
	int map_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	int flags_fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	rte_iova_t *pages = malloc(n * sizeof(pages[0]));
	bool found = map_fd >= 0 && flags_fd >= 0 && pages;

	for (size_t i = 0; found && i < n; i += BATCH)
		found = find_batch(map_fd, flags_fd, addr + i * page, n - i < BATCH ? n - i : BATCH,
			pages + i);
	if (map_fd >= 0)
		close(map_fd);
	if (flags_fd >= 0)
		close(flags_fd);
	if (found)
		return pages;
	free(pages);
	return NULL;
}

rte_iova_t physical_address(const rte_iova_t pages[], size_t offset, uint32_t *len)
{
	size_t page = page_size(), at = offset / page;
	uint32_t together = (uint32_t)(page - offset % page);

	while (together < *len && pages[at + 1] == pages[at] + page) {
		together += (uint32_t)page;
		at++;
	}
	if (together < *len)
		*len = together;
	return pages[offset / page] + offset % page;
}
