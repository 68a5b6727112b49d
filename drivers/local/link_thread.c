/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that drives all links of this process. It exists while there are links, and sleeps
 * while nothing happens to them.
 *
 * In each round it publishes the ports whose tables have changed, then advances each link that has
 * an event or whose time has come. Then it sleeps until a link's socket has an event, a burst
 * notifies it, or the earliest time requested by a link.
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
	LIST_HEAD(, local_port) ports; /* ports that have links */
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

static void lock_first(void)
{
	guard_enter_first(&all.guard);
}

static void unlock(void)
{
	guard_leave(&all.guard);
}

/* ---- fork */

static void before_fork(void)
{
	lock_first();
}

static void after_fork(void)
{
	unlock();
}

static void close_copy(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_copies(const struct fabric_link *link)
{
	close_copy(link->listen_fd);
	close_copy(link->peer_fd);
	close_copy(link->proof_fd);
	for (uint32_t i = 0; i < link->n_pending_clients; i++)
		close(link->pending_clients[i].fd);
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
	detach_links(port);
	LIST_INIT(&all.ports);
	close_copy(all.epoll_fd);
	close_copy(all.kick_fd);
	all.epoll_fd = all.kick_fd = -1;
	all.has_thread = false;
	atomic_store(&all.is_notified, false);
	pthread_cond_init(&all.changed, NULL);
	atomic_store(&all.guard.wanted, 0);
	unlock();
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

static void kick(void)
{
	uint64_t one = 1;
	ssize_t n = write(all.kick_fd, &one, sizeof(one));

	(void)n; /* full: it is readable, which suffices */
}

/* Events are edge-triggered: the code that advances a link must drain the socket, or set a time to
 * continue. */
void link_thread_watch(struct fabric_link *link, int fd)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
		.data.ptr = link,
	};

	if (all.epoll_fd >= 0 && epoll_ctl(all.epoll_fd, EPOLL_CTL_ADD, fd, &event))
		link->is_unwatched = true;
}

void link_thread_unwatch(int fd)
{
	if (all.epoll_fd >= 0)
		(void)epoll_ctl(all.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Sleeps until an event, or the given time. Mutex held, but released during the sleep. Only this
 * thread removes links from the list, so links in events exist. */
static void sleep_until(uint64_t until_ns)
{
	struct epoll_event events[EVENTS];
	int timeout_ms = -1, n;

	if (until_ns != UINT64_MAX) {
		uint64_t now_ns = clock_now_ns();
		uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;

		timeout_ms = (int)least((left_ns + NS_PER_MS - 1) / NS_PER_MS, INT_MAX);
	}
	unlock();
	n = epoll_wait(all.epoll_fd, events, EVENTS, timeout_ms);
	lock();
	for (int i = 0; i < n; i++) {
		struct fabric_link *link = events[i].data.ptr;

		if (link)
			link->is_ready = true;
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

	port->is_held = true;
	unlock();
	guard->lock(guard->arg);
	lock();
	port->frees_seen = share_frees();
	in_place_publish_begin(port);
	TAILQ_FOREACH(link, &port->all_links, next)
	link->is_ready |= fabric_publish(link);
	in_place_publish_end(port);
	port->has_exports = port->exports_used != 0;
	unlock();
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
	if (TAILQ_EMPTY(&port->all_links))
		LIST_REMOVE(port, next);
	free(link);
	pthread_cond_broadcast(&all.changed);
}

/* Returns when the link must be advanced again. */
static uint64_t advance(struct fabric_link *link, uint64_t now_ns)
{
	struct fabric_pass pass = { .now_ns = now_ns, .wake_ns = UINT64_MAX };

	if (!link->closing && !link->is_ready && now_ns < link->wake_ns)
		return link->wake_ns;
	link->is_ready = false;
	if (!link->closing) {
		fabric_advance(link, &pass);
	} else if (fabric_try_free(link, &pass)) {
		free_link(link);
		return UINT64_MAX;
	}
	if (link->is_unwatched)
		pass.wake_ns = least(pass.wake_ns, now_ns + UNWATCHED_NS);
	link->wake_ns = pass.wake_ns;
	if (!pass.publish)
		return pass.wake_ns;
	atomic_store(&link->port->is_notified, true);
	return now_ns;
}

static uint64_t advance_all(uint64_t now_ns)
{
	struct local_port *port, *next_port;
	uint64_t wake_ns = UINT64_MAX;

	in_place_put_dropped();
	for (port = LIST_FIRST(&all.ports); port; port = next_port) {
		struct fabric_link *link, *next;

		next_port = LIST_NEXT(port, next);
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
			unlock();
			lock();
		}
		freed_ns = publish_all(now_ns, freed_ns);
		wake_ns = least(advance_all(now_ns), freed_ns);
		if (wake_ns > now_ns && !LIST_EMPTY(&all.ports) && !atomic_load(&all.is_notified))
			sleep_until(wake_ns);
	}
	all.has_thread = false;
	unlock();
	return arg;
}

/* A burst that calls this uses a link, so the thread exists. It sleeps, or is about to reset
 * `is_notified` and to check the ports. */
void link_thread_notify(struct local_port *port)
{
	atomic_store(&port->is_notified, true);
	if (!atomic_exchange(&all.is_notified, true))
		kick();
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

/* Called before the first link of a process, and of a child. */
static int start_thread(void)
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

/* ---- the ops */

unsigned local_max_links = PORT_MAX_LINKS;

static int free_number(const struct local_port *port)
{
	for (unsigned i = 0; i < local_max_links; i++)
		if (!port->made[i])
			return (int)i;
	return -1;
}

static struct fabric_link *new_link(
	struct local_port *port, const struct port_link_request *request, uint16_t number)
{
	struct fabric_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	*link = (struct fabric_link){
		.port = port,
		.number = number,
		.request = *request,
		.stage = FABRIC_CONNECTING,
		.is_ready = true,
		.listen_fd = -1,
		.peer_fd = -1,
		.proof_fd = -1,
		.deadline_ns = UINT64_MAX,
	};
	return link;
}

static int check_request(const struct port_link_request *request)
{
	if (request->name[0] == '\0' || !memchr(request->name, '\0', sizeof(request->name)) ||
		!memchr(request->secret, '\0', sizeof(request->secret)))
		return frl_fail(
			-EINVAL, "a local link's name or secret is empty or not terminated");
	return 0;
}

static void add_link(struct fabric_link *link)
{
	struct local_port *port = link->port;

	port->made[link->number] = link;
	local_set_state(port, link->number, PORT_LINK_CONNECTING);
	if (TAILQ_EMPTY(&port->all_links))
		LIST_INSERT_HEAD(&all.ports, port, next);
	TAILQ_INSERT_TAIL(&port->all_links, link, next);
}

static int make_link(struct local_port *port, const struct port_link_request *request)
{
	int number = free_number(port);
	struct fabric_link *link;
	int err = 0;

	if (number < 0)
		return frl_fail(-ENOSPC, "this device has %u local links, which is its limit",
			local_max_links);
	link = new_link(port, request, (uint16_t)number);
	if (!link)
		return frl_fail(-ENOMEM, "no memory for a local link");
	if (request->server)
		err = fabric_listen(link);
	if (err) {
		frl_fail(err, "cannot listen for the local link \"%s\": %s%s", request->name,
			frl_strerror(err),
			err == -EADDRINUSE ? "; is its name used twice on this machine?" : "");
		free(link);
		return err;
	}
	add_link(link);
	return number;
}

int link_open(struct port *base, const struct port_link_request *request)
{
	struct local_port *port = (struct local_port *)base;
	int rc = check_request(request);

	if (rc)
		return rc;
	lock_first();
	rc = start_thread();
	if (!rc)
		rc = make_link(port, request);
	kick();
	unlock();
	return rc;
}

void link_close(struct port *base, uint16_t number)
{
	struct local_port *port = (struct local_port *)base;
	struct fabric_link *link = port->made[number];

	if (!link)
		return;
	port->made[number] = NULL;
	in_place_hide(port, number);
	local_hide_ring(port, number);
	local_set_state(port, number, PORT_LINK_CLOSED);
	lock_first();
	link->closing = true;
	kick();
	unlock();
}

enum port_link_state link_state(struct port *base, uint16_t link)
{
	return ((struct local_port *)base)->links[link].state;
}

uint32_t link_frame(struct port *base, uint16_t link)
{
	const struct burst_link *at = &((struct local_port *)base)->links[link];

	return at->state == PORT_LINK_UP ? at->max_frame : 0;
}

void link_close_all(struct local_port *port)
{
	port->guard.lock(port->guard.arg);
	for (uint16_t i = 0; i < PORT_MAX_LINKS; i++)
		link_close(&port->base, i);
	port->guard.unlock(port->guard.arg);
	lock_first();
	while (!TAILQ_EMPTY(&port->all_links) || port->is_held)
		pthread_cond_wait(&all.changed, &all.guard.mutex);
	unlock();
}
