/* SPDX-License-Identifier: BSD-3-Clause */
/* A table that became too small is kept until the end, because a lookup may still read it. All old
 * tables together are no larger than the current one. */
#include "gpudirect/host_rows.h"

#include <stdlib.h>

struct row {
	_Atomic uintptr_t start, end;
	_Atomic uint64_t device;
};

struct rows {
	struct rows *older;
	uint32_t room;
	_Atomic uint32_t n;
	struct row row[];
};

static struct rows *make_room(struct gpu_rows *rows, uint32_t most)
{
	struct rows *old = atomic_load(&rows->rows), *more;
	uint32_t room = old ? old->room : 8;

	if (old && old->room >= most)
		return old;
	while (room < most)
		room *= 2;
	more = calloc(1, sizeof(*more) + room * sizeof(more->row[0]));
	if (!more)
		return NULL;
	more->room = room;
	more->older = old;
	return more;
}

bool gpu_rows_begin(struct gpu_rows *rows, uint32_t most)
{
	rows->next = make_room(rows, most);
	if (!rows->next)
		return false;
	atomic_fetch_add(&rows->version, 1);
	atomic_store(&rows->next->n, 0);
	return true;
}

void gpu_rows_add(struct gpu_rows *rows, uintptr_t start, uintptr_t end, uint64_t device)
{
	struct rows *next = rows->next;
	uint32_t n = atomic_load(&next->n);
	struct row *row = &next->row[n];

	if (n && atomic_load(&row[-1].end) == start &&
		atomic_load(&row[-1].device) + (start - atomic_load(&row[-1].start)) == device) {
		atomic_store(&row[-1].end, end);
		return;
	}
	atomic_store(&row->start, start);
	atomic_store(&row->end, end);
	atomic_store(&row->device, device);
	atomic_store(&next->n, n + 1);
}

void gpu_rows_end(struct gpu_rows *rows)
{
	atomic_store(&rows->rows, rows->next);
	atomic_fetch_add(&rows->version, 1);
}

/* All loads have acquire order, so that the version is read again after the rows. */
static uint64_t look_up(const struct rows *rows, uintptr_t start, uintptr_t end)
{
	uint32_t low = 0, high = atomic_load_explicit(&rows->n, memory_order_acquire);
	const struct row *row;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (atomic_load_explicit(&rows->row[middle].start, memory_order_acquire) <= start)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return 0;
	row = &rows->row[low - 1];
	if (end > atomic_load_explicit(&row->end, memory_order_acquire))
		return 0;
	return atomic_load_explicit(&row->device, memory_order_acquire) +
		(start - atomic_load_explicit(&row->start, memory_order_acquire));
}

uint64_t gpu_rows_find(const struct gpu_rows *rows, uintptr_t start, size_t length)
{
	uintptr_t end = start + length;
	uint64_t version, found;

	if (end < start)
		return 0;
	do {
		const struct rows *now;

		version = atomic_load_explicit(&rows->version, memory_order_acquire);
		now = atomic_load_explicit(&rows->rows, memory_order_acquire);
		found = now ? look_up(now, start, end) : 0;
	} while ((version & 1) ||
		atomic_load_explicit(&rows->version, memory_order_relaxed) != version);
	return found;
}

void gpu_rows_free(struct gpu_rows *rows)
{
	struct rows *next = atomic_load(&rows->rows);

	while (next) {
		struct rows *older = next->older;

		free(next);
		next = older;
	}
}
