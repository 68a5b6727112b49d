/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocator behind this one: libc's, or one that the program brings. Any thread.
 */
#ifndef FERRULE_MALLOC_NEXT_H
#define FERRULE_MALLOC_NEXT_H

#include <stdbool.h>
#include <stddef.h>

struct next {
	void *(*malloc)(size_t size);
	void (*free)(void *addr);
	void *(*calloc)(size_t count, size_t size);
	void *(*realloc)(void *addr, size_t size);
	void *(*memalign)(size_t alignment, size_t size);
	int (*posix_memalign)(void **ret_addr, size_t alignment, size_t size);
	void *(*aligned_alloc)(size_t alignment, size_t size);
	size_t (*malloc_usable_size)(void *addr);
	int (*malloc_trim)(size_t pad);
	int (*madvise)(void *addr, size_t len, int advice);
	int (*mprotect)(void *addr, size_t len, int protection);
};

/* Returns NULL while the functions are being looked up by this thread: use next_early_alloc(). */
const struct next *next_get(void);

/* Allocates zeroed memory for the look-up, which may call malloc(). It is never freed. Returns NULL
 * if there is no more. */
void *next_early_alloc(size_t size);
/* Returns the size of memory from next_early_alloc(), or 0 if `addr` is none. */
size_t next_early_size(const void *addr);

#endif
