/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's public functions: register handlers, queue messages, wait for answers. */
#include "lib/control/client.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/base/random.h"
#include "lib/base/process/condition.h"
#include "lib/base/process/thread.h"
#include "lib/control/client_internal.h"
#include "lib/control/frame.h"

enum {
	NS_PER_MS = 1000000,
	END_MS = 500, /* to send the queue after the last handler has been unregistered */
};

static struct client the_client = {
	.wake_fd = -1, .start_fd = -1, .alive = -1, .socket = { .fd = -1 }
};

static void before_fork(void)
{
	pthread_mutex_lock(&the_client.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&the_client.mutex);
}

/*
 * Closes the parent's socket: while the child held it, the daemon would not notice the parent's
 * end. Does not free partly read input, because the parent's thread may have been changing it.
 */
static void after_fork_in_child(void)
{
	struct client *c = &the_client;

	pthread_cond_init(&c->changed, NULL); /* threads of the parent may have been waiting */
	while (!list_empty(&c->handlers)) {
		struct control_handler *handler = container_of(
			c->handlers.next, struct control_handler, node);

		handler->registered = false;
		list_remove(&handler->node);
	}
	list_init(&c->calls);
	outgoing_drop(&c->sending);
	outgoing_drop(&c->first);
	outgoing_drop(&c->queue);
	if (c->socket.fd >= 0)
		close(c->socket.fd);
	control_socket_init(&c->socket);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	if (c->start_fd >= 0)
		close(c->start_fd);
	if (c->alive >= 0)
		close(c->alive);
	c->wake_fd = c->start_fd = c->alive = -1;
	c->has_thread = c->is_ending = c->in_up = c->is_syncing = false;
	c->calling = NULL;
	c->state = CLIENT_DOWN;
	pthread_mutex_unlock(&c->mutex);
}

/* Runs at load, before lib/api/publish/publish.c registers its fork handlers (204). */
__attribute__((constructor(203))) static void init_client(void)
{
	struct client *c = &the_client;

	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->changed, NULL);
	list_init(&c->handlers);
	list_init(&c->calls);
	list_init(&c->sending);
	list_init(&c->first);
	list_init(&c->queue);
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static struct client *lock_client(void)
{
	pthread_mutex_lock(&the_client.mutex);
	return &the_client;
}

static void unlock_client(struct client *c)
{
	pthread_mutex_unlock(&c->mutex);
}

void client_wake(struct client *c)
{
	uint64_t one = 1;
	ssize_t n;

	if (c->woken || c->wake_fd < 0)
		return;
	c->woken = true;
	n = write(c->wake_fd, &one, sizeof(one)); /* cannot fail: the count is 0 */
	(void)n;
}

/*
 * Starts the thread: for the first handler in a process or in a child, or after all handlers were
 * unregistered.
 */
static int start_thread(struct client *c)
{
	int error;

	c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (c->wake_fd < 0)
		return frl_fail(errno, "cannot create an eventfd: %s", frl_strerror(errno));
	c->woken = false;
	error = thread_start(client_main, c, 0, &c->thread);
	if (error) {
		close(c->wake_fd);
		c->wake_fd = -1;
		return frl_fail(error, "cannot start the control thread: %s", frl_strerror(error));
	}
	c->has_thread = true;
	return 0;
}

static int start_client(struct client *c, enum control_want want)
{
	char why[WHY_SIZE] = "";
	int rc, fd = -1, place = -1;

	c->again = c->is_ending = c->in_up = c->is_syncing = false;
	c->error = 0;
	c->place = -1;
	c->state = CLIENT_DOWN;
	c->retry_ns = c->start_by_ns = c->lost_ns = 0;
	c->refusals = 0;
	c->queued = 0;
	c->instance = random_entropy();
	if (!c->next_seq)
		c->next_seq = 1;
	if (want == CONTROL_IF_THERE) {
		fd = client_search(&c->places, -1, &place, why, sizeof(why));
		/* A busy daemon exists: the thread tries again. */
		if (fd < 0 && fd != -EAGAIN)
			return frl_fail(-ENOTCONN, "%s", why);
		if (fd >= 0)
			client_greet(c, fd, place);
	}
	rc = start_thread(c);
	if (rc) {
		control_socket_close(&c->socket);
		client_drop_queues(c);
	}
	return rc;
}

static int find_places(struct client *c)
{
	daemon_find_places(&c->places);
	if (c->places.n)
		return 0;
	if (c->places.start == DAEMON_BAD_PATH)
		return frl_fail(-EINVAL,
			"FRL_CONTROL must be auto, off, or a path of at most %d characters that "
			"starts with /",
			DAEMON_PATH - 1);
	return frl_fail(-ENOTCONN, "FRL_CONTROL is off: this process uses no control daemon");
}

static void add_handler(struct client *c, struct control_handler *handler, enum control_want want)
{
	if (!handler->registered) {
		handler->registered = true;
		handler->want = want;
		handler->due = c->state == CLIENT_UP ? DUE_UP : 0;
		handler->tick_ns = 0;
		handler->offered = c->messages;
		list_add_tail(&c->handlers, &handler->node);
	} else if (want == CONTROL_START) {
		handler->want = want;
	}
	if (want == CONTROL_START && c->error && c->state == CLIENT_DOWN) {
		c->error = 0;
		c->retry_ns = 0;
	}
	client_wake(c);
}

int control_register(struct control_handler *handler, enum control_want want)
{
	struct client *c = lock_client();
	int rc = 0;

	while (c->is_ending)
		pthread_cond_wait(&c->changed, &c->mutex);
	if (!c->has_thread) {
		rc = find_places(c);
		if (!rc)
			rc = start_client(c, want);
	} else if (want == CONTROL_IF_THERE && c->error && !handler->registered) {
		rc = frl_fail(-ENOTCONN, "%s", c->why);
	}
	if (!rc)
		add_handler(c, handler, want);
	unlock_client(c);
	return rc;
}

/* Called after the last handler was unregistered. */
static void end_thread(struct client *c)
{
	c->is_ending = true;
	c->end_by_ns = limit_after_ms(clock_now_ns(), END_MS);
	client_wake(c);
	while (c->has_thread)
		pthread_cond_wait(&c->changed, &c->mutex);
	pthread_join(c->thread, NULL);
	close(c->wake_fd);
	c->wake_fd = -1;
	c->is_ending = false;
	pthread_cond_broadcast(&c->changed);
}

void control_unregister(struct control_handler *handler)
{
	struct client *c = lock_client();

	if (handler->registered) {
		handler->registered = false;
		list_remove(&handler->node);
		while (c->calling == handler)
			pthread_cond_wait(&c->changed, &c->mutex);
		/* Calls may be waiting for this handler's up(). */
		pthread_cond_broadcast(&c->changed);
		if (list_empty(&c->handlers) && c->has_thread && !c->is_ending)
			end_thread(c);
	}
	unlock_client(c);
}

/* With the mutex held. */
static int post(struct client *c, const Ctl__Envelope *envelope, int fd)
{
	struct outgoing *out;

	if (!c->has_thread)
		return frl_fail(-ENOTCONN, "there is no connection to a control daemon");
	if (c->error)
		return frl_fail(-ENOTCONN, "%s", c->why);
	if (c->again && c->state != CLIENT_UP)
		return 0;
	out = outgoing_new(envelope, fd);
	if (!out)
		return frl_fail(
			-ENOMEM, "no memory or descriptor for a message to the control daemon");
	if (c->queued + out->size > QUEUE_MAX_BYTES) {
		outgoing_free(out);
		return frl_fail(
			-ENOMEM, "the control daemon reads no messages: check whether it hangs");
	}
	c->queued += out->size;
	list_add_tail(c->is_syncing ? &c->first : &c->queue, &out->node);
	/*
	 * Send at once, because the process may end before the thread runs. The daemon reads all
	 * bytes that the socket has accepted, even after the process has ended.
	 */
	client_send(c);
	if (c->queued)
		client_wake(c);
	return 0;
}

int control_post(const Ctl__Envelope *envelope, int fd)
{
	struct client *c = lock_client();
	int rc = post(c, envelope, fd);

	unlock_client(c);
	return rc;
}

size_t control_queued(void)
{
	struct client *c = lock_client();
	size_t queued = c->queued;

	unlock_client(c);
	return queued;
}

uint64_t control_next_seq(void)
{
	struct client *c = lock_client();
	uint64_t seq = ++c->next_seq;

	unlock_client(c);
	return seq;
}

/* Returns false after the deadline. With the mutex held. */
static bool wait_change(struct client *c, uint64_t limit_ns)
{
	return condition_wait(&c->changed, &c->mutex, limit_ns) || clock_now_ns() < limit_ns;
}

/* At exit: sends the rest of the queue, as long as the daemon reads. */
__attribute__((destructor)) static void flush_at_exit(void)
{
	uint64_t limit_ns = limit_after_ms(clock_now_ns(), END_MS);
	struct client *c = &the_client;

	/* A signal handler that calls exit() may have interrupted the mutex's owner. */
	while (pthread_mutex_trylock(&c->mutex)) {
		if (clock_now_ns() >= limit_ns)
			return;
		sched_yield();
	}
	while (c->has_thread && c->state == CLIENT_UP && c->queued &&
		!pthread_equal(c->thread, pthread_self()) && wait_change(c, limit_ns))
		;
	unlock_client(c);
}

/*
 * Returns true if all handlers have posted their state: a request may depend on it. With the mutex
 * held.
 */
static bool handlers_are_synced(const struct client *c)
{
	return c->state == CLIENT_UP && !c->in_up && !client_first_due(c, DUE_UP);
}

/*
 * A call that was in progress when the daemon was lost is not repeated: the daemon may have
 * executed it already.
 */
static int wait_answer(struct client *c, struct call *call, uint64_t limit_ns)
{
	while (!call->done)
		if (!wait_change(c, limit_ns)) {
			list_remove(&call->node);
			return frl_fail(-ETIMEDOUT, "the control daemon does not answer");
		}
	/* The client may be connected to the next daemon already: then `why` is empty. */
	if (call->rc)
		return frl_fail(call->rc, "%s",
			*c->why ? c->why : "the control daemon went away: try again");
	return 0;
}

static int send_call(struct client *c, Ctl__Envelope *request, struct call *call, uint64_t limit_ns)
{
	int rc;

	while (c->has_thread && !handlers_are_synced(c) && !c->error)
		if (!wait_change(c, limit_ns))
			return frl_fail(-ETIMEDOUT, "the control daemon does not answer%s%s",
				*c->why ? ": " : "", c->why);
	request->seq = call->seq = ++c->next_seq;
	rc = post(c, request, -1);
	if (rc)
		return rc;
	list_add_tail(&c->calls, &call->node);
	return wait_answer(c, call, limit_ns);
}

int control_call_fd(Ctl__Envelope *request, uint64_t limit_ns, Ctl__Envelope **ret_answer,
	int *ret_fd, uint32_t *ret_retry_ms)
{
	struct call call = { .rc = 0, .fd = -1 };
	struct client *c = lock_client();
	int rc;

	list_init(&call.node);
	rc = send_call(c, request, &call, limit_ns);
	unlock_client(c);
	*ret_retry_ms = 0;
	if (!rc && call.answer->body_case == CTL__ENVELOPE__BODY_FAILURE) {
		*ret_retry_ms = call.answer->failure->retry_ms;
		rc = frl_fail(-(int)call.answer->failure->error, "%s", call.answer->failure->text);
		ctl__envelope__free_unpacked(call.answer, NULL);
	} else if (!rc) {
		*ret_answer = call.answer;
		*ret_fd = call.fd;
	}
	return rc;
}

int control_call(Ctl__Envelope *request, uint64_t limit_ns, Ctl__Envelope **ret_answer)
{
	uint32_t retry_ms;
	int fd = -1, rc = control_call_fd(request, limit_ns, ret_answer, &fd, &retry_ms);

	if (fd >= 0)
		close(fd);
	return rc;
}

void control_wake(void)
{
	struct client *c = lock_client();

	for (struct list *node = c->handlers.next; node != &c->handlers; node = node->next)
		container_of(node, struct control_handler, node)->tick_ns = 0;
	client_wake(c);
	unlock_client(c);
}

bool control_is_up(void)
{
	struct client *c = lock_client();
	bool up = c->state == CLIENT_UP;

	unlock_client(c);
	return up;
}

bool control_place(char *path, size_t size)
{
	struct client *c = lock_client();
	bool known = c->has_thread && c->place >= 0;

	if (known)
		snprintf(path, size, "%s", c->places.list[c->place].path);
	unlock_client(c);
	return known;
}
