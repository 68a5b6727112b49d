/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the client's thread connects to a daemon, and handles its loss:
 *
 * 	DOWN      --- a socket connects ---> GREETING --- the daemon's Hello ---> UP
 * 	 ^  looks every 100 ms; 10 ms while  |                                   |
 * 	 |  a daemon starts; 1 s if a daemon |                                   |
 * 	 |  is unlikely                      |                                   |
 * 	 +-----------------------------------+-------- the socket ends ----------+
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/control/client_internal.h"
#include "lib/control/frame.h"
#include "lib/control/install.h"

enum {
	NS_PER_MS = 1000000,
	RETRY_MS = 100,
	STARTING_RETRY_MS = 10,
	SLOW_RETRY_MS = 1000,
	START_MS = 4000, /* time for a started daemon to become reachable */
	GREET_MS = 4000,
	/*
	 * A lost daemon that is not private will probably be restarted. Do not start another one in
	 * its place for this time.
	 */
	RESTART_MS = 30000,
	MAX_REFUSALS = 5,
};

static uint64_t in_ms(uint64_t now_ns, unsigned ms)
{
	return now_ns + (uint64_t)ms * NS_PER_MS;
}

static bool wants_start(const struct client *c)
{
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next)
		if (container_of(node, struct control_handler, node)->want == CONTROL_START)
			return true;
	return false;
}

void client_drop_queues(struct client *c)
{
	outgoing_drop(&c->sending);
	outgoing_drop(&c->first);
	outgoing_drop(&c->queue);
	c->queued = 0;
}

void client_end_start(struct client *c)
{
	if (c->start_fd >= 0)
		close(c->start_fd);
	if (c->alive >= 0)
		close(c->alive);
	c->start_fd = c->alive = -1;
	c->start_by_ns = 0;
}

static void fail_calls(struct client *c)
{
	while (!list_empty(&c->calls)) {
		struct call *call = container_of(c->calls.next, struct call, node);

		list_remove(&call->node);
		call->rc = -ENOTCONN;
		call->done = true;
	}
	pthread_cond_broadcast(&c->changed);
}

static void mark_down(struct client *c)
{
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next) {
		struct control_handler *handler = container_of(node, struct control_handler, node);

		handler->due = DUE_DOWN;
	}
}

/* Reports that no daemon can be reached. The thread still looks for one from time to time. */
static void give_up(struct client *c, int error, const char *why, uint64_t now_ns)
{
	bool is_new = !c->error;

	client_end_start(c);
	client_drop_queues(c);
	c->again = true;
	c->error = error;
	snprintf(c->why, sizeof(c->why), "%s", why);
	c->retry_ns = in_ms(now_ns, SLOW_RETRY_MS);
	fail_calls(c);
	if (is_new)
		mark_down(c);
}

void client_disconnect(struct client *c, const char *why, uint64_t now_ns)
{
	bool was_up = c->state == CLIENT_UP;

	control_socket_close(&c->socket);
	c->state = CLIENT_DOWN;
	c->is_syncing = false;
	c->retry_ns = in_ms(now_ns, was_up ? 0 : RETRY_MS);
	if (!was_up) {
		/* This drops the Hello only. Posted messages stay queued. */
		c->queued -= outgoing_drop(&c->sending);
		/* A private daemon may have been about to exit, because it was idle. */
		if (++c->refusals >= MAX_REFUSALS)
			give_up(c, -ENOTCONN, why, now_ns);
		return;
	}
	client_drop_queues(c);
	c->again = true;
	c->lost_ns = now_ns;
	snprintf(c->why, sizeof(c->why), "the control daemon at %s went away: %s",
		c->places.list[c->place].path, why);
	frl_log(FRL_LOG_WARNING, "%s", c->why);
	fail_calls(c);
	mark_down(c);
}

/* Handles a daemon that refuses this process. */
static void handle_refusal(struct client *c, int error, const char *why, uint64_t now_ns)
{
	char text[WHY_SIZE];

	snprintf(text, sizeof(text), "%s", why);
	control_socket_close(&c->socket);
	c->state = CLIENT_DOWN;
	give_up(c, error, text, now_ns);
}

static void queue_hello(struct client *c)
{
	Ctl__Envelope envelope;
	Ctl__Hello hello;
	struct outgoing *out;
	char name[64], release[] = FERRULE_RELEASE;

	snprintf(name, sizeof(name), "%s", program_invocation_short_name);
	frame_clean_text(name);
	envelope_init(&envelope);
	ctl__hello__init(&hello);
	hello.role = CTL__ROLE__ROLE_PROCESS;
	hello.name = name;
	hello.instance = c->instance;
	hello.pid = (uint32_t)getpid();
	hello.release = release;
	hello.resumes = c->lost_ns != 0;
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &hello;
	out = outgoing_new(&envelope, -1);
	/* Without a Hello the daemon closes the connection, and the thread tries again. */
	if (!out)
		return;
	c->queued += out->size;
	list_add_tail(&c->sending, &out->node);
}

void client_greet(struct client *c, int fd, int place)
{
	c->socket.fd = fd;
	c->place = place;
	c->state = CLIENT_GREETING;
	c->greet_by_ns = limit_after_ms(clock_now_ns(), GREET_MS);
	queue_hello(c);
}

static void come_up(struct client *c)
{
	c->state = CLIENT_UP;
	c->is_syncing = true;
	c->error = 0;
	c->refusals = 0;
	*c->why = '\0';
	client_end_start(c);
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next)
		container_of(node, struct control_handler, node)->due |= DUE_UP;
	frl_log(FRL_LOG_DEBUG, "connected to the control daemon at %s",
		c->places.list[c->place].path);
}

int client_search(
	const struct daemon_places *places, int only, int *ret_place, char *why, size_t size)
{
	int first = only >= 0 ? only : 0, last = only >= 0 ? only : (int)places->n - 1;
	int rc = -ENOENT;

	for (int i = first; i <= last; i++) {
		int fd = daemon_connect(&places->list[i], why, size);

		/* A busy daemon counts as found. */
		if (fd >= 0 || fd == -EAGAIN) {
			*ret_place = i;
			return fd;
		}
		rc = fd;
	}
	if (last > first && daemon_is_configured())
		snprintf(why, size,
			"the system's ferruled does not run (no answer at %s): systemctl "
			"start ferruled",
			places->list[first].path);
	else if (last > first)
		snprintf(why, size,
			"no control daemon runs (looked for from %s to %s): start ferruled",
			places->list[first].path, places->list[last].path);
	return rc;
}

/* Returns whether a daemon was lost a short time ago. */
static bool was_lost_recently(const struct client *c, uint64_t now_ns)
{
	return c->lost_ns && now_ns < limit_after_ms(c->lost_ns, RESTART_MS);
}

/* Returns whether to wait for a lost daemon that this process must not start. */
static bool awaits_restart(const struct client *c, uint64_t now_ns)
{
	return was_lost_recently(c, now_ns) && !c->places.list[c->place].is_private;
}

/*
 * Returns whether the current or the last daemon is the system's. A private daemon does not know
 * its leases, nor other hosts.
 */
static bool uses_system_daemon(const struct client *c)
{
	return c->places.start >= 0 && c->place >= 0 && !c->places.list[c->place].is_private;
}

static bool is_slow(const struct client *c, uint64_t now_ns)
{
	return c->error || (c->lost_ns && !was_lost_recently(c, now_ns));
}

/* Starts a private daemon, because none was found. */
static void start_daemon(struct client *c, uint64_t now_ns)
{
	const struct daemon_place *place = &c->places.list[c->places.start];
	char why[WHY_SIZE] = "";
	int fd, alive = -1;
	bool ended;

	c->retry_ns = in_ms(now_ns, STARTING_RETRY_MS);
	if (!c->start_by_ns)
		c->start_by_ns = limit_after_ms(now_ns, START_MS);
	ended = daemon_has_ended(c->alive);
	if (ended || now_ns >= c->start_by_ns) {
		snprintf(why, sizeof(why),
			ended ? "the control daemon started for %s has ended at once: see "
				"ferruled.log there"
			      : "a control daemon was started, but cannot be reached at %s: see "
				"ferruled.log there",
			place->path);
		give_up(c, -ENOTCONN, why, now_ns);
		return;
	}
	if (c->start_fd >= 0)
		return;
	pthread_mutex_unlock(&c->mutex);
	fd = daemon_start(place, &alive, why, sizeof(why));
	pthread_mutex_lock(&c->mutex);
	c->alive = alive;
	if (fd >= 0 && daemon_is_configured())
		frl_log(FRL_LOG_WARNING,
			"the system's ferruled does not run: started a private one, which serves "
			"this host alone; systemctl start ferruled");
	if (fd >= 0)
		c->start_fd = fd;
	else if (fd != -EALREADY)
		give_up(c, -ENOTCONN, why, now_ns);
}

static void look_for_daemon(struct client *c, uint64_t now_ns)
{
	bool waits = awaits_restart(c, now_ns), of_system = uses_system_daemon(c);
	int fd, place = -1, only = waits || of_system ? c->place : -1;
	char why[WHY_SIZE] = "";

	pthread_mutex_unlock(&c->mutex);
	fd = client_search(&c->places, only, &place, why, sizeof(why));
	pthread_mutex_lock(&c->mutex);
	if (fd >= 0) {
		client_greet(c, fd, place);
		return;
	}
	c->retry_ns = in_ms(now_ns, is_slow(c, now_ns) ? SLOW_RETRY_MS : RETRY_MS);
	if (fd == -EAGAIN || waits || c->error)
		return;
	if (of_system)
		snprintf(why, sizeof(why),
			"the system's ferruled does not run any more (no answer at %s): "
			"systemctl start ferruled",
			c->places.list[c->place].path);
	if (wants_start(c) && c->places.start >= 0 && !of_system)
		start_daemon(c, now_ns);
	else if (wants_start(c) && (!c->lost_ns || of_system))
		give_up(c, -ENOTCONN, why, now_ns); /* this process must not start it */
}

void client_handle_hello(struct client *c, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	char why[WHY_SIZE];

	if (envelope->body_case == CTL__ENVELOPE__BODY_FAILURE) {
		snprintf(why, sizeof(why), "the control daemon at %s refuses: %s",
			c->places.list[c->place].path, envelope->failure->text);
		handle_refusal(c, -(int)envelope->failure->error, why, now_ns);
	} else if (envelope->version != CONTROL_VERSION) {
		snprintf(why, sizeof(why),
			"the control daemon at %s has protocol version %u, this library version "
			"%d: use the same release of both",
			c->places.list[c->place].path, (unsigned)envelope->version,
			(int)CONTROL_VERSION);
		handle_refusal(c, -ENOTCONN, why, now_ns);
	} else if (envelope->body_case != CTL__ENVELOPE__BODY_HELLO ||
		envelope->hello->role != CTL__ROLE__ROLE_DAEMON) {
		snprintf(why, sizeof(why), "the program that listens at %s is not a control daemon",
			c->places.list[c->place].path);
		handle_refusal(c, -ENOTCONN, why, now_ns);
	} else {
		come_up(c);
	}
}

/* Handles expired deadlines. */
void client_check_time(struct client *c, uint64_t now_ns)
{
	if (c->state == CLIENT_DOWN && now_ns >= c->retry_ns && !c->is_ending)
		look_for_daemon(c, now_ns);
	else if (c->state == CLIENT_GREETING && now_ns >= c->greet_by_ns)
		client_disconnect(c, "it does not answer", now_ns);
}
