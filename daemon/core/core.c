/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core as a whole: creation and destruction, the dispatch of messages, and time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/internal.h"

enum { LINE_SIZE = 1024 };

struct core *core_create(
	const struct config *config, const struct core_ops *ops, bool crashed, uint64_t now_ns)
{
	struct core *core = calloc(1, sizeof(*core));

	if (!core)
		return NULL;
	core->config = config;
	core->ops = *ops;
	list_init(&core->leases);
	list_init(&core->requests);
	list_init(&core->open_waits);
	while (!core->instance)
		core->instance = ops->random(ops->ctx);
	hash_seed(ops->random(ops->ctx), ops->random(ops->ctx));
	core->next_lease = 1;
	core->started_ns = now_ns;
	core->idle_since_ns = now_ns;
	core->now_ns = now_ns;
	core->due_ns = now_ns;
	core->groups_due_ns = CORE_NEVER;
	if (crashed) {
		core->relearn_until_ns = now_ns + config->relearn_ms * UINT64_C(1000000);
		core_say(core, CORE_LOG_WARNING,
			"the previous ferruled did not shut down cleanly: its processes have %u ms "
			"to reconnect",
			config->relearn_ms);
	}
	return core;
}

static void no_send(void *ctx, uint64_t session, const Ctl__Envelope *envelope)
{
}

void core_destroy(struct core *core)
{
	struct session *session, *next;

	if (!core)
		return;
	/* Queue pairs outlive the daemon: no process may be notified of an end. */
	core->ops.send = no_send;
	conns_destroy(core);
	groups_destroy(core);
	peers_destroy(core);
	HASH_ITER(hh, core->sessions, session, next)
	{
		session->peer = NULL;
		session_remove(core, session, CORE_END_CLOSED, "the daemon ends");
	}
	sessions_reap(core);
	ports_destroy(core);
	metrics_destroy(core);
	for (int i = 0; i < 3; i++)
		free(core->fact_texts[i]);
	free(core);
}

void core_configure(struct core *core, const struct config *config, uint64_t now_ns)
{
	core->config = config;
	sessions_configure(core);
	core->due_ns = now_ns;
}

void core_set_facts(struct core *core, const struct core_facts *facts)
{
	char *texts[3] = { strdup(facts->socket ? facts->socket : ""),
		strdup(facts->listen ? facts->listen : ""),
		strdup(facts->metrics ? facts->metrics : "") };

	if (!texts[0] || !texts[1] || !texts[2]) {
		for (int i = 0; i < 3; i++)
			free(texts[i]);
		return;
	}
	for (int i = 0; i < 3; i++) {
		free(core->fact_texts[i]);
		core->fact_texts[i] = texts[i];
	}
	core->facts = *facts;
	core->facts.socket = texts[0];
	core->facts.listen = texts[1];
	core->facts.metrics = texts[2];
	sessions_configure(core);
}

/* ---- helpers */

void core_say(struct core *core, enum core_log level, const char *format, ...)
{
	char line[LINE_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	frame_clean_text(line); /* it may contain names and texts from other hosts */
	core->ops.log(core->ops.ctx, level, line);
}

Ctl__Envelope *envelope_copy(const Ctl__Envelope *envelope)
{
	size_t size = ctl__envelope__get_packed_size(envelope);
	uint8_t *bytes = malloc(size ? size : 1);
	Ctl__Envelope *copy = NULL;

	if (bytes) {
		ctl__envelope__pack(envelope, bytes);
		copy = ctl__envelope__unpack(NULL, size, bytes);
	}
	free(bytes);
	return copy;
}

void copy_text(char *to, size_t size, const char *from)
{
	size_t length = strnlen(from, size - 1);

	/* Do not cut within a character. */
	while (from[length] && length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80)
		length--;
	memcpy(to, from, length);
	to[length] = '\0';
}

/* ---- messages */

static void process_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_OPEN_PORT:
		ports_open(core, session, envelope->seq, envelope->open_port, now_ns);
		break;
	case CTL__ENVELOPE__BODY_DESCRIBE_PORT:
		ports_describe(core, session, envelope->seq, envelope->describe_port, now_ns);
		break;
	case CTL__ENVELOPE__BODY_CLOSE_PORT:
		ports_close(core, session, envelope->close_port->port, now_ns);
		session_done(core, session, envelope->seq);
		break;
	case CTL__ENVELOPE__BODY_LISTEN:
		conns_listen(core, session, envelope->seq, envelope->listen, now_ns);
		break;
	case CTL__ENVELOPE__BODY_UNLISTEN:
		conns_unlisten(core, session, envelope->unlisten->listener, now_ns);
		session_done(core, session, envelope->seq);
		break;
	case CTL__ENVELOPE__BODY_CONN_REQUEST:
	case CTL__ENVELOPE__BODY_CONN_REPLY:
	case CTL__ENVELOPE__BODY_CONN_READY:
	case CTL__ENVELOPE__BODY_CONN_END:
	case CTL__ENVELOPE__BODY_CONN_RESUME: conns_message(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_GROUP_JOIN:
	case CTL__ENVELOPE__BODY_GROUP_PIECE:
	case CTL__ENVELOPE__BODY_GROUP_LEAVE:
	case CTL__ENVELOPE__BODY_GROUP_MAIL: groups_message(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_QUERY: query_message(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_DONE:
	case CTL__ENVELOPE__BODY_FAILURE: query_answer(core, session, envelope, now_ns); break;
	default:
		session_fail(core, session, envelope->seq, EOPNOTSUPP,
			"ferruled does not accept message %d from a process",
			(int)envelope->body_case);
		break;
	}
}

static void operator_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_QUERY:
	case CTL__ENVELOPE__BODY_KILL_QP:
	case CTL__ENVELOPE__BODY_DRAIN: query_message(core, session, envelope, now_ns); break;
	default:
		session_fail(core, session, envelope->seq, EOPNOTSUPP,
			"ferruled does not accept message %d from an operator",
			(int)envelope->body_case);
		break;
	}
}

static void daemon_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_CONN_REQUEST:
	case CTL__ENVELOPE__BODY_CONN_REPLY:
	case CTL__ENVELOPE__BODY_CONN_READY:
	case CTL__ENVELOPE__BODY_CONN_END: conns_message(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_GROUP_JOIN:
	case CTL__ENVELOPE__BODY_GROUP_JOINED:
	case CTL__ENVELOPE__BODY_GROUP_PIECE:
	case CTL__ENVELOPE__BODY_GROUP_EVENT:
	case CTL__ENVELOPE__BODY_GROUP_LEAVE:
	case CTL__ENVELOPE__BODY_GROUP_MAIL: groups_message(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_PING:
	case CTL__ENVELOPE__BODY_PONG:
	case CTL__ENVELOPE__BODY_SYNC:
	case CTL__ENVELOPE__BODY_VIEW_REQUEST:
	case CTL__ENVELOPE__BODY_VIEW:
	case CTL__ENVELOPE__BODY_FAILURE: peers_message(core, session, envelope, now_ns); break;
	default:
		session_fail(core, session, envelope->seq, EOPNOTSUPP,
			"ferruled does not accept message %d from another ferruled",
			(int)envelope->body_case);
		break;
	}
}

/* Before its Hello a session may only send Hello. A dialled daemon may also send the reason of a
 * refusal. */
static void message_before_hello(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	if (envelope->body_case == CTL__ENVELOPE__BODY_HELLO)
		session_hello(core, session, envelope);
	else if (envelope->body_case == CTL__ENVELOPE__BODY_FAILURE &&
		session->kind == CORE_PEER_DIALLED)
		peers_message(core, session, envelope, now_ns);
	else
		session_reject(core, session, EPROTO, "the first message must be a Hello");
}

void core_message(struct core *core, uint64_t id, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	struct session *session = session_find(core, id);

	core->now_ns = now_ns;
	core->due_ns = now_ns;
	if (!session)
		return;
	if (session->peer)
		session->peer->last_rx_ns = now_ns;
	core->sender = session->kind == CORE_LOCAL ? session : NULL;
	if (session->role == CTL__ROLE__ROLE_NONE)
		message_before_hello(core, session, envelope, now_ns);
	else if (envelope->version != CONTROL_VERSION)
		session_reject(core, session, EPROTO,
			"the message has protocol version %u, this ferruled has %d",
			envelope->version, CONTROL_VERSION);
	else if (envelope->body_case == CTL__ENVELOPE__BODY_HELLO)
		session_reject(core, session, EPROTO, "only one Hello is allowed");
	else if (session->role == CTL__ROLE__ROLE_PROCESS)
		process_message(core, session, envelope, now_ns);
	else if (session->role == CTL__ROLE__ROLE_OPERATOR)
		operator_message(core, session, envelope, now_ns);
	else
		daemon_message(core, session, envelope, now_ns);
	core->sender = NULL;
	session_drop_page(session); /* the page came with another message than DescribePort */
	sessions_reap(core);
}

/* ---- time */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void core_tick(struct core *core, uint64_t now_ns)
{
	uint64_t due_ns = CORE_NEVER;

	core->now_ns = now_ns;
	due_ns = earlier(due_ns, sessions_tick(core));
	due_ns = earlier(due_ns, ports_tick(core, now_ns));
	due_ns = earlier(due_ns, conns_tick(core, now_ns));
	due_ns = earlier(due_ns, peers_tick(core, now_ns));
	due_ns = earlier(due_ns, groups_tick(core, now_ns));
	due_ns = earlier(due_ns, query_tick(core, now_ns));
	/* One of these may have made work for another one. */
	core->due_ns = due_ns > now_ns ? due_ns : now_ns + 1;
	sessions_reap(core);
}

uint64_t core_deadline(const struct core *core)
{
	return core->due_ns;
}

uint64_t core_idle_since(const struct core *core)
{
	return core->idle_since_ns;
}
