/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions common to all devices, see device.h. */
#include "lib/device/device.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <sys/eventfd.h>

#include "lib/base/process/backoff.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/random.h"

enum { NS_PER_MS = 1000000 };

void device_init(struct frl_device *device, const struct device_ops *ops, struct list *events)
{
	device->ops = ops;
	guard_init(&device->guard);
	device->events = events;
	device->async.fd = -1;
	for (size_t i = 0; i < NONCE_SIZE; i += sizeof(uint64_t)) {
		uint64_t bits = random_entropy();

		memcpy(device->nonce + i, &bits, sizeof(bits));
	}
}

void device_fini(struct frl_device *device)
{
	event_fd_fini(&device->async);
	guard_fini(&device->guard);
}

struct frl_async_event device_take_event(struct frl_device *device)
{
	struct event_source *source = container_of(device->events->next, struct event_source, node);
	struct frl_async_event event = { 0 };

	switch (source->object) {
	case EVENT_OF_CQ: event.cq = source->owner; break;
	case EVENT_OF_QP: event.qp = source->owner; break;
	case EVENT_OF_SRQ: event.srq = source->owner; break;
	case EVENT_OF_PORT: break;
	}
	event.type = event_take(source);
	return event;
}

static void pass_on_events(struct frl_device *device)
{
	while (!list_empty(device->events)) {
		const struct frl_async_event event = device_take_event(device);

		device->on_event(&event, device->on_event_arg);
	}
}

void device_report(struct frl_device *device)
{
	if (device->ops->leaving)
		device->ops->leaving(device);
	if (device->on_event)
		pass_on_events(device);
	event_fd_set(&device->async, !list_empty(device->events));
}

void device_leave(struct frl_device *device)
{
	device_report(device);
	guard_leave(&device->guard);
}

int device_wait(struct frl_device *device, int (*try)(struct frl_device *, void *), void *arg,
	const struct wait_limit *limit)
{
	uint64_t now_ns = clock_now_ns(), interrupt_ns = now_ns;
	struct frl_backoff backoff;

	frl_backoff_reset(&backoff);
	for (;; now_ns = clock_now_ns()) {
		int rc;

		device_enter(device);
		device_poll(device);
		rc = try(device, arg);
		device_leave(device);
		if (rc != -EAGAIN)
			return rc;
		if (now_ns >= limit->limit_ns)
			return -ETIMEDOUT;
		if (limit->interrupt && now_ns >= interrupt_ns) {
			rc = limit->interrupt(limit->interrupt_arg);
			if (rc < 0)
				return rc;
			interrupt_ns = now_ns + NS_PER_MS;
		}
		frl_backoff_idle(&backoff);
	}
}

void device_idle(struct frl_device *device, struct frl_backoff *backoff, struct awaited *awaited)
{
	int moved = -ENOTSUP;

	if (device->ops->sleep && backoff_is_long(backoff))
		moved = device->ops->sleep(device, awaited);
	if (moved < 0)
		backoff_idle(backoff, BACKOFF_IDLE_US);
	else if (moved > 0)
		frl_backoff_reset(backoff);
}

int event_fd_create(struct event_fd *event_fd)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	if (fd < 0)
		return frl_fail(
			errno, "cannot make a descriptor for events: %s", frl_strerror(errno));
	*event_fd = (struct event_fd){ .fd = fd };
	return 0;
}

void event_fd_fini(struct event_fd *event_fd)
{
	if (event_fd->fd >= 0)
		close(event_fd->fd);
	event_fd->fd = -1;
}

void event_fd_set(struct event_fd *event_fd, bool raised)
{
	uint64_t count = 1;
	ssize_t n;

	if (event_fd->raised == raised || event_fd->fd < 0)
		return;
	event_fd->raised = raised;
	/* Cannot fail: the count is 0 or 1. */
	n = raised ? write(event_fd->fd, &count, sizeof(count))
		   : read(event_fd->fd, &count, sizeof(count));
	(void)n;
}
