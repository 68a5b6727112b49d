/* SPDX-License-Identifier: BSD-3-Clause */
/* A device's counters and queue pairs, copied to its page: see lib/control/page.h. */
#include <stdio.h>
#include <string.h>

#include "lib/api/objects.h"
#include "lib/api/publish.h"
#include "lib/base/clock.h"

enum {
	/* While the guard is held: */
	BATCH = 32,    /* queue pairs that are described */
	STRIDE = 2048, /* slots that are looked at */
};

static_assert((int)PAGE_SLOTS >= (int)ENGINE_MAX_QPS, "each queue pair has a slot");

static enum page_wait wait_in_words(enum qp_wait wait)
{
	switch (wait) {
	case QP_WAIT_NOTHING: return PAGE_WAIT_NOTHING;
	case QP_WAIT_ERROR: return PAGE_WAIT_ERROR;
	case QP_WAIT_NOT_CONNECTED: return PAGE_WAIT_NOT_CONNECTED;
	case QP_WAIT_DRAINING: return PAGE_WAIT_DRAINING;
	case QP_WAIT_RNR: return PAGE_WAIT_RNR;
	case QP_WAIT_RETRY: return PAGE_WAIT_RETRY;
	case QP_WAIT_FENCE: return PAGE_WAIT_FENCE;
	case QP_WAIT_READ: return PAGE_WAIT_READ;
	case QP_WAIT_ACK: return PAGE_WAIT_ACK;
	case QP_WAIT_PROGRESS: return PAGE_WAIT_PROGRESS;
	}
	return PAGE_WAIT_NOTHING;
}

static enum page_wait describe_wait(
	struct engine *engine, const struct engine_qp *qp, enum qp_wait wait)
{
	switch (wait) {
	case QP_WAIT_RETRY:
	case QP_WAIT_FENCE:
	case QP_WAIT_READ:
	case QP_WAIT_ACK:
	case QP_WAIT_PROGRESS:
		if (engine_is_held_up(engine, qp))
			return PAGE_WAIT_PORT;
		break;
	case QP_WAIT_NOT_CONNECTED:
		if (qp->asked >= 0)
			return PAGE_WAIT_NEIGHBOR;
		break;
	default: break;
	}
	return wait_in_words(wait);
}

/* All but the sequence number. Guard held. */
static void describe(struct engine *engine, struct engine_qp *qp, struct page_qp *to)
{
	const struct frl_qp *owner = container_of(qp, struct frl_qp, engine);
	const struct qp *core = &qp->core;
	struct qp_stats stats;

	qp_describe(core, &stats);
	*to = (struct page_qp){
		.qpn = core->qpn,
		.type = (uint8_t)core->type,
		.state = (uint8_t)core->state,
		.wait = (uint8_t)describe_wait(engine, qp, stats.wait),
		.retries_left = stats.retries_left,
		.rnr_retries_left = stats.rnr_retries_left,
		.lossless = stats.lossless,
		.dest_qpn = core->dest_qpn,
		.path_mtu = core->path_mtu,
		.send_psn = stats.send_psn,
		.acked_psn = stats.acked_psn,
		.recv_psn = stats.recv_psn,
		.send_queue = stats.send_queue,
		.recv_queue = stats.recv_queue,
		.tx_packets = stats.counts.tx_packets,
		.tx_bytes = stats.counts.tx_bytes,
		.rx_packets = stats.counts.rx_packets,
		.rx_bytes = stats.counts.rx_bytes,
		.retransmits = stats.counts.retransmits,
		.timeouts = stats.counts.timeouts,
		.rnr_received = stats.counts.rnr_received,
		.rnr_sent = stats.counts.rnr_sent,
		.rtt_ns = stats.counts.rtt_ns,
		.waiting_since_ns = stats.waiting_since_ns,
		.deadline_ns = stats.deadline_ns,
		.give_up_ns = stats.give_up_ns,
		.last_rx_ns = stats.counts.last_rx_ns,
		.last_tx_ns = stats.counts.last_tx_ns,
	};
	memcpy(to->remote_ip, &core->remote_ip, sizeof(to->remote_ip));
	qp_describe_error(owner, to->error, sizeof(to->error));
	to->error_ns = to->error[0] ? qp->failed_ns : 0;
}

/* What was found while the guard was held. */
struct batch {
	uint32_t first, end; /* slots that were looked at */
	uint32_t qps_end;    /* no queue pair at this slot or above */
	uint32_t n;
	uint32_t slots[BATCH];
	struct page_qp qps[BATCH];
};

static void take_batch(struct frl_device *device, uint32_t first, struct batch *batch)
{
	struct engine *engine = &device->engine;
	uint32_t at = first;

	batch->first = first;
	batch->n = 0;
	guard_enter_first(&device->guard);
	batch->qps_end = engine->qp_end;
	while (at < engine->qp_end && at - first < STRIDE && batch->n < BATCH) {
		struct engine_qp *qp = engine->qps[at];

		if (qp) {
			batch->slots[batch->n] = at;
			describe(engine, qp, &batch->qps[batch->n++]);
		}
		at++;
	}
	guard_leave(&device->guard);
	batch->end = at;
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

	/* A page that was never touched takes no memory. */
	if (slot->qpn)
		write_slot(slot, &none);
}

static void write_batch(struct page *page, const struct batch *batch)
{
	uint32_t k = 0;

	for (uint32_t i = batch->first; i < batch->end; i++) {
		if (k < batch->n && batch->slots[k] == i)
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
	struct batch batch = { .end = 0 };

	write_counters(device, page);
	do {
		take_batch(device, batch.end, &batch);
		/* It only grows, as the engine's does. */
		if (batch.qps_end > atomic_load(&page->used_slots))
			atomic_store(&page->used_slots, batch.qps_end);
		write_batch(page, &batch);
	} while (batch.end < batch.qps_end);
	atomic_store(&page->published_ns, clock_now_ns());
}
