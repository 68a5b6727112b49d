/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marks of memory: each sets a flag when a part of its range is unmapped or moved, by any code of
 * the process. Pages that are given back while the range stays mapped (madvise()) do not matter.
 * The source is unmap_watch.h, whose lock protects the marks. Functions here are called without
 * that lock.
 *
 * The flag is set before the call that unmaps returns. Between the two moments, and before the
 * flag is set, other memory may be mapped there.
 */
#ifndef FERRULE_BASE_UNMAP_MARK_H
#define FERRULE_BASE_UNMAP_MARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded in what it marks. Zeroed before the first use. */
struct unmap_mark {
	uintptr_t start, end;
	size_t page; /* size of the watched pages; 0: the mark is unused */
	atomic_bool *is_gone;
	/* A node of a treap, by start. `reach` is the largest end in the subtree. */
	struct unmap_mark *left, *right;
	uintptr_t reach;
	uint32_t priority;
	unsigned process; /* number of the process in a chain of forks, from 1 */
};

/* Embedded in what has marks. Zeroed before the first use. */
struct unmap_user {
	unsigned process; /* that watches for this user; 0: none */
};

/* Starts to watch for the user, unless this process does so already. A child of the process starts
 * anew. If the system does not report unmapped memory, marks have no effect; the first call logs
 * that. */
void unmap_mark_open(struct unmap_user *user);
/* Ends it for the user, who has no marks any more. In a child, the parent's users have ended. */
void unmap_mark_close(struct unmap_user *user);

/*
 * Adds a mark for [start, end). Returns false if the memory cannot be watched: it is not mapped, a
 * file, or another kind that the kernel does not report. Returns false also if there are 8192
 * marks. The mark is then unused. The kernel watches whole pages, so the first and the last one may
 * hold other data.
 *
 * If a thread unmaps watched memory at this moment, this waits for its message, up to 0.1 s. After
 * that the mark is added nevertheless. A message about earlier memory at the same addresses then
 * sets the flag.
 */
bool unmap_mark_add(struct unmap_mark *mark, uintptr_t start, uintptr_t end, atomic_bool *is_gone);
/* Moves the mark `from`, unless it is unused, to the unused mark `to`, with another flag. That is
 * set if the former one was. */
void unmap_mark_move(struct unmap_mark *to, struct unmap_mark *from, atomic_bool *is_gone);
/* Removes a mark, also one that is unused. The flag is not set any more. */
void unmap_mark_remove(struct unmap_mark *mark);

#endif
