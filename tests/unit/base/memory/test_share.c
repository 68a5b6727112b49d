/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/memory/memfd.h"
#include "lib/base/memory/share.h"
#include "tests/fixtures/limited_child.h"

#include "tests/fixtures/program.h"

static size_t page;

static uint64_t frees_then; /* share_frees() when something was unmapped last */

int munmap(void *addr, size_t len)
{
	frees_then = share_frees();
	return (int)syscall(SYS_munmap, addr, len);
}

static struct {
	unsigned interrupted, succeed; /* so many calls, in this order; then there is no memory */
	bool is_played;
} allocating;

int fallocate(int fd, int mode, off_t at, off_t len)
{
	if (!allocating.is_played)
		return (int)syscall(SYS_fallocate, fd, mode, at, len);
	if (allocating.interrupted > 0) {
		allocating.interrupted--;
		errno = EINTR;
		return -1;
	}
	if (allocating.succeed > 0) {
		allocating.succeed--;
		return 0;
	}
	errno = ENOSPC;
	return -1;
}

static void find_page_size(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
}

START_LOOP_TEST(memory_is_zeroed_and_whole_pages, 5)
{
	static const size_t sizes[] = { 1, 100, 4096, 4097, 3 << 20 };
	size_t size = sizes[_i];
	uint8_t *addr = share_alloc(size);
	struct share *share;
	uint8_t any = 0;

	ck_assert_ptr_nonnull(addr);
	share = share_find(addr, size);
	ck_assert_ptr_nonnull(share);
	ck_assert_ptr_eq(share->addr, addr);
	ck_assert_uint_eq(share->size, (size + page - 1) / page * page);
	ck_assert_uint_eq((uintptr_t)addr % page, 0);
	for (size_t i = 0; i < share->size; i++)
		any |= addr[i];
	ck_assert_uint_eq(any, 0);
	memset(addr, 0xa5, share->size);
	share_put(share);
	ck_assert(share_free(addr));
}
END_TEST

START_TEST(find_takes_what_lies_inside)
{
	uint8_t *addr = share_alloc(2 * page);
	struct {
		const uint8_t *at;
		size_t len;
		bool found;
	} rows[] = {
		{ addr, 0, true },
		{ addr, 2 * page, true },
		{ addr, 2 * page + 1, false },
		{ addr + 1, 2 * page - 1, true },
		{ addr + 1, 2 * page, false },
		{ addr + 2 * page - 1, 1, true },
		{ addr + 2 * page - 1, 2, false },
		{ addr - 1, 1, false },
		{ addr - 1, 2, false },
		{ addr + page, SIZE_MAX, false },
		{ (const uint8_t *)&page, 1, false },
	};

	ck_assert_ptr_nonnull(addr);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct share *share = share_find(rows[i].at, rows[i].len);

		ck_assert_msg((share != NULL) == rows[i].found, "row %zu", i);
		if (share)
			share_put(share);
	}
	ck_assert(share_free(addr));
}
END_TEST

START_TEST(each_allocation_is_its_own)
{
	uint8_t *first = share_alloc(page), *second = share_alloc(page);
	struct share *a = share_find(first, page), *b = share_find(second, page);

	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_nonnull(b);
	ck_assert_ptr_ne(a, b);
	ck_assert_int_ne(a->fd, b->fd);
	ck_assert(share_free(first));
	ck_assert(atomic_load(&a->freed));
	ck_assert(!atomic_load(&b->freed));
	share_put(a);
	share_put(b);
	ck_assert(share_free(second));
}
END_TEST

START_TEST(free_wants_the_start)
{
	uint8_t *addr = share_alloc(page);
	int other;

	ck_assert(!share_free(addr + 1));
	ck_assert(!share_free(&other));
	ck_assert(!share_free(NULL));
	ck_assert(share_free(addr));
	ck_assert(!share_free(addr));
}
END_TEST

START_TEST(too_much_is_refused)
{
	errno = 0;
	ck_assert_ptr_null(share_alloc(SIZE_MAX));
	ck_assert_int_eq(errno, ENOMEM);
	errno = 0;
	ck_assert_ptr_null(share_alloc((size_t)PTRDIFF_MAX + 1));
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

/* The peers' view: the pages exist as long as a process holds the share, with the written bytes. */
START_TEST(outlives_free_while_it_is_held)
{
	uint8_t *addr = share_alloc(page);
	struct share *share = share_find(addr, page);
	const uint8_t *seen;
	int fd;

	ck_assert_ptr_nonnull(share);
	fd = share->fd;
	strcpy((char *)addr, "payload");
	seen = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	ck_assert_str_eq((const char *)seen, "payload");
	ck_assert(!atomic_load(&share->freed));
	ck_assert(share_free(addr));
	ck_assert(atomic_load(&share->freed));
	ck_assert_ptr_null(share_find(addr, page));
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	ck_assert_str_eq((const char *)seen, "payload");
	share_put(share);
	ck_assert_int_lt(fcntl(fd, F_GETFD), 0);
	ck_assert_str_eq((const char *)seen, "payload");
	munmap((void *)(uintptr_t)seen, page);
}
END_TEST

START_TEST(is_sealed)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	uint8_t *addr = share_alloc(page);
	struct share *share = share_find(addr, page);
	uint8_t *written;
	struct stat st;
	void *view;

	ck_assert_ptr_nonnull(share);
	/* Another process of this user may write until then; its mapping stays. */
	written = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, share->fd, 0);
	ck_assert_ptr_ne(written, MAP_FAILED);
	ck_assert_int_eq(share_seal(share), 0);
	ck_assert_int_eq(share_seal(share), 0);
	written[1] = 7;
	ck_assert_uint_eq(addr[1], 7);
	munmap(written, page);
	ck_assert_int_eq(fcntl(share->fd, F_GET_SEALS), seals);
	ck_assert_int_ne(fcntl(share->fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	ck_assert_int_eq(fstat(share->fd, &st), 0);
	ck_assert_uint_eq((size_t)st.st_size, share->size);
	ck_assert_int_ne(ftruncate(share->fd, 0), 0);
	ck_assert_int_ne(ftruncate(share->fd, (off_t)(2 * page)), 0);
	ck_assert_int_lt(write(share->fd, "x", 1), 0);
	ck_assert_ptr_eq(
		mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, share->fd, 0), MAP_FAILED);
	view = mmap(NULL, page, PROT_READ, MAP_SHARED, share->fd, 0);
	ck_assert_ptr_ne(view, MAP_FAILED);
	ck_assert_int_ne(mprotect(view, page, PROT_READ | PROT_WRITE), 0);
	munmap(view, page);
	/* The first mapping may still be written. */
	addr[0] = 1;
	ck_assert(fcntl(share->fd, F_GETFD) & FD_CLOEXEC);
	share_put(share);
	ck_assert(share_free(addr));
}
END_TEST

/* When the address may be another owner's, its free is visible. */
START_TEST(freed_before_it_is_unmapped)
{
	void *addr = share_alloc(page);
	uint64_t before = share_frees();

	ck_assert(share_free(addr));
	ck_assert_uint_eq(frees_then, before + 1);
}
END_TEST

/* The kernel's policy as the test sets it; '\0': it cannot be read. */
static void set_policy(char policy)
{
	static char path[] = "/tmp/share-policy-XXXXXX";
	int fd;

	memfd_policy_file = policy ? path : "/nonexistent";
	if (!policy)
		return;
	strcpy(path, "/tmp/share-policy-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, &policy, 1), 1);
	close(fd);
}

static void forget_policy(void)
{
	if (strncmp(memfd_policy_file, "/tmp/", 5) == 0)
		unlink(memfd_policy_file);
	memfd_policy_file = "/proc/sys/vm/overcommit_memory";
}

/* A kernel that does not overcommit provides all pages at once. */
START_LOOP_TEST(reserved_where_accounting_is_strict, 4)
{
	static const struct {
		char policy;
		bool is_reserved;
	} rows[] = { { '0', false }, { '1', false }, { '2', true }, { '\0', true } };
	const size_t size = 5 << 20;
	struct share *share;
	struct stat st;
	void *addr;

	set_policy(rows[_i].policy);
	addr = share_alloc(size);
	forget_policy();
	ck_assert_ptr_nonnull(addr);
	share = share_find(addr, size);
	ck_assert_int_eq(fstat(share->fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, rows[_i].is_reserved ? size : 0);
	share_put(share);
	ck_assert(share_free(addr));
}
END_TEST

/* Pages are allocated only where some are missing. */
START_TEST(reserved_once)
{
	const size_t size = 3 << 20;
	int fd = memfd_make("share", size), again, with_hole;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(memfd_reserve(fd, size), 0);
	allocating.is_played = true;
	again = memfd_reserve(fd, size);
	ck_assert_int_eq(syscall(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)page, (off_t)page),
		0);
	with_hole = memfd_reserve(fd, size);
	allocating.is_played = false;
	close(fd);
	ck_assert_int_eq(again, 0);
	ck_assert_int_eq(with_hole, -ENOMEM);
}
END_TEST

START_TEST(refused_where_nothing_is_left)
{
	int before = dup(0), after;
	void *addr;

	close(before);
	set_policy('2');
	allocating.is_played = true;
	allocating.interrupted = 3;
	allocating.succeed = 1;
	errno = 0;
	addr = share_alloc(3 << 20);
	allocating.is_played = false;
	forget_policy();
	ck_assert_ptr_null(addr);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(allocating.interrupted, 0);
	ck_assert_uint_eq(allocating.succeed, 0);
	ck_assert_ptr_nonnull(strstr(memfd_strerror(errno), "vm.overcommit"));
	/* Nothing is left behind. */
	after = dup(0);
	close(after);
	ck_assert_int_eq(after, before);
}
END_TEST

static bool is_refused_above_the_limit(void)
{
	void *addr = share_alloc(page);

	return addr && share_free(addr) && !share_alloc(page + 1) && errno == EFBIG &&
		strstr(memfd_strerror(errno), "ulimit -f");
}

START_TEST(limit_of_file_sizes)
{
	check_in_limited_child(page, is_refused_above_the_limit);
}
END_TEST

static void *allocate_and_free(void *arg)
{
	const atomic_bool *stop = arg;

	while (!atomic_load(stop))
		share_free(share_alloc(page));
	return NULL;
}

/* A child that was forked while another thread was in here can allocate. */
START_TEST(children)
{
	atomic_bool stop = false;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, allocate_and_free, &stop), 0);
	for (int i = 0; i < 200; i++) {
		pid_t pid = fork();
		int status;

		ck_assert_int_ge(pid, 0);
		if (pid == 0)
			_exit(!share_free(share_alloc(page)));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
}
END_TEST

TEST_MAIN(share)
{
	int failed;

	find_page_size();
	failed = run_suite(all_tests(NULL, NULL));
	return failed ? 1 : 0;
}
