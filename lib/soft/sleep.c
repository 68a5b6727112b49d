/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping until there is something to do, where the port can tell (port_ops.arm).
 *
 * Who sleeps has let go of the guard. What wakes it:
 *  - the port: frames, or links that come or go. Whoever is awake first takes that back, so it
 *    wakes the others by descriptors of their own: any of them may be the one that goes on;
 *  - whoever has done something with the engine, when he releases the guard: there is a completion
 *    in the queue that the sleeper waits for, something to be sent that the port did not take, or a
 *    deadline that is earlier than what the sleeper knows of;
 *  - that deadline, or the end of its wait;
 *  - NET_NS, for a peer that should have told and did not.
 * All but the first are looked at under the guard, by the sleeper before it sleeps and by the
 * others after what they did, so nothing gets lost in between. For the first see port_ops.arm.
 *
 * A descriptor that is readable while there is nothing to be had, as somebody wakes others for fun,
 * or frames wait for buffers, must not make a loop of this: after a wake-up in vain the next sleep
 * of that waiter is one by the clock. It is not in vain when another thread has done what there was
 * to do.
 */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/soft/soft.h"

enum {
	NS_PER_S = 1000000000,
	NET_NS = 50000000,
	LEAST_NS = 200000, /* less is slept by the clock */
	WATCHER_NS = 20000,
};

void sleep_init(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_SLEEPERS; i++)
		device->sleepers[i].fd = -1;
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

/* Somebody who waits for an event was woken as well, and does what there is to be done if he is let
 * in: else he would have to be woken once more, as soon as this thread is done. */
static void let_watcher_in(const struct soft_device *device)
{
	const struct timespec moment = { .tv_nsec = WATCHER_NS };

	if (atomic_load(&device->watchers))
		nanosleep(&moment, NULL);
}

void sleep_fini(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_SLEEPERS; i++)
		if (device->sleepers[i].fd >= 0)
			close(device->sleepers[i].fd);
}

static void rouse(struct soft_sleeper *sleeper)
{
	uint64_t one = 1;
	ssize_t n;

	if (!sleeper->is_used || sleeper->is_roused)
		return;
	sleeper->is_roused = true;
	n = write(sleeper->fd, &one, sizeof(one)); /* cannot fail: the count is 0 */
	(void)n;
}

void sleep_rouse_all(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_SLEEPERS; i++)
		rouse(&device->sleepers[i]);
}

/* Nobody has to wait for that queue any more: a completion, or the end of all. */
static bool is_over(const struct cq *cq)
{
	return cq && (!cq_is_empty(cq) || cq->overrun);
}

void sleep_rouse(struct soft_device *device)
{
	uint64_t deadline_ns = engine_next_deadline(&device->engine);
	bool has_work = engine_has_work(&device->engine);

	for (unsigned i = 0; i < SOFT_SLEEPERS; i++) {
		struct soft_sleeper *sleeper = &device->sleepers[i];

		if (has_work || deadline_ns < sleeper->until_ns || is_over(sleeper->cq))
			rouse(sleeper);
	}
}

/* When to be awake at the latest. */
static uint64_t awake_by(
	const struct soft_device *device, const struct awaited *awaited, uint64_t now_ns)
{
	uint64_t deadline_ns = engine_next_deadline(&device->engine);
	uint64_t until_ns = now_ns + NET_NS;

	if (deadline_ns < until_ns)
		until_ns = deadline_ns;
	return awaited->until_ns < until_ns ? awaited->until_ns : until_ns;
}

/* A place among those that sleep. NULL: there are too many, or no descriptors. */
static struct soft_sleeper *free_sleeper(struct soft_device *device)
{
	for (unsigned i = 0; i < SOFT_SLEEPERS; i++) {
		struct soft_sleeper *sleeper = &device->sleepers[i];

		if (sleeper->is_used)
			continue;
		if (sleeper->fd < 0)
			sleeper->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		return sleeper->fd < 0 ? NULL : sleeper;
	}
	return NULL;
}

/* Nobody sleeps, or all are being woken. */
static void disarm(struct soft_device *device)
{
	if (device->port->ops->disarm)
		device->port->ops->disarm(device->port);
}

static const struct cq *cq_of(const struct awaited *awaited)
{
	return awaited->cq ? &soft_cq(awaited->cq)->core : NULL;
}

/* NULL: not now. *ret_fd is the port's descriptor. Guard held. */
static struct soft_sleeper *fall_asleep(
	struct soft_device *device, const struct awaited *awaited, int *ret_fd)
{
	const struct cq *cq = cq_of(awaited);
	uint64_t now_ns = clock_now_ns();
	uint64_t until_ns = awake_by(device, awaited, now_ns);
	struct port *port = device->port;
	struct soft_sleeper *sleeper;

	/* Who ends the progress thread sets `stop` before it wakes those who sleep. */
	if (!port->ops->arm || atomic_load(&device->stop) || until_ns < now_ns + LEAST_NS ||
		engine_has_work(&device->engine) || is_over(cq))
		return NULL;
	sleeper = free_sleeper(device);
	if (!sleeper)
		return NULL;
	*ret_fd = port->ops->arm(port);
	if (*ret_fd < 0) {
		if (device->n_asleep == 0)
			disarm(device);
		return NULL;
	}
	*sleeper = (struct soft_sleeper){
		.fd = sleeper->fd,
		.is_used = true,
		.cq = cq,
		.until_ns = until_ns,
		.moved = device->moved,
	};
	device->n_asleep++;
	if (port->ops->disarm)
		atomic_store(&device->wake_fd, *ret_fd);
	return sleeper;
}

/* Guard held. */
static void wake_up(struct soft_device *device, struct soft_sleeper *sleeper, bool by_port)
{
	uint64_t count;
	ssize_t n;

	if (sleeper->is_roused) {
		n = read(sleeper->fd, &count, sizeof(count)); /* cannot fail: it is 1 */
		(void)n;
	}
	*sleeper = (struct soft_sleeper){ .fd = sleeper->fd };
	device->n_asleep--;
	if (by_port || device->n_asleep == 0)
		disarm(device);
	if (by_port)
		sleep_rouse_all(device);
}

/* One round that looks at everything. Guard held. */
static uint32_t drive(struct soft_device *device)
{
	device->tick_ns = 0;
	if (device->port->caps.on_demand)
		engine_check_links(&device->engine);
	return soft_poll(&device->base);
}

/* Until one of the descriptors is readable, or that time. Returns whether the first one is. */
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

/* Of who does not sleep after all: it came while he was about to, or there is more to be done. */
static int awake_for(
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
	struct soft_sleeper *sleeper = NULL;
	int port_fd = -1, moved = 0;
	bool by_port;

	device_enter(base);
	/* Links that came or went while nobody slept have roused nobody. */
	if (device->port->ops->arm)
		moved = (int)drive(device);
	if (moved == 0 && !awaited->was_vain)
		sleeper = fall_asleep(device, awaited, &port_fd);
	awaited->was_vain = false;
	if (sleeper)
		until_ns = sleeper->until_ns;
	else
		moved = awake_for(device, awaited, (uint32_t)moved);
	device_leave(base);
	if (!sleeper)
		return moved;
	by_port = wait_for(port_fd, sleeper->fd, until_ns);
	if (by_port && !awaited->cq)
		let_watcher_in(device);
	device_enter(base);
	moved_before = sleeper->moved;
	wake_up(device, sleeper, by_port);
	moved = (int)drive(device);
	awaited->was_vain = by_port && device->moved == moved_before;
	device_leave(base);
	return moved;
}
