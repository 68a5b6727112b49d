/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/malloc/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/memory/share_source.h"
#include "lib/base/process/file_limit.h"
#include "lib/malloc/table.h"

enum {
	PAGE = 4096,
	HUGE_PAGE = 2 << 20,
	INDEX_BITS = 16,
	WASTE = 4, /* a kept block is reused if at most this part of it stays unused */
};

_Static_assert(BLOCKS_MAX <= 1 << INDEX_BITS, "an ID has the index of its block");

struct block_table blocks = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
};

void blocks_init(const struct block_limits *limits)
{
	blocks.limits = *limits;
	if (blocks.limits.blocks == 0 || blocks.limits.blocks > BLOCKS_MAX)
		blocks.limits.blocks = BLOCKS_MAX;
}

static size_t whole_pages(size_t size)
{
	return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* ---- the table */

/* Returns the number of blocks that start at or below `addr`. */
static uint32_t count_below(const void *addr)
{
	uint32_t low = 0, high = blocks.n;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (blocks.blocks[blocks.order[middle]].share.addr <= (const uint8_t *)addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct block *table_find(const void *addr)
{
	uint32_t below = count_below(addr);
	struct block *block;

	if (below == 0)
		return NULL;
	block = &blocks.blocks[blocks.order[below - 1]];
	return (size_t)((const uint8_t *)addr - block->share.addr) < block->share.size ? block
										       : NULL;
}

/* Returns true if the block, which contains `addr`, contains all of the range. */
static bool spans(const struct block *block, const void *addr, size_t len)
{
	return len <= block->share.size - (size_t)((const uint8_t *)addr - block->share.addr);
}

/* Returns NULL if no block starts there, or it is not allocated. */
static struct block *find_allocated(const void *addr)
{
	struct block *block = table_find(addr);

	return block && block->share.addr == addr && block->state == BLOCK_ALLOCATED ? block : NULL;
}

static bool insert(const struct share *share, size_t wanted)
{
	uint32_t index, below;

	if (blocks.n >= blocks.limits.blocks)
		return false;
	if (blocks.first_unused) {
		index = blocks.first_unused - 1;
		blocks.first_unused = blocks.blocks[index].next_unused;
	} else if (blocks.n_touched < BLOCKS_MAX) {
		index = blocks.n_touched++;
	} else {
		return false;
	}
	blocks.blocks[index] = (struct block){
		.share = *share,
		.wanted = wanted,
		.state = BLOCK_ALLOCATED,
	};
	blocks.blocks[index].share.users = 1;
	blocks.blocks[index].share.id = SHARE_FROM_SOURCE | ++blocks.n_ids << INDEX_BITS | index;
	below = count_below(share->addr);
	memmove(&blocks.order[below + 1], &blocks.order[below],
		(blocks.n - below) * sizeof(blocks.order[0]));
	blocks.order[below] = index;
	blocks.n++;
	return true;
}

bool table_has_file(const struct block *block)
{
	struct stat status;

	return fstat(block->share.fd, &status) == 0 && status.st_ino == block->share.inode;
}

void table_close(struct block *block)
{
	/* Not close(): free() must not be a cancellation point. */
	if (table_has_file(block))
		syscall(SYS_close, block->share.fd);
	block->share.fd = -1;
}

static void put(struct block *block)
{
	if (--block->share.users > 0)
		return;
	table_close(block);
	block->state = BLOCK_UNUSED;
	block->next_unused = blocks.first_unused;
	blocks.first_unused = (uint32_t)(block - blocks.blocks) + 1;
}

void table_stop_sharing(struct block *block)
{
	/* Users of the address check the flag without the mutex: set it before anything changes. */
	atomic_store(&block->share.freed, true);
	if (block->was_found)
		atomic_fetch_add(&blocks.frees, 1);
}

void table_remove(struct block *block)
{
	uint32_t below = count_below(block->share.addr);

	if (!block->is_private)
		table_stop_sharing(block);
	memmove(&blocks.order[below - 1], &blocks.order[below],
		(blocks.n - below) * sizeof(blocks.order[0]));
	blocks.n--;
	block->state = BLOCK_FREED;
	put(block);
}

/* ---- new memory */

/* Returns a descriptor that leaves low numbers to the program, for select() and dup2(). */
static int make_file(size_t size)
{
	int low, fd;

	if (!file_limit_allows(size))
		return -1;
	low = memfd_create("ferrule-malloc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (low < 0)
		return -1;
	fd = fcntl(low, F_DUPFD_CLOEXEC, blocks.limits.first_fd);
	syscall(SYS_close, low);
	if (fd >= 0 && ftruncate(fd, (off_t)size)) {
		syscall(SYS_close, fd);
		fd = -1;
	}
	return fd;
}

static void *map_file(int fd, size_t size, size_t alignment)
{
	uint8_t *range, *addr;
	size_t skipped;

	if (alignment <= PAGE)
		return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (size + alignment < size)
		return MAP_FAILED;
	range = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	if (range == MAP_FAILED)
		return MAP_FAILED;
	skipped = -(uintptr_t)range & (alignment - 1);
	addr = mmap(range + skipped, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (addr == MAP_FAILED) {
		munmap(range, size + alignment);
		return MAP_FAILED;
	}
	if (skipped)
		munmap(range, skipped);
	munmap(addr + size, alignment - skipped);
	return addr;
}

/* Fills in *share. The seals follow the mapping: this process alone can write, and nobody can
 * remove pages. Other ranks of a job cannot write either: a freed block becomes another
 * allocation. */
static bool make_memory(size_t size, size_t alignment, struct share *share)
{
	struct stat status;
	void *addr = MAP_FAILED;
	int fd = make_file(size);

	if (fd < 0)
		return false;
	if (fstat(fd, &status) == 0)
		addr = map_file(fd, size, alignment);
	if (addr == MAP_FAILED)
		goto err_close;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		goto err_unmap;
	if (size >= HUGE_PAGE)
		syscall(SYS_madvise, addr, size, MADV_HUGEPAGE);
	*share = (struct share){ .addr = addr, .size = size, .fd = fd, .inode = status.st_ino };
	return true;

err_unmap:
	munmap(addr, size);
err_close:
	syscall(SYS_close, fd);
	return false;
}

/* ---- kept blocks */

static void take_kept(uint32_t at)
{
	blocks.kept_bytes -= blocks.blocks[blocks.kept[at]].share.size;
	blocks.n_kept--;
	memmove(&blocks.kept[at], &blocks.kept[at + 1],
		(blocks.n_kept - at) * sizeof(blocks.kept[0]));
}

/* Returns the smallest kept block that suits, or NULL. */
static struct block *reuse(size_t size, size_t alignment)
{
	struct block *best = NULL;
	uint32_t at = 0;

	for (uint32_t i = 0; i < blocks.n_kept; i++) {
		struct block *block = &blocks.blocks[blocks.kept[i]];

		if (block->share.size < size || block->share.size - size > size / WASTE ||
			(alignment && (uintptr_t)block->share.addr & (alignment - 1)))
			continue;
		if (!best || block->share.size <= best->share.size) {
			best = block;
			at = i;
		}
	}
	if (best)
		take_kept(at);
	return best;
}

/* Peers of other users may read a block that was passed to them, so it gets no other content. A
 * block that libferrule still uses may be passed any moment. */
static bool may_keep(const struct block *block)
{
	return !block->is_private && block->share.size <= blocks.limits.kept &&
		blocks.n_kept < BLOCKS_KEPT_MAX && block->share.users == 1 &&
		!atomic_load(&block->share.passed);
}

/* Removes the oldest kept block if more than `most` bytes, or too many, are kept. Returns where its
 * memory is, to be unmapped without the mutex. */
static bool evict(size_t most, uint8_t **ret_addr, size_t *ret_size)
{
	struct block *block;

	if (blocks.n_kept == 0 || (blocks.kept_bytes <= most && blocks.n_kept < BLOCKS_KEPT_MAX))
		return false;
	block = &blocks.blocks[blocks.kept[0]];
	*ret_addr = block->share.addr;
	*ret_size = block->share.size;
	take_kept(0);
	table_remove(block);
	return true;
}

/* Returns true if it has removed a block. */
static bool shrink_to(size_t most)
{
	bool has_removed = false;
	uint8_t *addr;
	size_t size;

	for (;;) {
		bool was_there;

		pthread_mutex_lock(&blocks.mutex);
		was_there = evict(most, &addr, &size);
		pthread_mutex_unlock(&blocks.mutex);
		if (!was_there)
			return has_removed;
		munmap(addr, size);
		has_removed = true;
	}
}

bool blocks_trim(void)
{
	return shrink_to(0);
}

/* ---- allocations */

void *block_alloc(size_t size, size_t alignment, size_t spare, bool *ret_is_zero)
{
	size_t whole = whole_pages(size), all = whole_pages(size + spare);
	struct block *block;
	struct share share;
	bool is_done;

	if (whole < size || whole > PTRDIFF_MAX)
		return NULL;
	if (all < whole || all > PTRDIFF_MAX)
		all = whole;
	pthread_mutex_lock(&blocks.mutex);
	block = reuse(all, alignment);
	if (block) {
		block->state = BLOCK_ALLOCATED;
		block->wanted = size;
		share.addr = block->share.addr;
	}
	pthread_mutex_unlock(&blocks.mutex);
	*ret_is_zero = !block;
	if (block)
		return share.addr;
	if (!make_memory(all, alignment, &share))
		return NULL;
	pthread_mutex_lock(&blocks.mutex);
	is_done = insert(&share, size);
	pthread_mutex_unlock(&blocks.mutex);
	if (is_done)
		return share.addr;
	munmap(share.addr, share.size);
	syscall(SYS_close, share.fd);
	return NULL;
}

bool block_free(void *addr)
{
	bool is_kept = false;
	struct block *block;
	size_t size = 0;

	if ((uintptr_t)addr % PAGE || !atomic_load_explicit(&blocks.n, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&blocks.mutex);
	block = find_allocated(addr);
	if (block) {
		size = block->share.size;
		is_kept = may_keep(block);
	}
	if (is_kept) {
		block->state = BLOCK_KEPT;
		blocks.kept[blocks.n_kept++] = (uint32_t)(block - blocks.blocks);
		blocks.kept_bytes += size;
	} else if (block) {
		table_remove(block);
	}
	pthread_mutex_unlock(&blocks.mutex);
	if (!block)
		return false;
	if (is_kept)
		shrink_to(blocks.limits.kept);
	else
		munmap(addr, size);
	return true;
}

size_t block_size(const void *addr)
{
	struct block *block;
	size_t size;

	if ((uintptr_t)addr % PAGE || !atomic_load_explicit(&blocks.n, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&blocks.mutex);
	block = find_allocated(addr);
	size = block ? whole_pages(block->wanted) : 0;
	pthread_mutex_unlock(&blocks.mutex);
	return size;
}

bool block_resize(void *addr, size_t size)
{
	struct block *block;
	bool fits;

	pthread_mutex_lock(&blocks.mutex);
	block = find_allocated(addr);
	fits = block && size <= block->share.size &&
		(size >= block->wanted || size >= block->share.size / 2);
	if (fits)
		block->wanted = size;
	pthread_mutex_unlock(&blocks.mutex);
	return fits;
}

bool block_contains(const void *addr, size_t len)
{
	const struct block *block;
	bool contains;

	if (!atomic_load_explicit(&blocks.n, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&blocks.mutex);
	block = table_find(addr);
	contains = block && block->state == BLOCK_ALLOCATED && spans(block, addr, len);
	pthread_mutex_unlock(&blocks.mutex);
	return contains;
}

void blocks_count(struct block_counts *ret_counts)
{
	pthread_mutex_lock(&blocks.mutex);
	*ret_counts = (struct block_counts){
		.blocks = blocks.n, .kept = blocks.n_kept, .kept_bytes = blocks.kept_bytes
	};
	for (uint32_t i = 0; i < blocks.n; i++)
		ret_counts->shareable += !blocks.blocks[blocks.order[i]].is_private;
	pthread_mutex_unlock(&blocks.mutex);
}

/* ---- for libferrule */

struct share *block_share_find(const void *addr, size_t len)
{
	struct block *block;

	pthread_mutex_lock(&blocks.mutex);
	block = table_find(addr);
	if (block &&
		(block->state != BLOCK_ALLOCATED || block->is_private || !spans(block, addr, len) ||
			!table_has_file(block)))
		block = NULL;
	if (block) {
		block->share.users++;
		block->was_found = true;
	}
	pthread_mutex_unlock(&blocks.mutex);
	return block ? &block->share : NULL;
}

void block_share_put(struct share *share)
{
	/* The share is the first member. */
	struct block *block = (struct block *)share;

	pthread_mutex_lock(&blocks.mutex);
	put(block);
	pthread_mutex_unlock(&blocks.mutex);
}

bool block_share_is_there(uint64_t id)
{
	const struct block *block = &blocks.blocks[(id & ((1 << INDEX_BITS) - 1)) % BLOCKS_MAX];
	bool is_there;

	pthread_mutex_lock(&blocks.mutex);
	is_there = block->share.id == id && !block->is_private &&
		(block->state == BLOCK_ALLOCATED || block->state == BLOCK_KEPT);
	pthread_mutex_unlock(&blocks.mutex);
	return is_there;
}

uint64_t block_share_frees(void)
{
	/* Sequentially consistent: a holder reads this after it has begun to hold. */
	return atomic_load(&blocks.frees);
}

void block_share_hold(void)
{
	atomic_fetch_add(&blocks.holds, 1);
}

void block_share_release(void)
{
	uint32_t holds = atomic_load(&blocks.holds);

	/* A child has none, but inherits objects that release theirs. */
	while (holds > 0 && !atomic_compare_exchange_weak(&blocks.holds, &holds, holds - 1))
		;
}
