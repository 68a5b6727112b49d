/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks that stop being shared, and fork().
 *
 * A child must see memory as it was at fork(), and neither process may see later writes of the
 * other. fork() therefore makes shared blocks private first: a private mapping of the same memfd
 * replaces the shared one, in one step. Nobody can write the memfd any more, and the kernel copies
 * pages on write in both processes, as it does with all other memory.
 *
 * A block that libferrule uses keeps its pages in the parent: devices may have pinned them, and
 * peers read them. The child gets a copy of such a block, and the parent's fork() waits for that.
 * Linux does the same with pinned pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/malloc/table.h"

enum { PAGE = 4096 };

/* The pipe by which a child says that it has its copies; -1: there is nothing to copy. */
static int copied[2] = { -1, -1 };

/* ---- one block */

/* Returns true if the block stays shared: peers and devices may be using it, or its file is closed
 * and cannot be mapped again. */
static bool stays_shared(const struct block *block, bool is_held)
{
	return block->share.users > 1 || (is_held && block->was_found) || !table_has_file(block);
}

/* Replaces the mapping by a private one of the same content. Other threads never find a hole there.
 * Returns 0, or a negative errno: the mapping is as before. The block must have stopped being
 * shared. */
static int remap(const struct block *block)
{
	void *addr = mmap(block->share.addr, block->share.size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, block->share.fd, 0);

	return addr == MAP_FAILED ? -errno : 0;
}

static void stop_sharing(struct block *block)
{
	table_stop_sharing(block);
	block->is_private = true;
}

/* Takes the block that contains `addr` for remap(). Returns NULL if it is private or
 * stays shared. */
static struct block *begin_move(void *addr)
{
	struct block *block;

	for (;;) {
		pthread_mutex_lock(&blocks.mutex);
		block = table_find(addr);
		if (!block || !block->is_moving)
			break;
		pthread_mutex_unlock(&blocks.mutex);
		sched_yield();
	}
	if (block && (block->is_private || stays_shared(block, atomic_load(&blocks.holds) > 0)))
		block = NULL;
	if (block) {
		stop_sharing(block);
		block->is_moving = true;
		block->share.users++;
	}
	pthread_mutex_unlock(&blocks.mutex);
	return block;
}

static void end_move(struct block *block, bool has_moved)
{
	pthread_mutex_lock(&blocks.mutex);
	block->is_moving = false;
	if (has_moved) {
		table_close(block);
	} else {
		block->is_private = false;
		atomic_store(&block->share.freed, false);
	}
	pthread_mutex_unlock(&blocks.mutex);
	block_share_put(&block->share);
}

int block_make_private(void *addr)
{
	struct block *block = begin_move(addr);
	int err;

	if (!block)
		return 0;
	/* Without the mutex: somebody may watch this memory, and call back. */
	err = remap(block);
	end_move(block, !err);
	return err;
}

static bool is_shared(const void *addr)
{
	const struct block *block;
	bool is_shared;

	pthread_mutex_lock(&blocks.mutex);
	block = table_find(addr);
	is_shared = block && !block->is_private;
	pthread_mutex_unlock(&blocks.mutex);
	return is_shared;
}

int block_drop_pages(void *addr, size_t len)
{
	size_t whole = (len + PAGE - 1) & ~(size_t)(PAGE - 1);
	int err = block_make_private(addr);

	if (err)
		return err;
	if (is_shared(addr))
		memset(addr, 0, whole);
	else if (mmap(addr, whole, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
			 0) == MAP_FAILED)
		return -errno;
	return 0;
}

/* ---- fork(), in the parent before it */

/* A child without the block fails when it uses it. That is better than to share it. */
static void withhold(struct block *block)
{
	syscall(SYS_madvise, block->share.addr, block->share.size, MADV_DONTFORK);
	block->is_withheld = true;
}

static void make_private_for_fork(struct block *block)
{
	stop_sharing(block);
	if (remap(block)) {
		withhold(block);
		return;
	}
	table_close(block);
}

/* Marks blocks that the child has to copy, and makes all others private. Returns the number of the
 * former. */
static uint32_t prepare_blocks(void)
{
	uint32_t n_copied = 0;
	bool is_held;

	/* A holder looks for changes after it has begun to hold: see share.h. */
	atomic_fetch_add(&blocks.frees, 1);
	is_held = atomic_load(&blocks.holds) > 0;
	for (uint32_t i = 0; i < blocks.n; i++) {
		struct block *block = &blocks.blocks[blocks.order[i]];

		if (block->state != BLOCK_ALLOCATED || (block->is_private && !block->is_moving))
			continue;
		block->is_copied = block->is_moving || stays_shared(block, is_held);
		if (block->is_copied)
			n_copied++;
		else
			make_private_for_fork(block);
	}
	return n_copied;
}

static void withhold_copied(void)
{
	for (uint32_t i = 0; i < blocks.n; i++) {
		struct block *block = &blocks.blocks[blocks.order[i]];

		if (block->is_copied)
			withhold(block);
		block->is_copied = false;
	}
}

static void before_fork(void)
{
	pthread_mutex_lock(&blocks.mutex);
	copied[0] = copied[1] = -1;
	if (blocks.n && prepare_blocks() && pipe2(copied, O_CLOEXEC))
		withhold_copied();
}

/* ---- fork(), in the parent after it */

static void after_fork_in_parent(void)
{
	char byte;

	if (copied[0] >= 0) {
		syscall(SYS_close, copied[1]);
		/* Not read(): fork() is no cancellation point. A child that dies ends the wait. */
		while (syscall(SYS_read, copied[0], &byte, (size_t)1) < 0 && errno == EINTR)
			;
		syscall(SYS_close, copied[0]);
	}
	for (uint32_t i = 0; i < blocks.n; i++) {
		struct block *block = &blocks.blocks[blocks.order[i]];

		block->is_copied = block->is_withheld = false;
	}
	pthread_mutex_unlock(&blocks.mutex);
}

/* ---- fork(), in the child */

/* Copies the pages that the memfd has. The program may have unmapped the block for children
 * (MADV_DONTFORK), so this reads the file. Returns false if there is no memory. */
static bool copy_pages(const struct block *block)
{
	off_t size = (off_t)block->share.size;
	off_t end, at = lseek(block->share.fd, 0, SEEK_DATA);

	for (; at >= 0 && at < size; at = lseek(block->share.fd, end, SEEK_DATA)) {
		end = lseek(block->share.fd, at, SEEK_HOLE);
		if (end <= at)
			return false;
		while (at < end) {
			ssize_t n = pread(
				block->share.fd, block->share.addr + at, (size_t)(end - at), at);

			if (n <= 0)
				return false;
			at += n;
		}
	}
	return true;
}

/* Copies the mapping of a block whose file is closed. */
static bool copy_mapping(const struct block *block)
{
	size_t size = block->share.size;
	uint8_t *copy = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (copy == MAP_FAILED)
		return false;
	memcpy(copy, block->share.addr, size);
	return mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, block->share.addr) !=
		MAP_FAILED;
}

/* The child has no other threads yet. A block that was moving may have a private mapping already,
 * which is newer than the file. */
static bool take_copy(const struct block *block, bool was_moving)
{
	if (was_moving || !table_has_file(block))
		return copy_mapping(block);
	return mmap(block->share.addr, block->share.size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
		       0) != MAP_FAILED &&
		copy_pages(block);
}

/* Keeps other mappings away from the address of a block that the child does not have, and that its
 * table has. */
static void leave_inaccessible(struct block *block)
{
	mmap(block->share.addr, block->share.size, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

static void give_up_withheld(void)
{
	for (uint32_t i = 0; i < blocks.n; i++) {
		struct block *block = &blocks.blocks[blocks.order[i]];

		if (!block->is_withheld)
			continue;
		leave_inaccessible(block);
		stop_sharing(block);
		table_close(block);
		block->is_withheld = block->is_moving = false;
	}
}

static void take_copies(void)
{
	for (uint32_t i = 0; i < blocks.n; i++) {
		struct block *block = &blocks.blocks[blocks.order[i]];

		if (!block->is_copied)
			continue;
		/* Without memory the child fails when it uses the block. */
		if (!take_copy(block, block->is_moving))
			leave_inaccessible(block);
		block->is_copied = block->is_moving = false;
		stop_sharing(block);
		table_close(block);
	}
}

/* The parent's kept blocks may be reused there. */
static void drop_kept(void)
{
	while (blocks.n_kept > 0) {
		struct block *block = &blocks.blocks[blocks.kept[--blocks.n_kept]];
		uint8_t *addr = block->share.addr;
		size_t size = block->share.size;

		table_remove(block);
		munmap(addr, size);
	}
	blocks.kept_bytes = 0;
}

static void after_fork_in_child(void)
{
	int err = errno;

	atomic_store(&blocks.holds, 0);
	give_up_withheld();
	if (copied[0] >= 0) {
		syscall(SYS_close, copied[0]);
		take_copies();
		syscall(SYS_close, copied[1]); /* the parent continues */
	}
	drop_kept();
	pthread_mutex_unlock(&blocks.mutex);
	errno = err;
}

/* The loader initializes this library first. The handlers therefore run last before fork(), when no
 * other handler allocates any more, and first after it. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
