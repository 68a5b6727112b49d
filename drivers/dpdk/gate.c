/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate keeps the control of links and bursts apart.
 *
 * It drives the links, and it is as it is for memif's sake: the memif PMD maps, unmaps and frees
 * its rings in interrupt callbacks, whenever a peer connects, goes or dies; a burst in that moment
 * would touch memory that is gone. All interrupt callbacks run in one thread of EAL. The gate is a
 * callback there as well, on a descriptor that is always readable, so it is called once in every
 * turn of that thread's loop:
 *
 *	gate called:  1. publish     states of links, and memory that both ends can read,
 *	                             into the tables of their ports; wishes of bursts out of them
 *	              2. unlock      the guards of all ports with links
 *	              3. wait        drive the links (fabric_advance); save what is in the rings
 *	                             of peers that go; sleep until there is work
 *	              4. lock        the guards of all ports that have links now
 *	gate returns; EAL calls other callbacks, waits for events (the gate's is there), calls it
 *
 * Why this is right:
 *  - Between 4 and the next 2 the thread holds the guard of every port that has links, and bursts
 *    run under their port's guard only. So no callback but the gate runs while a burst does.
 *  - memifs are made and removed in 3 alone, which is in the same thread: never in the middle of
 *    another callback. A burst may run then, but not on these memifs: one that is made is in no
 *    table before 1 of a later call, one that is removed was taken out of the table before, either
 *    by 1 (state DOWN), by its owner (link_close) or by 3 itself (drain), under the guard.
 *  - 1 runs with the guards that 4 took. A port whose first link came in after that has no memif
 *    yet, as memifs are made in 3, and 4 follows: its links have nothing to publish.
 *  - Memory of a peer is mapped and unmapped in 3 as well: it is in no table before a later 1 puts
 *    it there, and 1, or link_close under the guard, takes it out before. A link that was closed
 *    keeps its memory until a 1 has followed, that is until its owner has released the guard: the
 *    payload of the frames that it had in hand stays readable. Exports are made from what 1 copied
 *    out of the tables; their ids are freed by 1 alone.
 *  - Rings of our own are made and removed in 3 too, by the same rules.
 *  - A table that names an ethdev is true as long as the guard is held: a memif can go only in a
 *    callback, and 1 follows any callback before the guards are released.
 *  - When 3 sees that a peer is gone or leaves, the memif is still mapped: no callback has run
 *    since 1 found it up. So 3 takes the guard, as an owner would (it holds no other, nor the
 *    mutex), saves the frames that are in the ring and puts them in place of the ethdev. A peer
 *    that leaves in good order keeps its end until then, so nothing of it is lost; one that dies
 *    may have its memif's callback run first, and then its last frames are.
 *
 * Lock order: a guard, then the mutex. The owner holds its guard when it calls the ops, which take
 * the mutex; the gate takes guards only while it does not hold the mutex. The gate holds several
 * guards at once, so nobody else may hold one guard and wait for another, and a port is closed by
 * a thread that holds none. It takes them in the order of their addresses: that is no matter for
 * itself, but who checks lock orders sees one.
 *
 * Liveness: the wait in 3 is short (SHAKE_PERIOD) while memifs shake hands, as their messages are
 * handled outside of the gate. Otherwise a poll on the meeting sockets wakes it when a peer says
 * something or goes, and a burst that wants memory exported kicks it; what is to be published then
 * ends the wait. IDLE_PERIOD bounds how long other users of the interrupt thread (alarms, link
 * changes of NICs) wait for it, and how long memory that the application has freed stays with the
 * peers. The guards let the gate in before pollers.
 *
 * Without links the gate's descriptor is drained: nothing runs.
 */
#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/in_place.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_interrupts.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	SHAKE_PERIOD_NS = 200 * 1000,
	IDLE_PERIOD_NS = 20 * 1000 * 1000,
	/* The anchor takes one of DPDK's ethdevs. */
	MAX_LINKS = RTE_MAX_ETHPORTS - 1,
	MAX_HELD = MAX_LINKS, /* ports, each with a link */
};

static struct {
	pthread_mutex_t mutex; /* protects the rest, and the fabric_links */
	pthread_cond_t freed;  /* a link is gone, or guards were released */
	TAILQ_HEAD(, fabric_link) links;
	uint32_t n_links;
	bool registered, running;
	int gate_fd;       /* readable while running: what EAL waits for */
	int kick_fd;       /* ends the gate's wait */
	atomic_bool asked; /* by a burst, for a turn; no mutex */
} gate = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.freed = PTHREAD_COND_INITIALIZER,
	.links = TAILQ_HEAD_INITIALIZER(gate.links),
};

/* The interrupt thread's own. */
static struct {
	struct dpdk_port *ports[MAX_HELD];
	uint32_t n;
} held;

static void signal_fd(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	(void)n; /* full: it is readable, which is all that counts */
}

static void drain_fd(int fd)
{
	uint64_t count;
	ssize_t n = read(fd, &count, sizeof(count));

	(void)n;
}

static void publish(void)
{
	struct fabric_link *link;

	pthread_mutex_lock(&gate.mutex);
	atomic_store(&gate.asked, false);
	for (uint32_t i = 0; i < held.n; i++)
		in_place_publish_begin(held.ports[i]);
	TAILQ_FOREACH(link, &gate.links, next)
	fabric_publish(link);
	for (uint32_t i = 0; i < held.n; i++)
		in_place_publish_end(held.ports[i]);
	pthread_mutex_unlock(&gate.mutex);
}

static void unlock_guards(void)
{
	for (uint32_t i = held.n; i > 0; i--)
		if (held.ports[i - 1]->gate_locks)
			held.ports[i - 1]->guard.unlock(held.ports[i - 1]->guard.arg);
	pthread_mutex_lock(&gate.mutex);
	for (uint32_t i = 0; i < held.n; i++)
		held.ports[i]->gate_holds = false;
	held.n = 0;
	pthread_cond_broadcast(&gate.freed);
	pthread_mutex_unlock(&gate.mutex);
}

/* One engine may have several ports, and one guard for them. */
static bool is_first_with_guard(uint32_t index)
{
	const struct port_guard *guard = &held.ports[index]->guard;

	for (uint32_t i = 0; i < index; i++)
		if (held.ports[i]->guard.lock == guard->lock &&
			held.ports[i]->guard.arg == guard->arg)
			return false;
	return true;
}

/* In the order of the guards' addresses. */
static void hold(struct dpdk_port *port)
{
	uint32_t at = held.n++;

	assert(held.n <= MAX_HELD);
	for (; at > 0 && (uintptr_t)held.ports[at - 1]->guard.arg > (uintptr_t)port->guard.arg;
		at--)
		held.ports[at] = held.ports[at - 1];
	held.ports[at] = port;
	port->gate_holds = true;
}

/* False when there are no links any more: the gate is then off. Mutex held. */
static bool choose_guards(void)
{
	struct fabric_link *link;

	TAILQ_FOREACH(link, &gate.links, next)
	{
		if (!link->port->gate_holds)
			hold(link->port);
	}
	for (uint32_t i = 0; i < held.n; i++)
		held.ports[i]->gate_locks = is_first_with_guard(i);
	gate.running = held.n > 0;
	if (!gate.running)
		drain_fd(gate.gate_fd);
	return gate.running;
}

static void lock_guards(void)
{
	for (uint32_t i = 0; i < held.n; i++) {
		if (held.ports[i]->gate_locks)
			held.ports[i]->guard.lock(held.ports[i]->guard.arg);
	}
}

/* Unless it has to wait for the next turn. */
static void free_link(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!fabric_take_apart(link, pass))
		return;
	TAILQ_REMOVE(&gate.links, link, next);
	gate.n_links--;
	link->port->n_fabric_links--;
	free(link);
	pthread_cond_broadcast(&gate.freed);
}

/* Drives every link a step. Mutex held. */
static void advance(struct fabric_pass *pass)
{
	struct fabric_link *link, *next;

	pass->now_ns = clock_now_ns();
	pass->wake_ns = UINT64_MAX;
	pass->shaking = false;
	pass->drain = false;
	in_place_put_dropped();
	for (link = TAILQ_FIRST(&gate.links); link; link = next) {
		next = TAILQ_NEXT(link, next);
		if (link->closing)
			free_link(link, pass);
		else
			fabric_advance(link, pass);
	}
}

/* Mutex held, but not while waiting for a guard. Links leave the list in this thread alone, and
 * a port lives as long as its links. */
static void drain(struct fabric_pass *pass)
{
	struct fabric_link *link;

	TAILQ_FOREACH(link, &gate.links, next)
	{
		const struct port_guard *guard = &link->port->guard;

		if (!link->to_drain)
			continue;
		pthread_mutex_unlock(&gate.mutex);
		guard->lock(guard->arg);
		pthread_mutex_lock(&gate.mutex);
		if (!link->closing)
			fabric_drain(link, pass);
		link->to_drain = false;
		pthread_mutex_unlock(&gate.mutex);
		guard->unlock(guard->arg);
		pthread_mutex_lock(&gate.mutex);
	}
}

/* Sleeps until a socket of a link, a kick or `until_ns`. Mutex held, but not while sleeping. */
static void sleep_until(uint64_t until_ns)
{
	struct pollfd fds[1 + (1 + FABRIC_STRANGERS) * MAX_LINKS];
	struct fabric_link *link;
	nfds_t n = 1;
	uint64_t now = clock_now_ns(), left = until_ns > now ? until_ns - now : 0;
	struct timespec timeout = {
		.tv_sec = (time_t)(left / 1000000000u),
		.tv_nsec = (long)(left % 1000000000u),
	};

	fds[0] = (struct pollfd){ .fd = gate.kick_fd, .events = POLLIN };
	TAILQ_FOREACH(link, &gate.links, next)
	{
		int fd = link->stage == FABRIC_MEET ? link->meet_fd : link->peer_fd;

		if (fd >= 0 && now >= link->retry_ns && n < RTE_DIM(fds))
			fds[n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
		for (uint32_t i = 0; i < link->n_strangers && n < RTE_DIM(fds); i++)
			fds[n++] = (struct pollfd){ .fd = link->strangers[i].fd, .events = POLLIN };
	}
	pthread_mutex_unlock(&gate.mutex);
	ppoll(fds, n, &timeout, NULL);
	pthread_mutex_lock(&gate.mutex);
	if (fds[0].revents)
		drain_fd(gate.kick_fd);
}

/* Runs in EAL's interrupt thread, see above. */
static void gate_callback(void *arg)
{
	struct fabric_pass pass = { 0 };
	uint64_t end_ns;
	bool on;

	publish();
	unlock_guards();
	pthread_mutex_lock(&gate.mutex);
	end_ns = clock_now_ns() + IDLE_PERIOD_NS;
	do {
		uint64_t until_ns;

		advance(&pass);
		if (pass.drain)
			drain(&pass);
		if (pass.shaking)
			end_ns = RTE_MIN(end_ns, pass.now_ns + SHAKE_PERIOD_NS);
		if (pass.publish || atomic_load(&gate.asked) || TAILQ_EMPTY(&gate.links))
			break;
		until_ns = RTE_MIN(end_ns, pass.wake_ns);
		if (until_ns > pass.now_ns)
			sleep_until(until_ns);
		else
			end_ns = pass.now_ns;
	} while (clock_now_ns() < end_ns);
	on = choose_guards();
	pthread_mutex_unlock(&gate.mutex);
	if (on)
		lock_guards();
}

/* Mutex held. */
static int register_gate(void)
{
	struct rte_intr_handle *handle;
	int err = -ENOMEM;

	if (gate.registered)
		return 0;
	gate.gate_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	gate.kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (gate.gate_fd < 0 || gate.kick_fd < 0) {
		err = -errno;
		goto err_close;
	}
	handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	if (!handle)
		goto err_close;
	if (rte_intr_fd_set(handle, gate.gate_fd) || rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT))
		err = -rte_errno;
	else
		err = rte_intr_callback_register(handle, gate_callback, NULL);
	rte_intr_instance_free(handle); /* EAL has a copy */
	if (err)
		goto err_close;
	gate.registered = true;
	return 0;

err_close:
	if (gate.gate_fd >= 0)
		close(gate.gate_fd);
	if (gate.kick_fd >= 0)
		close(gate.kick_fd);
	return frl_fail(err, "cannot watch over local links: %s", frl_strerror(err));
}

/* Mutex held. */
static void wake(void)
{
	if (!gate.running) {
		gate.running = true;
		signal_fd(gate.gate_fd);
	}
	signal_fd(gate.kick_fd);
}

/* A burst that asks runs on a link, so the gate is running: it is in its wait, or about to call
 * publish(), which takes `asked` back while no burst runs. */
void gate_ask(void)
{
	atomic_store(&gate.asked, true);
	signal_fd(gate.kick_fd);
}

static int free_number(const struct dpdk_port *port)
{
	for (int i = 0; i < PORT_MAX_LINKS; i++)
		if (!port->fabric[i])
			return i;
	return -1;
}

/* There are as many links as can be: -EBUSY while some of them go. Mutex held. */
static int refuse_link(void)
{
	const struct fabric_link *link;

	TAILQ_FOREACH(link, &gate.links, next)
	{
		if (link->closing)
			return frl_fail(-EBUSY, "links of this process are still being closed");
	}
	return frl_fail(-ENOSPC,
		"this process has %u local links, all that its DPDK can have (it was built for %d "
		"ethdevs)",
		gate.n_links, RTE_MAX_ETHPORTS);
}

static struct fabric_link *new_link(
	struct dpdk_port *port, const struct port_link_request *request, uint16_t number)
{
	struct fabric_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	*link = (struct fabric_link){
		.port = port,
		.number = number,
		.request = *request,
		.stage = FABRIC_MEET,
		.meet_fd = -1,
		.peer_fd = -1,
		.proof_fd = -1,
		.relay = { .listen_fd = -1, .client_fd = -1, .memif_fd = -1 },
		.ethdev = NO_ETHDEV,
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

int gate_link_open(struct port *base, const struct port_link_request *request)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	int number = free_number(port);
	struct fabric_link *link;
	int err = check_request(request);

	if (err)
		return err;
	pthread_mutex_lock(&gate.mutex);
	if (number < 0 || gate.n_links >= MAX_LINKS) {
		err = refuse_link();
		goto err_unlock;
	}
	err = register_gate();
	if (err)
		goto err_unlock;
	link = new_link(port, request, (uint16_t)number);
	if (!link) {
		err = frl_fail(-ENOMEM, "no memory for a local link");
		goto err_unlock;
	}
	if (request->server) {
		err = fabric_listen(link);
	}
	if (err) {
		frl_fail(err, "cannot listen for the local link \"%s\": %s%s", request->name,
			frl_strerror(err),
			err == -EADDRINUSE ? "; is its name used twice on this machine?" : "");
		goto err_free_link;
	}
	port->fabric[number] = link;
	burst_set_state(port, (uint16_t)number, PORT_LINK_CONNECTING);
	TAILQ_INSERT_TAIL(&gate.links, link, next);
	gate.n_links++;
	port->n_fabric_links++;
	wake();
	pthread_mutex_unlock(&gate.mutex);
	return number;

err_free_link:
	free(link);
err_unlock:
	pthread_mutex_unlock(&gate.mutex);
	return err;
}

void gate_link_close(struct port *base, uint16_t number)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct fabric_link *link = port->fabric[number];

	if (!link)
		return;
	port->fabric[number] = NULL;
	in_place_hide(port, number);
	burst_drop_stash(port, number);
	burst_hide_ring(port, number);
	burst_set_state(port, number, PORT_LINK_CLOSED);
	pthread_mutex_lock(&gate.mutex);
	link->closing = true;
	wake();
	pthread_mutex_unlock(&gate.mutex);
}

enum port_link_state gate_link_state(struct port *base, uint16_t link)
{
	return ((struct dpdk_port *)base)->links[link].state;
}

uint32_t gate_link_frame(struct port *base, uint16_t link)
{
	const struct burst_link *at = &((struct dpdk_port *)base)->links[link];

	return at->state == PORT_LINK_UP ? at->max_frame : 0;
}

void gate_close_port(struct dpdk_port *port)
{
	port->guard.lock(port->guard.arg);
	for (uint16_t i = 0; i < PORT_MAX_LINKS; i++)
		gate_link_close(&port->base, i);
	port->guard.unlock(port->guard.arg);
	pthread_mutex_lock(&gate.mutex);
	while (port->n_fabric_links || port->gate_holds)
		pthread_cond_wait(&gate.freed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}
