/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeps until there is work, if the port can signal work (port_ops.arm).
 *
 * A waiter does not hold the guard. These events wake a waiter:
 * - The port signals: frames, or links that come or go. The first thread awake disarms the port,
 *   and wakes the others through their own descriptors, as any of them may have to continue.
 * - A thread that used the engine releases the guard, and the waiter's queue has a completion, the
 *   port did not take a packet, or a deadline is earlier than the waiter knows.
 * - The deadline of the waiter, or the end of its wait.
 * - NET_NS has passed, in case a peer failed to signal.
 * The waiter checks all but the first under the guard before it sleeps. The other threads check
 * them under the guard after their work. No wake-up is lost in between. For the first see
 * port_ops.arm.
 *
 * A descriptor may be readable without work, because of a malicious peer or while frames wait for
 * buffers. To avoid a busy loop, a waiter sleeps by the clock after a spurious wake-up. A wake-up
 * is not spurious if another thread has done the work.
 */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/device/soft.h"

enum {
	NS_PER_S = 1000000000,
	NET_NS = 50000000,
	LEAST_NS = 200000, /* shorter sleeps use the clock */
	WATCHER_NS = 20000,
};

void sleep_init(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_WAITERS; i++)
		device->waiters[i].fd = -1;
	atomic_init(&device->wake_fd, -1);
}

int soft_watch(struct frl_device *device)
{
	atomic_fetch_add(&soft_device(device)->watchers, 1);
	return atomic_load(&soft_device(device)->wake_fd);
}

void soft_unwatch(struct frl_device *device)
{
	atomic_fetch_sub(&soft_device(device)->watchers, 1);
}

/* Yields to threads that wait for an event. The port woke them as well, and they do the work if
 * they get the guard first. Otherwise they would have to be woken again after this thread. */
static void yield_to_watchers(const struct soft_device *device)
{
	const struct timespec moment = { .tv_nsec = WATCHER_NS };

	if (atomic_load(&device->watchers))
		nanosleep(&moment, NULL);
}

void sleep_fini(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_WAITERS; i++)
		if (device->waiters[i].fd >= 0)
			close(device->waiters[i].fd);
}

static void wake(struct soft_waiter *waiter)
{
	uint64_t one = 1;
	ssize_t n;

	if (!waiter->is_used || waiter->is_woken)
		return;
	waiter->is_woken = true;
	n = write(waiter->fd, &one, sizeof(one)); /* cannot fail: the count is 0 */
	(void)n;
}

void wake_all_waiters(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_WAITERS; i++)
		wake(&device->waiters[i]);
}

/* Returns true if the wait for the queue is over: a completion, or an overrun. */
static bool is_over(const struct cq *cq)
{
	return cq && (!cq_is_empty(cq) || cq->overrun);
}

void wake_waiters(struct soft_device *device)
{
	uint64_t deadline_ns = engine_next_deadline(&device->engine);
	bool has_work = engine_has_work(&device->engine);

	for (unsigned i = 0; i < SOFT_WAITERS; i++) {
		struct soft_waiter *waiter = &device->waiters[i];

		if (has_work || deadline_ns < waiter->until_ns || is_over(waiter->cq))
			wake(waiter);
	}
}

/* Returns when the waiter must be awake. */
static uint64_t wake_deadline(
	const struct soft_device *device, const struct awaited *awaited, uint64_t now_ns)
{
	uint64_t deadline_ns = engine_next_deadline(&device->engine);
	uint64_t until_ns = now_ns + NET_NS;

	if (deadline_ns < until_ns)
		until_ns = deadline_ns;
	return awaited->until_ns < until_ns ? awaited->until_ns : until_ns;
}

/* Returns a free waiter entry, or NULL if there are too many or no descriptor. */
static struct soft_waiter *free_waiter(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_WAITERS; i++) {
		struct soft_waiter *waiter = &device->waiters[i];

		if (waiter->is_used)
			continue;
		if (waiter->fd < 0)
			waiter->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		return waiter->fd < 0 ? NULL : waiter;
	}
	return NULL;
}

/* Called when no thread sleeps, or all are being woken. */
static void disarm(struct soft_device *device)
{
	if (device->port->ops->disarm)
		device->port->ops->disarm(device->port);
}

static const struct cq *cq_of(const struct awaited *awaited)
{
	return awaited->cq ? &soft_cq(awaited->cq)->core : NULL;
}

/* Prepares to sleep. Returns NULL if the thread must not sleep now. *ret_fd is the port's
 * descriptor. Guard held. */
static struct soft_waiter *prepare_sleep(
	struct soft_device *device, const struct awaited *awaited, int *ret_fd)
{
	const struct cq *cq = cq_of(awaited);
	uint64_t now_ns = clock_now_ns();
	uint64_t until_ns = wake_deadline(device, awaited, now_ns);
	struct port *port = device->port;
	struct soft_waiter *waiter;

	/* `stop` is set before the waiters are woken. */
	if (!port->ops->arm || atomic_load(&device->stop) || until_ns < now_ns + LEAST_NS ||
		engine_has_work(&device->engine) || is_over(cq))
		return NULL;
	waiter = free_waiter(device);
	if (!waiter)
		return NULL;
	*ret_fd = port->ops->arm(port);
	if (*ret_fd < 0) {
		if (device->n_asleep == 0)
			disarm(device);
		return NULL;
	}
	*waiter = (struct soft_waiter){
		.fd = waiter->fd,
		.is_used = true,
		.cq = cq,
		.until_ns = until_ns,
		.moved = device->moved,
	};
	device->n_asleep++;
	if (port->ops->disarm)
		atomic_store(&device->wake_fd, *ret_fd);
	return waiter;
}

/* Guard held. */
static void wake_up(struct soft_device *device, struct soft_waiter *waiter, bool by_port)
{
	uint64_t count;
	ssize_t n;

	if (waiter->is_woken) {
		n = read(waiter->fd, &count, sizeof(count)); /* cannot fail: the count is 1 */
		(void)n;
	}
	*waiter = (struct soft_waiter){ .fd = waiter->fd };
	device->n_asleep--;
	if (by_port || device->n_asleep == 0)
		disarm(device);
	if (by_port)
		wake_all_waiters(device);
}

/* Runs one round that checks everything. Guard held. */
static uint32_t drive(struct soft_device *device)
{
	device->tick_ns = 0;
	if (device->port->caps.on_demand)
		engine_check_links(&device->engine);
	return soft_poll(&device->base);
}

/* Waits until a descriptor is readable or the time has come. Returns true for the port's
 * descriptor. */
static bool wait_for(int port_fd, int own_fd, uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t ns = until_ns > now_ns ? until_ns - now_ns : 0;
	struct pollfd fds[] = {
		{ .fd = port_fd, .events = POLLIN },
		{ .fd = own_fd, .events = POLLIN },
	};
	struct timespec left = {
		.tv_sec = (time_t)(ns / NS_PER_S),
		.tv_nsec = (long)(ns % NS_PER_S),
	};

	return ppoll(fds, 2, &left, NULL) > 0 && fds[0].revents;
}

/* Returns the result for a thread that does not sleep: an event came meanwhile, or there is more
 * to do. */
static int result_without_sleep(
	const struct soft_device *device, const struct awaited *awaited, uint32_t moved)
{
	if (!device->port->ops->arm)
		return -ENOTSUP;
	if (moved == 0 && is_over(cq_of(awaited)))
		moved = 1;
	return moved ? (int)moved : -EAGAIN;
}

int soft_sleep(struct frl_device *base, struct awaited *awaited)
{
	struct soft_device *device = soft_device(base);
	uint64_t until_ns = 0, moved_before;
	struct soft_waiter *waiter = NULL;
	int port_fd = -1, moved = 0;
	bool by_port;

	device_enter(base);
	/* Links that came or went while no thread slept have woken none. */
	if (device->port->ops->arm)
		moved = (int)drive(device);
	if (moved == 0 && !awaited->was_spurious)
		waiter = prepare_sleep(device, awaited, &port_fd);
	awaited->was_spurious = false;
	if (waiter)
		until_ns = waiter->until_ns;
	else
		moved = result_without_sleep(device, awaited, (uint32_t)moved);
	device_leave(base);
	if (!waiter)
		return moved;
	by_port = wait_for(port_fd, waiter->fd, until_ns);
	if (by_port && !awaited->cq)
		yield_to_watchers(device);
	device_enter(base);
	moved_before = waiter->moved;
	wake_up(device, waiter, by_port);
	moved = (int)drive(device);
	awaited->was_spurious = by_port && device->moved == moved_before;
	device_leave(base);
	return moved;
}
