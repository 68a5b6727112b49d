/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory regions and windows: what the keys of work requests and of peers refer to, with bounds,
 * access rights and protection domain. One key serves as lkey and rkey. Never touches the memory
 * itself; the table is used by the engine's owner only. IBTA volume 1, 10.6.
 */
#ifndef FERRULE_PROTOCOL_REGION_H
#define FERRULE_PROTOCOL_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/memory.h>

struct fragments;
struct offload;

enum {
	REGION_INDEX_BITS = 16,
	REGION_MAX = 1 << REGION_INDEX_BITS,
	REGION_TAG_BITS = 8, /* the low bits of a key: a window's user changes them */
};

/* A region, or a window: bound to a part of a region (the parent) and to one queue pair. A window
 * that is not bound allows nothing: its length is 0 and it has no parent. */
struct region {
	uint8_t *addr; /* in memory */
	uint64_t length;
	uint64_t iova; /* the address that requests use for `addr` */
	uint32_t key;
	uint32_t access; /* enum frl_access */
	const void *pd;  /* identity of the protection domain */
	void *port_mem; /* the engine's: what the port made of the memory; a window: its parent's */
	/* NULL, or who reaches the memory in the processor's place (port_mem is then NULL, or what
	 * only a NIC reads by). A window: its parent's. */
	struct offload *offload;
	/* NULL, or where its payload stays; then `addr` is only a name, and the region has neither
	 * an lkey nor windows nor other rights than REMOTE_WRITE. */
	struct fragments *fragments;
	bool is_window;
	uint32_t windows;      /* a region: that are bound to it */
	struct region *parent; /* a window */
	const void *qp;        /* a window: identity of its queue pair */
};

/* The bits of a key: random (8), the slot's index (16), random or the window's tag (8), so that a
 * stale or guessed key does not match. */
struct region_table {
	struct region **slots; /* the engine's memory */
	uint32_t capacity;
	uint32_t cursor; /* where the search for a free slot starts: slots are reused late */
	uint32_t used;
};

/* `slots` has room for `capacity` (at most REGION_MAX) pointers; the first `table->capacity` of
 * them are kept, so that a table can move to a larger array. */
void region_table_extend(struct region_table *table, struct region **slots, uint32_t capacity);

/* Gives the region or window a key with 16 bits of `random`. False when the table is full. */
bool region_add(struct region_table *table, struct region *region, uint32_t random);
/* A region must have no windows; a window is unbound first. */
void region_remove(struct region_table *table, struct region *region);

static inline struct region *region_find(const struct region_table *table, uint32_t key)
{
	uint32_t index = key >> REGION_TAG_BITS & (REGION_MAX - 1);
	struct region *region = index < table->capacity ? table->slots[index] : 0;

	return region && region->key == key ? region : 0;
}

/* True when [va, va + length) lies inside, the domain is the same and all of `access` is given. */
static inline bool region_allows(
	const struct region *region, const void *pd, uint64_t va, uint64_t length, uint32_t access)
{
	return region->pd == pd && (region->access & access) == access && va >= region->iova &&
		length <= region->length && va - region->iova <= region->length - length;
}

static inline uint8_t *region_memory(const struct region *region, uint64_t va)
{
	return region->addr + (va - region->iova);
}

/* What a work request's lkey names, if it allows this; NULL otherwise. Windows have no lkey, nor
 * has what is only a name. */
static inline const struct region *region_local(const struct region_table *table, const void *pd,
	const struct frl_sge *sge, uint32_t access)
{
	const struct region *region = region_find(table, sge->lkey);

	if (!region || region->is_window || region->fragments ||
		!region_allows(region, pd, (uintptr_t)sge->addr, sge->length, access))
		return 0;
	return region;
}

/* What a peer's rkey names, if it allows this to the queue pair; NULL otherwise. */
static inline const struct region *region_remote(const struct region_table *table, const void *pd,
	const void *qp, uint32_t rkey, uint64_t va, uint64_t length, uint32_t access)
{
	const struct region *region = region_find(table, rkey);

	if (!region || (region->is_window && region->qp != qp) ||
		!region_allows(region, pd, va, length, access))
		return 0;
	return region;
}

/*
 * Binds a window, which must be unbound, to a part of a region, for one queue pair. False, and
 * nothing changed, when the specification forbids it (10.6.7.2.2): other domain, no MW_BIND right,
 * out of bounds, length 0, rights that the region's local ones do not allow, a key of another
 * window, or a key with the tag that it has already. And atomics in memory that the processor does
 * not reach.
 */
bool region_bind(struct region_table *table, struct region *window, struct region *parent,
	const struct frl_mw_bind *bind, const void *qp);

/* Unbinds the window of this key. False: no window of this queue pair, or not bound. */
bool region_invalidate(struct region_table *table, uint32_t rkey, const void *qp);

#endif
