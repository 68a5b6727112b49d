/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks that stop being shared: fork(), madvise(). */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/malloc/blocks.h"

#include "tests/fixtures/program.h"

enum { PAGE = 4096, SIZE = 64 * PAGE };

static uint8_t *alloc(void)
{
	bool is_zero;
	uint8_t *addr;

	blocks_init(&(struct block_limits){ .kept = 1 << 20, .first_fd = 100 });
	addr = block_alloc(SIZE, 0, 0, &is_zero);
	ck_assert_ptr_nonnull(addr);
	memset(addr, 1, SIZE - PAGE);
	return addr;
}

static unsigned count_shareable(void)
{
	struct block_counts counts;

	blocks_count(&counts);
	return counts.shareable;
}

/* The content of alloc(), whose last page was never written. */
static bool is_as_before(const uint8_t *addr)
{
	for (size_t i = 0; i < SIZE; i++)
		if (addr[i] != (i < SIZE - PAGE))
			return false;
	return true;
}

static int status_of(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

/* Parent and child write other values, and see only their own. */
static void check_apart(uint8_t *addr)
{
	int to_child[2], to_parent[2];
	char byte = 0;
	pid_t pid;

	ck_assert(!pipe(to_child) && !pipe(to_parent));
	pid = fork();
	if (pid == 0) {
		bool is_right;

		close(to_child[1]);
		/* The parent has written. */
		is_right = read(to_child[0], &byte, 1) == 1 && is_as_before(addr);
		memset(addr, 3, SIZE);
		is_right = write(to_parent[1], &byte, 1) == 1 && is_right;
		is_right = read(to_child[0], &byte, 1) == 1 && is_right;
		for (size_t i = 0; i < SIZE; i++)
			is_right = is_right && addr[i] == 3;
		is_right = block_free(addr) && is_right;
		_exit(!is_right);
	}
	close(to_child[0]);
	close(to_parent[1]);
	memset(addr, 2, SIZE);
	ck_assert_int_eq(write(to_child[1], &byte, 1), 1);
	ck_assert_int_eq(read(to_parent[0], &byte, 1), 1);
	for (size_t i = 0; i < SIZE; i++)
		ck_assert_uint_eq(addr[i], 2);
	memset(addr, 4, SIZE);
	ck_assert_int_eq(write(to_child[1], &byte, 1), 1);
	ck_assert_int_eq(status_of(pid), 0);
	for (size_t i = 0; i < SIZE; i++)
		ck_assert_uint_eq(addr[i], 4);
}

START_TEST(fork_makes_blocks_private)
{
	uint8_t *addr = alloc();
	uint64_t frees = block_share_frees();

	check_apart(addr);
	ck_assert_uint_eq(count_shareable(), 0);
	ck_assert_ptr_null(block_share_find(addr, 1));
	ck_assert_uint_gt(block_share_frees(), frees);
	/* A second time, the pages are private in any case. */
	memset(addr, 1, SIZE);
	memset(addr + SIZE - PAGE, 0, PAGE);
	check_apart(addr);
	ck_assert(block_free(addr));
}
END_TEST

START_TEST(a_block_in_use_stays_shared_and_the_child_gets_a_copy)
{
	uint8_t *addr = alloc(), *there;
	struct share *share = block_share_find(addr, SIZE);

	there = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, share->fd, 0);
	ck_assert_ptr_ne(there, MAP_FAILED);
	check_apart(addr);
	ck_assert_uint_eq(count_shareable(), 1);
	ck_assert(!atomic_load(&share->freed) && there[0] == 4);
	addr[0] = 7;
	ck_assert_uint_eq(there[0], 7);
	block_share_put(share);
	ck_assert(block_free(addr));
}
END_TEST

/* libibverbs does that with registered memory. The child must not read it at its address. */
START_TEST(memory_in_use_that_children_do_not_inherit)
{
	uint8_t *addr = alloc();
	struct share *share = block_share_find(addr, SIZE);

	ck_assert_int_eq(madvise(addr, SIZE, MADV_DONTFORK), 0);
	check_apart(addr);
	block_share_put(share);
}
END_TEST

START_TEST(found_blocks_stay_shared_while_they_are_held)
{
	uint8_t *found = alloc(), *other = alloc();

	block_share_hold();
	block_share_put(block_share_find(found, 1));
	check_apart(found);
	ck_assert_uint_eq(count_shareable(), 1);
	block_share_release();
	memset(other, 1, SIZE);
	memset(other + SIZE - PAGE, 0, PAGE);
	check_apart(other);
	ck_assert_uint_eq(count_shareable(), 0);
}
END_TEST

START_TEST(a_child_shares_no_kept_blocks)
{
	uint8_t *addr = alloc();
	pid_t pid;

	ck_assert(block_free(addr));
	pid = fork();
	if (pid == 0) {
		struct block_counts counts;

		blocks_count(&counts);
		_exit(counts.blocks || counts.kept || counts.kept_bytes);
	}
	ck_assert_int_eq(status_of(pid), 0);
	ck_assert_uint_eq(count_shareable(), 1);
	ck_assert_ptr_eq(alloc(), addr);
}
END_TEST

START_TEST(a_child_allocates_shareable_blocks)
{
	pid_t pid;

	alloc();
	pid = fork();
	if (pid == 0) {
		uint8_t *addr = alloc();
		struct share *share = block_share_find(addr, SIZE);

		_exit(!share || share->addr != addr || count_shareable() != 1);
	}
	ck_assert_int_eq(status_of(pid), 0);
}
END_TEST

/* Without a pipe there is no copy: the child has no such memory, rather than the parent's. */
START_TEST(without_descriptors_a_child_gets_no_block_in_use)
{
	uint8_t *addr = alloc();
	struct share *share = block_share_find(addr, SIZE);
	struct rlimit limit;
	pid_t pid;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 3;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	pid = fork();
	if (pid == 0) {
		uint8_t *other = mmap(
			NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		/* No other memory is taken for the block. */
		if (block_share_find(addr, 1) || (other < addr + SIZE && other + SIZE > addr))
			_exit(0);
		addr[0] = 9;
		_exit(0);
	}
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_ne(status_of(pid), 0);
	ck_assert_uint_eq(addr[0], 1);
	block_share_put(share);
}
END_TEST

START_TEST(dropped_pages_read_as_zeros)
{
	uint8_t *addr = alloc();

	ck_assert_int_eq(block_drop_pages(addr + PAGE, 2 * PAGE - 1), 0);
	ck_assert_uint_eq(addr[PAGE - 1], 1);
	for (size_t i = PAGE; i < 3 * PAGE; i++)
		ck_assert_uint_eq(addr[i], 0);
	ck_assert_uint_eq(addr[3 * PAGE], 1);
	ck_assert_ptr_null(block_share_find(addr, 1));
	addr[PAGE] = 5;
	ck_assert_int_eq(block_drop_pages(addr, SIZE), 0);
	for (size_t i = 0; i < SIZE; i++)
		ck_assert_uint_eq(addr[i], 0);
	ck_assert(block_free(addr));
	ck_assert_uint_eq(count_shareable(), 0);
}
END_TEST

/* Packets refer to registered memory, and peers must not read what it was before. */
START_TEST(a_block_in_use_stays_shared)
{
	uint8_t *addr = alloc(), *there;
	struct share *share = block_share_find(addr, SIZE);

	there = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, share->fd, 0);
	ck_assert_ptr_ne(there, MAP_FAILED);
	ck_assert_int_eq(block_make_private(addr), 0);
	ck_assert_int_eq(block_drop_pages(addr + PAGE, PAGE), 0);
	ck_assert(!atomic_load(&share->freed) && count_shareable() == 1);
	for (size_t i = 0; i < 3 * PAGE; i++)
		ck_assert(addr[i] == (i / PAGE != 1) && there[i] == addr[i]);
	block_share_put(share);
	ck_assert_int_eq(block_make_private(addr), 0);
	ck_assert_uint_eq(count_shareable(), 0);
}
END_TEST

START_TEST(a_private_block_needs_no_file)
{
	uint8_t *addr = alloc();
	struct share *share = block_share_find(addr, SIZE);
	int fd = share->fd;

	block_share_put(share);
	ck_assert_int_eq(block_make_private(addr), 0);
	ck_assert_int_eq(block_make_private(addr), 0);
	ck_assert(is_as_before(addr));
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert(block_free(addr));
}
END_TEST

/* Cases count the blocks of the process. */
TEST_MAIN(private)
{
	return run_suite_forked(all_tests(NULL, NULL));
}
