/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks: allocations of the preloaded malloc() that other processes can map. Each block is a memfd
 * of its own, as memory of frl_mem_alloc() is, so a peer that may read one block cannot read
 * another. Freed blocks are kept for the next allocation up to a limit. Any thread. Nothing here
 * calls malloc().
 */
#ifndef FERRULE_MALLOC_BLOCKS_H
#define FERRULE_MALLOC_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/memory/share.h"

struct block_limits {
	size_t kept;     /* bytes of freed blocks that stay for the next allocation */
	unsigned blocks; /* 0: as many as there is room for */
	int first_fd;    /* descriptors of blocks are not below this one */
};

/* Sets the limits. Call before the first allocation. */
void blocks_init(const struct block_limits *limits);

/*
 * Allocates `size` bytes, aligned to pages and to `alignment`, a power of two or 0. The block can
 * later grow by `spare` bytes without a copy. Returns NULL if there is no memory, no descriptor or
 * no address range. *ret_is_zero: the memory is zeroed.
 */
void *block_alloc(size_t size, size_t alignment, size_t spare, bool *ret_is_zero);
/* Frees a block. Returns false if `addr` is not the start of one. */
bool block_free(void *addr);
/* Returns the size of the block that starts at `addr`, in whole pages, or 0 if none does. */
size_t block_size(const void *addr);
/* Changes the size in place. Returns false if the block would be too small, or much too large. */
bool block_resize(void *addr, size_t size);
/* Releases all kept blocks. Returns true if there were some. */
bool blocks_trim(void);

/* Returns true if a block contains the range. */
bool block_contains(const void *addr, size_t len);
/* Does madvise(MADV_DONTNEED) or MADV_FREE on pages of a block: they read as zeros. The block
 * becomes private, unless libferrule uses it. Returns 0 or a negative errno. */
int block_drop_pages(void *addr, size_t len);
/* Makes the block that contains `addr` private, so that a changed protection survives fork(). Does
 * nothing while libferrule uses it. Returns 0 or a negative errno. */
int block_make_private(void *addr);

/* For libferrule: see share.h. */
struct share *block_share_find(const void *addr, size_t len);
void block_share_put(struct share *share);
bool block_share_is_there(uint64_t id);
uint64_t block_share_frees(void);
void block_share_hold(void);
void block_share_release(void);

/* Counts for tests. */
struct block_counts {
	unsigned blocks, shareable, kept; /* blocks includes kept ones */
	size_t kept_bytes;
};
void blocks_count(struct block_counts *ret_counts);

#endif
