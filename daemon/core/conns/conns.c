/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection: creation, end, timeout, and loss with its process, its port or its peer.
 * Each end is notified once that the connection has ended, and is forgotten with that message.
 */
#include "daemon/core/conns/conns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/control/endpoint.h"

#define MS UINT64_C(1000000)

enum {
	TIMEOUT_MS = 10000,       /* if the process sets none */
	TIMEOUT_MAX_MS = 3600000, /* limits how long a process can hold memory */
	TICK_MS = 5,              /* timeouts within this time are handled together */
};

const double latency_bounds_s[LATENCY_BUCKETS] = { 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
	0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5 };

void ending_set(struct ending *ending, int error, const char *format, ...)
{
	char text[2048]; /* longer than any text of a message */
	va_list arguments;

	memset(ending, 0, sizeof(*ending));
	ending->error = error;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	copy_text(ending->reason, sizeof(ending->reason), text);
}

bool conns_user_may(const struct core *core, uint32_t uid, struct ending *ret_refusal)
{
	uint32_t max = core->config->max_connections_per_user;

	if (core_usage(core, uid).conns < max)
		return true;
	ending_set(ret_refusal, EDQUOT,
		"the user has %u connections on this host (max_connections_per_user)", max);
	return false;
}

uint32_t endpoint_qpn(const ProtobufCBinaryData *endpoint)
{
	return endpoint->len == ENDPOINT_BYTES ? get_be32(endpoint->data + ENDPOINT_AT_QPN) : 0;
}

bool is_relearning(const struct core *core, uint64_t now_ns)
{
	return core->relearn_until_ns != 0 && now_ns < core->relearn_until_ns;
}

uint64_t relearned_ns(const struct core *core)
{
	uint64_t at_ns = core->started_ns + core->config->relearn_ms * MS;

	return at_ns > core->relearn_until_ns ? at_ns : core->relearn_until_ns;
}

bool has_relearned(const struct core *core, uint64_t now_ns)
{
	return now_ns >= relearned_ns(core);
}

/* ---- creation and removal */

struct conn *conns_find(const struct core *core, const uint8_t *uuid, bool passive)
{
	uint8_t key[UUID_SIZE + 1];
	struct conn *conn;

	memcpy(key, uuid, UUID_SIZE);
	key[UUID_SIZE] = passive;
	HASH_FIND(hh, core->conns, key, sizeof(key), conn);
	return conn;
}

struct conn *conn_of_qp(const struct session *session, const struct port *port, uint32_t qpn)
{
	const uint32_t key[2] = { port->number, qpn };
	struct conn *conn;

	HASH_FIND(hh_qp, session->conns_by_qp, key, sizeof(key), conn);
	return conn;
}

struct conn *conn_create(struct core *core, const ProtobufCBinaryData *uuid, bool passive)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	_Static_assert(sizeof(conn->key) == UUID_SIZE + 1, "conns_find() builds the same key");
	_Static_assert(sizeof(conn->qp_key) == 8, "conn_of_qp() builds the same key");
	if (!conn)
		return NULL;
	memcpy(conn->key.uuid, uuid->data, UUID_SIZE);
	conn->key.passive = passive;
	conn->number = ++core->next_conn;
	conn->deadline_ns = CORE_NEVER;
	list_init(&conn->of_session);
	list_init(&conn->of_peer);
	HASH_ADD(hh, core->conns, key, sizeof(conn->key), conn);
	if (hash_added(&conn->hh))
		return conn;
	free(conn);
	return NULL;
}

void conn_give_session(struct conn *conn, struct session *session)
{
	conn->session = session;
	list_add_tail(&session->conns, &conn->of_session);
	session->user->usage.conns++;
}

void conn_give_qp(struct conn *conn, struct port *port, uint32_t qpn)
{
	conn->port = port;
	conn->qpn = qpn;
	conn->qp_key.port = port->number;
	conn->qp_key.qpn = qpn;
	HASH_ADD(hh_qp, conn->session->conns_by_qp, qp_key, sizeof(conn->qp_key), conn);
}

void conn_give_peer(struct conn *conn, struct peer *peer)
{
	list_remove(&conn->of_peer);
	conn->peer = peer;
	conn->synced = 0;
	if (peer)
		list_add_tail(&peer->conns, &conn->of_peer);
}

void conn_hold(struct conn *conn, const Ctl__Envelope *envelope)
{
	if (conn->held)
		ctl__envelope__free_unpacked(conn->held, NULL);
	conn->held = envelope ? envelope_copy(envelope) : NULL;
}

void conn_set_deadline(struct core *core, struct conn *conn, uint32_t timeout_ms, uint64_t now_ns)
{
	if (timeout_ms == 0)
		timeout_ms = TIMEOUT_MS;
	if (timeout_ms > TIMEOUT_MAX_MS)
		timeout_ms = TIMEOUT_MAX_MS;
	conn->deadline_ns = now_ns + timeout_ms * MS;
	conns_due(core, conn->deadline_ns);
}

void conns_due(struct core *core, uint64_t at_ns)
{
	if (at_ns < core->conns_due_ns)
		core->conns_due_ns = at_ns;
}

void conn_answered(struct core *core, struct conn *conn)
{
	if (conn->listener)
		conn->listener->waiting--;
	conn->listener = NULL;
	if (conn->deferred)
		core->deferred--;
	conn->deferred = false;
}

void conn_forget(struct core *core, struct conn *conn)
{
	conn_answered(core, conn);
	conn_hold(conn, NULL);
	HASH_DEL(core->conns, conn);
	if (conn->port && hash_added(&conn->hh_qp))
		HASH_DELETE(hh_qp, conn->session->conns_by_qp, conn);
	if (conn->session)
		conn->session->user->usage.conns--;
	list_remove(&conn->of_session);
	list_remove(&conn->of_peer);
	free(conn);
}

struct conn *conn_twin(const struct core *core, const struct conn *conn)
{
	struct conn *twin = conn->peer ? NULL
				       : conns_find(core, conn->key.uuid, !conn->key.passive);

	/* An end with the same name but a remote peer is a forgery: it is not the twin. */
	return twin && !twin->peer ? twin : NULL;
}

/* ---- end */

void who_fill(
	const struct core *core, const struct who *who, const struct peer *peer, Ctl__Who *ret)
{
	ctl__who__init(ret);
	ret->host = peer ? (char *)(uintptr_t)who->host : core->config->host;
	ret->program = (char *)(uintptr_t)who->program;
	ret->pid = who->pid;
	ret->uid = who->uid;
	if (!peer)
		return;
	/* The key is an address that peer_get() accepts, unless it has a suffix that makes it
	 * unique. */
	if (peer->port && !strchr(peer->key, '#'))
		ret->address = (char *)(uintptr_t)peer->key;
	ret->instance = peer->instance;
}

void who_read(const struct peer *peer, const Ctl__Who *from, struct who *ret)
{
	copy_text(ret->host, sizeof(ret->host), peer->name[0] ? peer->name : peer->host);
	copy_text(ret->program, sizeof(ret->program), from->program);
	ret->pid = from->pid;
	ret->uid = from->uid;
}

void conn_send(struct core *core, const struct conn *conn, Ctl__Envelope *envelope)
{
	if (conn->session && !conn->session->lost)
		session_send(core, conn->session, envelope);
}

void conn_fill_end(Ctl__Envelope *envelope, Ctl__ConnEnd *end, const ProtobufCBinaryData *uuid,
	bool to_passive, const struct ending *ending)
{
	ctl__conn_end__init(end);
	end->uuid = *uuid;
	end->to_passive = to_passive;
	end->error = (uint32_t)ending->error;
	end->reason = (char *)(uintptr_t)ending->reason;
	end->private_data = ending->private_data;
	envelope_init(envelope);
	envelope->body_case = CTL__ENVELOPE__BODY_CONN_END;
	envelope->conn_end = end;
}

void conn_notify(struct core *core, struct conn *conn, const struct ending *ending)
{
	const ProtobufCBinaryData uuid = { UUID_SIZE, conn->key.uuid };
	Ctl__Envelope envelope;
	Ctl__ConnEnd end;

	conn_fill_end(&envelope, &end, &uuid, conn->key.passive, ending);
	conn_send(core, conn, &envelope);
	conn_forget(core, conn);
}

void conn_notify_other(struct core *core, const struct conn *conn, const struct ending *ending)
{
	const ProtobufCBinaryData uuid = { UUID_SIZE, (uint8_t *)(uintptr_t)conn->key.uuid };
	struct conn *twin = conn_twin(core, conn);
	Ctl__Envelope envelope;
	Ctl__ConnEnd end;

	if (twin) {
		conn_notify(core, twin, ending);
	} else if (conn->peer) {
		/* A peer that is not connected learns this from the next Sync. */
		conn_fill_end(&envelope, &end, &uuid, !conn->key.passive, ending);
		peer_send(core, conn->peer, &envelope);
	}
}

void conn_end_both(struct core *core, struct conn *conn, const struct ending *ending)
{
	conn_notify_other(core, conn, ending);
	conn_notify(core, conn, ending);
}

void conn_refuse(struct core *core, const struct peer *peer, const ProtobufCBinaryData *uuid,
	const struct ending *ending)
{
	struct conn *active = conns_find(core, uuid->data, false);
	Ctl__Envelope envelope;
	Ctl__ConnEnd end;

	if (peer) {
		conn_fill_end(&envelope, &end, uuid, false, ending);
		peer_send(core, peer, &envelope);
	} else if (active && !active->peer) {
		core->counters.connects_refused++;
		conn_notify(core, active, ending);
	}
}

void conn_established(struct core *core, struct conn *conn, uint64_t now_ns)
{
	double seconds = (double)(now_ns - conn->since_ns) / 1e9;
	unsigned bucket = 0;

	conn->state = CONN_ESTABLISHED;
	conn->deadline_ns = CORE_NEVER;
	conn_hold(conn, NULL);
	if (conn->key.passive)
		return;
	core->counters.connects_established++;
	core->counters.latency_sum_s += seconds;
	while (bucket < LATENCY_BUCKETS && seconds > latency_bounds_s[bucket])
		bucket++;
	core->counters.latency_count[bucket]++;
}

/* ---- loss */

void conns_session_lost(struct core *core, struct session *session, uint64_t now_ns)
{
	struct ending ending;

	if (session->kind != CORE_LOCAL)
		return;
	ending_set(&ending, ECONNRESET, "process %u (%s) on %s has ended", session->who.pid,
		session->who.program, core->config->host);
	while (!list_empty(&session->conns)) {
		struct conn *conn = container_of(session->conns.next, struct conn, of_session);

		core->counters.ends_died++;
		conn_notify_other(core, conn, &ending);
		conn_forget(core, conn);
	}
	LIST_EACH(const struct listener, listener, &session->listeners, of_session) {
		conns_unlisten(core, session, listener->number, now_ns);
	}
}

void conns_port_lost(struct core *core, struct port *port, uint64_t now_ns)
{
	struct session *session = port->session;
	struct list *node, *next;
	struct ending ending;

	LIST_EACH(const struct listener, listener, &session->listeners, of_session) {
		if (listener->port == port)
			conns_unlisten(core, session, listener->number, now_ns);
	}
	ending_set(&ending, ECONNRESET, "process %u (%s) on %s has closed its port %u",
		session->who.pid, session->who.program, core->config->host, port->number);
	for (node = session->conns.next; node != &session->conns; node = next) {
		struct conn *conn = container_of(node, struct conn, of_session), *twin;

		next = node->next;
		if (conn->port != port)
			continue;
		/* The twin may belong to this session too, and may be the next in the list. */
		twin = conn_twin(core, conn);
		if (twin && next == &twin->of_session)
			next = next->next;
		conn_end_both(core, conn, &ending);
	}
}

void conns_peer_gone(
	struct core *core, struct peer *peer, bool all, int error, const char *why, uint64_t now_ns)
{
	struct ending ending;

	ending_set(&ending, error, "%s", why);
	LIST_EACH(struct conn, conn, &peer->conns, of_peer) {
		/* A peer never has both ends: the next in the list remains valid. */
		if (!all && (conn->key.passive || conn->state != CONN_REQUESTED))
			continue;
		if (all && conn_receives(core, conn, peer_since_ns(peer, now_ns)))
			continue;
		if (all)
			core->counters.ends_host_gone++;
		else
			core->counters.connects_refused++;
		conn_notify(core, conn, &ending);
	}
}

void conns_destroy(struct core *core)
{
	struct conn *conn, *next;
	struct listener *listener, *next_listener;

	HASH_ITER(hh, core->conns, conn, next)
	{
		conn_forget(core, conn);
	}
	HASH_ITER(hh, core->listeners, listener, next_listener)
	{
		HASH_DEL(core->listeners, listener);
		list_remove(&listener->of_session);
		listener->session->user->usage.listeners--;
		free(listener);
	}
}

/* ---- time */

static void time_out(struct core *core, struct conn *conn)
{
	const struct peer *peer = conn->peer;
	struct ending ending;

	if (!conn->key.passive)
		core->counters.connects_timed_out++;
	if (peer && peer->state != PEER_CONNECTED)
		ending_set(&ending, ETIMEDOUT, "the daemon of %s was not reached in time: %s",
			peer->host, peer->last_error[0] ? peer->last_error : "no answer yet");
	else if (conn->state == CONN_REPLIED)
		ending_set(&ending, ETIMEDOUT,
			"service %s was accepted, but the connection was not ready in time",
			conn->service);
	else
		ending_set(&ending, ETIMEDOUT, "service %s has not answered the request in time",
			conn->service);
	conn_end_both(core, conn, &ending);
}

/* Few connections wait at a time. The table is searched only once the earliest deadline that was
 * set since the last search has passed. */
uint64_t conns_tick(struct core *core, uint64_t now_ns)
{
	uint64_t more_ns = conns_catch_up(core, now_ns), due_ns = CORE_NEVER;
	struct conn *conn, *next;

	if (now_ns >= core->conns_due_ns) {
		conn = core->conns;
		while (conn) {
			next = conn->hh.next;
			if (conn->deadline_ns > now_ns) {
				if (conn->deadline_ns < due_ns)
					due_ns = conn->deadline_ns;
			} else {
				/* The twin is removed too, and may be the next in the table. */
				if (next && conn_twin(core, conn) == next)
					next = next->hh.next;
				time_out(core, conn);
			}
			conn = next;
		}
		if (due_ns < now_ns + TICK_MS * MS)
			due_ns = now_ns + TICK_MS * MS;
		core->conns_due_ns = due_ns;
	}
	return more_ns < core->conns_due_ns ? more_ns : core->conns_due_ns;
}
