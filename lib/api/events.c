/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels and asynchronous events. What waits to be fetched is in lists, and the
 * descriptor is readable exactly while its list is not empty: both change under the guard alone.
 * Whoever waits sleeps on the descriptor and then looks again, since somebody else may have been
 * faster.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/eventfd.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum { NS_PER_MS = 1000000 };

int bell_make(struct bell *bell)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	if (fd < 0)
		return frl_fail(
			errno, "cannot make a descriptor for events: %s", frl_strerror(errno));
	*bell = (struct bell){ .fd = fd };
	return 0;
}

void bell_fini(struct bell *bell)
{
	if (bell->fd >= 0)
		close(bell->fd);
	bell->fd = -1;
}

void bell_set(struct bell *bell, bool raised)
{
	uint64_t count = 1;
	ssize_t n;

	if (bell->raised == raised || bell->fd < 0)
		return;
	bell->raised = raised;
	/* Neither can fail: the count is 0 or 1. */
	n = raised ? write(bell->fd, &count, sizeof(count)) : read(bell->fd, &count, sizeof(count));
	(void)n;
}

static uint64_t limit_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

/* Sleeps until the descriptor may be readable. False: it is `limit`. */
static bool sleep_on(struct frl_device *device, int fd, uint64_t limit)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };
	uint64_t now = clock_now_ns();
	struct timespec left = { 0 };

	if (now >= limit)
		return false;
	left.tv_sec = (time_t)((limit - now) / 1000 / NS_PER_MS);
	left.tv_nsec = (long)((limit - now) % (UINT64_C(1000) * NS_PER_MS));
	device_expect_sleep(device);
	ppoll(&event, 1, limit == UINT64_MAX ? NULL : &left, NULL);
	return true;
}

int frl_comp_channel_create(struct frl_device *device, struct frl_comp_channel **ret_channel)
{
	struct frl_comp_channel *channel;
	int rc;

	if (!device || !ret_channel)
		return frl_fail(
			-EINVAL, "frl_comp_channel_create: device and ret_channel are required");
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return frl_fail(-ENOMEM, "no memory for a completion channel");
	rc = bell_make(&channel->bell);
	if (rc)
		goto err_free;
	channel->device = device;
	list_init(&channel->pending);
	device_enter(device);
	rc = device_start_thread(device);
	if (!rc)
		device->objects++;
	device_leave(device);
	if (rc)
		goto err_close;
	*ret_channel = channel;
	return 0;

err_close:
	close(channel->bell.fd);
err_free:
	free(channel);
	return rc;
}

int frl_comp_channel_destroy(struct frl_comp_channel *channel)
{
	struct frl_device *device;
	unsigned cqs;

	if (!channel)
		return 0;
	device = channel->device;
	device_enter(device);
	cqs = channel->cqs;
	if (!cqs)
		device->objects--;
	device_leave(device);
	if (cqs)
		return frl_fail(-EBUSY,
			"the completion channel is still used by %u completion queues", cqs);
	close(channel->bell.fd);
	free(channel);
	return 0;
}

int frl_comp_channel_fd(const struct frl_comp_channel *channel)
{
	return channel->bell.fd;
}

int frl_req_notify_cq(struct frl_cq *cq, bool solicited_only)
{
	if (!cq)
		return frl_fail(-EINVAL, "frl_req_notify_cq: cq is required");
	if (!cq->channel)
		return frl_fail(-EINVAL,
			"the completion queue has no channel: create it with "
			"frl_cq_create_on_channel()");
	device_enter(cq->device);
	if (!solicited_only)
		cq->core.armed = CQ_ARMED;
	else if (cq->core.armed == CQ_NOT_ARMED)
		cq->core.armed = CQ_ARMED_SOLICITED;
	device_leave(cq->device);
	device_expect_sleep(cq->device);
	return 0;
}

void events_forget_cq(struct frl_cq *cq)
{
	list_remove(&cq->core.notify);
	list_remove(&cq->core.events.node);
	if (cq->channel)
		bell_set(&cq->channel->bell, !list_empty(&cq->channel->pending));
}

void events_forget(struct event_source *source)
{
	list_remove(&source->node);
}

static struct frl_cq *take_completion_event(struct frl_comp_channel *channel)
{
	struct frl_cq *cq = NULL;

	device_enter(channel->device);
	if (!list_empty(&channel->pending)) {
		struct cq *core = container_of(channel->pending.next, struct cq, notify);

		list_remove(&core->notify);
		bell_set(&channel->bell, !list_empty(&channel->pending));
		cq = container_of(core, struct frl_cq, core);
	}
	device_leave(channel->device);
	return cq;
}

int frl_get_cq_event(struct frl_comp_channel *channel, int timeout_ms, struct frl_cq **ret_cq)
{
	uint64_t limit = limit_of(timeout_ms);

	if (!channel || !ret_cq)
		return frl_fail(-EINVAL, "frl_get_cq_event: channel and ret_cq are required");
	do {
		struct frl_cq *cq = take_completion_event(channel);

		if (cq) {
			*ret_cq = cq;
			return 0;
		}
	} while (sleep_on(channel->device, channel->bell.fd, limit));
	return -EAGAIN;
}

int frl_async_fd(struct frl_device *device)
{
	int rc = 0;

	if (!device)
		return frl_fail(-EINVAL, "frl_async_fd: device is required");
	device_enter(device);
	if (device->async.fd < 0)
		rc = bell_make(&device->async);
	if (!rc)
		rc = device_start_thread(device);
	if (!rc)
		rc = device->async.fd;
	/* Raises it for what has happened already. */
	device_leave(device);
	return rc;
}

static struct frl_async_event describe(struct event_source *source)
{
	struct frl_async_event event = { 0 };

	switch (source->object) {
	case EVENT_OF_CQ:
		event.cq = container_of(
			container_of(source, struct cq, events), struct frl_cq, core);
		break;
	case EVENT_OF_QP:
		event.qp = container_of(
			container_of(source, struct qp, events), struct frl_qp, engine.core);
		break;
	case EVENT_OF_SRQ:
		event.srq = container_of(
			container_of(source, struct srq, events), struct frl_srq, core);
		break;
	case EVENT_OF_PORT: break;
	}
	event.type = event_take(source);
	return event;
}

static bool take_async_event(struct frl_device *device, struct frl_async_event *ret_event)
{
	struct list *queue = &device->engine.events.async;
	bool found;

	device_enter(device);
	found = !list_empty(queue);
	if (found)
		*ret_event = describe(container_of(queue->next, struct event_source, node));
	device_leave(device);
	return found;
}

int frl_get_async_event(
	struct frl_device *device, int timeout_ms, struct frl_async_event *ret_event)
{
	uint64_t limit = limit_of(timeout_ms);
	int fd = -1;

	if (!device || !ret_event)
		return frl_fail(-EINVAL, "frl_get_async_event: device and ret_event are required");
	for (;;) {
		if (take_async_event(device, ret_event))
			return 0;
		if (timeout_ms == 0)
			return -EAGAIN;
		if (fd < 0)
			fd = frl_async_fd(device);
		if (fd < 0)
			return fd;
		if (!sleep_on(device, fd, limit))
			return -EAGAIN;
	}
}
