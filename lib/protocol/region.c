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
	/* Never 0, the value of an lkey that was not set, even after a window's tag changes. */
	region->key = (high ? high : 1) << (REGION_TAG_BITS + REGION_INDEX_BITS) |
		table->cursor << REGION_TAG_BITS | (random & TAG_MASK);
	table->slots[table->cursor] = region;
	table->cursor = (table->cursor + 1) % table->capacity;
	table->used++;
	return true;
}

const char *region_local_refusal(const struct region_table *table, const struct frl_sge *sge)
{
	const struct region *region = region_find(table, sge->lkey);

	if (!region)
		return "an element's lkey names no memory region";
	if (region_is_gone(region))
		return "the memory of an element's region was unmapped";
	return "an element is not inside its memory region, or the region has "
	       "another protection domain or lacks local write";
}

bool region_allows_inline(
	const struct region_table *table, const void *pd, const struct frl_sge *sge)
{
	const struct region *region = region_find(table, sge->lkey);

	return !region || region_is_host_memory(region) || region->pd != pd ||
		!region_contains(region, (uintptr_t)sge->addr, sge->length);
}

static void unbind(struct region *window)
{
	window->parent->windows--;
	window->parent = 0;
	window->addr = 0;
	window->port_mem = 0;
	window->owner = 0;
	window->length = 0;
	window->access = 0;
	window->qp = 0;
}

void region_remove(struct region_table *table, struct region *region)
{
	if (region->parent)
		unbind(region);
	table->slots[region_index(region->key)] = 0;
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
	if (bind->access & FRL_ACCESS_REMOTE_ATOMIC)
		needs |= REGION_HOST_READ;
	if (!window->is_window || window->parent || parent->is_window || window->pd != parent->pd ||
		(bind->access & ~remote) || bind->length == 0 ||
		!region_allows(parent, window->pd, bind->addr, bind->length, needs))
		return false;
	if ((bind->rkey ^ window->key) & ~(uint32_t)TAG_MASK || bind->rkey == window->key)
		return false;
	window->key = bind->rkey;
	window->addr = region_memory(parent, bind->addr);
	window->iova = bind->addr;
	window->length = bind->length;
	window->access = bind->access | (parent->access & FRL_ACCESS_MAY_UNMAP);
	window->port_mem = parent->port_mem;
	window->owner = parent->owner;
	window->parent = parent;
	window->qp = qp;
	parent->windows++;
	return true;
}

bool region_bind_posted(struct region_table *table, const void *pd, struct region *window,
	uint32_t parent_key, const struct frl_mw_bind *bind, const void *qp)
{
	struct region *parent = region_find(table, parent_key);
	uint32_t index = region_index(bind->rkey);

	return parent && index < table->capacity && table->slots[index] == window &&
		window->pd == pd && region_bind(table, window, parent, bind, qp);
}

static struct region *bound_window(const struct region_table *table, uint32_t rkey, const void *qp)
{
	struct region *window = region_find(table, rkey);

	return window && window->is_window && window->parent && window->qp == qp ? window : NULL;
}

bool region_may_invalidate(const struct region_table *table, uint32_t rkey, const void *qp)
{
	return bound_window(table, rkey, qp);
}

bool region_invalidate(struct region_table *table, uint32_t rkey, const void *qp)
{
	struct region *window = bound_window(table, rkey, qp);

	if (window)
		unbind(window);
	return window;
}
