/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notifies listeners when memory of this process is unmapped, moved, or its pages are released, by
 * any code: free(), munmap(), mremap(), madvise(). It serves code that caches state about memory,
 * which other memory at the same address must not inherit. The source is the kernel's
 * userfaultfd(2): a call that unmaps returns only after its message was read here.
 *
 * One lock protects this file and the listeners' state about memory. A thread that holds it must
 * neither unmap watched memory nor free any: the call would wait for the reader, which needs the
 * lock. Signals are blocked and cancellation is deferred while the lock is held, so that no handler
 * does it either.
 */
#ifndef FERRULE_BASE_UNMAP_WATCH_H
#define FERRULE_BASE_UNMAP_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"

struct unmap_listener {
	struct list node;
	/* [start, end) has other pages from now on, or none, or will soon. Returns true if after()
	 * has work to do. Called with the lock held. */
	bool (*gone)(struct unmap_listener *listener, uintptr_t start, uintptr_t end);
	/* Called soon after gone(), without the lock, in a thread that may unmap and free. Must not
	 * add or remove listeners, nor fork. */
	void (*after)(struct unmap_listener *listener);
	/* Returns true if the listener keeps state about the page at `at`. Reduces `*until`, a
	 * later page, to the next page for which the answer may differ. Called with the lock
	 * held. */
	bool (*needs)(struct unmap_listener *listener, uintptr_t at, uintptr_t *until);
	bool ignores_pages; /* gone() matters only for addresses that were unmapped or moved from */
	bool is_dirty;      /* used by unmap_watch.c: after() is due */
};

/* Adds a listener, which must stay valid until it is removed. Returns -ENOTSUP if the kernel has no
 * userfaultfd(2) for this process, or -ENOMEM, -EMFILE and others. Call without the lock. */
int unmap_watch_add(struct unmap_listener *listener);
/* Removes a listener. No call to it is in progress or follows. The listener must keep no state.
 * Call without the lock. */
void unmap_watch_remove(struct unmap_listener *listener);

void unmap_watch_lock(void);
void unmap_watch_unlock(void);

/*
 * Handles all messages about memory that was unmapped before, by any thread. This includes all
 * memory at an address that mmap() has reused, even if the unmapping call has not returned yet.
 * Returns false if such a call makes no progress and not all changes are known: rely on no cached
 * state then. Call with the lock held.
 */
bool unmap_watch_catch_up(void);

/* Used by unmap_watch_settle(): a message was read, and listeners may not be notified yet. */
extern atomic_bool unmap_watch_is_reading;

/*
 * Ensures that gone() was called for all memory whose unmapping call has returned. Cheap enough for
 * each request. Call without the lock; a device's guard may be held.
 */
static inline void unmap_watch_settle(void)
{
	if (!atomic_load_explicit(&unmap_watch_is_reading, memory_order_acquire))
		return;
	unmap_watch_lock();
	unmap_watch_unlock();
}

/* Returns the page size to watch [start, end) in, which must be mapped. Returns 0 if pages may
 * leave that memory without a message: files, devices, and memory shared with others, except that
 * of frl_mem_alloc(). Call without the lock. */
size_t unmap_watch_page(uintptr_t start, uintptr_t end);
/* Starts watching the range. Returns -ENOTSUP if another user of userfaultfd(2) watches it. Returns
 * -EAGAIN if pages were released a moment ago, so that old ones may still be there. Call with the
 * lock held. */
int unmap_watch_range(uintptr_t start, uintptr_t end, size_t page);
/* unmap_watch_range() for listeners that ignore pages: it never returns -EAGAIN. Call with the lock
 * held. */
int unmap_watch_mapping(uintptr_t start, uintptr_t end, size_t page);
/* Stops watching the range, except for pages that a listener needs. Call with the lock held, also
 * from gone(). */
void unmap_watch_release(uintptr_t start, uintptr_t end, size_t page);

#endif
