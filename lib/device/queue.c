/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues, their channels, and shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/memory/unmap_watch.h"
#include "lib/device/soft.h"

enum { UNDRIVEN_POLLS = 8 }; /* consecutive polls that do not drive the engine */

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power <<= 1;
	return power;
}

/* Returns an array of `depth` entries or more, a power of two, or NULL. */
static struct frl_wc *new_entries(uint32_t *depth)
{
	struct frl_wc *entries;

	*depth = round_up_pow2(*depth);
	entries = calloc(*depth, sizeof(*entries));
	if (!entries)
		frl_fail(-ENOMEM, "no memory for a completion queue of %u entries", *depth);
	return entries;
}

int soft_cq_create(struct frl_cq *base, uint32_t depth)
{
	struct soft_cq *cq = soft_cq(base);
	struct frl_wc *entries = new_entries(&depth);

	if (!entries)
		return -ENOMEM;
	cq_init(&cq->core, entries, depth, &soft_device(base->device)->engine.events);
	cq->core.events.owner = base;
	return 0;
}

void soft_cq_destroy(struct frl_cq *base)
{
	struct soft_cq *cq = soft_cq(base);

	device_enter(base->device);
	engine_remove_cq(&soft_device(base->device)->engine, &cq->core);
	if (base->channel) {
		struct soft_channel *channel = soft_channel(base->channel);

		event_fd_set(&channel->event_fd, !list_empty(&channel->pending));
	}
	device_leave(base->device);
	free(cq->core.entries);
}

int soft_cq_resize(struct frl_cq *base, uint32_t depth)
{
	struct cq *cq = &soft_cq(base)->core;
	uint32_t count = depth, used;
	struct frl_wc *entries = new_entries(&count);
	int rc = -EINVAL;

	if (!entries)
		return -ENOMEM;
	device_enter(base->device);
	used = cq_used(cq);
	if (used <= depth)
		rc = engine_resize_cq(
			&soft_device(base->device)->engine, cq, entries, count, &entries);
	device_leave(base->device);
	free(entries);
	if (rc == -EINVAL)
		return frl_fail(rc,
			"the completion queue has %u entries: poll them, then resize it to %u",
			used, depth);
	return rc ? frl_fail(rc, "no memory for completions that wait for a GPU") : 0;
}

static void release_slot(struct soft_device *device, struct frl_wc *wc)
{
	struct engine_qp *qp = engine_find_qp(&device->engine, wc->qp_num);

	wc->flags &= ~(uint32_t)CQ_WC_HOLDS_SLOT;
	if (qp)
		qp_release_slot(&qp->core);
}

static int take_completions(struct soft_device *device, struct cq *cq, int max, struct frl_wc wc[])
{
	int n = 0;

	for (; n < max && cq_pop(cq, &wc[n]); n++)
		if (wc[n].flags & CQ_WC_HOLDS_SLOT)
			release_slot(device, &wc[n]);
	if (n == 0 && cq->overrun && !cq_used(cq))
		return frl_fail(-EOVERFLOW,
			"the completion queue overran: poll more often, or make it deeper than all "
			"requests that can be outstanding on its queue pairs");
	return n;
}

/*
 * Returns true if the poll may take completions without driving the engine. Limited in number and
 * to a tick of the kernel. Otherwise a caller whose own datagrams complete at once, or one that
 * computes between polls, would never drive the engine.
 */
static bool has_plenty(struct soft_device *device, const struct cq *cq, int max)
{
	uint64_t tick_ns;

	if (max == 0 || cq_is_empty(cq)) {
		device->undriven = 0;
		return false;
	}
	tick_ns = clock_coarse_ns();
	if (tick_ns == device->driven_tick_ns && ++device->undriven < UNDRIVEN_POLLS)
		return true;
	device->driven_tick_ns = tick_ns;
	device->undriven = 0;
	return false;
}

/*
 * Enters the guard. Makes the progress thread pause if it is inside: it would enter again before a
 * waiting thread does. Returns true if this poll was counted for that.
 */
static bool enter_to_poll(struct frl_device *device)
{
	if (guard_try_enter(&device->guard))
		return false;
	soft_note_poll(device);
	device_enter(device);
	return true;
}

int soft_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[], bool *ret_moved)
{
	struct frl_device *device = cq->device;
	struct cq *core = &soft_cq(cq)->core;
	bool is_noted = enter_to_poll(device);
	bool plenty = has_plenty(soft_device(device), core, max);
	int n;

	/* A poll that only takes completions does not replace the progress thread. */
	if (!plenty && !is_noted)
		soft_note_poll(device);
	*ret_moved = plenty || soft_poll(device) > 0;
	n = take_completions(soft_device(device), core, max, wc);
	device_leave(device);
	return n;
}

int soft_req_notify(struct frl_cq *base, bool solicited_only)
{
	struct cq *cq = &soft_cq(base)->core;

	device_enter(base->device);
	if (!solicited_only)
		cq->armed = CQ_ARMED;
	else if (cq->armed == CQ_NOT_ARMED)
		cq->armed = CQ_ARMED_SOLICITED;
	device_leave(base->device);
	soft_expect_sleep(base->device);
	return 0;
}

int soft_channel_create(struct frl_comp_channel *base)
{
	struct soft_channel *channel = soft_channel(base);
	int rc = event_fd_create(&channel->event_fd);

	if (rc)
		return rc;
	list_init(&channel->pending);
	base->fd = channel->event_fd.fd;
	return 0;
}

void soft_channel_destroy(struct frl_comp_channel *base)
{
	event_fd_fini(&soft_channel(base)->event_fd);
}

struct frl_cq *soft_channel_take(struct frl_comp_channel *base)
{
	struct soft_channel *channel = soft_channel(base);
	struct frl_cq *cq = NULL;

	device_enter(base->device);
	if (!list_empty(&channel->pending)) {
		struct cq *core = container_of(channel->pending.next, struct cq, notify);

		list_remove(&core->notify);
		event_fd_set(&channel->event_fd, !list_empty(&channel->pending));
		cq = &container_of(core, struct soft_cq, core)->base;
	}
	device_leave(base->device);
	return cq;
}

/* Kept events become new ones, which soft_leaving() reports. */
void soft_channel_divert(struct frl_comp_channel *base)
{
	struct list *completions = &soft_device(base->device)->engine.events.completions;
	struct soft_channel *channel = soft_channel(base);

	while (!list_empty(&channel->pending)) {
		struct list *node = channel->pending.next;

		list_remove(node);
		list_add_tail(completions, node);
	}
	event_fd_set(&channel->event_fd, false);
}

int soft_srq_create(struct frl_srq *base)
{
	const struct frl_srq_config *config = &base->config;
	struct soft_device *device = soft_device(base->pd->device);
	struct soft_srq *srq = soft_srq(base);

	srq->storage = calloc(1, recv_queue_storage(config->max_wr, config->max_sge));
	if (!srq->storage)
		return frl_fail(-ENOMEM, "no memory for a shared receive queue of %u requests",
			config->max_wr);
	recv_queue_init(&srq->core.queue, srq->storage, config->max_wr, config->max_sge, base->pd,
		&device->engine.regions);
	srq->core.queue.as_hardware = config->as_hardware;
	srq->core.limit = config->limit;
	event_source_init(&srq->core.events, EVENT_OF_SRQ, base);
	srq->core.queues = &device->engine.events;
	return 0;
}

void soft_srq_destroy(struct frl_srq *base)
{
	struct soft_srq *srq = soft_srq(base);

	device_enter(base->pd->device);
	list_remove(&srq->core.events.node);
	device_leave(base->pd->device);
	free(srq->storage);
}

int soft_srq_set_limit(struct frl_srq *srq, uint32_t limit)
{
	device_enter(srq->pd->device);
	soft_srq(srq)->core.limit = limit;
	device_leave(srq->pd->device);
	return 0;
}

uint32_t soft_srq_limit(struct frl_srq *srq)
{
	uint32_t limit;

	device_enter(srq->pd->device);
	limit = soft_srq(srq)->core.limit;
	device_leave(srq->pd->device);
	return limit;
}

int soft_srq_post(struct frl_srq *base, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	struct soft_srq *srq = soft_srq(base);
	const char *why = "";
	int done = 0, rc = 0;

	device_enter(base->pd->device);
	unmap_watch_settle();
	while (done < n && !(rc = recv_queue_post(&srq->core.queue, &wr[done], &why)))
		done++;
	device_leave(base->pd->device);
	*ret_posted = done;
	if (rc)
		return frl_fail(rc, "shared receive queue, request %d: %s", done, why);
	return done;
}
