/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues. */
#include <errno.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

uint32_t round_up_pow2(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power <<= 1;
	return power;
}

int frl_cq_create(struct frl_device *device, uint32_t depth, struct frl_cq **ret_cq)
{
	return frl_cq_create_on_channel(device, depth, NULL, NULL, ret_cq);
}

int frl_cq_create_on_channel(struct frl_device *device, uint32_t depth,
	struct frl_comp_channel *channel, void *context, struct frl_cq **ret_cq)
{
	struct frl_wc *entries;
	struct frl_cq *cq;

	if (!device || !ret_cq || depth < 1 || depth > MAX_CQ_DEPTH)
		return frl_fail(-EINVAL,
			"frl_cq_create: a device and a depth of 1 to %d are required",
			MAX_CQ_DEPTH);
	if (channel && channel->device != device)
		return frl_fail(-EINVAL, "frl_cq_create: the channel is of another device");
	depth = round_up_pow2(depth);
	cq = calloc(1, sizeof(*cq));
	entries = calloc(depth, sizeof(*entries));
	if (!cq || !entries) {
		free(cq);
		free(entries);
		return frl_fail(-ENOMEM, "no memory for a completion queue of %u entries", depth);
	}
	cq->device = device;
	cq->channel = channel;
	cq->context = context;
	cq_init(&cq->core, entries, depth, &device->engine.events);
	device_enter(device);
	device->objects++;
	if (channel)
		channel->cqs++;
	device_leave(device);
	*ret_cq = cq;
	return 0;
}

void *frl_cq_context(const struct frl_cq *cq)
{
	return cq->context;
}

int frl_cq_destroy(struct frl_cq *cq)
{
	struct frl_device *device;

	if (!cq)
		return 0;
	device = cq->device;
	device_enter(device);
	if (cq->qps) {
		device_leave(device);
		return frl_fail(-EBUSY, "the completion queue is still used by queue pairs");
	}
	events_forget_cq(cq);
	device->objects--;
	if (cq->channel)
		cq->channel->cqs--;
	device_leave(device);
	free(cq->core.entries);
	free(cq);
	return 0;
}

static int take_completions(struct cq *cq, int max, struct frl_wc wc[])
{
	int n = 0;

	while (n < max && cq_pop(cq, &wc[n]))
		n++;
	if (n == 0 && cq->overrun && cq->head == cq->tail)
		return frl_fail(-EOVERFLOW,
			"the completion queue overran: poll more often, or make it deeper than all "
			"requests that can be outstanding on its queue pairs");
	return n;
}

static int check_poll(
	const char *function, const struct frl_cq *cq, int max, const struct frl_wc wc[])
{
	if (cq && max >= 0 && (wc || max == 0))
		return 0;
	return frl_fail(
		-EINVAL, "%s: cq, a max of 0 or more and that many wc are required", function);
}

/* `ret_moved`: packets that the device handled. */
static int poll_once(struct frl_cq *cq, int max, struct frl_wc wc[], uint32_t *ret_moved)
{
	struct frl_device *device = cq->device;
	int n;

	atomic_fetch_add_explicit(&device->polls, 1, memory_order_relaxed);
	device_enter(device);
	*ret_moved = device_poll(device);
	n = take_completions(&cq->core, max, wc);
	device_leave(device);
	return n;
}

int frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[])
{
	int rc = check_poll("frl_poll_cq", cq, max, wc);
	uint32_t moved;

	return rc ? rc : poll_once(cq, max, wc, &moved);
}

int frl_cq_wait(struct frl_cq *cq, int max, struct frl_wc wc[], int timeout_ms)
{
	uint64_t limit = timeout_ms < 0 ? UINT64_MAX
					: clock_now_ns() + (uint64_t)timeout_ms * UINT64_C(1000000);
	int rc = check_poll("frl_cq_wait", cq, max, wc);
	struct frl_backoff backoff;

	if (rc)
		return rc;
	frl_backoff_reset(&backoff);
	for (;;) {
		uint32_t moved;
		int n = poll_once(cq, max, wc, &moved);

		if (n != 0)
			return n;
		if (moved)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
		if (limit != UINT64_MAX && clock_now_ns() >= limit)
			return 0;
	}
}
