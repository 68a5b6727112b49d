/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels and asynchronous events. Events wait in lists. A descriptor is readable
 * exactly while its list is not empty: both change only under the guard. A waiter sleeps on the
 * descriptor and then checks the list again, because another thread may have fetched the event.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"

enum { NS_PER_MS = 1000000 };

static uint64_t limit_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

/* A wait for an event. */
struct wait {
	struct frl_device *device;
	uint64_t limit_ns;
	bool is_vain;     /* a wake-up by the port brought no event */
	int cancel_state; /* of the caller */
};

/*
 * The thread may be cancelled (pthread_cancel()) while it sleeps, and nowhere else: elsewhere it
 * may hold the guard.
 */
static struct wait begin_wait(struct frl_device *device, int timeout_ms)
{
	struct wait wait = { .device = device, .limit_ns = limit_of(timeout_ms) };

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &wait.cancel_state);
	return wait;
}

static void end_wait(const struct wait *wait)
{
	pthread_setcancelstate(wait->cancel_state, NULL);
}

static void stop_watching(void *device)
{
	((struct frl_device *)device)->ops->unwatch(device);
}

static void poll_cancelable(
	const struct wait *wait, struct pollfd fds[2], const struct timespec *left)
{
	pthread_setcancelstate(wait->cancel_state, NULL);
	ppoll(fds, 2, left, NULL);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* Waits for either descriptor, the second of which may be that of the device. */
static void watch(const struct wait *wait, struct pollfd fds[2], const struct timespec *left)
{
	const struct device_ops *ops = wait->device->ops;

	if (!ops->watch || wait->is_vain) {
		poll_cancelable(wait, fds, left);
		return;
	}
	fds[1].fd = ops->watch(wait->device);
	pthread_cleanup_push(stop_watching, wait->device);
	poll_cancelable(wait, fds, left);
	pthread_cleanup_pop(1);
}

/*
 * Sleeps until the descriptor may be readable. Returns false after the time limit. If the device
 * has work while all threads sleep, this thread does it at once, which saves waking another thread.
 * It does so only once, to avoid repeated polls in vain.
 */
static bool sleep_on(struct wait *wait, int fd)
{
	struct pollfd fds[2] = { { .fd = fd, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	struct frl_device *device = wait->device;
	uint64_t now = clock_now_ns();
	struct timespec left = { 0 };

	if (now >= wait->limit_ns)
		return false;
	left.tv_sec = (time_t)((wait->limit_ns - now) / 1000 / NS_PER_MS);
	left.tv_nsec = (long)((wait->limit_ns - now) % (UINT64_C(1000) * NS_PER_MS));
	if (device->ops->expect_sleep)
		device->ops->expect_sleep(device);
	watch(wait, fds, wait->limit_ns == UINT64_MAX ? NULL : &left);
	if (!fds[1].revents || fds[0].revents)
		return true;
	wait->is_vain = true;
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
	struct frl_cq *cq;
	struct wait wait;

	if (!channel || !ret_cq)
		return frl_fail(-EINVAL, "frl_get_cq_event: channel and ret_cq are required");
	wait = begin_wait(channel->device, timeout_ms);
	do {
		cq = channel->device->ops->channel_take(channel);
	} while (!cq && sleep_on(&wait, channel->fd));
	end_wait(&wait);
	if (!cq)
		return -EAGAIN;
	*ret_cq = cq;
	return 0;
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

static int await_async_event(struct wait *wait, struct frl_async_event *ret_event)
{
	int fd = frl_async_fd(wait->device);

	if (fd < 0)
		return fd;
	while (!take_async_event(wait->device, ret_event))
		if (!sleep_on(wait, fd))
			return -EAGAIN;
	return 0;
}

int frl_get_async_event(
	struct frl_device *device, int timeout_ms, struct frl_async_event *ret_event)
{
	struct wait wait;
	int rc = 0;

	if (!device || !ret_event)
		return frl_fail(-EINVAL, "frl_get_async_event: device and ret_event are required");
	wait = begin_wait(device, timeout_ms);
	if (!take_async_event(device, ret_event))
		rc = timeout_ms == 0 ? -EAGAIN : await_async_event(&wait, ret_event);
	end_wait(&wait);
	return rc;
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
