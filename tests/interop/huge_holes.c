/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * huge-holes N: leaves N huge pages of 2 MiB free, no two of them adjacent, and holds the pages in
 * between until it is killed. It needs 2 N free huge pages and a few more. For guests, where it
 * runs as root.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, SMALL_PAGE = 4096, MOST = 1000 };

#define FRAME_MASK ((UINT64_C(1) << 55) - 1)

struct page {
	void *addr;
	uint64_t physical; /* in units of huge pages */
};

static int compare(const void *a, const void *b)
{
	uint64_t one = ((const struct page *)a)->physical;
	uint64_t two = ((const struct page *)b)->physical;

	return one < two ? -1 : one > two;
}

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static void take(struct page *page, int pagemap)
{
	uint64_t entry;

	page->addr = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
	if (page->addr == MAP_FAILED)
		die("mmap");
	memset(page->addr, 0, 1);
	if (pread(pagemap, &entry, sizeof(entry),
		    (off_t)((uintptr_t)page->addr / SMALL_PAGE * sizeof(entry))) != sizeof(entry))
		die("/proc/self/pagemap");
	page->physical = (entry & FRAME_MASK) / (HUGE_PAGE / SMALL_PAGE);
}

int main(int argc, char **argv)
{
	static struct page pages[MOST];
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	long wanted = argc == 2 ? atol(argv[1]) : 0, n = 2 * wanted, freed = 0;
	uint64_t last = 0;

	if (wanted < 1 || n > MOST || pagemap < 0) {
		fprintf(stderr, "usage: huge-holes N, at most %d, as root\n", MOST / 2);
		return 2;
	}
	for (long i = 0; i < n; i++)
		take(&pages[i], pagemap);
	qsort(pages, (size_t)n, sizeof(pages[0]), compare);
	for (long i = 0; i < n && freed < wanted; i++) {
		if (freed && pages[i].physical <= last + 1)
			continue;
		last = pages[i].physical;
		munmap(pages[i].addr, HUGE_PAGE);
		freed++;
	}
	printf("%ld huge pages are free, none beside another\n", freed);
	fflush(stdout);
	for (;;)
		pause();
}
