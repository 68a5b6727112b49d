/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels and asynchronous events. Events wait in lists. A descriptor is readable
 * exactly while its list is not empty: both change only under the guard. A waiter sleeps on the
 * descriptor and then checks the list again, because another thread may have fetched the event.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"

enum { NS_PER_MS = 1000000 };

static uint64_t limit_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

/*
 * Sleeps until the descriptor may be readable. Returns false after `limit`. If the device has work
 * while all threads sleep, this thread does it at once, which saves waking another thread. It does
 * so only once, as *ret_vain records, to avoid repeated polls in vain.
 */
static bool sleep_on(struct frl_device *device, int fd, uint64_t limit, bool *ret_vain)
{
	struct pollfd fds[2] = { { .fd = fd, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	uint64_t now = clock_now_ns();
	struct timespec left = { 0 };
	bool watches;

	if (now >= limit)
		return false;
	left.tv_sec = (time_t)((limit - now) / 1000 / NS_PER_MS);
	left.tv_nsec = (long)((limit - now) % (UINT64_C(1000) * NS_PER_MS));
	if (device->ops->expect_sleep)
		device->ops->expect_sleep(device);
	watches = device->ops->watch && !*ret_vain;
	if (watches)
		fds[1].fd = device->ops->watch(device);
	ppoll(fds, 2, limit == UINT64_MAX ? NULL : &left, NULL);
	if (watches)
		device->ops->unwatch(device);
	if (!fds[1].revents || fds[0].revents)
		return true;
	*ret_vain = true;
	device_enter(device);
	device_poll(device);
	device_leave(device);
	return true;
}

/*
 * Starts a progress thread that drives the device while the application sleeps. With the guard
 * held.
 */
static int start_thread(struct frl_device *device)
{
	return device->ops->start_thread ? device->ops->start_thread(device) : 0;
}

static int make_channel(struct frl_comp_channel *channel)
{
	struct frl_device *device = channel->device;
	int rc = device->ops->channel_create(channel);

	if (rc)
		return rc;
	device_enter(device);
	rc = start_thread(device);
	if (!rc)
		device->objects++;
	device_leave(device);
	if (rc)
		device->ops->channel_destroy(channel);
	return rc;
}

int frl_comp_channel_create(struct frl_device *device, struct frl_comp_channel **ret_channel)
{
	struct frl_comp_channel *channel;
	int rc;

	if (!device || !ret_channel)
		return frl_fail(
			-EINVAL, "frl_comp_channel_create: device and ret_channel are required");
	channel = calloc(1, device->ops->channel_size);
	if (!channel)
		return frl_fail(-ENOMEM, "no memory for a completion channel");
	channel->device = device;
	rc = make_channel(channel);
	if (rc)
		free(channel);
	else
		*ret_channel = channel;
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
	device_leave(device);
	if (cqs)
		return frl_fail(-EBUSY,
			"the completion channel is still used by %u completion queues", cqs);
	device->ops->channel_destroy(channel);
	device_enter(device);
	device->objects--;
	device_leave(device);
	free(channel);
	return 0;
}

int frl_comp_channel_fd(const struct frl_comp_channel *channel)
{
	return channel->fd;
}

int frl_req_notify_cq(struct frl_cq *cq, bool solicited_only)
{
	if (!cq)
		return frl_fail(-EINVAL, "frl_req_notify_cq: cq is required");
	if (!cq->channel)
		return frl_fail(-EINVAL,
			"the completion queue has no channel: create it with "
			"frl_cq_create_on_channel()");
	return cq->device->ops->req_notify(cq, solicited_only);
}

int frl_get_cq_event(struct frl_comp_channel *channel, int timeout_ms, struct frl_cq **ret_cq)
{
	uint64_t limit = limit_of(timeout_ms);
	bool vain = false;

	if (!channel || !ret_cq)
		return frl_fail(-EINVAL, "frl_get_cq_event: channel and ret_cq are required");
	do {
		struct frl_cq *cq = channel->device->ops->channel_take(channel);

		if (cq) {
			*ret_cq = cq;
			return 0;
		}
	} while (sleep_on(channel->device, channel->fd, limit, &vain));
	return -EAGAIN;
}

int frl_comp_channel_on_event(
	struct frl_comp_channel *channel, void (*fn)(struct frl_cq *cq, void *arg), void *arg)
{
	struct frl_device *device;

	if (!channel)
		return frl_fail(-EINVAL, "frl_comp_channel_on_event: channel is required");
	device = channel->device;
	if (!device->ops->channel_divert)
		return frl_fail(-ENOTSUP,
			"completion channels of hardware call no function: use frl_get_cq_event()");
	device_enter(device);
	channel->on_event = fn;
	channel->on_event_arg = arg;
	device->ops->channel_divert(channel);
	/* Calls it for the events that were kept. */
	device_leave(device);
	return 0;
}

int frl_async_fd(struct frl_device *device)
{
	int rc = 0;

	if (!device)
		return frl_fail(-EINVAL, "frl_async_fd: device is required");
	device_enter(device);
	if (device->async.fd < 0)
		rc = event_fd_create(&device->async);
	if (!rc)
		rc = start_thread(device);
	if (!rc)
		rc = device->async.fd;
	/* Raises the event for conditions that exist already. */
	device_leave(device);
	return rc;
}

static bool take_async_event(struct frl_device *device, struct frl_async_event *ret_event)
{
	bool found;

	device_enter(device);
	found = !list_empty(device->events);
	if (found)
		*ret_event = device_take_event(device);
	device_leave(device);
	return found;
}

int frl_get_async_event(
	struct frl_device *device, int timeout_ms, struct frl_async_event *ret_event)
{
	uint64_t limit = limit_of(timeout_ms);
	bool vain = false;
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
		if (!sleep_on(device, fd, limit, &vain))
			return -EAGAIN;
	}
}

int frl_device_on_event(struct frl_device *device,
	void (*fn)(const struct frl_async_event *event, void *arg), void *arg)
{
	int rc = 0;

	if (!device)
		return frl_fail(-EINVAL, "frl_device_on_event: device is required");
	device_enter(device);
	if (fn)
		rc = start_thread(device);
	if (!rc) {
		device->on_event = fn;
		device->on_event_arg = arg;
	}
	/* Calls it for the events that were kept. */
	device_leave(device);
	return rc;
}
