/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/memory/mr_index.h"

#include <string.h>

#include <ferrule/queue.h>

uint32_t mr_remote_rights(uint32_t access)
{
	return access &
		(FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC);
}

/* Returns the number of entries that start at `addr` or before. */
static uint32_t count_up_to(const struct mr_index *index, uintptr_t addr)
{
	uint32_t low = 0, high = index->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (index->slots[middle].entry->start <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void update_reaches(struct mr_index *index, uint32_t from)
{
	uintptr_t reach = from ? index->slots[from - 1].reach : 0;

	for (uint32_t i = from; i < index->n; i++) {
		if (index->slots[i].entry->end > reach)
			reach = index->slots[i].entry->end;
		index->slots[i].reach = reach;
	}
}

struct mr_entry *mr_index_find(
	const struct mr_index *index, uintptr_t start, uintptr_t end, uint32_t access)
{
	bool is_exact = mr_remote_rights(access) != 0;

	for (uint32_t i = count_up_to(index, start); i-- > 0 && index->slots[i].reach >= end;) {
		struct mr_entry *entry = index->slots[i].entry;

		if (!is_exact && entry->end >= end && (entry->access & access) == access)
			return entry;
		if (is_exact && entry->start != start)
			break;
		if (is_exact && entry->end == end && entry->access == access)
			return entry;
	}
	return NULL;
}

bool mr_index_has(const struct mr_index *index, uintptr_t at, uintptr_t page, uintptr_t *until)
{
	uint32_t n = count_up_to(index, at + page - 1);
	uintptr_t next;

	if (n > 0 && index->slots[n - 1].reach > at) {
		next = (index->slots[n - 1].reach + page - 1) & ~(page - 1);
		if (next < *until)
			*until = next;
		return true;
	}
	if (n < index->n) {
		next = index->slots[n].entry->start & ~(page - 1);
		if (next < *until)
			*until = next;
	}
	return false;
}

struct mr_entry *mr_index_overlapping(const struct mr_index *index, uintptr_t start, uintptr_t end)
{
	/* All entries that start before the end and reach past the start. */
	for (uint32_t i = count_up_to(index, end - 1); i-- > 0 && index->slots[i].reach > start;) {
		if (index->slots[i].entry->end > start)
			return index->slots[i].entry;
	}
	return NULL;
}

void mr_index_add(struct mr_index *index, struct mr_entry *entry)
{
	uint32_t at = count_up_to(index, entry->start);

	memmove(&index->slots[at + 1], &index->slots[at],
		(index->n - at) * sizeof(index->slots[0]));
	index->slots[at].entry = entry;
	index->n++;
	entry->is_indexed = true;
	update_reaches(index, at);
}

void mr_index_remove(struct mr_index *index, struct mr_entry *entry)
{
	uint32_t at = count_up_to(index, entry->start);

	while (index->slots[at - 1].entry != entry)
		at--;
	memmove(&index->slots[at - 1], &index->slots[at],
		(index->n - at) * sizeof(index->slots[0]));
	index->n--;
	entry->is_indexed = false;
	update_reaches(index, at - 1);
}

struct mr_slot *mr_index_grow(struct mr_index *index, struct mr_slot *more, uint32_t room)
{
	struct mr_slot *old = index->slots;

	if (room <= index->room)
		return more;
	if (index->n)
		memcpy(more, old, index->n * sizeof(*more));
	index->slots = more;
	index->room = room;
	return old;
}
