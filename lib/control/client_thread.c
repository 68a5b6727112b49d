/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client's thread: sends and receives frames, and calls handlers. It holds the mutex except
 * while it waits, reads, looks for a daemon, or calls a handler.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/control/client_internal.h"
#include "lib/control/frame.h"

enum {
	NS_PER_MS = 1000000,
	BURST = 64, /* messages handled in a row, before other work is done */
};

static void lock(struct client *c)
{
	pthread_mutex_lock(&c->mutex);
}

static void unlock(struct client *c)
{
	pthread_mutex_unlock(&c->mutex);
}

struct control_handler *client_first_due(const struct client *c, unsigned bit)
{
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next) {
		struct control_handler *handler = container_of(node, struct control_handler, node);

		if (handler->due & bit)
			return handler;
	}
	return NULL;
}

/* Called with the mutex held, before and after each call of a handler. */
static void begin_call(struct client *c, const struct control_handler *handler)
{
	c->calling = handler;
	unlock(c);
}

static void end_call(struct client *c)
{
	lock(c);
	c->calling = NULL;
	pthread_cond_broadcast(&c->changed);
}

/* ---- messages */

static bool take_answer(struct client *c, Ctl__Envelope *envelope, int fd)
{
	for (struct list *node = c->calls.next; node != &c->calls; node = node->next) {
		struct call *call = container_of(node, struct call, node);

		if (call->seq != envelope->seq)
			continue;
		list_remove(&call->node);
		call->answer = envelope;
		call->fd = fd;
		call->done = true;
		pthread_cond_broadcast(&c->changed);
		return true;
	}
	return false;
}

static struct control_handler *next_to_offer(const struct client *c)
{
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next) {
		struct control_handler *handler = container_of(node, struct control_handler, node);

		if (handler->offered != c->messages)
			return handler;
	}
	return NULL;
}

/* Answers a request of the daemon that no handler has accepted. */
static void answer_unknown(struct client *c, const Ctl__Envelope *request)
{
	char text[] = "the process does not know this message";
	Ctl__Envelope envelope;
	Ctl__Failure failure;
	struct outgoing *out;

	if (!request->seq || request->body_case == CTL__ENVELOPE__BODY_FAILURE)
		return;
	envelope_init(&envelope);
	ctl__failure__init(&failure);
	failure.error = EOPNOTSUPP;
	failure.text = text;
	envelope.seq = request->seq;
	envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
	envelope.failure = &failure;
	out = outgoing_new(&envelope, -1);
	if (!out)
		return;
	c->queued += out->size;
	list_add_tail(&c->queue, &out->node);
}

/*
 * Returns whether a message is an answer by its kind. An answer may arrive after its caller has
 * timed out.
 */
static bool is_answer(const Ctl__Envelope *envelope)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_DONE:
	case CTL__ENVELOPE__BODY_FAILURE:
	case CTL__ENVELOPE__BODY_PORT_OPENED:
	case CTL__ENVELOPE__BODY_LISTENING:
	case CTL__ENVELOPE__BODY_GROUP_JOINED:
	case CTL__ENVELOPE__BODY_REPORT: return true;
	default: return false;
	}
}

static void offer(struct client *c, const Ctl__Envelope *envelope)
{
	struct control_handler *handler;
	bool taken = false;

	c->messages++;
	while (!taken && (handler = next_to_offer(c))) {
		handler->offered = c->messages;
		begin_call(c, handler);
		taken = handler->message(handler, envelope);
		end_call(c);
	}
	if (!taken && !is_answer(envelope))
		answer_unknown(c, envelope);
}

static void take(struct client *c, Ctl__Envelope *envelope, uint64_t now_ns)
{
	bool has_fd = envelope->body_case == CTL__ENVELOPE__BODY_PORT_OPENED &&
		envelope->port_opened->has_socket;
	int fd = has_fd ? control_socket_take_fd(&c->socket) : -1;

	if (c->state == CLIENT_GREETING)
		client_handle_hello(c, envelope, now_ns);
	else if (envelope->seq && take_answer(c, envelope, fd))
		return;
	else
		offer(c, envelope);
	ctl__envelope__free_unpacked(envelope, NULL);
	if (fd >= 0)
		close(fd);
}

/*
 * Handles up to BURST messages that have been read. Returns false if there are no more. The mutex
 * is held, but released while handlers run.
 */
static bool take_messages(struct client *c, uint64_t now_ns)
{
	for (unsigned i = 0; i < BURST && c->state != CLIENT_DOWN; i++) {
		const char *why;
		Ctl__Envelope *envelope = control_socket_next(&c->socket, &why);

		if (envelope) {
			take(c, envelope, now_ns);
		} else {
			if (why)
				client_disconnect(c, why, now_ns);
			return false;
		}
	}
	return c->state != CLIENT_DOWN;
}

/* Reads once, and then does take_messages(). */
static bool receive(struct client *c, uint64_t now_ns)
{
	int rc;

	unlock(c);
	rc = control_socket_receive(&c->socket);
	lock(c);
	if (rc == -ECONNRESET)
		client_disconnect(c, "it has closed the connection", now_ns);
	else if (rc && rc != -EAGAIN)
		client_disconnect(c, frl_strerror(rc), now_ns);
	return take_messages(c, now_ns);
}

static void append(struct list *to, struct list *from)
{
	while (!list_empty(from)) {
		struct list *node = from->next;

		list_remove(node);
		list_add_tail(to, node);
	}
}

int client_send(struct client *c)
{
	size_t sent = 0;
	int rc;

	if (c->state == CLIENT_DOWN)
		return 0;
	if (c->state == CLIENT_UP) {
		append(&c->sending, &c->first);
		if (!c->is_syncing)
			append(&c->sending, &c->queue);
	}
	rc = control_socket_send(&c->socket, &c->sending, &sent);
	c->queued -= sent;
	if (sent && !c->queued)
		pthread_cond_broadcast(&c->changed);
	return rc;
}

/* Returns true if the socket is full. */
static bool send_queued(struct client *c, uint64_t now_ns)
{
	int rc = client_send(c);

	if (rc && rc != -EAGAIN)
		client_disconnect(c, frl_strerror(rc), now_ns);
	return rc == -EAGAIN;
}

/* ---- handlers that are due */

static void call_due(struct client *c)
{
	struct control_handler *handler;

	while ((handler = client_first_due(c, DUE_DOWN))) {
		char why[WHY_SIZE];
		int error = c->error;

		handler->due &= ~(unsigned)DUE_DOWN;
		if (!handler->down)
			continue;
		memcpy(why, c->why, sizeof(why));
		begin_call(c, handler);
		handler->down(handler, error, why);
		end_call(c);
	}
	while (c->state == CLIENT_UP && (handler = client_first_due(c, DUE_UP))) {
		bool again = c->again;

		handler->due &= ~(unsigned)DUE_UP;
		c->in_up = true;
		begin_call(c, handler);
		handler->up(handler, again);
		end_call(c);
		c->in_up = false;
	}
	/*
	 * All handlers have posted their state. A handler that registers later has nothing to
	 * repeat.
	 */
	if (c->state == CLIENT_UP)
		c->again = c->is_syncing = false;
}

static struct control_handler *first_tick(const struct client *c, uint64_t now_ns)
{
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next) {
		struct control_handler *handler = container_of(node, struct control_handler, node);

		if (handler->tick && handler->tick_ns <= now_ns)
			return handler;
	}
	return NULL;
}

static void call_ticks(struct client *c, uint64_t now_ns)
{
	struct control_handler *handler;

	while ((handler = first_tick(c, now_ns))) {
		uint64_t next;

		handler->tick_ns = UINT64_MAX;
		begin_call(c, handler);
		next = handler->tick(handler, now_ns);
		end_call(c);
		/*
		 * The handler may be unregistered by now, or control_wake() may have been called.
		 */
		for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next)
			if (node == &handler->node && handler->tick_ns == UINT64_MAX)
				handler->tick_ns = next > now_ns ? next : now_ns + 1;
	}
}

/* ---- the loop */

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t next_deadline(const struct client *c)
{
	uint64_t next = c->is_ending ? c->end_by_ns : UINT64_MAX;

	if (c->state == CLIENT_DOWN)
		next = min(next, c->retry_ns);
	else if (c->state == CLIENT_GREETING)
		next = min(next, c->greet_by_ns);
	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next) {
		const struct control_handler *handler = container_of(
			node, struct control_handler, node);

		if (handler->tick)
			next = min(next, handler->tick_ns);
		if (handler->due & (c->state == CLIENT_UP ? DUE_UP | DUE_DOWN : DUE_DOWN))
			return 0;
	}
	return next;
}

static bool has_ended(const struct client *c, uint64_t now_ns)
{
	return c->is_ending &&
		(c->state != CLIENT_UP || now_ns >= c->end_by_ns ||
			(list_empty(&c->sending) && list_empty(&c->first) &&
				list_empty(&c->queue)));
}

/* Sleeps until there is work. Returns true if the socket is readable. */
static bool sleep_until(struct client *c, uint64_t next_ns, bool blocked)
{
	struct pollfd fds[2] = {
		{ .fd = c->wake_fd, .events = POLLIN },
		{ .fd = c->socket.fd, .events = (short)(blocked ? POLLIN | POLLOUT : POLLIN) },
	};
	uint64_t now_ns = clock_now_ns(), count, left = next_ns > now_ns ? next_ns - now_ns : 0;
	const struct timespec timeout = {
		.tv_sec = (time_t)(left / 1000 / NS_PER_MS),
		.tv_nsec = (long)(left % (UINT64_C(1000) * NS_PER_MS)),
	};
	ssize_t n;

	unlock(c);
	ppoll(fds, 2, next_ns == UINT64_MAX ? NULL : &timeout, NULL);
	lock(c);
	c->woken = false;
	n = read(c->wake_fd, &count, sizeof(count)); /* an empty counter is fine too */
	(void)n;
	return fds[1].revents & (POLLIN | POLLHUP | POLLERR);
}

void *client_main(void *arg)
{
	struct client *c = arg;
	bool readable = false;

	lock(c);
	pthread_setname_np(pthread_self(), "frl-control");
	while (!has_ended(c, clock_now_ns())) {
		uint64_t now_ns = clock_now_ns();
		bool blocked;

		if (readable && c->state != CLIENT_DOWN)
			readable = receive(c, now_ns);
		client_check_time(c, now_ns);
		call_due(c);
		call_ticks(c, now_ns);
		blocked = send_queued(c, now_ns);
		if (has_ended(c, now_ns))
			break;
		if (!readable || c->state == CLIENT_DOWN)
			readable = sleep_until(c, next_deadline(c), blocked);
	}
	client_end_start(c);
	control_socket_close(&c->socket);
	c->state = CLIENT_DOWN;
	client_drop_queues(c);
	c->has_thread = false;
	pthread_cond_broadcast(&c->changed);
	unlock(c);
	return NULL;
}
