/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory regions: what the keys of work requests and of peers refer to, with bounds, access rights
 * and protection domain. One key serves as lkey and rkey. Never touches the memory itself; the
 * table is used by the engine's owner only. IBTA volume 1, 10.6.
 */
#ifndef FERRULE_PROTOCOL_REGION_H
#define FERRULE_PROTOCOL_REGION_H

#include <stdbool.h>
#include <stdint.h>

enum {
	REGION_INDEX_BITS = 16,
	REGION_MAX = 1 << REGION_INDEX_BITS,
};

struct region {
	uint8_t *addr;
	uint64_t length;
	uint32_t key;
	uint32_t access; /* enum frl_access */
	const void *pd;  /* identity of the protection domain */
	void *port_mem;  /* the engine's: what the port made of the memory */
};

/* The low bits of a key are the slot's index; the high bits are random, so that a stale or guessed
 * key does not match. */
struct region_table {
	struct region **slots; /* the engine's memory */
	uint32_t capacity;
	uint32_t cursor; /* where the search for a free slot starts: slots are reused late */
	uint32_t used;
};

/* `slots` has room for `capacity` (at most REGION_MAX) pointers; the first `table->capacity` of
 * them are kept, so that a table can move to a larger array. */
void region_table_extend(struct region_table *table, struct region **slots, uint32_t capacity);

/* Gives the region a key with the high bits of `random`. False when the table is full. */
bool region_add(struct region_table *table, struct region *region, uint32_t random);
void region_remove(struct region_table *table, struct region *region);

static inline struct region *region_find(const struct region_table *table, uint32_t key)
{
	uint32_t index = key & (REGION_MAX - 1);
	struct region *region = index < table->capacity ? table->slots[index] : 0;

	return region && region->key == key ? region : 0;
}

/* True when [addr, addr + length) lies inside, the domain is the same and all of `access` is given.
 */
static inline bool region_allows(const struct region *region, const void *pd, uint64_t addr,
	uint64_t length, uint32_t access)
{
	uint64_t start = (uint64_t)(uintptr_t)region->addr;

	return region->pd == pd && (region->access & access) == access && addr >= start &&
		length <= region->length && addr - start <= region->length - length;
}

/*
 * The region of a key that was checked when a request was posted, or NULL when it is gone: a new
 * one that happens to have got the same key does not pass for it unless it holds the memory too.
 */
static inline const struct region *region_holds(
	const struct region_table *table, uint32_t key, const void *addr, uint64_t length)
{
	const struct region *region = region_find(table, key);

	if (!region || !region_allows(region, region->pd, (uintptr_t)addr, length, 0))
		return 0;
	return region;
}

#endif
