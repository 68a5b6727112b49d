/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that drives all links and introductions of this process. It exists while a port has
 * links or takes part in introductions, and sleeps while nothing happens to them.
 *
 * In each round it publishes the ports whose tables have changed, then advances each link that has
 * an event or whose time has come. Then it sleeps until a link's socket has an event, a burst
 * notifies it, or the earliest time requested by a link. Introductions are advanced in the same
 * way. Their results go to the port's owner in publish(), which has the guard.
 *
 * Why bursts and this thread do not conflict:
 * - A port's table of links, and everything it refers to, changes only under the port's guard,
 *   which bursts hold. publish() takes one guard at a time, and holds no other.
 * - Rings and memory of peers are mapped and unmapped without a guard, but never while a table
 *   refers to them. A later publish() adds mapped memory to the table. Memory is removed from the
 *   table by a publish(), or by link_close() under the guard, before it is unmapped. Memory of a
 *   closed link stays until a publish() has followed, that is until its owner has released the
 *   guard. The payload of frames in the owner's hands thus stays readable.
 *
 * Lock order: a guard, then the mutex. The owner holds its guard when it calls the ops, which take
 * the mutex. This thread takes a guard only while it does not hold the mutex. A port is closed by a
 * thread that does not hold its guard.
 *
 * Peers release memory that the application has freed after FREED_NS at most. Nothing notifies this
 * thread of such memory, so it polls while peers have exports. It polls a counter, not the links.
 *
 * A forked child has no such thread, and the links belong to the parent. The child closes its
 * copies of their sockets, so that peers still detect when the parent is gone. It may then open
 * ports of its own.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/introduction.h"
#include "drivers/local/link.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/guard.h"
#include "lib/base/memory/share.h"
#include "lib/base/process/thread.h"

enum {
	FREED_NS = 20 * 1000 * 1000,
	EVENTS = 64,
	NS_PER_MS = 1000000,
	UNWATCHED_NS = 1000 * 1000, /* poll interval of a link without events */
};

static struct {
	/* Protects everything below, and the links. The ops enter first: peers and unknown
	 * processes could keep the thread busy without end. */
	struct guard guard;
	pthread_cond_t changed;        /* a link is gone, or a guard was released */
	LIST_HEAD(, local_port) ports; /* ports that have links or introductions */
	bool has_thread;
	int epoll_fd, kick_fd;   /* or -1 */
	atomic_bool is_notified; /* set by a burst, without the mutex */
} all = {
	.guard = { .mutex = PTHREAD_MUTEX_INITIALIZER },
	.changed = PTHREAD_COND_INITIALIZER,
	.ports = LIST_HEAD_INITIALIZER(all.ports),
	.epoll_fd = -1,
	.kick_fd = -1,
};

/* For the link thread: all other users of the mutex take precedence. */
static void lock(void)
{
	guard_enter(&all.guard);
}

void link_thread_lock(void)
{
	guard_enter_first(&all.guard);
}

void link_thread_unlock(void)
{
	guard_leave(&all.guard);
}

void link_thread_wait(void)
{
	pthread_cond_wait(&all.changed, &all.guard.mutex);
}

static bool is_used(const struct local_port *port)
{
	return !TAILQ_EMPTY(&port->all_links) || port->introductions;
}

void link_thread_list(struct local_port *port)
{
	if (!is_used(port))
		LIST_INSERT_HEAD(&all.ports, port, next);
}

/* ---- fork */

static void before_fork(void)
{
	link_thread_lock();
}

static void after_fork(void)
{
	link_thread_unlock();
}

static void close_copy(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_copies(struct fabric_link *link)
{
	fabric_clients_close_copies(&link->clients);
	close_copy(link->peer_fd);
	close_copy(link->proof_fd);
}

/* In the child, a device of the parent has no links any more. */
static void detach_links(struct local_port *port)
{
	struct fabric_link *link;

	TAILQ_FOREACH(link, &port->all_links, next)
	{
		close_copies(link);
		if (link->closing)
			continue;
		port->made[link->number] = NULL;
		port->links[link->number].state = PORT_LINK_DOWN;
	}
	TAILQ_INIT(&port->all_links);
	port->n_active = 0;
	port->armed = false;
	port->is_held = false;
}

/* Memory of the links stays: the parent's devices refer to it. */
static void after_fork_in_child(void)
{
	struct local_port *port;

	LIST_FOREACH(port, &all.ports, next)
	{
		detach_links(port);
		if (port->introductions)
			introductions_detach(port->introductions);
	}
	LIST_INIT(&all.ports);
	close_copy(all.epoll_fd);
	close_copy(all.kick_fd);
	all.epoll_fd = all.kick_fd = -1;
	all.has_thread = false;
	atomic_store(&all.is_notified, false);
	pthread_cond_init(&all.changed, NULL);
	atomic_store(&all.guard.wanted, 0);
	link_thread_unlock();
}

/*
 * Registered when the library is loaded: the fork handlers registered first lock last. Other
 * handlers hold their locks while they wait for a device's guard, whose owner may wait for this
 * mutex. Only the locks of lib/base that are taken with this one held come after it, and these are
 * registered before.
 */
__attribute__((constructor(202))) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- events */

void link_thread_kick(void)
{
	uint64_t one = 1;
	ssize_t n = write(all.kick_fd, &one, sizeof(one));

	(void)n; /* full: it is readable, which suffices */
}

/* Events are edge-triggered: the code that advances a link must drain the socket, or set a time to
 * continue. */
void link_thread_watch(struct fabric_watch *watch, int fd)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
		.data.ptr = watch,
	};

	if (all.epoll_fd >= 0 && epoll_ctl(all.epoll_fd, EPOLL_CTL_ADD, fd, &event) &&
		errno != EEXIST)
		watch->is_unwatched = true;
}

void link_thread_unwatch(int fd)
{
	if (all.epoll_fd >= 0)
		(void)epoll_ctl(all.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Sleeps until an event, or the given time. Mutex held, but released during the sleep. Only this
 * thread frees links and introductions, so those in events exist. */
static void sleep_until(uint64_t until_ns)
{
	struct epoll_event events[EVENTS];
	int timeout_ms = -1, n;

	if (until_ns != UINT64_MAX) {
		uint64_t now_ns = clock_now_ns();
		uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;

		timeout_ms = (int)least((left_ns + NS_PER_MS - 1) / NS_PER_MS, INT_MAX);
	}
	link_thread_unlock();
	n = epoll_wait(all.epoll_fd, events, EVENTS, timeout_ms);
	lock();
	for (int i = 0; i < n; i++) {
		struct fabric_watch *watch = events[i].data.ptr;

		if (watch)
			watch->is_ready = true;
		else
			(void)eventfd_read(all.kick_fd, &(eventfd_t){ 0 });
	}
}

/* ---- publish */

/* Mutex held, but released while waiting for the guard. Ports stay while they are held. */
static void publish(struct local_port *port)
{
	const struct port_guard *guard = &port->guard;
	struct fabric_link *link;
	bool has_delivered;

	port->is_held = true;
	link_thread_unlock();
	guard->lock(guard->arg);
	has_delivered = port->introductions && introductions_deliver(port->introductions);
	lock();
	if (has_delivered)
		port->introductions->watch.is_ready = true;
	port->frees_seen = share_frees();
	in_place_publish_begin(port);
	TAILQ_FOREACH(link, &port->all_links, next)
	link->watch.is_ready |= fabric_publish(link);
	in_place_publish_end(port);
	port->has_exports = port->exports_used != 0;
	link_thread_unlock();
	guard->unlock(guard->arg);
	lock();
	port->is_held = false;
	pthread_cond_broadcast(&all.changed);
}

/* ---- rounds; mutex held */

static void free_link(struct fabric_link *link)
{
	struct local_port *port = link->port;

	TAILQ_REMOVE(&port->all_links, link, next);
	if (!is_used(port))
		LIST_REMOVE(port, next);
	free(link);
	pthread_cond_broadcast(&all.changed);
}

/* Returns when to advance next what has done this step. */
static uint64_t finish_step(struct local_port *port, const struct fabric_watch *watch,
	const struct fabric_pass *pass, uint64_t *ret_wake_ns)
{
	*ret_wake_ns = pass->wake_ns;
	if (watch->is_unwatched)
		*ret_wake_ns = least(pass->wake_ns, pass->now_ns + UNWATCHED_NS);
	if (!pass->publish)
		return *ret_wake_ns;
	atomic_store(&port->is_notified, true);
	return pass->now_ns;
}

/* Returns when the link must be advanced again. */
static uint64_t advance(struct fabric_link *link, uint64_t now_ns)
{
	struct fabric_pass pass = { .now_ns = now_ns, .wake_ns = UINT64_MAX };

	if (!link->closing && !link->watch.is_ready && now_ns < link->wake_ns)
		return link->wake_ns;
	link->watch.is_ready = false;
	if (!link->closing) {
		fabric_advance(link, &pass);
	} else if (fabric_try_free(link, &pass)) {
		free_link(link);
		return UINT64_MAX;
	}
	return finish_step(link->port, &link->watch, &pass, &link->wake_ns);
}

static uint64_t advance_introductions(struct local_port *port, uint64_t now_ns)
{
	struct fabric_pass pass = { .now_ns = now_ns, .wake_ns = UINT64_MAX };
	struct introductions *introductions = port->introductions;

	if (!introductions)
		return UINT64_MAX;
	if (introductions->closing) {
		introductions_free(introductions);
		port->introductions = NULL;
		if (!is_used(port))
			LIST_REMOVE(port, next);
		pthread_cond_broadcast(&all.changed);
		return UINT64_MAX;
	}
	if (!introductions->watch.is_ready && now_ns < introductions->wake_ns)
		return introductions->wake_ns;
	introductions->watch.is_ready = false;
	introductions_advance(introductions, &pass);
	return finish_step(port, &introductions->watch, &pass, &introductions->wake_ns);
}

static uint64_t advance_all(uint64_t now_ns)
{
	struct local_port *port, *next_port;
	uint64_t wake_ns = UINT64_MAX;

	in_place_put_dropped();
	for (port = LIST_FIRST(&all.ports); port; port = next_port) {
		struct fabric_link *link, *next;

		next_port = LIST_NEXT(port, next);
		/* First: their end may let links continue. */
		wake_ns = least(wake_ns, advance_introductions(port, now_ns));
		for (link = TAILQ_FIRST(&port->all_links); link; link = next) {
			next = TAILQ_NEXT(link, next);
			wake_ns = least(wake_ns, advance(link, now_ns));
		}
	}
	return wake_ns;
}

/* Returns true if freed memory must be released, or an export may be possible by now. */
static bool exports_have_changed(const struct local_port *port)
{
	return port->has_exports && (port->exports_wait || share_frees() != port->frees_seen);
}

/* Returns when to check for such memory next. */
static uint64_t publish_all(uint64_t now_ns, uint64_t freed_ns)
{
	struct local_port *port;
	bool is_due = now_ns >= freed_ns, has_exports = false;

	atomic_store(&all.is_notified, false);
	LIST_FOREACH(port, &all.ports, next)
	{
		if (atomic_exchange(&port->is_notified, false) ||
			(is_due && exports_have_changed(port)))
			publish(port);
		has_exports = has_exports || port->has_exports;
	}
	if (!has_exports)
		return UINT64_MAX;
	return is_due || freed_ns == UINT64_MAX ? now_ns + FREED_NS : freed_ns;
}

static void *run(void *arg)
{
	uint64_t freed_ns = UINT64_MAX;

	lock();
	while (!LIST_EMPTY(&all.ports)) {
		uint64_t now_ns = clock_now_ns(), wake_ns;

		/* Yield the mutex even if the work never ends. */
		if (atomic_load(&all.guard.wanted)) {
			link_thread_unlock();
			lock();
		}
		freed_ns = publish_all(now_ns, freed_ns);
		wake_ns = least(advance_all(now_ns), freed_ns);
		if (wake_ns > now_ns && !LIST_EMPTY(&all.ports) && !atomic_load(&all.is_notified))
			sleep_until(wake_ns);
	}
	all.has_thread = false;
	link_thread_unlock();
	return arg;
}

/* A burst that calls this uses a link, so the thread exists. It sleeps, or is about to reset
 * `is_notified` and to check the ports. */
void link_thread_notify(struct local_port *port)
{
	atomic_store(&port->is_notified, true);
	if (!atomic_exchange(&all.is_notified, true))
		link_thread_kick();
}

static int make_kick(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int err;

	all.kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (all.kick_fd < 0)
		return -errno;
	if (epoll_ctl(all.epoll_fd, EPOLL_CTL_ADD, all.kick_fd, &event) == 0)
		return 0;
	err = -errno;
	close(all.kick_fd);
	all.kick_fd = -1;
	return err;
}

static int make_descriptors(void)
{
	if (all.epoll_fd < 0)
		all.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (all.epoll_fd < 0)
		return -errno;
	return all.kick_fd < 0 ? make_kick() : 0;
}

int link_thread_start(void)
{
	int err = make_descriptors();

	if (!err && !all.has_thread)
		err = thread_start(run, NULL, 0, NULL);
	if (err)
		return frl_fail(
			err, "cannot start the thread for local links: %s", frl_strerror(err));
	all.has_thread = true;
	return 0;
}
