/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of registrations: the kinds of memory that are kept, how much of it, and that the cache
 * leaves nothing behind in the process. */
#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tests/unit/api/memory/mr_cache_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/stopped_clock.h"

enum { MOMENT_MS = 60 }; /* after which the cache takes the new pages to be there */

/* ---- kinds of memory */

static char *map_file(int fd, int flags)
{
	char *addr = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	ck_assert_ptr_ne(addr, MAP_FAILED);
	return addr;
}

static int open_file(bool is_in_memory)
{
	char name[] = "/tmp/mr-cache-XXXXXX";
	int fd = is_in_memory ? memfd_create("mr-cache", MFD_CLOEXEC) : mkstemp(name);

	ck_assert_int_ge(fd, 0);
	if (!is_in_memory)
		unlink(name);
	ck_assert_int_eq(ftruncate(fd, SIZE), 0);
	return fd;
}

/* Its pages may be removed by another mapping or by the file, without notice. */
START_LOOP_TEST(what_others_reach_is_not_kept, 4)
{
	const int flags[] = { MAP_SHARED, MAP_SHARED, MAP_PRIVATE, MAP_SHARED | MAP_ANONYMOUS };
	int fd = open_file(_i > 0);
	char *file = map_file(_i < 3 ? fd : -1, flags[_i]);
	uint32_t key = key_of(file, SIZE);

	ck_assert_uint_eq(stats().unwatched, 1);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(ftruncate(fd, SIZE), 0);
	ck_assert_uint_ne(key_of(file, SIZE), key);
	ck_assert_uint_eq(stats().deregistered, 2);
	munmap(file, SIZE);
	close(fd);
}
END_TEST

/* It is shared, but nobody can remove its pages. */
START_TEST(own_memory_is_kept)
{
	char *own;
	uint32_t key;

	if (!is_kept())
		return;
	own = frl_mem_alloc(SIZE);
	ck_assert_ptr_nonnull(own);
	key = key_of(own + 5, SIZE - 10);
	ck_assert_uint_eq(key_of(own, SIZE), key);
	frl_mem_free(own, SIZE);
	ck_assert_uint_eq(stats().invalidated, 1);
	own = frl_mem_alloc(SIZE);
	ck_assert_uint_ne(key_of(own, SIZE), key);
	frl_mem_free(own, SIZE);
}
END_TEST

enum { HUGE = 2 << 20 };

static const char pool[] = "/proc/sys/vm/nr_hugepages";

/* Sets the number of huge pages; if negative, that many more. Returns the number before, or -1 if
 * it cannot. */
static int set_pool(int pages)
{
	FILE *file = fopen(pool, "r+");
	int before = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%d", &before) != 1)
		before = -1;
	rewind(file);
	if (before >= 0 && fprintf(file, "%d", pages < 0 ? before - pages : pages) < 0)
		before = -1;
	return fclose(file) ? -1 : before;
}

START_TEST(huge_pages_are_kept)
{
	int before;
	uint32_t one, two;
	char *huge;

	if (!is_kept())
		return;
	before = set_pool(-2);
	huge = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
		-1, 0);
	if (huge != MAP_FAILED)
		huge[0] = 1;
	/* Pages in use stay until they are unmapped. */
	if (before >= 0)
		set_pool(before);
	if (huge == MAP_FAILED) {
		printf("skipped: no huge pages here\n");
		return;
	}
	one = key_of(huge + 5, PAGE);
	two = key_of(huge + HUGE / 2, PAGE);
	ck_assert_uint_eq(key_of(huge, PAGE), one);
	ck_assert_uint_eq(key_of(huge + HUGE / 2, PAGE), two);
	munmap(huge, HUGE);
	ck_assert_uint_eq(stats().unwatched, 0);
	ck_assert_uint_eq(stats().invalidated, 2);
}
END_TEST

/* The event about pages comes before they are removed: memory that is registered meanwhile is not
 * kept. */
START_TEST(given_back_a_moment_ago)
{
	uint32_t key, next;
	int same = 0;

	if (!is_kept())
		return;
	key_of(memory, SIZE);
	clock_stop();
	madvise(memory, PAGE, MADV_DONTNEED);
	key = key_of(memory, SIZE);
	next = key_of(memory, SIZE);
	ck_assert_uint_ne(next, key);
	clock_advance_ms(MOMENT_MS);
	clock_go_on();
	for (uint64_t limit_ns = hang_limit_ns(); !same && may_wait(limit_ns);) {
		key = key_of(memory, SIZE);
		same = key_of(memory, SIZE) == key;
	}
	ck_assert(same);
}
END_TEST

/* ---- limits */

static int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	int c, n = 0;

	ck_assert_ptr_nonnull(file);
	while ((c = fgetc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

/* Each separately watched range takes a mapping or two, of which a process may have 65530. */
START_TEST(nothing_is_left_behind)
{
	enum { REGIONS = 1000, KEPT = 8 };
	const struct frl_mr_cache_config config = { .max_regions = KEPT };
	char *scattered = mmap(NULL, 2L * REGIONS * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before;

	ck_assert_ptr_ne(scattered, MAP_FAILED);
	cache_again(&config);
	before = count_mappings();
	for (int i = 0; i < REGIONS; i++)
		key_of(scattered + 2L * i * PAGE, PAGE);
	ck_assert_int_lt(count_mappings(), before + 2 * KEPT + 10);
	frl_mr_cache_trim(cache);
	ck_assert_int_lt(count_mappings(), before + 10);
	munmap(scattered, 2L * REGIONS * PAGE);
}
END_TEST

static void set_capability(bool can_lock_all)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct __user_cap_data_struct *lock = &data[CAP_TO_INDEX(CAP_IPC_LOCK)];

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	lock->effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	if (can_lock_all)
		lock->effective |= lock->permitted & CAP_TO_MASK(CAP_IPC_LOCK);
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
}

/* A quarter of the memory that the process may lock by default, but 4 MiB at least. */
START_TEST(bytes_have_a_limit)
{
	const struct frl_mr_cache_config unlimited = { .max_bytes = UINT64_MAX };
	struct rlimit before, little = { .rlim_cur = 32 << 20, .rlim_max = 32 << 20 };
	const size_t length = 5 << 20;
	unsigned evicted = 1;
	char *large;

	if (!is_kept())
		return;
	getrlimit(RLIMIT_MEMLOCK, &before);
	if (before.rlim_max > little.rlim_max)
		little.rlim_max = before.rlim_max;
	/* Raising the limit needs privileges. */
	if (setrlimit(RLIMIT_MEMLOCK, &little)) {
		little = (struct rlimit){ .rlim_max = before.rlim_max };
		ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &little), 0);
		evicted = 2;
	}
	large = mmap(NULL, 2 * length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(large, MAP_FAILED);
	set_capability(false);
	cache_again(NULL);
	key_of(large, length);
	key_of(large + length, length);
	ck_assert_uint_eq(stats().evicted, evicted);
	cache_again(&unlimited);
	key_of(large, length);
	key_of(large + length, length);
	ck_assert_uint_eq(stats().evicted, 0);
	set_capability(true);
	setrlimit(RLIMIT_MEMLOCK, &before);
	munmap(large, 2 * length);
}
END_TEST

/* ---- without userfaultfd(2) */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);

static bool is_forbidden, has_no_device;

/* The linker puts these in the place of syscall() and ioctl(). */
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	const unsigned long new_userfaultfd = _IO(0xAA, 0x00);

	if (request != new_userfaultfd || !has_no_device)
		return __real_ioctl(fd, request, arg);
	errno = EPERM;
	return -1;
}

long __wrap_syscall(long number, ...)
{
	long arg[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (number != SYS_userfaultfd || !is_forbidden)
		return __real_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	errno = EPERM;
	return -1;
}

static int lines;
static char line[512];

static void take_line(enum frl_log_level level, const char *text, void *arg)
{
	(void)level;
	(void)arg;
	if (!strstr(text, "registered for each use"))
		return;
	lines++;
	snprintf(line, sizeof(line), "%s", text);
}

/* As in containers. The reason why nothing is kept is logged once; registering continues
 * without. */
START_LOOP_TEST(userfaultfd_is_forbidden, 2)
{
	uint32_t key;

	is_forbidden = true;
	has_no_device = _i;
	frl_set_log(take_line, FRL_LOG_INFO, NULL);
	cache_again(NULL);
	cache_again(NULL);
	key = key_of(memory, PAGE);
	if (!has_no_device && access("/dev/userfaultfd", R_OK | W_OK) == 0) {
		ck_assert_int_eq(lines, 0);
		ck_assert_uint_eq(key_of(memory, PAGE), key);
	} else {
		ck_assert_int_eq(lines, 1);
		ck_assert_ptr_nonnull(strstr(line, "seccomp"));
		ck_assert_ptr_nonnull(strstr(line, "/dev/userfaultfd"));
		ck_assert_uint_ne(key_of(memory, PAGE), key);
		ck_assert_uint_eq(stats().unwatched, 2);
	}
	frl_set_log(NULL, FRL_LOG_INFO, NULL);
	is_forbidden = has_no_device = false;
}
END_TEST

TEST_MAIN(mr_cache_memory)
{
	return run_suite(all_tests(cache_setup, cache_teardown));
}
