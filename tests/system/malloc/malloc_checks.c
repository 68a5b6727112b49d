/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks malloc() and its family as a program below `ferrule-run --share-malloc` sees them:
 * `malloc-checks CASE` ends with status 0 if all is right, and prints the failed check otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, PAGE = 4096 };

#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition); \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

/* The compiler does not know these values. */
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1, half = SIZE_MAX / 2;

static bool is_filled(const uint8_t *at, uint8_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (at[i] != value)
			return false;
	return true;
}

/* Returns how much of the mapping that contains `addr` is in memory, KiB, or -1. `ret_shared`:
 * other processes can map it. */
static long resident(const void *addr, bool *ret_shared)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	bool is_here = false;
	char line[4096];
	long kib = -1;

	CHECK(maps);
	while (kib < 0 && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		char mode[5];

		if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) == 3) {
			is_here = (uintptr_t)addr >= start && (uintptr_t)addr < end;
			*ret_shared = mode[3] == 's' && strstr(line, "ferrule-malloc");
		}
		if (is_here && sscanf(line, "Rss: %ld", &kib) != 1)
			kib = -1;
	}
	fclose(maps);
	return kib;
}

static bool is_shared(const void *addr)
{
	bool is_shared = false;

	resident(addr, &is_shared);
	return is_shared;
}

static void check_sizes(void)
{
	void *small = malloc(1000), *large = malloc(MIB);

	CHECK(is_shared(large) && !is_shared(small));
	memset(large, 1, MIB);
	CHECK(malloc_usable_size(large) >= MIB && malloc_usable_size(small) >= 1000);
	CHECK(malloc_usable_size(NULL) == 0);
	free(large);
	free(small);
	free(NULL);
	errno = 0;
	CHECK(!malloc(too_large) && errno == ENOMEM);
	errno = 0;
	CHECK(!calloc(half, 3) && errno == ENOMEM);
	errno = 0;
	CHECK(!reallocarray(NULL, half, 3) && errno == ENOMEM);
	errno = E2BIG;
	free(malloc(2 * MIB));
	malloc_trim(0);
	CHECK(errno == E2BIG);
}

static void check_zeros(void)
{
	for (int i = 0; i < 20; i++) {
		uint8_t *dirty = malloc(MIB), *zeroed;

		memset(dirty, 0xff, MIB);
		free(dirty);
		zeroed = calloc(1024, 1024);
		CHECK(is_shared(zeroed) && is_filled(zeroed, 0, MIB));
		free(zeroed);
	}
}

static void check_alignments(void)
{
	for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2) {
		for (size_t size = 100; size <= MIB; size *= 100) {
			void *addr[4] = { memalign(alignment, size), aligned_alloc(alignment, size),
				NULL, valloc(size) };

			CHECK(posix_memalign(&addr[2], alignment, size) == 0);
			for (int i = 0; i < 4; i++) {
				CHECK(addr[i]);
				CHECK(i == 3 || (uintptr_t)addr[i] % alignment == 0);
				memset(addr[i], i, size);
				CHECK(malloc_usable_size(addr[i]) >= size);
			}
			CHECK((uintptr_t)addr[3] % PAGE == 0);
			for (int i = 0; i < 4; i++)
				free(addr[i]);
		}
	}
	CHECK(posix_memalign(&(void *){ NULL }, 3, MIB) == EINVAL);
	CHECK(posix_memalign(&(void *){ NULL }, 4, MIB) == EINVAL);
	CHECK((uintptr_t)pvalloc(1) % PAGE == 0 && is_shared(pvalloc(MIB - 1)));
}

/* Each size of the list, from each other one. */
static void check_realloc(void)
{
	static const size_t sizes[] = { 1, 100 * KIB, 300 * KIB, 301 * KIB, MIB, 5 * MIB,
		40 * MIB };
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };

	for (int from = 0; from < N; from++) {
		for (int to = 0; to < N; to++) {
			size_t least = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
			uint8_t *addr = malloc(sizes[from]);

			memset(addr, from + 1, sizes[from]);
			addr = realloc(addr, sizes[to]);
			CHECK(addr && is_filled(addr, (uint8_t)(from + 1), least));
			CHECK(malloc_usable_size(addr) >= sizes[to]);
			memset(addr, 0, sizes[to]);
			free(addr);
		}
	}
	CHECK(is_shared(realloc(NULL, MIB)) && !realloc(malloc(MIB), 0));
}

/* Growing page by page must not copy each time: that would be 16 GiB here. */
static void check_growth(void)
{
	size_t size = MIB, moves = 0;
	uint8_t *addr = malloc(size);

	for (; size < 128 * MIB; size += PAGE) {
		uint8_t *grown = realloc(addr, size);

		CHECK(grown);
		grown[size - 1] = 1;
		moves += grown != addr;
		addr = grown;
	}
	CHECK(is_shared(addr) && moves < 40);
	free(addr);
}

/* A freed block of this size leaves memory at once, and kept ones do so by malloc_trim(). */
static void check_trim(void)
{
	bool is_shared;
	uint8_t *large = malloc(256 * MIB), *kept = malloc(8 * MIB);

	memset(large, 1, 16 * MIB);
	memset(kept, 1, 8 * MIB);
	CHECK(resident(large, &is_shared) >= 16 * KIB && is_shared);
	free(large);
	free(kept);
	CHECK(resident(large, &is_shared) <= 0 || !is_shared);
	CHECK(malloc_trim(0) == 1);
	CHECK(resident(kept, &is_shared) <= 0 || !is_shared);
}

static void check_madvise(void)
{
	uint8_t *addr = memalign(PAGE, MIB);

	memset(addr, 1, MIB);
	CHECK(madvise(addr, PAGE, MADV_WILLNEED) == 0 && is_shared(addr));
	CHECK(madvise(addr + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
	CHECK(madvise(addr + PAGE, 2 * PAGE, MADV_DONTNEED) == 0);
	CHECK(is_filled(addr, 1, PAGE) && is_filled(addr + PAGE, 0, 2 * PAGE));
	CHECK(is_filled(addr + 3 * PAGE, 1, MIB - 3 * PAGE));
	memset(addr, 2, MIB);
	CHECK(madvise(addr, MIB, MADV_DONTNEED) == 0 && is_filled(addr, 0, MIB));
	free(addr);
}

/* A changed protection also holds in a child. */
static void check_mprotect(void)
{
	uint8_t *addr = memalign(PAGE, MIB);
	int status;
	pid_t pid;

	addr[0] = 1;
	CHECK(mprotect(addr, PAGE, PROT_READ) == 0 && addr[0] == 1);
	pid = fork();
	if (pid == 0) {
		addr[0] = 2;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	CHECK(mprotect(addr, PAGE, PROT_READ | PROT_WRITE) == 0);
	free(addr);
}

/* Children of children, each of which writes and frees all that it has inherited. */
static void check_fork(void)
{
	uint8_t *addr[4];
	int status;
	pid_t pid;

	for (int i = 0; i < 4; i++) {
		addr[i] = malloc((size_t)(i + 1) * MIB);
		memset(addr[i], i, (size_t)(i + 1) * MIB);
	}
	for (int depth = 0; depth < 3; depth++) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid > 0) {
			memset(addr[0], 0xee, MIB);
			CHECK(waitpid(pid, &status, 0) == pid && status == 0);
			for (int i = 1; i < 4; i++)
				CHECK(is_filled(
					addr[i], (uint8_t)(i + depth), (size_t)(i + 1) * MIB));
			CHECK(is_filled(addr[0], 0xee, MIB));
			if (depth > 0)
				_exit(0);
			break;
		}
		for (int i = 0; i < 4; i++) {
			CHECK(i == 0 || is_filled(addr[i], (uint8_t)(i + depth), MIB));
			memset(addr[i], i + depth + 1, (size_t)(i + 1) * MIB);
		}
		free(malloc(MIB));
		CHECK(is_shared(malloc(MIB)));
	}
	if (pid == 0)
		_exit(0);
	CHECK(is_shared(malloc(9 * MIB)));
	CHECK(system("exit 7") == 7 << 8);
}

static uint8_t *from_handler;

static void before_fork(void)
{
	from_handler = memset(malloc(MIB), 1, MIB);
}

/* A block that a handler of the program allocates just before fork(). */
static void check_atfork(void)
{
	int status;
	pid_t pid;

	CHECK(pthread_atfork(before_fork, NULL, NULL) == 0);
	free(malloc(MIB));
	pid = fork();
	if (pid == 0) {
		memset(from_handler, 2, MIB);
		_exit(!is_filled(from_handler, 2, MIB));
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(is_filled(from_handler, 1, MIB));
}

/* As daemons do. The files that it opens then stay open. */
static void check_closed(void)
{
	uint8_t *addr[4];
	int fd[8], status;
	pid_t pid;

	for (int i = 0; i < 4; i++)
		addr[i] = memset(malloc(MIB), i, MIB);
	closefrom(3);
	for (int i = 0; i < 8; i++) {
		fd[i] = fcntl(1, F_DUPFD, 1022 + i);
		CHECK(fd[i] >= 0);
	}
	pid = fork();
	if (pid == 0)
		_exit(!is_filled(addr[1], 1, MIB));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	for (int i = 0; i < 4; i++) {
		CHECK(is_filled(addr[i], (uint8_t)i, MIB));
		free(addr[i]);
	}
	malloc_trim(0);
	for (int i = 0; i < 8; i++)
		CHECK(fcntl(fd[i], F_GETFD) >= 0);
}

static void *use_memory(void *arg)
{
	uint8_t value = (uint8_t)(uintptr_t)arg;

	for (int i = 0; i < 300; i++) {
		size_t size = (size_t)(i % 5 + 1) * 200 * KIB;
		uint8_t *addr = malloc(size);

		memset(addr, value, size);
		addr = realloc(addr, size + 100 * KIB);
		CHECK(is_filled(addr, value, size));
		free(addr);
	}
	return NULL;
}

/* A child of a process with threads can allocate. */
static void check_threads(void)
{
	pthread_t thread[3];
	int status;

	for (uintptr_t i = 0; i < 3; i++)
		CHECK(pthread_create(&thread[i], NULL, use_memory, (void *)(i + 1)) == 0);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			free(malloc(MIB));
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
}

static void set_limit(int what, rlim_t value)
{
	CHECK(setrlimit(what, &(struct rlimit){ value, value }) == 0);
}

/* Requests beyond a limit on descriptors or file sizes get other memory. */
static void check_limits(void)
{
	uint8_t *addr[64];

	set_limit(RLIMIT_NOFILE, 40);
	for (int i = 0; i < 64; i++) {
		addr[i] = malloc(MIB);
		CHECK(addr[i]);
		memset(addr[i], i, MIB);
	}
	CHECK(!is_shared(addr[63]) && fopen("/dev/null", "r"));
	for (int i = 0; i < 64; i++) {
		CHECK(is_filled(addr[i], (uint8_t)i, MIB));
		free(addr[i]);
	}
}

static void check_file_limit(void)
{
	set_limit(RLIMIT_FSIZE, MIB);
	CHECK(is_shared(malloc(MIB)));
	CHECK(!is_shared(memset(malloc(2 * MIB), 1, 2 * MIB)));
}

static void check_address_limit(void)
{
	uint8_t *addr;
	int status;
	pid_t pid;

	set_limit(RLIMIT_AS, 256 * MIB);
	errno = 0;
	CHECK(!malloc(512 * MIB) && errno == ENOMEM);
	addr = malloc(160 * MIB);
	CHECK(is_shared(addr));
	memset(addr, 1, 2 * MIB);
	pid = fork();
	if (pid == 0)
		_exit(!is_filled(addr, 1, 2 * MIB));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void at_exit(void)
{
	free(malloc(3 * MIB));
}

static void check_exit(void)
{
	CHECK(malloc(MIB) && atexit(at_exit) == 0);
	exit(42);
}

static void check_shared(void)
{
	CHECK(is_shared(malloc(MIB)));
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "sizes", check_sizes },
	{ "zeros", check_zeros },
	{ "alignments", check_alignments },
	{ "realloc", check_realloc },
	{ "growth", check_growth },
	{ "trim", check_trim },
	{ "madvise", check_madvise },
	{ "mprotect", check_mprotect },
	{ "fork", check_fork },
	{ "atfork", check_atfork },
	{ "closed", check_closed },
	{ "threads", check_threads },
	{ "limits", check_limits },
	{ "file-limit", check_file_limit },
	{ "address-limit", check_address_limit },
	{ "exit", check_exit },
	{ "shared", check_shared },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
