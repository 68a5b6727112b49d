/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The entries of a cache of registrations by address: finds an entry for a request, and entries of
 * memory that is unmapped. Only mr_index_grow() changes the allocation. The caller locks.
 */
#ifndef FERRULE_API_MEMORY_MR_INDEX_H
#define FERRULE_API_MEMORY_MR_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"

struct frl_mr;
struct frl_mr_cache;

struct mr_entry {
	struct list
		node; /* in `idle` (oldest first), `dead`, `registering`, or in no list: in use */
	struct frl_mr_cache *cache;
	struct frl_mr *mr;
	uintptr_t start, end;
	uint32_t access;
	unsigned users;
	uint64_t buffer;   /* GPU memory: mr_gpu_buffer(); 0: host memory */
	size_t page;       /* size of the watched pages; 0: not watched */
	bool was_unmapped; /* the memory was unmapped while the entry was being made */
	bool is_indexed;   /* in the index */
};

/* Sorted by start. `reach` is the largest end of this and all earlier slots. */
struct mr_slot {
	struct mr_entry *entry;
	uintptr_t reach;
};

struct mr_index {
	struct mr_slot *slots;
	uint32_t n, room;
};

/*
 * Finds an entry for all of [start, end), or returns NULL. With remote rights the range and the
 * rights are exactly these, because a peer with the key could otherwise do more. Without, the entry
 * has at least these rights.
 */
struct mr_entry *mr_index_find(
	const struct mr_index *index, uintptr_t start, uintptr_t end, uint32_t access);
/*
 * Returns whether an entry overlaps the page [at, at + page). `*until` is the next page that may
 * differ.
 */
bool mr_index_has(const struct mr_index *index, uintptr_t at, uintptr_t page, uintptr_t *until);
/* Returns an entry that overlaps [start, end), the last one first, or NULL. */
struct mr_entry *mr_index_overlapping(const struct mr_index *index, uintptr_t start, uintptr_t end);

/* Adds an entry. There must be room. */
void mr_index_add(struct mr_index *index, struct mr_entry *entry);
void mr_index_remove(struct mr_index *index, struct mr_entry *entry);

/*
 * Moves the index to `more`, with `room` slots, if that is larger. Returns the array to be freed.
 */
struct mr_slot *mr_index_grow(struct mr_index *index, struct mr_slot *more, uint32_t room);

uint32_t mr_remote_rights(uint32_t access);

#endif
