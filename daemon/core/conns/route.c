/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection messages of processes and other daemons: checked, and passed on. The sender must have
 * the end that it names, and the connection must be in a state that allows the message. All other
 * messages are dropped: they crossed the end of the connection, or come from a wrong sender.
 */
#include "daemon/core/conns/conns.h"

#include <errno.h>
#include <string.h>

/* Returns the end that the sender speaks for. Another daemon speaks for the other end of a local
 * one: `passive` then names the local end. */
static struct conn *find_own(struct core *core, const struct session *session,
	const ProtobufCBinaryData *uuid, bool passive)
{
	struct conn *conn = conns_find(core, uuid->data, passive);

	if (!conn)
		return NULL;
	if (session->kind == CORE_LOCAL ? conn->session == session : conn->peer == session->peer)
		return conn;
	core->counters.bad_messages++;
	if (session->kind == CORE_LOCAL)
		core_say(core, CORE_LOG_WARNING,
			"dropped a message of process %u (%s) of user %u about a connection of "
			"another process",
			session->who.pid, session->who.program, (unsigned)session->uid);
	else
		core_say(core, CORE_LOG_WARNING,
			"dropped a message of the daemon of %s about a connection of another host",
			session->peer->name);
	return NULL;
}

static void send_to_other(struct core *core, const struct conn *conn, Ctl__Envelope *envelope)
{
	const struct conn *twin = conn_twin(core, conn);

	if (twin)
		conn_send(core, twin, envelope);
	else if (conn->peer)
		peer_send(core, conn->peer, envelope);
}

/* ---- ConnRequest */

/* Returns false with the reason if the process may not make this request. */
static bool check_request(struct core *core, const struct session *session,
	const Ctl__ConnRequest *message, uint32_t *ret_qpn, struct ending *ret_refusal)
{
	const struct port *port = port_find(session, message->port);

	if (conns_find(core, message->uuid.data, false))
		ending_set(ret_refusal, EEXIST, "a connection with this identifier exists already");
	else if (core->draining[0])
		ending_set(ret_refusal, EBUSY, "%s accepts no connections: it is draining (%s)",
			core->config->host, core->draining);
	else if (!message->service[0])
		ending_set(ret_refusal, EINVAL, "a connection needs the name of a service");
	else if (!port)
		ending_set(
			ret_refusal, EINVAL, "the process has no port %u open here", message->port);
	else if (message->endpoint.len != ENDPOINT_BYTES ||
		!port_owns_endpoint(port, message->endpoint.data, ret_qpn))
		ending_set(ret_refusal, EACCES, "the endpoint is not one of the process's port %u",
			message->port);
	else
		return conns_user_may(core, session->uid, ret_refusal);
	return false;
}

/* Notifies the requesting process: there is no connection yet, or the name belongs to another
 * one. */
static void refuse_request(struct core *core, const struct session *session,
	const Ctl__ConnRequest *message, const struct ending *refusal)
{
	Ctl__Envelope envelope;
	Ctl__ConnEnd end;

	core->counters.connects_refused++;
	conn_fill_end(&envelope, &end, &message->uuid, false, refusal);
	session_send(core, session, &envelope);
}

/* Finds the daemon of the host and sends it the request of this new connection. */
static void pass_request_on(struct core *core, struct conn *conn, const char *host,
	Ctl__Envelope *envelope, uint64_t now_ns)
{
	const char *why = "";
	bool is_self = false;
	int error = 0;
	struct peer *peer = peer_get(core, host, &is_self, &error, &why, now_ns);
	struct ending refusal;

	if (peer) {
		conn_give_peer(conn, peer);
		conn_hold(conn, envelope);
		peer_send(core, peer, envelope);
		return;
	}
	if (is_self && conn_offer(core, NULL, envelope->conn_request, now_ns, &refusal))
		return;
	if (!is_self)
		ending_set(&refusal, error, "host %s: %s", host, why);
	core->counters.connects_refused++;
	conn_notify(core, conn, &refusal);
}

static void request_of_process(struct core *core, struct session *session,
	const Ctl__ConnRequest *message, uint64_t now_ns)
{
	Ctl__ConnRequest forwarded = *message;
	struct ending refusal;
	struct conn *conn;
	uint32_t qpn = 0;
	Ctl__Who who;

	conn = conns_find(core, message->uuid.data, false);
	if (conn && conn->session == session) {
		/* A refusal would look to the process like the end of its other connection. */
		session_reject(core, session, EPROTO, "it used a connection identifier twice");
		return;
	}
	core->counters.connects++;
	if (!check_request(core, session, message, &qpn, &refusal)) {
		refuse_request(core, session, message, &refusal);
		return;
	}
	conn = conn_create(core, &message->uuid, false);
	if (!conn) {
		ending_set(&refusal, ENOMEM, "ferruled has no memory left");
		refuse_request(core, session, message, &refusal);
		return;
	}
	conn_give_session(conn, session);
	conn_give_qp(conn, port_find(session, message->port), qpn);
	conn->since_ns = now_ns;
	copy_text(conn->service, sizeof(conn->service), message->service);
	conn_set_deadline(core, conn, message->timeout_ms, now_ns);
	who_fill(core, &session->who, NULL, &who);
	who.uid = session->uid;
	forwarded.host = (char *)(uintptr_t) "";
	forwarded.who = &who;
	pass_request_on(core, conn, message->host,
		&ENVELOPE(0, CONN_REQUEST, conn_request, &forwarded), now_ns);
}

static void request_of_peer(struct core *core, struct session *session,
	const Ctl__ConnRequest *message, uint64_t now_ns)
{
	struct ending refusal;

	if (!message->who)
		ending_set(&refusal, EPROTO, "the request does not name its process");
	else if (conn_offer(core, session->peer, message, now_ns, &refusal))
		return;
	conn_refuse(core, session->peer, &message->uuid, &refusal);
}

/* ---- ConnReply */

/* This end, the active one, has been accepted. */
static void accept_active(struct core *core, struct conn *conn, const Ctl__ConnReply *message,
	const struct who *passive)
{
	Ctl__ConnReply forwarded = *message;
	Ctl__Who who;

	conn->state = CONN_REPLIED;
	conn->other = *passive;
	conn->peer_qpn = endpoint_qpn(&message->endpoint);
	conn_hold(conn, NULL);
	who_fill(core, &conn->other, conn->peer, &who);
	forwarded.who = &who;
	conn_send(core, conn, &ENVELOPE(0, CONN_REPLY, conn_reply, &forwarded));
}

static void reply_of_process(
	struct core *core, struct session *session, const Ctl__ConnReply *message)
{
	struct conn *conn = find_own(core, session, &message->uuid, true);
	struct port *port = port_find(session, message->port);
	Ctl__ConnReply forwarded = *message;
	Ctl__Envelope envelope;
	struct ending ending;
	struct conn *twin;
	uint32_t qpn = 0;
	Ctl__Who who;

	if (!conn || conn->state != CONN_REQUESTED)
		return;
	if (!port || message->endpoint.len != ENDPOINT_BYTES ||
		!port_owns_endpoint(port, message->endpoint.data, &qpn)) {
		ending_set(&ending, EACCES,
			"process %u (%s) on %s has accepted with an endpoint that is not one of "
			"its port %u",
			session->who.pid, session->who.program, core->config->host, message->port);
		conn_end_both(core, conn, &ending);
		return;
	}
	conn_answered(core, conn);
	conn->state = CONN_REPLIED;
	conn_give_qp(conn, port, qpn);
	twin = conn_twin(core, conn);
	if (twin) {
		accept_active(core, twin, message, &session->who);
		return;
	}
	who_fill(core, &session->who, NULL, &who);
	who.uid = session->uid;
	forwarded.who = &who;
	envelope = ENVELOPE(0, CONN_REPLY, conn_reply, &forwarded);
	conn_hold(conn, &envelope);
	peer_send(core, conn->peer, &envelope);
}

static void reply_of_peer(struct core *core, struct session *session, const Ctl__ConnReply *message)
{
	struct conn *conn = find_own(core, session, &message->uuid, false);
	struct ending ending;
	Ctl__Envelope envelope;
	struct who passive;
	Ctl__ConnEnd end;

	if (conn && conn->state != CONN_REQUESTED)
		return;
	if (!conn || !message->who) {
		ending_set(&ending, ECONNRESET, "the requesting process on %s no longer waits",
			core->config->host);
		conn_fill_end(&envelope, &end, &message->uuid, true, &ending);
		peer_send(core, session->peer, &envelope);
		if (conn)
			conn_notify(core, conn, &ending);
		return;
	}
	who_read(session->peer, message->who, &passive);
	accept_active(core, conn, message, &passive);
}

/* ---- ConnReady, ConnEnd */

static void on_ready(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	bool is_local = session->kind == CORE_LOCAL;
	Ctl__ConnReady forwarded = *envelope->conn_ready;
	struct conn *conn = find_own(core, session, &forwarded.uuid, !is_local);
	Ctl__Envelope out;
	struct conn *twin;

	if (!conn || conn->state != CONN_REPLIED)
		return;
	conn_established(core, conn, now_ns);
	out = ENVELOPE(0, CONN_READY, conn_ready, &forwarded);
	if (!is_local) {
		conn_send(core, conn, &out);
		return;
	}
	twin = conn_twin(core, conn);
	if (twin)
		conn_established(core, twin, now_ns);
	send_to_other(core, conn, &out);
}

static void end_of_process(struct core *core, struct session *session, const Ctl__ConnEnd *message)
{
	struct conn *conn = find_own(core, session, &message->uuid, !message->to_passive);
	struct ending ending;

	if (!conn)
		return;
	if (conn->state == CONN_ESTABLISHED)
		core->counters.ends_closed++;
	else if (conn->key.passive)
		core->counters.connects_refused += conn->peer == NULL;
	if (message->reason[0])
		ending_set(&ending, (int)message->error, "%s", message->reason);
	else
		ending_set(&ending, (int)message->error, "process %u (%s) on %s %s",
			session->who.pid, session->who.program, core->config->host,
			conn->state == CONN_REQUESTED && conn->key.passive
				? "does not accept the connection"
				: "has closed the connection");
	ending.private_data = message->private_data;
	conn_notify_other(core, conn, &ending);
	conn_forget(core, conn);
}

static void end_of_peer(struct core *core, struct session *session, const Ctl__ConnEnd *message)
{
	struct conn *conn = find_own(core, session, &message->uuid, message->to_passive);
	struct ending ending;

	if (!conn)
		return;
	if (conn->state == CONN_ESTABLISHED)
		core->counters.ends_closed++;
	else if (!conn->key.passive)
		core->counters.connects_refused++;
	ending_set(&ending, (int)message->error, "%s", message->reason);
	ending.private_data = message->private_data;
	conn_notify(core, conn, &ending);
}

static const ProtobufCBinaryData *uuid_of(const Ctl__Envelope *envelope)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_CONN_REQUEST: return &envelope->conn_request->uuid;
	case CTL__ENVELOPE__BODY_CONN_REPLY: return &envelope->conn_reply->uuid;
	case CTL__ENVELOPE__BODY_CONN_READY: return &envelope->conn_ready->uuid;
	case CTL__ENVELOPE__BODY_CONN_END: return &envelope->conn_end->uuid;
	case CTL__ENVELOPE__BODY_CONN_RESUME: return &envelope->conn_resume->uuid;
	default: return NULL;
	}
}

static void from_process(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_CONN_REQUEST:
		request_of_process(core, session, envelope->conn_request, now_ns);
		break;
	case CTL__ENVELOPE__BODY_CONN_REPLY:
		reply_of_process(core, session, envelope->conn_reply);
		break;
	case CTL__ENVELOPE__BODY_CONN_READY: on_ready(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_CONN_END: end_of_process(core, session, envelope->conn_end); break;
	case CTL__ENVELOPE__BODY_CONN_RESUME:
		conns_resume(core, session, envelope->conn_resume, now_ns);
		break;
	default: break;
	}
}

static void from_peer(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_CONN_REQUEST:
		request_of_peer(core, session, envelope->conn_request, now_ns);
		break;
	case CTL__ENVELOPE__BODY_CONN_REPLY:
		reply_of_peer(core, session, envelope->conn_reply);
		break;
	case CTL__ENVELOPE__BODY_CONN_READY: on_ready(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_CONN_END: end_of_peer(core, session, envelope->conn_end); break;
	default: break;
	}
}

void conns_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	const ProtobufCBinaryData *uuid = uuid_of(envelope);

	if (!uuid || uuid->len != UUID_SIZE) {
		session_reject(core, session, EPROTO, "a connection identifier must have %d bytes",
			UUID_SIZE);
		return;
	}
	if (session->kind == CORE_LOCAL)
		from_process(core, session, envelope, now_ns);
	else if (session->peer)
		from_peer(core, session, envelope, now_ns);
}
