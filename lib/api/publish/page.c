/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies a device's counters and queue pairs to its page: see lib/control/page.h. */
#include <stdio.h>
#include <string.h>

#include "lib/api/objects.h"
#include "lib/api/publish/publish.h"
#include "lib/base/clock.h"

enum { BATCH = 32 }; /* queue pairs per hold of the guard */

/* The state that was read with the guard held. */
struct batch {
	struct qp_batch found;
	uint32_t slots[BATCH];
	struct page_qp qps[BATCH];
};

static void take_batch(struct frl_device *device, uint32_t first, struct batch *batch)
{
	batch->found = (struct qp_batch){
		.first = first, .room = BATCH, .slots = batch->slots, .qps = batch->qps
	};
	guard_enter_first(&device->guard);
	device->ops->describe_qps(device, &batch->found);
	guard_leave(&device->guard);
}

static void write_slot(struct page_qp *slot, const struct page_qp *qp)
{
	page_write_begin(slot);
	memcpy((uint8_t *)slot + sizeof(slot->sequence), (const uint8_t *)qp + sizeof(qp->sequence),
		sizeof(*slot) - sizeof(slot->sequence));
	page_write_end(slot);
}

static_assert(offsetof(struct page_qp, sequence) == 0, "the sequence number comes first");

static void clear_slot(struct page_qp *slot)
{
	static const struct page_qp none;

	/* Do not write an unused slot: untouched pages take no memory. */
	if (slot->qpn)
		write_slot(slot, &none);
}

static void write_batch(struct page *page, const struct batch *batch)
{
	uint32_t k = 0;

	for (uint32_t i = batch->found.first; i < batch->found.end; i++) {
		if (k < batch->found.n && batch->slots[k] == i)
			write_slot(&page->qp[i], &batch->qps[k++]);
		else
			clear_slot(&page->qp[i]);
	}
}

static void write_counters(struct frl_device *device, struct page *page)
{
	struct frl_stats stats;
	const char *name;
	uint64_t value;
	uint32_t n = 0;

	frl_device_stats(device, &stats);
	while (n < PAGE_COUNTERS && !frl_stats_entry(&stats, n, &name, NULL, &value)) {
		struct page_counter *counter = &page->counter[n++];

		if (!counter->name[0])
			snprintf(counter->name, sizeof(counter->name), "%s", name);
		*(volatile uint64_t *)&counter->value = value;
	}
	page->counters = n;
}

void publish_page(struct frl_device *device, struct page *page)
{
	struct batch batch = { .found.end = 0 };

	write_counters(device, page);
	do {
		take_batch(device, batch.found.end, &batch);
		/* It only grows, like the device's number. */
		if (batch.found.last > atomic_load(&page->used_slots))
			atomic_store(&page->used_slots, batch.found.last);
		write_batch(page, &batch);
	} while (batch.found.end < batch.found.last);
	atomic_store(&page->published_ns, clock_now_ns());
}
