/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts, the network and time; processes are in core_world_process.c. */
#include "tests/unit/core_world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core_world_internal.h"

enum { DIAL_TIMEOUT_MS = 2000, SETTLE_S = 10, RTO_MS = 200, FRESH_MS = 250 };

static int index_of(const struct world_host *host)
{
	return (int)(host - host->world->hosts);
}

struct event *world_schedule(
	struct world *world, enum event_type type, struct pipe *pipe, int side, uint64_t after_ns)
{
	struct event *event = calloc(1, sizeof(*event)), **at = &world->events;

	ck_assert_ptr_nonnull(event);
	*event = (struct event){
		.type = type, .at_ns = world->now_ns + after_ns, .pipe = pipe, .side = side
	};
	/* Behind others of the same time: streams keep their order. */
	while (*at && (*at)->at_ns <= event->at_ns)
		at = &(*at)->next;
	event->next = *at;
	*at = event;
	return event;
}

struct pipe *world_pipe(struct world *world, int host, uint64_t session, int *ret_side)
{
	for (struct pipe *pipe = world->pipes; pipe; pipe = pipe->next) {
		for (int side = 0; side < 2; side++) {
			if (pipe->host[side] == host && pipe->session[side] == session &&
				!(side == 1 && pipe->process)) {
				*ret_side = side;
				return pipe;
			}
		}
	}
	return NULL;
}

struct pipe *world_new_pipe(struct world *world)
{
	struct pipe *pipe = calloc(1, sizeof(*pipe));

	ck_assert_ptr_nonnull(pipe);
	pipe->next = world->pipes;
	world->pipes = pipe;
	return pipe;
}

static uint64_t latency(const struct pipe *pipe)
{
	return pipe->process ? WORLD_LOCAL_NS : WORLD_REMOTE_NS;
}

void world_transmit(
	struct world *world, struct pipe *pipe, int to_side, const Ctl__Envelope *envelope)
{
	struct event *event;

	uint64_t after_ns = latency(pipe);

	if (!pipe->process && world->cut[pipe->host[0]][pipe->host[1]]) {
		pipe->lost_ns = pipe->lost_ns ? pipe->lost_ns : world->now_ns;
		return;
	}
	if (pipe->again_ns > world->now_ns + after_ns)
		after_ns = pipe->again_ns - world->now_ns;
	event = world_schedule(world, EVENT_MESSAGE, pipe, to_side, after_ns);
	event->size = frame_size(envelope);
	event->frame = malloc(event->size);
	ck_assert_ptr_nonnull(event->frame);
	frame_pack(envelope, event->frame);
}

/* ---- what cores ask for */

static void op_send(void *ctx, uint64_t session, const Ctl__Envelope *envelope)
{
	struct world_host *host = ctx;
	int side;
	struct pipe *pipe = world_pipe(host->world, index_of(host), session, &side);

	ck_assert_msg(pipe != NULL, "%s sends to a session that is not there", host->name);
	ck_assert_msg(!pipe->core_closed[side], "%s sends after close", host->name);
	world_transmit(host->world, pipe, !side, envelope);
}

void world_close_session(struct world_host *host, uint64_t session)
{
	int side;
	struct pipe *pipe = world_pipe(host->world, index_of(host), session, &side);

	ck_assert_msg(pipe && !pipe->core_closed[side], "%s closes what is closed", host->name);
	pipe->core_closed[side] = true;
	pipe->open[side] = false;
	world_schedule(host->world, EVENT_CLOSED, pipe, !side, latency(pipe))->end =
		CORE_END_CLOSED;
}

static void op_close(void *ctx, uint64_t session)
{
	world_close_session(ctx, session);
}

static int host_by_name(const struct world *world, const char *name)
{
	for (int i = 0; i < world->n_hosts; i++) {
		char address[32];

		snprintf(address, sizeof(address), "10.0.0.%d", i + 1);
		if (strcmp(world->hosts[i].name, name) == 0 || strcmp(address, name) == 0)
			return i;
	}
	return -1;
}

static void op_dial(void *ctx, uint64_t session, const char *name, const char *address,
	uint16_t port, uid_t uid)
{
	struct world_host *host = ctx;
	struct world *world = host->world;
	int to = host_by_name(world, name);
	struct pipe *pipe = world_new_pipe(world);

	ck_assert_msg(session & CORE_DIALLED, "session numbers of dial() have CORE_DIALLED set");
	pipe->host[0] = index_of(host);
	pipe->session[0] = session;
	pipe->host[1] = to;
	if (host->no_route) {
		world_schedule(world, EVENT_CLOSED, pipe, 0, WORLD_REMOTE_NS)->end =
			CORE_END_UNREACHABLE;
		return;
	}
	if (to < 0 || world->cut[pipe->host[0]][to]) {
		world_schedule(world, EVENT_CLOSED, pipe, 0, DIAL_TIMEOUT_MS * WORLD_MS)->end =
			CORE_END_UNREACHABLE;
		return;
	}
	if (!world->hosts[to].core || world->hosts[to].refuses) {
		world_schedule(world, EVENT_CLOSED, pipe, 0, WORLD_REMOTE_NS)->end =
			CORE_END_REFUSED;
		return;
	}
	pipe->session[1] = world->next_session++;
	world_schedule(world, EVENT_OPENED, pipe, 1, WORLD_REMOTE_NS);
	world_schedule(world, EVENT_OPENED, pipe, 0, 2 * WORLD_REMOTE_NS);
}

static void op_log(void *ctx, enum core_log level, const char *line)
{
	struct world_host *host = ctx;

	if (getenv("CORE_WORLD_LOG"))
		fprintf(stderr, "%10.6f %s %d %s\n", (double)host->world->now_ns / 1e9, host->name,
			(int)level, line);
	if (level > CORE_LOG_WARNING)
		return;
	host->warnings++;
	snprintf(host->last_warning, sizeof(host->last_warning), "%s", line);
}

static uint64_t op_random(void *ctx)
{
	return random_u64(&((struct world_host *)ctx)->world->random);
}

/* Messages on their way to the process, and those that it has not read. */
static size_t op_queued(void *ctx, uint64_t session)
{
	struct world_host *host = ctx;
	int side = 0;
	struct pipe *pipe = world_pipe(host->world, index_of(host), session, &side);
	size_t size = pipe && pipe->process ? pipe->process->unread : 0;
	struct event *lists[] = { host->world->events, host->world->late };

	if (pipe && pipe->process && pipe->process->is_deaf)
		return SIZE_MAX;
	for (int i = 0; i < 2; i++)
		for (const struct event *event = lists[i]; event; event = event->next)
			if (event->pipe == pipe && event->side != side)
				size += event->size;
	return size;
}

/* TCP has sent it again twice. */
static bool op_is_stuck(void *ctx, uint64_t session)
{
	struct world_host *host = ctx;
	int side;
	struct pipe *pipe = world_pipe(host->world, index_of(host), session, &side);

	return pipe && pipe->lost_ns &&
		host->world->now_ns - pipe->lost_ns >= 3 * RTO_MS * WORLD_MS;
}

static int op_open_socket(void *ctx, uint64_t session, const struct core_socket *wanted,
	uint64_t *ret_id, char *why, size_t size)
{
	struct world *world = ((struct world_host *)ctx)->world;

	snprintf(why, size, "%s cannot be opened", wanted->port);
	if (world->socket_error)
		return world->socket_error;
	ck_assert_uint_lt(world->n_sockets, WORLD_SOCKETS);
	*ret_id = ++world->n_sockets;
	world->socket_open[*ret_id - 1] = true;
	return 0;
}

static bool op_has_socket(void *ctx, uint64_t id)
{
	const struct world *world = ((struct world_host *)ctx)->world;

	ck_assert(id && id <= world->n_sockets);
	return world->socket_open[id - 1];
}

static void op_keep(void *ctx, const char *text)
{
	struct world_host *host = ctx;

	snprintf(host->kept, sizeof(host->kept), "%s", text);
}

void world_fail_sockets(struct world *world, int error)
{
	world->socket_error = error;
}

void world_close_sockets(struct world *world)
{
	memset(world->socket_open, 0, sizeof(world->socket_open));
}

unsigned world_sockets(const struct world *world)
{
	return world->n_sockets;
}

const char *world_kept(const struct world *world, int host)
{
	return world->hosts[host].kept;
}

static bool certified(void *ctx, uint64_t session, const char *name)
{
	struct world_host *host = ctx;
	int side;
	struct pipe *pipe = world_pipe(host->world, index_of(host), session, &side);
	const char *certificate = pipe ? host->world->hosts[pipe->host[!side]].certificate : NULL;

	return certificate && strcmp(certificate, name) == 0;
}

/* ---- events */

static void tell_opened(struct world *world, const struct event *event)
{
	struct pipe *pipe = event->pipe;
	int side = event->side;
	struct world_host *host = &world->hosts[pipe->host[side]];
	char address[32];
	struct core_session_info info = {
		.kind = side == 0 ? CORE_PEER_DIALLED : CORE_PEER,
		.address = address,
		.tls = host->certificate != NULL,
		.certified = host->certificate ? certified : NULL,
	};

	if (!host->core || pipe->core_closed[side] || (side == 0 && !pipe->open[1]))
		return; /* the other end has ended meanwhile: a CLOSED is on its way */
	snprintf(address, sizeof(address), "10.0.0.%d", pipe->host[!side] + 1);
	pipe->open[side] = true;
	if (core_opened(host->core, pipe->session[side], &info, world->now_ns))
		return;
	world_close_session(host, pipe->session[side]);
}

static void deliver(struct world *world, const struct event *event)
{
	struct pipe *pipe = event->pipe;
	const char *why = NULL;
	Ctl__Envelope *envelope;
	struct core *core;

	if (!pipe->process && world->cut[pipe->host[0]][pipe->host[1]])
		return;
	if (!pipe->open[event->side])
		return;
	pipe->lost_ns = 0;
	ck_assert_int_eq(frame_length(event->frame, event->size, FRAME_MAX), (int)event->size);
	envelope = frame_unpack(event->frame, event->size, &why);
	ck_assert_msg(envelope != NULL, "a message that was sent cannot be read: %s", why);
	if (pipe->process && event->side == 1) {
		if (pipe->process->hangs)
			pipe->process->unread += event->size;
		process_receive(pipe->process, envelope);
		return;
	}
	core = world->hosts[pipe->host[event->side]].core;
	if (core)
		core_message(core, pipe->session[event->side], envelope, world->now_ns);
	ctl__envelope__free_unpacked(envelope, NULL);
}

static void tell_closed(struct world *world, const struct event *event)
{
	struct pipe *pipe = event->pipe;
	int side = event->side;
	struct core *core;

	if (pipe->process && side == 1) {
		if (pipe->process->session == pipe->session[0])
			pipe->process->ended = true;
		pipe->open[1] = false;
		return;
	}
	/* An end whose packets are not let through hears nothing. */
	if (!pipe->process && pipe->host[1] >= 0 && event->end == CORE_END_CLOSED &&
		world->cut[pipe->host[0]][pipe->host[1]])
		return;
	core = world->hosts[pipe->host[side]].core;
	if (!core || pipe->core_closed[side])
		return;
	/* A dial that comes to nothing is told by this as well. */
	pipe->core_closed[side] = true;
	pipe->open[side] = false;
	core_closed(core, pipe->session[side], event->end, "closed by the test", world->now_ns);
}

static bool is_stalled(const struct world *world, const struct event *event)
{
	const struct pipe *pipe = event->pipe;

	return !pipe->process && pipe->host[1] >= 0 && world->stalled[pipe->host[0]][pipe->host[1]];
}

/* The next event, or the next deadline of a core, at `limit` at the latest; false: none. */
static bool step(struct world *world, uint64_t limit_ns)
{
	uint64_t at_ns = world->events ? world->events->at_ns : UINT64_MAX;
	struct event *event = world->events;
	struct core *due = NULL;

	for (int i = 0; i < world->n_hosts; i++) {
		struct core *core = world->hosts[i].core;
		uint64_t deadline_ns = core ? core_deadline(core) : CORE_NEVER;

		if (deadline_ns < at_ns) {
			at_ns = deadline_ns;
			due = core;
		}
	}
	if (at_ns > limit_ns)
		return false;
	if (at_ns > world->now_ns)
		world->now_ns = at_ns;
	if (due) {
		core_tick(due, world->now_ns);
		ck_assert_msg(core_deadline(due) > world->now_ns, "a tick leaves its deadline");
		return true;
	}
	world->events = event->next;
	if (is_stalled(world, event)) {
		if (event->type == EVENT_MESSAGE && !event->pipe->lost_ns)
			event->pipe->lost_ns = event->at_ns;
		event->next = NULL;
		*world->last_late = event;
		world->last_late = &event->next;
		return true;
	}
	if (event->type == EVENT_MESSAGE)
		deliver(world, event);
	else if (event->type == EVENT_OPENED)
		tell_opened(world, event);
	else
		tell_closed(world, event);
	free(event->frame);
	free(event);
	return true;
}

void world_run(struct world *world, uint64_t ns)
{
	uint64_t until_ns = world->now_ns + ns;

	while (step(world, until_ns))
		;
	world->now_ns = until_ns;
}

void world_settle(struct world *world)
{
	uint64_t until_ns = world->now_ns + SETTLE_S * WORLD_S;

	while (world->events && world->events->at_ns <= until_ns)
		step(world, world->events->at_ns);
}

/* ---- hosts */

struct world *world_create(uint64_t seed)
{
	struct world *world = calloc(1, sizeof(*world));

	ck_assert_ptr_nonnull(world);
	random_seed(&world->random, seed);
	world->now_ns = 1000 * WORLD_S;
	world->next_session = 1;
	world->next_seq = 1;
	world->last_late = &world->late;
	return world;
}

static void start_core(struct world_host *host, bool crashed)
{
	struct core_ops ops = { op_send, op_close, op_dial, op_log, op_random, op_queued,
		op_is_stuck, op_open_socket, op_has_socket, op_keep, host };

	host->core = core_create(host->config, &ops, crashed, host->world->now_ns);
	ck_assert_ptr_nonnull(host->core);
	core_restore(host->core, host->kept, host->world->now_ns);
}

struct config *world_config(const char *name)
{
	struct config *config = config_new();

	ck_assert_ptr_nonnull(config);
	free(config->host);
	config->host = strdup(name);
	free(config->listen_address);
	config->listen_address = strdup("0.0.0.0");
	config->listen_port = CONTROL_PORT;
	config->insecure = true;
	return config;
}

int world_add_host(struct world *world, const char *name, struct config *config)
{
	struct world_host *host = &world->hosts[world->n_hosts];

	ck_assert_int_lt(world->n_hosts, WORLD_HOSTS_MAX);
	host->world = world;
	snprintf(host->name, sizeof(host->name), "%s", name);
	host->own_config = !config;
	host->config = config ? config : world_config(name);
	world->n_hosts++;
	start_core(host, false);
	return index_of(host);
}

struct core *world_core(struct world *world, int host)
{
	return world->hosts[host].core;
}

uint64_t world_now(const struct world *world)
{
	return world->now_ns;
}

void world_partition(struct world *world, int a, int b, bool cut)
{
	world->cut[a][b] = cut;
	world->cut[b][a] = cut;
}

/* When a late event happens, by the back-off of TCP. */
static uint64_t next_try(const struct world *world, const struct event *event)
{
	struct pipe *pipe = event->pipe;
	uint64_t try_ns = event->at_ns, step_ns = FRESH_MS * WORLD_MS;

	if (pipe->lost_ns) {
		try_ns = pipe->lost_ns;
		step_ns = RTO_MS * WORLD_MS;
	}
	while (try_ns <= world->now_ns) {
		try_ns += step_ns;
		step_ns *= pipe->lost_ns ? 2 : 1;
	}
	if (pipe->lost_ns)
		pipe->again_ns = try_ns;
	return try_ns;
}

void world_retransmit(struct world *world, int a, int b)
{
	struct event **at = &world->late, *event;

	world->stalled[a][b] = false;
	world->stalled[b][a] = false;
	while ((event = *at) != NULL) {
		struct event *again, rest;

		if (is_stalled(world, event)) {
			at = &event->next;
			continue;
		}
		*at = event->next;
		again = world_schedule(world, event->type, event->pipe, event->side,
			next_try(world, event) - world->now_ns);
		rest = *again;
		*again = *event;
		again->at_ns = rest.at_ns;
		again->next = rest.next;
		free(event);
	}
	world->last_late = at;
}

void world_stall(struct world *world, int a, int b, bool stalled)
{
	struct event **at = &world->late, **to = &world->events, *event;

	world->stalled[a][b] = stalled;
	world->stalled[b][a] = stalled;
	while (*to && (*to)->at_ns <= world->now_ns)
		to = &(*to)->next;
	while ((event = *at) != NULL) {
		if (is_stalled(world, event)) {
			at = &event->next;
			continue;
		}
		*at = event->next;
		event->at_ns = world->now_ns;
		event->next = *to;
		*to = event;
		to = &event->next;
	}
	world->last_late = at;
}

void world_no_route(struct world *world, int host, bool none)
{
	world->hosts[host].no_route = none;
}

void world_refuse(struct world *world, int host, bool refuse)
{
	world->hosts[host].refuses = refuse;
}

void world_certificate(struct world *world, int host, const char *name)
{
	world->hosts[host].certificate = name;
}

unsigned world_warnings(const struct world *world, int host)
{
	return world->hosts[host].warnings;
}

const char *world_last_warning(const struct world *world, int host)
{
	return world->hosts[host].last_warning;
}

void world_kill_daemon(struct world *world, int host)
{
	core_destroy(world->hosts[host].core);
	world->hosts[host].core = NULL;
	for (struct pipe *pipe = world->pipes; pipe; pipe = pipe->next) {
		for (int side = 0; side < 2; side++) {
			if (pipe->host[side] != host || (side == 1 && pipe->process))
				continue;
			pipe->open[side] = false;
			if (!pipe->core_closed[side])
				world_schedule(world, EVENT_CLOSED, pipe, !side, latency(pipe))
					->end = CORE_END_CLOSED;
			pipe->core_closed[side] = true;
		}
	}
}

void world_start_daemon(struct world *world, int host, bool crashed)
{
	ck_assert_ptr_null(world->hosts[host].core);
	start_core(&world->hosts[host], crashed);
}

void world_reset_sessions(struct world *world, int a, int b)
{
	for (struct pipe *pipe = world->pipes; pipe; pipe = pipe->next) {
		bool between = (pipe->host[0] == a && pipe->host[1] == b) ||
			(pipe->host[0] == b && pipe->host[1] == a);

		for (int side = 0; !pipe->process && between && side < 2; side++)
			world_schedule(world, EVENT_CLOSED, pipe, side, 0)->end = CORE_END_CLOSED;
	}
}

static void free_events(struct event *event)
{
	while (event) {
		struct event *next = event->next;

		free(event->frame);
		free(event);
		event = next;
	}
}

void world_destroy(struct world *world)
{
	for (int i = 0; i < world->n_hosts; i++) {
		if (world->hosts[i].core)
			core_destroy(world->hosts[i].core);
		if (world->hosts[i].own_config)
			config_free(world->hosts[i].config);
	}
	free_events(world->events);
	free_events(world->late);
	for (struct pipe *pipe = world->pipes, *next; pipe; pipe = next) {
		next = pipe->next;
		free(pipe);
	}
	for (struct process *process = world->processes, *next; process; process = next) {
		Ctl__Envelope *envelope;

		next = process->next;
		while ((envelope = process_take_any(process)) != NULL)
			ctl__envelope__free_unpacked(envelope, NULL);
		free(process);
	}
	world_free_pages(world);
	free(world);
}
