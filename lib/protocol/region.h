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

enum {
	REGION_INDEX_BITS = 16,
	REGION_MAX = 1 << REGION_INDEX_BITS,
	REGION_TAG_BITS = 8, /* the low bits of a key: a window's user changes them */
	/* Beside enum frl_access, for requests: the processor itself reads the memory. */
	REGION_HOST_READ = 1 << 30,
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
	/* NULL: the processor reaches the memory. Else it does not, and this is the identity of the
	 * device that does (port_mem is then NULL, or what only a NIC reads by): no atomics, and no
	 * reductions with memory of another owner. A window: its parent's. */
	void *owner;
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

static inline uint32_t region_index(uint32_t key)
{
	return key >> REGION_TAG_BITS & (REGION_MAX - 1);
}

static inline struct region *region_find(const struct region_table *table, uint32_t key)
{
	uint32_t index = region_index(key);
	struct region *region = index < table->capacity ? table->slots[index] : 0;

	return region && region->key == key ? region : 0;
}

/*
 * What a region allows is decided by the functions of this file alone:
 *
 *	               host memory    of an owner    of fragments
 *	local read     yes            yes            no
 *	host read      yes            no             no
 *	local write    LOCAL_WRITE    LOCAL_WRITE    no
 *	remote write   REMOTE_WRITE   REMOTE_WRITE   REMOTE_WRITE
 *	remote read    REMOTE_READ    REMOTE_READ    no
 *	remote atomic  REMOTE_ATOMIC  no             no
 *	bind           MW_BIND        MW_BIND        no
 *
 * A bind for remote writes or atomics needs LOCAL_WRITE as well, one for remote atomics host
 * memory. A window allows its queue pair the remote accesses that it was bound with. A window that
 * is not bound allows nothing. All of it is limited to the bounds and to the protection domain.
 */

static inline bool region_contains(const struct region *region, uint64_t va, uint64_t length)
{
	return va >= region->iova && length <= region->length &&
		va - region->iova <= region->length - length;
}

/* The processor reads and writes the memory. */
static inline bool region_is_host_memory(const struct region *region)
{
	return !region->owner && !region->fragments;
}

/* The processor, or one device, reaches both. */
static inline bool region_same_reach(const struct region *a, const struct region *b)
{
	return a->owner == b->owner;
}

/* Returns true if the region allows all of `access` to [va, va + length), regardless of the
 * queue pair. */
static inline bool region_allows(
	const struct region *region, const void *pd, uint64_t va, uint64_t length, uint32_t access)
{
	const uint32_t by_processor = FRL_ACCESS_REMOTE_ATOMIC | REGION_HOST_READ;
	const uint32_t rights = access & ~(uint32_t)REGION_HOST_READ;

	return region->pd == pd && (region->access & rights) == rights &&
		region_contains(region, va, length) &&
		(access == FRL_ACCESS_REMOTE_WRITE || !region->fragments) &&
		(!(access & by_processor) || region_is_host_memory(region));
}

static inline uint8_t *region_memory(const struct region *region, uint64_t va)
{
	return region->addr + (va - region->iova);
}

/* Returns the region of a work request's lkey if it allows this, else NULL. `access` 0: local read.
 */
static inline const struct region *region_local(const struct region_table *table, const void *pd,
	const struct frl_sge *sge, uint32_t access)
{
	const struct region *region = region_find(table, sge->lkey);

	if (!region || region->is_window ||
		!region_allows(region, pd, (uintptr_t)sge->addr, sge->length, access))
		return 0;
	return region;
}

/* Same for a local read. `last`, if not NULL, is the result for the previous element and is tried
 * first. */
static inline const struct region *region_local_read(const struct region_table *table,
	const void *pd, const struct frl_sge *sge, const struct region *last)
{
	if (last && last->key == sge->lkey &&
		region_contains(last, (uintptr_t)sge->addr, sge->length))
		return last;
	return region_local(table, pd, sge, 0);
}

/* Returns why region_local() returns NULL: a sentence for who posts. */
const char *region_local_refusal(const struct region_table *table, const struct frl_sge *sge);

/* Returns true if inline data may be copied from there. It needs no lkey; but with the key of
 * memory that the processor does not reach, it lies there. */
bool region_allows_inline(
	const struct region_table *table, const void *pd, const struct frl_sge *sge);

/* Returns the region or window of a peer's rkey if it allows this to the queue pair, else NULL. */
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

/* Same for a posted request. `window` may be dangling: it is only compared until the table is known
 * to hold it. */
bool region_bind_posted(struct region_table *table, const void *pd, struct region *window,
	uint32_t parent_key, const struct frl_mw_bind *bind, const void *qp);

/* Unbinds the window of this key. False: no window of this queue pair, or not bound. */
bool region_invalidate(struct region_table *table, uint32_t rkey, const void *qp);

#endif
