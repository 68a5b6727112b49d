/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/compat/systemd.h"
#include "daemon/server/log.h"
#include "lib/base/clock.h"
#include "lib/base/process/closer.h"
#include "lib/base/random.h"
#include "lib/base/process/rights.h"
#include "lib/base/table.h"
#include "lib/control/spawn.h"

enum {
	ERROR_SIZE = 512,
	/* Connections with an unfinished TLS handshake. The oldest ones are closed first. */
	MAX_WAITING = 256,
	NAME_SIZE = 64,
};

#define MS UINT64_C(1000000)

/* ---- operations for the core */

static void core_wants_send(void *ctx, uint64_t session, const Ctl__Envelope *envelope)
{
	struct loop *loop = ctx;
	struct stream *stream = stream_find(loop->streams, session);

	if (stream)
		stream_send(stream, envelope);
}

static void core_wants_close(void *ctx, uint64_t session)
{
	struct loop *loop = ctx;
	struct stream *stream = stream_find(loop->streams, session);

	if (stream)
		stream_close(stream);
	else
		dial_cancel(loop->dials, session);
}

static void core_wants_dial(void *ctx, uint64_t session, const char *host, const char *address,
	uint16_t port, uid_t uid)
{
	struct loop *loop = ctx;

	dial_start(loop->dials, session, host, address, port, uid);
}

static void core_wants_log(void *ctx, enum core_log level, const char *line)
{
	log_of_others(level, "%s", line);
}

static uint64_t core_wants_random(void *ctx)
{
	return random_entropy();
}

static size_t core_asks_queued(void *ctx, uint64_t session)
{
	const struct stream *stream = stream_find(((struct loop *)ctx)->streams, session);

	return stream ? stream_queued(stream) : 0;
}

static bool core_asks_stuck(void *ctx, uint64_t session)
{
	const struct stream *stream = stream_find(((struct loop *)ctx)->streams, session);

	return stream && stream_is_stuck(stream);
}

static int core_opens_socket(void *ctx, uint64_t session, const struct core_socket *wanted,
	uint64_t *ret_id, char *why, size_t size)
{
	struct loop *loop = ctx;
	struct stream *stream = stream_find(loop->streams, session);
	int fd = sockets_open(loop->sockets, wanted, ret_id, why, size);

	if (fd < 0)
		return fd;
	if (stream)
		stream_give_fd(stream, fd);
	else
		closer_close(fd);
	return 0;
}

static bool core_asks_socket(void *ctx, uint64_t id)
{
	return sockets_has(((struct loop *)ctx)->sockets, id);
}

static void core_keeps(void *ctx, const char *text)
{
	sockets_save(((struct loop *)ctx)->sockets, text);
}

static bool core_asks_certified(void *ctx, uint64_t session, const char *name)
{
	struct loop *loop = ctx;
	struct stream *stream = stream_find(loop->streams, session);

	return stream && stream_ssl(stream) && tls_certifies(stream_ssl(stream), name);
}

/* ---- events of the streams */

static bool stream_opened(void *ctx, struct stream *stream)
{
	struct core_session_info info = { .address = stream_address(stream) };
	uint64_t id = stream_id(stream);
	struct loop *loop = ctx;
	char program[NAME_SIZE];

	if (*info.address) {
		info.kind = id & CORE_DIALLED ? CORE_PEER_DIALLED : CORE_PEER;
		info.tls = stream_ssl(stream) != NULL;
		info.certified = core_asks_certified;
	} else if (!local_peer(stream_fd(stream), &info, program, sizeof(program))) {
		log_of_others(CORE_LOG_WARNING, "refused a process: cannot determine its user");
		return false;
	}
	/* Users and other hosts have distinct owner numbers: CORE_DIALLED is set for hosts. */
	if (!stream_set_owner(stream,
		    *info.address ? CORE_DIALLED | hash_bytes(info.address, strlen(info.address))
				  : info.uid))
		return false;
	return core_opened(loop->core, id, &info, clock_now_ns());
}

static void hand_page(struct loop *loop, const struct stream *stream, int fd)
{
	struct ucred peer = { 0 };
	socklen_t length = sizeof(peer);
	struct page_view page;
	const char *why = page_open(fd, &page);

	if (!why) {
		core_page(loop->core, stream_id(stream), &page);
		return;
	}
	closer_close(fd);
	getsockopt(stream_fd(stream), SOL_SOCKET, SO_PEERCRED, &peer, &length);
	log_of_others(CORE_LOG_WARNING, "process %d of user %u sent an invalid page: %s",
		(int)peer.pid, (unsigned)peer.uid, why);
}

/* The route of a message: the stream on it that has no room. */
struct route {
	const struct loop *loop;
	size_t size;
	struct stream *full;
};

static bool has_room(void *ctx, uint64_t peer)
{
	struct route *route = ctx;
	struct stream *stream = stream_find(route->loop->streams, peer);

	if (!stream || stream_has_room(stream, route->size))
		return true;
	route->full = stream;
	return false;
}

static struct stream *stream_passes_to(
	void *ctx, struct stream *stream, const Ctl__Envelope *envelope, size_t size)
{
	struct route route = { .loop = ctx, .size = size };

	core_has_room(route.loop->core, stream_id(stream), envelope, has_room, &route);
	return route.full;
}

static void stream_message(void *ctx, struct stream *stream, const Ctl__Envelope *envelope, int fd)
{
	uint64_t id = stream_id(stream);
	struct loop *loop = ctx;

	if (fd >= 0)
		hand_page(loop, stream, fd);
	core_message(loop->core, id, envelope, clock_now_ns());
}

static void stream_ended(
	void *ctx, struct stream *stream, bool opened, enum core_end end, const char *why)
{
	const char *address = stream_address(stream);
	uint64_t id = stream_id(stream);
	struct loop *loop = ctx;

	/* The core logs more details about processes. */
	if ((*address && (end == CORE_END_BAD || end == CORE_END_TLS)) || !opened)
		log_of_others(CORE_LOG_WARNING, "the connection %s %s: %s",
			id & CORE_DIALLED ? "to" : "from", *address ? address : "a process", why);
	if (opened || id & CORE_DIALLED)
		core_closed(loop->core, id, end, why, clock_now_ns());
}

/* ---- time */

static void set_timer(struct loop *loop)
{
	uint64_t idle_ns = core_idle_since(loop->core), due_ns = core_deadline(loop->core);
	uint64_t now_ns, wait_ms;
	struct timeval after;

	if (loop->options->is_private && loop->config->idle_exit_ms && idle_ns) {
		idle_ns += loop->config->idle_exit_ms * MS;
		if (idle_ns < due_ns)
			due_ns = idle_ns;
	}
	if (due_ns == CORE_NEVER)
		return;
	/* Wait a millisecond at least, so that the sockets are served whatever the core requests.
	 * Never postpone the timer: with a deadline that is always due at once it would never
	 * fire. */
	now_ns = clock_now_ns();
	if (due_ns < now_ns + MS)
		due_ns = now_ns + MS;
	if (loop->armed_ns <= due_ns)
		return;
	loop->armed_ns = due_ns;
	wait_ms = (due_ns - now_ns + MS - 1) / MS;
	after.tv_sec = (time_t)(wait_ms / 1000);
	after.tv_usec = (suseconds_t)(wait_ms % 1000 * 1000);
	event_add(&loop->timer, &after);
}

static void streams_settled(void *ctx)
{
	set_timer(ctx);
}

static bool nobody_is_there(const struct loop *loop, uint64_t now_ns)
{
	uint64_t since_ns = core_idle_since(loop->core);

	return loop->options->is_private && loop->config->idle_exit_ms && since_ns &&
		now_ns >= since_ns + loop->config->idle_exit_ms * MS;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;
	uint64_t now_ns = clock_now_ns();

	loop->armed_ns = CORE_NEVER;
	core_tick(loop->core, now_ns);
	streams_settle(loop->streams);
	if (nobody_is_there(loop, now_ns)) {
		log_line(CORE_LOG_INFO, "no clients for %u ms: ending", loop->config->idle_exit_ms);
		event_base_loopbreak(loop->base);
	}
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	sd_notify(0, "WATCHDOG=1");
}

/* ---- connections */

static void accept_process(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct loop *loop = arg;

	if (!stream_start(loop->streams, ++loop->next_id, fd, NULL, ""))
		rights_close(fd);
}

void loop_accept_peer(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct loop *loop = arg;
	char address[64];
	SSL *ssl = NULL;
	int on = 1;

	address_text(peer, address, sizeof(address));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (loop->tls)
		ssl = tls_connection(loop->tls, fd, NULL);
	if ((loop->tls && !ssl) ||
		!stream_start(loop->streams, ++loop->next_id, fd, ssl, address)) {
		SSL_free(ssl);
		close(fd);
		return;
	}
	if (streams_waiting(loop->streams) > MAX_WAITING)
		streams_end_oldest_waiting(loop->streams);
	streams_settle(loop->streams);
}

static void dial_failed(void *ctx, uint64_t id, enum core_end end, const char *why)
{
	struct loop *loop = ctx;

	core_closed(loop->core, id, end, why, clock_now_ns());
	streams_settle(loop->streams);
}

static void dial_connected(
	void *ctx, uint64_t id, int fd, const char *host, const struct sockaddr_storage *address)
{
	struct loop *loop = ctx;
	SSL *ssl = NULL;
	const char *why;
	char text[64];

	/* The settings may have changed since the dial started. */
	if (!services_allow(loop, &why)) {
		close(fd);
		dial_failed(loop, id, CORE_END_TLS, why);
		return;
	}
	address_text(address, text, sizeof(text));
	if (loop->tls)
		ssl = tls_connection(loop->tls, fd, host);
	if ((loop->tls && !ssl) || !stream_start(loop->streams, id, fd, ssl, text)) {
		SSL_free(ssl);
		close(fd);
		dial_failed(loop, id, CORE_END_UNREACHABLE, "no memory");
	}
}

/* ---- signals */

static void update_facts(struct loop *loop)
{
	struct core_facts facts = {
		.socket = loop->config->socket,
		.listen = loop->listens,
		.metrics = loop->metrics,
		.is_private = loop->options->is_private,
		.has_system = daemon_is_configured(),
		.pid = getpid(),
		.uid = geteuid(),
	};

	core_set_facts(loop->core, &facts);
}

static void loop_warn(void *arg, const char *line)
{
	log_line(CORE_LOG_WARNING, "%s", line);
}

static bool read_again(struct loop *loop, char *error, size_t size)
{
	struct config *wanted = options_config(loop->options, error, size);
	const char *fixed;

	if (!wanted)
		return false;
	config_warnings(wanted, loop_warn, NULL);
	fixed = config_fixed_difference(loop->config, wanted);
	if (fixed)
		snprintf(error, size, "%s: `%s` cannot change while the daemon runs: restart it",
			wanted->path ? wanted->path : "settings", fixed);
	if (fixed || !services_reload(loop, wanted, error, size)) {
		config_free(wanted);
		return false;
	}
	core_configure(loop->core, wanted, clock_now_ns());
	streams_set_message_ms(loop->streams, wanted->hello_ms);
	config_free(loop->config);
	loop->config = wanted;
	update_facts(loop);
	return true;
}

static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;
	char error[ERROR_SIZE];

	sd_notifyf(
		0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(clock_now_ns() / 1000));
	if (read_again(loop, error, sizeof(error)))
		log_line(CORE_LOG_INFO, "the settings have been read again");
	else
		log_line(CORE_LOG_ERROR, "the settings stay as they were: %s", error);
	streams_settle(loop->streams);
	sd_notify(0, "READY=1");
}

static void on_end(evutil_socket_t number, short what, void *arg)
{
	struct loop *loop = arg;

	log_line(CORE_LOG_INFO, "ending, by signal %d", (int)number);
	event_base_loopbreak(loop->base);
}

/* ---- start and end */

static void add_events(struct loop *loop)
{
	uint64_t watchdog_us = 0;

	evtimer_assign(&loop->timer, loop->base, on_timer, loop);
	evsignal_assign(&loop->hangup, loop->base, SIGHUP, on_hangup, loop);
	evsignal_assign(&loop->terminate, loop->base, SIGTERM, on_end, loop);
	evsignal_assign(&loop->interrupt, loop->base, SIGINT, on_end, loop);
	event_assign(&loop->watchdog, loop->base, -1, EV_PERSIST, on_watchdog, loop);
	event_add(&loop->hangup, NULL);
	event_add(&loop->terminate, NULL);
	event_add(&loop->interrupt, NULL);
	if (sd_watchdog_enabled(0, &watchdog_us) > 0) {
		struct timeval interval = { (time_t)(watchdog_us / 2 / 1000000),
			(suseconds_t)(watchdog_us / 2 % 1000000) };

		event_add(&loop->watchdog, &interval);
	}
}

static bool make_parts(struct loop *loop)
{
	const struct core_ops ops = { core_wants_send, core_wants_close, core_wants_dial,
		core_wants_log, core_wants_random, core_asks_queued, core_asks_stuck,
		core_opens_socket, core_asks_socket, core_keeps, loop };
	const struct stream_handler of_streams = { stream_opened, stream_passes_to, stream_message,
		stream_ended, streams_settled, loop };
	const struct dial_handler of_dials = { services_allow, dial_connected, dial_failed, loop };

	loop->base = event_base_new();
	if (!loop->base)
		return false;
	add_events(loop);
	loop->streams = streams_create(loop->base, &of_streams, loop->config->hello_ms);
	loop->dials = dials_create(loop->base, &of_dials);
	loop->local_listener = listener_start(
		loop->base, local_socket(loop->local), accept_process, loop);
	loop->sockets = sockets_create(loop->config->socket);
	loop->core = core_create(loop->config, &ops, local_crashed(loop->local), clock_now_ns());
	return loop->streams && loop->dials && loop->local_listener && loop->sockets && loop->core;
}

static void restore(struct loop *loop)
{
	char *text = sockets_saved(loop->sockets);

	if (text)
		core_restore(loop->core, text, clock_now_ns());
	free(text);
}

struct loop *loop_create(const struct options *options, struct config *config, struct local *local,
	char *error, size_t size)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop) {
		snprintf(error, size, "no memory");
		config_free(config);
		local_leave(local, local_crashed(local));
		return NULL;
	}
	loop->options = options;
	loop->config = config;
	loop->local = local;
	loop->armed_ns = CORE_NEVER;
	if (!make_parts(loop)) {
		snprintf(error, size, "no memory, or no descriptors");
		loop_destroy(loop);
		return NULL;
	}
	restore(loop);
	if (services_open(loop, error, size)) {
		config_warnings(config, loop_warn, NULL);
		return loop;
	}
	loop_destroy(loop);
	return NULL;
}

int loop_run(struct loop *loop)
{
	/* Not earlier: the daemon may have changed its user. */
	update_facts(loop);
	streams_settle(loop->streams);
	sd_notify(0, "READY=1");
	log_line(CORE_LOG_INFO, "ready on %s%s%s%s%s%s", loop->config->socket,
		*loop->listens ? ", " : "", loop->listens, loop->tls ? " (TLS)" : "",
		*loop->metrics ? ", metrics on " : "", loop->metrics);
	if (event_base_dispatch(loop->base) < 0)
		return -EIO;
	sd_notify(0, "STOPPING=1");
	return 0;
}

void loop_destroy(struct loop *loop)
{
	bool held;

	if (!loop)
		return;
	held = loop->core ? core_has_leases(loop->core, clock_now_ns())
			  : local_crashed(loop->local);
	if (loop->core && loop->sockets)
		core_save(loop->core);
	core_destroy(loop->core);
	sockets_destroy(loop->sockets);
	streams_destroy(loop->streams);
	dials_destroy(loop->dials);
	listener_stop(loop->local_listener);
	local_leave(loop->local, held);
	if (loop->base) {
		services_stop(loop);
		event_del(&loop->timer);
		event_del(&loop->watchdog);
		event_del(&loop->hangup);
		event_del(&loop->terminate);
		event_del(&loop->interrupt);
		event_base_free(loop->base);
	}
	config_free(loop->config);
	free(loop);
}
