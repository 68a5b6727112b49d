/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/region.h"

#include <string.h>

enum { TAG_MASK = (1 << REGION_TAG_BITS) - 1 };

void region_table_extend(struct region_table *table, struct region **slots, uint32_t capacity)
{
	if (table->capacity)
		memcpy(slots, table->slots, table->capacity * sizeof(*slots));
	memset(slots + table->capacity, 0, (capacity - table->capacity) * sizeof(*slots));
	table->slots = slots;
	table->capacity = capacity;
}

bool region_add(struct region_table *table, struct region *region, uint32_t random)
{
	uint32_t high = random >> REGION_TAG_BITS & TAG_MASK;

	if (table->used == table->capacity)
		return false;
	while (table->slots[table->cursor])
		table->cursor = (table->cursor + 1) % table->capacity;
	/* Never 0, which is what a forgotten lkey is, whatever tag a window is given. */
	region->key = (high ? high : 1) << (REGION_TAG_BITS + REGION_INDEX_BITS) |
		table->cursor << REGION_TAG_BITS | (random & TAG_MASK);
	table->slots[table->cursor] = region;
	table->cursor = (table->cursor + 1) % table->capacity;
	table->used++;
	return true;
}

static void unbind(struct region *window)
{
	window->parent->windows--;
	window->parent = 0;
	window->addr = 0;
	window->port_mem = 0;
	window->offload = 0;
	window->length = 0;
	window->access = 0;
	window->qp = 0;
}

void region_remove(struct region_table *table, struct region *region)
{
	if (region->parent)
		unbind(region);
	table->slots[region->key >> REGION_TAG_BITS & (REGION_MAX - 1)] = 0;
	table->used--;
}

bool region_bind(struct region_table *table, struct region *window, struct region *parent,
	const struct frl_mw_bind *bind, const void *qp)
{
	const uint32_t remote = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
		FRL_ACCESS_REMOTE_ATOMIC;
	const uint32_t writes = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_ATOMIC;
	uint32_t needs = FRL_ACCESS_MW_BIND;

	if (bind->access & writes)
		needs |= FRL_ACCESS_LOCAL_WRITE;
	if (!window->is_window || window->parent || parent->is_window || window->pd != parent->pd ||
		(bind->access & ~remote) || bind->length == 0 ||
		!region_allows(parent, window->pd, bind->addr, bind->length, needs) ||
		(parent->offload && (bind->access & FRL_ACCESS_REMOTE_ATOMIC)))
		return false;
	if ((bind->rkey ^ window->key) & ~(uint32_t)TAG_MASK || bind->rkey == window->key)
		return false;
	window->key = bind->rkey;
	window->addr = region_memory(parent, bind->addr);
	window->iova = bind->addr;
	window->length = bind->length;
	window->access = bind->access;
	window->port_mem = parent->port_mem;
	window->offload = parent->offload;
	window->parent = parent;
	window->qp = qp;
	parent->windows++;
	return true;
}

bool region_invalidate(struct region_table *table, uint32_t rkey, const void *qp)
{
	struct region *window = region_find(table, rkey);

	if (!window || !window->is_window || !window->parent || window->qp != qp)
		return false;
	unbind(window);
	return true;
}
