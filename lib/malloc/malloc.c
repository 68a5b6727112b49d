/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libferrule-malloc.so, for LD_PRELOAD: malloc() and its family take large allocations from blocks
 * that other processes can map, and pass all others to the next allocator. If there can be no block
 * (limits, no memory), the next allocator gets the request as well.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/memory/memfd.h"
#include "lib/base/memory/share_source.h"
#include "lib/base/settings.h"
#include "lib/malloc/blocks.h"
#include "lib/malloc/next.h"

#define EXPORTED __attribute__((visibility("default")))

enum { PAGE = 4096, FIRST_FD = 1024 };

/* Allocations of at least this many bytes are blocks. Until the first such request, it is the least
 * value of the setting. */
static _Atomic size_t block_from = 64 << 10;
static atomic_bool is_set_up;
static bool logs;

EXPORTED extern const struct share_source ferrule_malloc_source;
const struct share_source ferrule_malloc_source = {
	.version = SHARE_SOURCE_VERSION,
	.share_size = sizeof(struct share),
	.find = block_share_find,
	.put = block_share_put,
	.is_there = block_share_is_there,
	.frees = block_share_frees,
	.hold = block_share_hold,
	.release = block_share_release,
};

/* ---- setting up */

/* Writes a text, if the user has asked for such by FERRULE_LOG. */
static void write_log(const char *line)
{
	if (logs && write(STDERR_FILENO, line, strlen(line)) < 0)
		return;
}

/* The program keeps most low numbers. */
static int choose_first_fd(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 4 * 3 > FIRST_FD)
		return FIRST_FD;
	return (int)(limit.rlim_cur / 4 * 3);
}

/* Returns the size from which allocations are blocks. */
static size_t set_up_blocks(void)
{
	const struct settings *settings = settings_get();
	const char *level = settings_foreign("FERRULE_LOG"), *error = settings_error();
	const struct block_limits limits = {
		.kept = (size_t)settings->share_malloc_keep_mb << 20,
		.first_fd = choose_first_fd(),
	};

	logs = level && (strcmp(level, "info") == 0 || strcmp(level, "debug") == 0);
	if (error) {
		write_log("ferrule-malloc: defaults are used: ");
		write_log(error);
		write_log("\n");
	}
	if (sysconf(_SC_PAGESIZE) != PAGE) {
		write_log("ferrule-malloc: off: pages of this machine are not 4 KiB\n");
		return SIZE_MAX;
	}
	if (memfd_accounting_is_strict()) {
		write_log("ferrule-malloc: off: vm.overcommit_memory is 2, or unknown\n");
		return SIZE_MAX;
	}
	blocks_init(&limits);
	write_log("ferrule-malloc: on\n");
	return (size_t)settings->share_malloc_kb << 10;
}

static void set_up(void)
{
	int err = errno;

	block_from = set_up_blocks();
	is_set_up = true;
	errno = err;
}

/*
 * Returns true if a request of this size is one for a block. The first large request reads the
 * settings: the loader runs this library's constructors before libc has an environment.
 */
static bool is_large(size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (size < block_from)
		return false;
	if (!is_set_up && environ)
		pthread_once(&once, set_up);
	return is_set_up && size >= block_from;
}

/* ---- requests */

static void log_refusal(size_t size)
{
	char line[128];

	snprintf(line, sizeof(line),
		"ferrule-malloc: %zu bytes are not shareable: no descriptor, address range or "
		"memory is left (errno %d)\n",
		size, errno);
	write_log(line);
}

static void *take_large(size_t size, size_t alignment, size_t spare, bool is_zeroed)
{
	int err = errno;
	void *addr = NULL;
	bool is_zero;

	if (is_large(size))
		addr = block_alloc(size, alignment, spare, &is_zero);
	if (!addr && is_large(size) && size <= PTRDIFF_MAX)
		log_refusal(size);
	if (addr && is_zeroed && !is_zero)
		memset(addr, 0, size);
	errno = err;
	return addr;
}

/* Returns NULL if the next allocator has to take the request. */
static inline void *take_block(size_t size, size_t alignment, size_t spare, bool is_zeroed)
{
	if (__builtin_expect(size < atomic_load_explicit(&block_from, memory_order_relaxed), 1))
		return NULL;
	return take_large(size, alignment, spare, is_zeroed);
}

EXPORTED void *malloc(size_t size)
{
	void *addr = take_block(size, 0, 0, false);
	const struct next *next = addr ? NULL : next_get();

	if (addr)
		return addr;
	return next ? next->malloc(size) : next_early_alloc(size);
}

EXPORTED void *calloc(size_t count, size_t size)
{
	const struct next *next;
	size_t bytes;
	void *addr;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	addr = take_block(bytes, 0, 0, true);
	if (addr)
		return addr;
	next = next_get();
	return next ? next->calloc(count, size) : next_early_alloc(bytes);
}

/* Returns false if the next allocator has to free it. */
static bool free_own(void *addr)
{
	int err = errno;
	bool was_block = block_free(addr);

	errno = err;
	return was_block;
}

EXPORTED void free(void *addr)
{
	const struct next *next;

	/* Blocks are whole pages. */
	if ((uintptr_t)addr % PAGE == 0 && (!addr || free_own(addr)))
		return;
	next = next_get();
	if (next && !next_early_size(addr))
		next->free(addr);
}

/* Copies an allocation of `old` bytes to a new one. */
static void *move(void *addr, size_t old, size_t size, size_t spare)
{
	void *to = take_block(size, 0, spare, false);

	if (!to)
		to = malloc(size);
	if (!to)
		return NULL;
	memcpy(to, addr, old < size ? old : size);
	free(addr);
	return to;
}

/* Blocks that grow get spare addresses, so that growing step by step copies few times. */
static void *resize_block(void *addr, size_t old, size_t size)
{
	if (size == 0) {
		free(addr);
		return NULL;
	}
	if (is_large(size) && block_resize(addr, size))
		return addr;
	return move(addr, old, size, size > old ? old / 2 : 0);
}

EXPORTED void *realloc(void *addr, size_t size)
{
	const struct next *next;
	size_t old;

	if (!addr)
		return malloc(size);
	old = block_size(addr);
	if (old)
		return resize_block(addr, old, size);
	old = next_early_size(addr);
	next = next_get();
	if (old || !next)
		return move(addr, old, size, 0);
	if (!is_large(size) || !next->malloc_usable_size)
		return next->realloc(addr, size);
	old = next->malloc_usable_size(addr);
	/* It could not be a block when it was allocated. */
	if (is_large(old))
		return next->realloc(addr, size);
	return move(addr, old, size, 0);
}

EXPORTED void *reallocarray(void *addr, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(addr, bytes);
}

static bool is_power_of_two(size_t number)
{
	return number && (number & (number - 1)) == 0;
}

/* The next allocator answers invalid alignments. */
static void *take_aligned(size_t alignment, size_t size)
{
	return is_power_of_two(alignment) ? take_block(size, alignment, 0, false) : NULL;
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
	void *addr = take_aligned(alignment, size);
	const struct next *next = addr ? NULL : next_get();

	return next ? next->memalign(alignment, size) : addr;
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
	void *addr = take_aligned(alignment, size);
	const struct next *next = addr ? NULL : next_get();

	return next ? next->aligned_alloc(alignment, size) : addr;
}

EXPORTED int posix_memalign(void **ret_addr, size_t alignment, size_t size)
{
	void *addr = alignment % sizeof(void *) ? NULL : take_aligned(alignment, size);
	const struct next *next = addr ? NULL : next_get();

	if (next)
		return next->posix_memalign(ret_addr, alignment, size);
	if (!addr)
		return ENOMEM;
	*ret_addr = addr;
	return 0;
}

EXPORTED void *valloc(size_t size)
{
	return memalign(PAGE, size);
}

EXPORTED void *pvalloc(size_t size)
{
	size_t whole = (size + PAGE - 1) & ~(size_t)(PAGE - 1);

	if (whole < size) {
		errno = ENOMEM;
		return NULL;
	}
	return memalign(PAGE, whole);
}

EXPORTED size_t malloc_usable_size(void *addr)
{
	size_t size = addr ? block_size(addr) : 0;
	const struct next *next = size ? NULL : next_get();

	if (size || !addr)
		return size;
	size = next_early_size(addr);
	return size || !next || !next->malloc_usable_size ? size : next->malloc_usable_size(addr);
}

EXPORTED int malloc_trim(size_t pad)
{
	bool has_released = blocks_trim();
	const struct next *next = next_get();

	return (next && next->malloc_trim ? next->malloc_trim(pad) : 0) || has_released;
}

/* ---- calls on memory of blocks */

/* These drop a private mapping's pages, which a shared mapping would keep. */
static bool drops_pages(int advice)
{
	return advice == MADV_DONTNEED || advice == MADV_FREE;
}

EXPORTED int madvise(void *addr, size_t len, int advice)
{
	int err;

	if (len && drops_pages(advice) && (uintptr_t)addr % PAGE == 0 &&
		block_contains(addr, len)) {
		err = block_drop_pages(addr, len);
		if (!err)
			return 0;
		errno = -err;
		return -1;
	}
	return next_get()->madvise(addr, len, advice);
}

EXPORTED int mprotect(void *addr, size_t len, int protection)
{
	int err = len && block_contains(addr, len) ? block_make_private(addr) : 0;

	if (!err)
		return next_get()->mprotect(addr, len, protection);
	errno = -err;
	return -1;
}
