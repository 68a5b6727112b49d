/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "daemon/server/listener.h"
#include "lib/base/list.h"
#include "lib/base/table.h"
#include "lib/base/process/thread.h"

enum {
	CONNECT_MS = 3000, /* for each address */
	/* TCP repeats a SYN after 1 s and 3 s. Frequent new connections find a recovered network
	 * sooner. The first connection continues, for peers that are far away. */
	FRESH_MS = 250,
	HOST_SIZE = 256,
	WHY_SIZE = 400,
	MAX_LOOKUPS = 32, /* threads at a time; further lookups wait */
	MAX_EACH = 8,     /* of one user */
	LOOKUP_STACK = 1 << 18,
};

/* A name that a thread looks up. The thread owns the struct until it has written it to the pipe. */
struct lookup {
	struct list node; /* dials.lookups; the loop owns this and `uid` */
	uid_t uid;
	int pipe;
	uint64_t id;
	char host[HOST_SIZE];
	char service[8];
	int result;
	int error;
	struct addrinfo *found;
};

struct dial {
	struct dials *dials;
	uint64_t id;
	UT_hash_handle hh;
	struct list queued; /* dials.queue: the lookup has not started */
	char host[HOST_SIZE];
	uint16_t port;
	uid_t uid;
	struct addrinfo *found, *next; /* the address to try next */
	const struct addrinfo *tried;
	struct sockaddr_storage address; /* of `tried` */
	/* The first connection to it, and the newest one. */
	struct attempt {
		int fd; /* -1: none */
		struct event connected;
	} first, fresh;
	struct event timer, again;
	/* The result if no address is left: that of the most informative address. */
	enum core_end end;
	char why[WHY_SIZE];
};

struct dials {
	struct event_base *base;
	struct dial_handler handler;
	struct dial *by_id;
	struct event answered;
	int pipe[2]; /* pointers to lookups that are done */
	struct list lookups, queue;
};

static void drop_attempt(struct attempt *attempt)
{
	if (attempt->fd < 0)
		return;
	event_del(&attempt->connected);
	close(attempt->fd);
	attempt->fd = -1;
}

static void drop_attempts(struct dial *dial)
{
	drop_attempt(&dial->first);
	drop_attempt(&dial->fresh);
	event_del(&dial->timer);
	event_del(&dial->again);
}

static void dial_free(struct dial *dial)
{
	HASH_DEL(dial->dials->by_id, dial);
	list_remove(&dial->queued);
	drop_attempts(dial);
	if (dial->found)
		freeaddrinfo(dial->found);
	free(dial);
}

static void dial_fail(struct dial *dial)
{
	struct dial_handler handler = dial->dials->handler;
	enum core_end end = dial->end;
	uint64_t id = dial->id;
	char why[WHY_SIZE];

	memcpy(why, dial->why, sizeof(why));
	dial_free(dial);
	handler.failed(handler.ctx, id, end, why);
}

static void note(struct dial *dial, enum core_end end, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void note(struct dial *dial, enum core_end end, const char *format, ...)
{
	va_list arguments;

	/* The host is alive if one of its addresses refuses. */
	if (dial->end == CORE_END_REFUSED)
		return;
	dial->end = end;
	va_start(arguments, format);
	vsnprintf(dial->why, sizeof(dial->why), format, arguments);
	va_end(arguments);
}

/* ---- connecting */

static void try_next(struct dial *dial);

static void note_errno(struct dial *dial, int error)
{
	char text[64];

	address_text(&dial->address, text, sizeof(text));
	note(dial, error == ECONNREFUSED ? CORE_END_REFUSED : CORE_END_UNREACHABLE,
		"cannot connect to %s port %u: %s", text, dial->port, strerror(error));
}

static void on_connected(evutil_socket_t fd, short what, void *arg)
{
	struct dial *dial = arg;
	struct dial_handler handler = dial->dials->handler;
	struct sockaddr_storage address = dial->address;
	socklen_t length = sizeof(int);
	struct attempt *attempt;
	char host[HOST_SIZE];
	uint64_t id = dial->id;
	int error = 0;

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
	attempt = fd == dial->first.fd ? &dial->first : &dial->fresh;
	if (error && error != ECONNREFUSED && attempt == &dial->fresh) {
		drop_attempt(attempt);
		return;
	}
	if (error) {
		note_errno(dial, error);
		drop_attempts(dial);
		try_next(dial);
		return;
	}
	memcpy(host, dial->host, sizeof(host));
	event_del(&attempt->connected);
	attempt->fd = -1; /* the handler owns it now */
	dial_free(dial);
	handler.connected(handler.ctx, id, fd, host, &address);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct dial *dial = arg;

	if (dial->first.fd >= 0) {
		note_errno(dial, ETIMEDOUT);
		drop_attempts(dial);
	}
	try_next(dial);
}

/* Starts a connection to the address. Returns 0 or a positive errno. */
static int begin(struct dial *dial, struct attempt *attempt)
{
	const struct addrinfo *to = dial->tried;
	int on = 1, error = 0;

	attempt->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (attempt->fd < 0)
		return errno;
	setsockopt(attempt->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(attempt->fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS) {
		error = errno;
		close(attempt->fd);
		attempt->fd = -1;
		return error;
	}
	event_assign(
		&attempt->connected, dial->dials->base, attempt->fd, EV_WRITE, on_connected, dial);
	event_add(&attempt->connected, NULL);
	return 0;
}

static void set_timer(struct event *timer, unsigned ms)
{
	struct timeval after = { ms / 1000, ms % 1000 * 1000 };

	event_add(timer, &after);
}

/* A new connection that is refused ends the dial: the host is alive. Its other errors may be
 * temporary. */
static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct dial *dial = arg;

	drop_attempt(&dial->fresh);
	(void)begin(dial, &dial->fresh);
	set_timer(&dial->again, FRESH_MS);
}

/* Returns false if this address cannot be used. */
static bool try_address(struct dial *dial, const struct addrinfo *found)
{
	const struct dial_handler *handler = &dial->dials->handler;
	const char *why = "";
	int error;

	memcpy(&dial->address, found->ai_addr, found->ai_addrlen);
	dial->tried = found;
	if (!handler->allowed(handler->ctx, &why)) {
		note(dial, CORE_END_TLS, "%s", why);
		return false;
	}
	error = begin(dial, &dial->first);
	if (error) {
		note_errno(dial, error);
		return false;
	}
	set_timer(&dial->timer, CONNECT_MS);
	set_timer(&dial->again, FRESH_MS);
	return true;
}

static void try_next(struct dial *dial)
{
	while (dial->next) {
		const struct addrinfo *found = dial->next;

		dial->next = found->ai_next;
		if (try_address(dial, found))
			return;
	}
	dial_fail(dial);
}

/* ---- names */

/* A result is written either before dials_destroy() reads the last ones, or to a pipe that it has
 * closed. So no result is lost in the pipe. */
static pthread_mutex_t answering = PTHREAD_MUTEX_INITIALIZER;

static const struct addrinfo tcp_hints = { .ai_socktype = SOCK_STREAM };

static void free_lookup(struct lookup *lookup)
{
	if (lookup->result == 0)
		freeaddrinfo(lookup->found);
	free(lookup);
}

static void *look_up(void *arg)
{
	struct lookup *lookup = arg;
	int pipe = lookup->pipe;
	bool is_written;

	lookup->result = getaddrinfo(lookup->host, lookup->service, &tcp_hints, &lookup->found);
	lookup->error = errno;
	/* A pointer is written atomically, and the pipe has room for all lookups. */
	pthread_mutex_lock(&answering);
	is_written = write(pipe, &lookup, sizeof(lookup)) == sizeof(lookup);
	pthread_mutex_unlock(&answering);
	if (!is_written)
		free_lookup(lookup);
	close(pipe);
	return NULL;
}

static bool has_turn(const struct dial *dial)
{
	const struct list *all = &dial->dials->lookups;
	unsigned count = 0, own = 0;

	LIST_EACH(const struct lookup, lookup, all, node) {
		count++;
		own += lookup->uid == dial->uid;
	}
	return count < MAX_LOOKUPS && own < MAX_EACH;
}

static void start_lookup(struct dial *dial)
{
	struct dials *dials = dial->dials;
	struct lookup *lookup;
	int result = -ENOMEM;

	if (!has_turn(dial)) {
		list_add_tail(&dials->queue, &dial->queued);
		return;
	}
	lookup = calloc(1, sizeof(*lookup));
	if (lookup) {
		lookup->id = dial->id;
		lookup->uid = dial->uid;
		memcpy(lookup->host, dial->host, sizeof(lookup->host));
		snprintf(lookup->service, sizeof(lookup->service), "%u", dial->port);
		lookup->pipe = dup(dials->pipe[1]);
		result = lookup->pipe < 0 ? -errno
					  : thread_start(look_up, lookup, LOOKUP_STACK, NULL);
	}
	if (result == 0) {
		list_add_tail(&dials->lookups, &lookup->node);
		return;
	}
	if (lookup && lookup->pipe >= 0)
		close(lookup->pipe);
	free(lookup);
	note(dial, CORE_END_UNREACHABLE, "cannot look up %s: %s", dial->host, strerror(-result));
	event_active(&dial->timer, EV_TIMEOUT, 0);
}

/* A lookup has ended: starts the first one in the queue whose user has a free thread. */
static void start_next(struct dials *dials)
{
	LIST_EACH(struct dial, next, &dials->queue, queued) {
		if (!has_turn(next))
			continue;
		list_remove(&next->queued);
		start_lookup(next);
		return;
	}
}

static void on_answered(evutil_socket_t fd, short what, void *arg)
{
	struct dials *dials = arg;
	struct lookup *lookup;
	struct dial *dial;

	if (read(fd, &lookup, sizeof(lookup)) != sizeof(lookup))
		return;
	list_remove(&lookup->node);
	start_next(dials);
	HASH_FIND(hh, dials->by_id, &lookup->id, sizeof(lookup->id), dial);
	if (!dial) {
		if (lookup->result == 0)
			freeaddrinfo(lookup->found);
	} else if (lookup->result == 0) {
		dial->found = dial->next = lookup->found;
	} else {
		note(dial, CORE_END_UNREACHABLE, "cannot look up %s: %s", dial->host,
			lookup->result == EAI_SYSTEM ? strerror(lookup->error)
						     : gai_strerror(lookup->result));
	}
	free(lookup);
	if (dial)
		try_next(dial);
}

/* ---- all dials */

void dial_start(struct dials *dials, uint64_t id, const char *host, const char *address,
	uint16_t port, uid_t uid)
{
	struct addrinfo hints = tcp_hints;
	struct dial *dial = calloc(1, sizeof(*dial));
	char service[8];

	if (dial) {
		dial->id = id;
		HASH_ADD(hh, dials->by_id, id, sizeof(dial->id), dial);
	}
	if (!dial || !hash_added(&dial->hh)) {
		free(dial);
		return dials->handler.failed(
			dials->handler.ctx, id, CORE_END_UNREACHABLE, "no memory");
	}
	dial->dials = dials;
	list_init(&dial->queued);
	dial->first.fd = -1;
	dial->fresh.fd = -1;
	dial->port = port;
	dial->uid = uid;
	dial->end = CORE_END_UNREACHABLE;
	snprintf(dial->host, sizeof(dial->host), "%s", host);
	snprintf(dial->why, sizeof(dial->why), "%s has no address", host);
	evtimer_assign(&dial->timer, dials->base, on_timer, dial);
	evtimer_assign(&dial->again, dials->base, on_again, dial);
	hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(address ? address : host, service, &hints, &dial->found) == 0) {
		dial->next = dial->found;
		/* The handler must not be called from within this function. */
		event_active(&dial->timer, EV_TIMEOUT, 0);
	} else {
		dial->found = NULL;
		start_lookup(dial);
	}
}

bool dial_cancel(struct dials *dials, uint64_t id)
{
	struct dial *dial;

	HASH_FIND(hh, dials->by_id, &id, sizeof(id), dial);
	if (dial)
		dial_free(dial);
	return dial != NULL;
}

struct dials *dials_create(struct event_base *base, const struct dial_handler *handler)
{
	struct dials *dials = calloc(1, sizeof(*dials));

	if (!dials)
		return NULL;
	if (pipe2(dials->pipe, O_CLOEXEC) < 0) {
		free(dials);
		return NULL;
	}
	evutil_make_socket_nonblocking(dials->pipe[0]);
	list_init(&dials->lookups);
	list_init(&dials->queue);
	dials->base = base;
	dials->handler = *handler;
	event_assign(
		&dials->answered, base, dials->pipe[0], EV_READ | EV_PERSIST, on_answered, dials);
	event_add(&dials->answered, NULL);
	return dials;
}

void dials_destroy(struct dials *dials)
{
	struct lookup *lookup;

	if (!dials)
		return;
	while (dials->by_id)
		dial_free(dials->by_id);
	event_del(&dials->answered);
	pthread_mutex_lock(&answering);
	while (read(dials->pipe[0], &lookup, sizeof(lookup)) == sizeof(lookup))
		free_lookup(lookup);
	close(dials->pipe[0]);
	pthread_mutex_unlock(&answering);
	close(dials->pipe[1]);
	free(dials);
}
