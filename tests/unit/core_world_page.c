/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/core_world_internal.h"

struct world_page {
	struct world_page *next;
	struct page *page;
	uint32_t slots;
	int fd;
};

static void keep(const struct page_view *view)
{
}

struct page *world_page(struct world *world, uint32_t slots)
{
	struct world_page *entry = malloc(sizeof(*entry));

	ck_assert_ptr_nonnull(entry);
	entry->slots = slots;
	entry->page = page_create(slots, &entry->fd);
	ck_assert_ptr_nonnull(entry->page);
	entry->next = world->pages;
	world->pages = entry;
	atomic_store(&entry->page->published_ns, world_now(world));
	return entry->page;
}

struct page_view world_view(struct world *world, const struct page *page)
{
	const struct world_page *entry = world->pages;
	struct page_view view;

	while (entry->page != page)
		entry = entry->next;
	ck_assert_ptr_null(page_open(entry->fd, &view));
	view.close = keep;
	return view;
}

void world_free_pages(struct world *world)
{
	while (world->pages) {
		struct world_page *entry = world->pages;

		world->pages = entry->next;
		munmap(entry->page, page_size(entry->slots));
		close(entry->fd);
		free(entry);
	}
}
