/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues. */
#include "lib/api/objects.h"

#include <stdlib.h>

#include "lib/base/clock.h"

int frl_cq_create(struct frl_device *device, uint32_t depth, struct frl_cq **ret_cq)
{
	return frl_cq_create_on_channel(device, depth, NULL, NULL, ret_cq);
}

int frl_cq_create_on_channel(struct frl_device *device, uint32_t depth,
	struct frl_comp_channel *channel, void *context, struct frl_cq **ret_cq)
{
	struct frl_cq *cq;
	int rc;

	if (!device || !ret_cq || depth < 1 || depth > device->attr.max_cqe)
		return frl_fail(-EINVAL,
			"frl_cq_create: a device and a depth of 1 to %u are required",
			device ? device->attr.max_cqe : 0);
	if (channel && channel->device != device)
		return frl_fail(-EINVAL, "frl_cq_create: the channel is of another device");
	cq = calloc(1, device->ops->cq_size);
	if (!cq)
		return frl_fail(-ENOMEM, "no memory for a completion queue of %u entries", depth);
	cq->device = device;
	cq->channel = channel;
	cq->context = context;
	rc = device->ops->cq_create(cq, depth);
	if (mr_caches_make_room(rc))
		rc = device->ops->cq_create(cq, depth);
	if (rc) {
		free(cq);
		return rc;
	}
	device_enter(device);
	device->objects++;
	if (channel)
		channel->cqs++;
	device_leave(device);
	*ret_cq = cq;
	return 0;
}

int frl_cq_resize(struct frl_cq *cq, uint32_t depth)
{
	int rc;

	if (!cq || depth < 1 || depth > cq->device->attr.max_cqe)
		return frl_fail(-EINVAL, "frl_cq_resize: a cq and a depth of 1 to %u are required",
			cq ? cq->device->attr.max_cqe : 0);
	rc = cq->device->ops->cq_resize(cq, depth);
	if (mr_caches_make_room(rc))
		rc = cq->device->ops->cq_resize(cq, depth);
	return rc;
}

void *frl_cq_context(const struct frl_cq *cq)
{
	return cq->context;
}

int frl_cq_destroy(struct frl_cq *cq)
{
	struct frl_device *device;
	unsigned qps;

	if (!cq)
		return 0;
	device = cq->device;
	device_enter(device);
	qps = cq->qps;
	device_leave(device);
	if (qps)
		return frl_fail(-EBUSY, "the completion queue is still used by queue pairs");
	device->ops->cq_destroy(cq);
	device_enter(device);
	device->objects--;
	if (cq->channel)
		cq->channel->cqs--;
	device_leave(device);
	free(cq);
	return 0;
}

static int check_poll(
	const char *function, const struct frl_cq *cq, int max, const struct frl_wc wc[])
{
	if (cq && max >= 0 && (wc || max == 0))
		return 0;
	return frl_fail(
		-EINVAL, "%s: cq, a max of 0 or more and that many wc are required", function);
}

int frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[])
{
	int rc = check_poll("frl_poll_cq", cq, max, wc);
	bool moved;

	return rc ? rc : cq->device->ops->poll_cq(cq, max, wc, &moved);
}

int frl_cq_wait(struct frl_cq *cq, int max, struct frl_wc wc[], int timeout_ms)
{
	uint64_t limit = timeout_ms < 0 ? UINT64_MAX
					: clock_now_ns() + (uint64_t)timeout_ms * UINT64_C(1000000);
	int rc = check_poll("frl_cq_wait", cq, max, wc);
	/* With max 0 the call takes no completion, so it may wait while there are some. */
	struct awaited awaited = { .cq = max > 0 ? cq : NULL, .until_ns = limit };
	struct frl_backoff backoff;

	if (rc)
		return rc;
	frl_backoff_reset(&backoff);
	for (;;) {
		bool moved = false;
		int n = cq->device->ops->poll_cq(cq, max, wc, &moved);

		if (n != 0)
			return n;
		if (moved)
			frl_backoff_reset(&backoff);
		else
			device_idle(cq->device, &backoff, &awaited);
		if (limit != UINT64_MAX && clock_now_ns() >= limit)
			return 0;
	}
}
