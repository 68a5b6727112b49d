/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages: written by one process, read by another that does not trust it. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/control/page.h"
#include "tests/fixtures/limited_child.h"

#include "tests/fixtures/program.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE };
enum { SLOTS = 8, WRITES = 1000000, PAUSE = 20, TRIES = 50000000 };

static struct page *page;
static int page_fd;

static void setup(void)
{
	page = page_create(SLOTS, &page_fd);
	ck_assert_ptr_nonnull(page);
}

static void teardown(void)
{
	munmap(page, page_size(SLOTS));
	if (page_fd >= 0)
		close(page_fd);
}

/* Opens it, or returns the reason why not. */
static const char *try_open(int fd)
{
	struct page_view view = { 0 };
	const char *why = page_open(fd, &view);

	ck_assert((view.close != NULL) == !why);
	return why;
}

static struct page_view open_page(void)
{
	struct page_view view;
	const char *why = page_open(page_fd, &view);

	ck_assert_msg(!why, "%s", why);
	return view;
}

START_TEST(opened)
{
	struct page_view view = open_page();
	struct page head;
	struct page_qp qp;

	ck_assert_uint_eq(view.slots, SLOTS);
	page->counters = 1;
	page->counter[0].value = 99;
	atomic_store(&page->published_ns, 17);
	ck_assert(page_read_head(&view, &head));
	ck_assert_uint_eq(head.counters, 1);
	ck_assert_uint_eq(head.counter[0].value, 99);
	ck_assert_uint_eq(page_published_ns(&view), 17);
	ck_assert(!page_read_qp(&view, 3, &qp));
	page_write_begin(&page->qp[3]);
	page->qp[3].qpn = 77;
	page->qp[3].tx_bytes = 1234;
	memset(page->qp[3].error, 'x', PAGE_REASON);
	/* It is being written. */
	ck_assert(!page_read_qp(&view, 3, &qp));
	page_write_end(&page->qp[3]);
	ck_assert(page_read_qp(&view, 3, &qp));
	ck_assert_uint_eq(qp.qpn, 77);
	ck_assert_uint_eq(qp.tx_bytes, 1234);
	ck_assert_uint_eq(strlen(qp.error), PAGE_REASON - 1);
}
END_TEST

START_TEST(closed)
{
	struct page_view view = open_page();

	page_fd = -1;
	view.close(&view);
	while (fcntl(view.fd, F_GETFD) >= 0)
		sched_yield();
}
END_TEST

/* No process that gets the descriptor can write, or remove pages. */
START_TEST(sealed)
{
	ck_assert_int_ne(ftruncate(page_fd, 0), 0);
	ck_assert_int_eq(write(page_fd, "x", 1), -1);
	ck_assert_ptr_eq(
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0), MAP_FAILED);
}
END_TEST

static int memory(size_t size, unsigned seals)
{
	struct page header = { .magic = PAGE_MAGIC, .version = PAGE_VERSION, .slots = SLOTS };
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(pwrite(fd, &header, sizeof(header), 0), 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void refused(int fd)
{
	ck_assert_ptr_nonnull(try_open(fd));
	close(fd);
}

START_TEST(hostile_descriptors)
{
	char name[] = "/tmp/ferrule-page-XXXXXX";
	int ends[2], fd;

	fd = memory(page_size(SLOTS), SEALS);
	ck_assert_ptr_null(try_open(fd));
	close(fd);
	refused(memory(page_size(SLOTS), 0));
	for (unsigned seal = 1; seal <= SEALS; seal <<= 1)
		if (SEALS & seal)
			refused(memory(page_size(SLOTS), SEALS & ~seal));
	refused(memory(page_size(SLOTS) - 1, SEALS));
	refused(memory(sizeof(struct page) - 1, SEALS));
	refused(memory(0, SEALS));
	refused(memory(page_size(PAGE_SLOTS) + 1, SEALS));
	fd = mkstemp(name);
	ck_assert_int_ge(fd, 0);
	unlink(name);
	ck_assert_int_eq(ftruncate(fd, (off_t)page_size(SLOTS)), 0);
	refused(fd);
	ck_assert_int_eq(pipe(ends), 0);
	refused(ends[0]);
	close(ends[1]);
	refused(open("/dev/zero", O_RDONLY));
	ck_assert_ptr_nonnull(try_open(-1));
}
END_TEST

/* Reading a hole of it kills the reader if no huge page is left. */
START_TEST(huge_pages)
{
	const off_t size = 2 << 20;
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC | MFD_HUGETLB);

	if (fd < 0)
		return; /* this kernel has none */
	ck_assert_int_eq(ftruncate(fd, size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_assert_ptr_nonnull(strstr(try_open(fd), "ordinary memory"));
	close(fd);
}
END_TEST

START_TEST(hostile_headers)
{
	page->magic ^= 1;
	ck_assert_ptr_nonnull(try_open(page_fd));
	page->magic ^= 1;
	page->version++;
	ck_assert_ptr_nonnull(try_open(page_fd));
	page->version--;
	page->slots = SLOTS + 1;
	ck_assert_ptr_nonnull(try_open(page_fd));
	page->slots = UINT32_MAX;
	ck_assert_ptr_nonnull(try_open(page_fd));
	/* So many that their size, truncated to 32 bits, would fit. */
	page->slots = UINT32_MAX / (uint32_t)sizeof(struct page_qp) + 1;
	ck_assert_ptr_nonnull(try_open(page_fd));
	page->slots = SLOTS - 1;
	ck_assert_ptr_null(try_open(page_fd));
}
END_TEST

/* All numbers of a slot are equal, in every state that a reader accepts. */
static void write_number(struct page_qp *qp, uint32_t number)
{
	page_write_begin(qp);
	qp->qpn = number | 1;
	qp->tx_packets = qp->rx_bytes = qp->last_tx_ns = qp->error_ns = number | 1;
	memset(qp->error, 'a' + (int)(number % 26), sizeof(qp->error) - 1);
	page_write_end(qp);
}

static void check_number(const struct page_qp *qp)
{
	ck_assert_uint_eq(qp->qpn, qp->tx_packets);
	ck_assert_uint_eq(qp->qpn, qp->rx_bytes);
	ck_assert_uint_eq(qp->qpn, qp->last_tx_ns);
	ck_assert_uint_eq(qp->qpn, qp->error_ns);
	for (size_t i = 1; i < sizeof(qp->error) - 1; i++)
		ck_assert_int_eq(qp->error[i], qp->error[0]);
}

/* With a pause in between, or nobody would ever read it. */
static void write_forever(struct page_qp *qp)
{
	for (uint32_t i = 1;; i++) {
		write_number(qp, i);
		for (volatile unsigned k = 0; k < PAUSE; k = k + 1)
			;
	}
}

START_TEST(concurrent_writer)
{
	struct page_view view = open_page();
	unsigned read = 0, last = 0;
	struct page_qp qp;
	pid_t pid;

	write_number(&page->qp[0], 0);
	pid = fork();
	if (pid == 0)
		write_forever(&page->qp[0]);
	/* Waits until the writer has made progress. */
	for (unsigned i = 0; i < TRIES && last < WRITES; i++) {
		if (!page_read_qp(&view, 0, &qp))
			continue;
		check_number(&qp);
		last = qp.qpn;
		read++;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_uint_gt(read, 1);
	ck_assert_uint_ge(last, WRITES);
}
END_TEST

/* A writer that died in the middle, or is malicious. */
START_TEST(never_finished)
{
	struct page_view view = open_page();
	struct page_qp qp;

	write_number(&page->qp[1], 5);
	page_write_begin(&page->qp[1]);
	ck_assert(!page_read_qp(&view, 1, &qp));
}
END_TEST

static bool is_refused(void)
{
	int fd = -1;

	return !page_create(PAGE_SLOTS, &fd) && errno == EFBIG && fd == -1;
}

START_TEST(limit_of_file_sizes)
{
	check_in_limited_child(4096, is_refused);
}
END_TEST

TEST_MAIN(page)
{
	return run_suite(all_tests(setup, teardown));
}
