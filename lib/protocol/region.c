/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/region.h"

#include <string.h>

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
	if (table->used == table->capacity)
		return false;
	while (table->slots[table->cursor])
		table->cursor = (table->cursor + 1) % table->capacity;
	/* Never 0, which is what a forgotten lkey is. */
	region->key = (random ? random : 1) << REGION_INDEX_BITS | table->cursor;
	table->slots[table->cursor] = region;
	table->cursor = (table->cursor + 1) % table->capacity;
	table->used++;
	return true;
}

void region_remove(struct region_table *table, struct region *region)
{
	table->slots[region->key & (REGION_MAX - 1)] = 0;
	table->used--;
}
