/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The entries of a cache of registrations by address: which one serves a request, and which ones
 * are about memory that goes. Allocates nothing but in mr_index_grow(). The caller locks.
 */
#ifndef FERRULE_API_MR_INDEX_H
#define FERRULE_API_MR_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"

struct frl_mr;
struct frl_mr_cache;

struct mr_entry {
	struct list node; /* in `idle`, oldest first, `dead`, `making`, or none: it is in use */
	struct frl_mr_cache *cache;
	struct frl_mr *mr;
	uintptr_t start, end;
	uint32_t access;
	unsigned users;
	uint64_t buffer; /* of a GPU: mr_gpu_buffer(); 0: the processor's memory */
	size_t page;     /* by which it is watched; 0: it is not */
	bool is_gone;    /* its memory, while it was being made */
	bool is_known;   /* in the index */
};

/* Sorted by start. `reach` is the largest end up to here. */
struct mr_slot {
	struct mr_entry *entry;
	uintptr_t reach;
};

struct mr_index {
	struct mr_slot *slots;
	uint32_t n, room;
};

/* One for all of [start, end): with remote rights exactly that and exactly these, since whoever
 * gets its key could do more otherwise; else with at least these rights. NULL: none. */
struct mr_entry *mr_index_find(
	const struct mr_index *index, uintptr_t start, uintptr_t end, uint32_t access);
/* Whether an entry has a page with [at, at + page); `*until`: the next page that may differ. */
bool mr_index_has(const struct mr_index *index, uintptr_t at, uintptr_t page, uintptr_t *until);
/* One that overlaps [start, end), the last one first; NULL: none (any more). */
struct mr_entry *mr_index_overlapping(const struct mr_index *index, uintptr_t start, uintptr_t end);

/* There is room. */
void mr_index_add(struct mr_index *index, struct mr_entry *entry);
void mr_index_remove(struct mr_index *index, struct mr_entry *entry);

/* Has `room` slots at `more` from now on, if that is more than there are. What is to be freed. */
struct mr_slot *mr_index_grow(struct mr_index *index, struct mr_slot *more, uint32_t room);

uint32_t mr_remote_rights(uint32_t access);

#endif
