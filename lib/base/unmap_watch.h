/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Being told when memory of this process is unmapped, moved, or its pages given back, by whatever
 * code: free(), munmap(), mremap(), madvise(). For who keeps something about memory that other
 * memory at the same address must not inherit. The kernel's userfaultfd(2) says it; a call that
 * unmaps returns only after that has been read here.
 *
 * One lock protects all of it, and what listeners keep about memory. Who holds it must not unmap
 * memory that is watched, nor free any: the call would wait for the reader, who wants the lock.
 * So that no handler does it, signals are blocked and cancellation is put off meanwhile.
 */
#ifndef FERRULE_BASE_UNMAP_WATCH_H
#define FERRULE_BASE_UNMAP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"

struct unmap_listener {
	struct list node;
	/* [start, end) has other pages from now on, or none, or will in a moment. Is there anything
	 * to do for after()? With the lock held. */
	bool (*gone)(struct unmap_listener *listener, uintptr_t start, uintptr_t end);
	/* Soon after that; without the lock, by a thread that may unmap and free. Must not add nor
	 * remove listeners, nor fork. */
	void (*after)(struct unmap_listener *listener);
	/* Does it keep anything about the page at `at`? `*until`, a later page: reduced to the next
	 * page for which the answer may differ. With the lock held. */
	bool (*needs)(struct unmap_listener *listener, uintptr_t at, uintptr_t *until);
	bool is_dirty; /* unmap_watch.c's: after() is to be called */
};

/* -ENOTSUP: the kernel has no userfaultfd(2) for this process; -ENOMEM, -EMFILE, ... The listener
 * is lent until it is removed. Without the lock. */
int unmap_watch_add(struct unmap_listener *listener);
/* No call to it is under way, or comes, any more. It keeps nothing. Without the lock. */
void unmap_watch_remove(struct unmap_listener *listener);

void unmap_watch_lock(void);
void unmap_watch_unlock(void);

/*
 * Tells of all that was unmapped before, in whatever thread: all that was at an address which
 * mmap() has given anew, though the call that unmapped it may not have returned yet. False: not
 * all is known, since such a call does not get on: rely on nothing. With the lock.
 */
bool unmap_watch_catch_up(void);

/* The size to watch the pages of [start, end) in, which have to be mapped. 0: pages may leave that
 * memory without a word: that of files and devices, and what others share, except for
 * frl_mem_alloc()'s. Without the lock. */
size_t unmap_watch_page(uintptr_t start, uintptr_t end);
/* Watches them. -ENOTSUP: somebody else does. -EAGAIN: some of the pages were given back a moment
 * ago, so the old ones may still be there. With the lock. */
int unmap_watch_range(uintptr_t start, uintptr_t end, size_t page);
/* Watches them no longer, but for those that a listener needs. With the lock; also by gone(). */
void unmap_watch_release(uintptr_t start, uintptr_t end, size_t page);

#endif
