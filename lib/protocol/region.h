/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory regions and windows: the memory that keys of work requests and of peers name, with
 * bounds, access rights and protection domain. One key serves as lkey and rkey. Never accesses the
 * memory itself. Only the engine's owner uses the table. IBTA volume 1, 10.6.
 */
#ifndef FERRULE_PROTOCOL_REGION_H
#define FERRULE_PROTOCOL_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferrule/memory.h>

struct fragments;

enum {
	REGION_INDEX_BITS = 16,
	REGION_MAX = 1 << REGION_INDEX_BITS,
	REGION_TAG_BITS = 8, /* the low bits of a key, which the user of a window changes */
	/* In addition to enum frl_access, for requests: the processor itself reads the memory. */
	REGION_HOST_READ = 1 << 30,
};

/* A region, or a window, which is bound to a part of a region (the parent) and to one queue pair.
 * An unbound window allows nothing: length 0, no parent. */
struct region {
	uint8_t *addr; /* in memory */
	uint64_t length;
	uint64_t iova; /* address that requests use for `addr` */
	uint32_t key;
	uint32_t access; /* enum frl_access; a window: also MAY_UNMAP of its parent */
	/* MAY_UNMAP: a part of the memory was unmapped, so nothing is allowed. Any thread sets it
	 * at any time. A window: see its parent. */
	atomic_bool is_gone;
	bool is_window;
	const void *pd; /* identity of the protection domain */
	void *port_mem; /* registration with the port, owned by the engine; a window: its parent's
			 */
	/* NULL: host memory. Otherwise identity of the device that reaches the memory, as the
	 * processor does not. port_mem is then NULL, or a registration that only a NIC reads. No
	 * atomics, and no reductions with memory of another owner. A window: its parent's. */
	void *owner;
	/* NULL, or the share that keeps the payload. `addr` is then only a name. The region has no
	 * lkey, no windows, and no right but REMOTE_WRITE. */
	struct fragments *fragments;
	uint32_t windows;      /* a region: number of windows bound to it */
	struct region *parent; /* a window */
	const void *qp;        /* a window: identity of its queue pair */
};

/* Bits of a key: random (8), index of the slot (16), random or the window's tag (8). A stale or
 * guessed key does not match. */
struct region_table {
	struct region **slots; /* memory of the engine */
	uint32_t capacity;
	uint32_t cursor; /* start of the search for a free slot, so slots are reused late */
	uint32_t used;
};

/* Moves the table to `slots`, with room for `capacity` (at most REGION_MAX) pointers. The old
 * entries are kept. */
void region_table_extend(struct region_table *table, struct region **slots, uint32_t capacity);

/* Assigns a key with 16 bits of `random` to the region or window. Returns false if the table is
 * full. */
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
 * Only the functions of this file decide what a region allows:
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
 * A bind for remote writes or atomics also needs LOCAL_WRITE, and one for remote atomics needs
 * host memory. A window allows its queue pair the remote accesses that it was bound with. An
 * unbound window allows nothing. All accesses are limited to the bounds and the protection domain.
 * A region whose memory is gone allows nothing, nor do its windows. That may change between two
 * checks of one packet: use the region of the first.
 */

static inline bool region_contains(const struct region *region, uint64_t va, uint64_t length)
{
	return va >= region->iova && length <= region->length &&
		va - region->iova <= region->length - length;
}

/* Returns true if the processor can access the memory. */
static inline bool region_is_host_memory(const struct region *region)
{
	return !region->owner && !region->fragments;
}

/* Returns true if the processor, or one device, reaches both. */
static inline bool region_same_reach(const struct region *a, const struct region *b)
{
	return a->owner == b->owner;
}

static inline bool region_may_unmap(const struct region *region)
{
	return region->access & FRL_ACCESS_MAY_UNMAP;
}

/* Returns the region of a bound window, or the region itself. */
static inline const struct region *region_base(const struct region *region)
{
	return region->is_window && region->parent ? region->parent : region;
}

static inline bool region_is_gone(const struct region *region)
{
	return region_may_unmap(region) &&
		atomic_load_explicit(&region_base(region)->is_gone, memory_order_acquire);
}

/* Returns true if the region allows all of `access` to [va, va + length), for any queue pair. */
static inline bool region_allows(
	const struct region *region, const void *pd, uint64_t va, uint64_t length, uint32_t access)
{
	const uint32_t by_processor = FRL_ACCESS_REMOTE_ATOMIC | REGION_HOST_READ;
	const uint32_t rights = access & ~(uint32_t)REGION_HOST_READ;

	return region->pd == pd && (region->access & rights) == rights &&
		region_contains(region, va, length) && !region_is_gone(region) &&
		(access == FRL_ACCESS_REMOTE_WRITE || !region->fragments) &&
		(!(access & by_processor) || region_is_host_memory(region));
}

static inline uint8_t *region_memory(const struct region *region, uint64_t va)
{
	return region->addr + (va - region->iova);
}

/* Returns the region of a work request's lkey if it allows the access, else NULL. `access` 0 is a
 * local read. */
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

/* Returns why region_local() returns NULL, as a text for the caller that posts. */
const char *region_local_refusal(const struct region_table *table, const struct frl_sge *sge);

/* Returns true if inline data may be copied from there. Inline data needs no lkey, but a key of
 * memory that the processor cannot reach is refused. */
bool region_allows_inline(
	const struct region_table *table, const void *pd, const struct frl_sge *sge);

/* Returns the region or window of a peer's rkey if it allows the access to the queue pair, else
 * NULL. */
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
 * Binds an unbound window to a part of a region, for one queue pair. Returns false, and changes
 * nothing, if the specification forbids it (10.6.7.2.2):
 * - another domain, no MW_BIND right, out of bounds, or length 0
 * - remote rights without the local ones
 * - a key of another window, or an unchanged tag
 * Also refuses atomics in memory that the processor cannot reach.
 */
bool region_bind(struct region_table *table, struct region *window, struct region *parent,
	const struct frl_mw_bind *bind, const void *qp);

/* Same for a posted request. `window` may be dangling: it is not dereferenced before the table is
 * known to hold it. */
bool region_bind_posted(struct region_table *table, const void *pd, struct region *window,
	uint32_t parent_key, const struct frl_mw_bind *bind, const void *qp);

/* Returns true if a window of this queue pair is bound with the key. */
bool region_may_invalidate(const struct region_table *table, uint32_t rkey, const void *qp);

/* Unbinds the window of this key. Returns false if no window of this queue pair is bound with it.
 */
bool region_invalidate(struct region_table *table, uint32_t rkey, const void *qp);

#endif
