/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners: who may offer a service, and which requests reach it. A request for a service that
 * nobody offers is refused. While processes come back after a crash it is deferred instead.
 */
#include "daemon/core/conns/conns.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	BACKLOG = 1024, /* if the process sets none */
	/* The daemon of the active end times out first and reports it. */
	SLACK_MS = 2000,
};

static struct listener *listener_find(const struct session *session, uint32_t number)
{
	LIST_EACH(struct listener, listener, &session->listeners, of_session) {
		if (listener->number == number)
			return listener;
	}
	return NULL;
}

static bool is_service(const char *service)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";

	return strlen(service) <= CORE_NAME && service[strspn(service, letters)] == '\0';
}

static struct listener *service_find(const struct core *core, const char *service)
{
	struct listener *listener;

	HASH_FIND_STR(core->listeners, service, listener);
	return listener;
}

/* ---- incoming requests */

static bool may_connect(const struct core *core, const struct listener *listener,
	const Ctl__ConnRequest *request, struct ending *ret_refusal)
{
	const struct session *session = listener->session;
	uint32_t uid = request->who->uid;

	if (!listener->any_user && uid != session->uid && uid != 0) {
		ending_set(ret_refusal, EACCES,
			"service %s on %s is only for processes of the user who offers it",
			listener->service, core->config->host);
		return false;
	}
	/* Any user may take the name of a service. */
	if (!request->any_user && uid != session->uid && session->uid != 0) {
		ending_set(ret_refusal, EACCES,
			"service %s on %s belongs to another user: set any_user in struct "
			"frl_connect_config to connect to it",
			listener->service, core->config->host);
		return false;
	}
	if (listener->waiting >= listener->backlog) {
		ending_set(ret_refusal, ECONNREFUSED,
			"the backlog of service %s on %s is full: %u requests wait",
			listener->service, core->config->host, listener->waiting);
		return false;
	}
	if (core_usage(core, session->uid).conns >= core->config->max_connections_per_user) {
		ending_set(ret_refusal, EDQUOT,
			"the user who offers service %s on %s has %u connections "
			"(max_connections_per_user)",
			listener->service, core->config->host,
			core->config->max_connections_per_user);
		return false;
	}
	return true;
}

static struct conn *passive_new(struct core *core, struct peer *peer,
	const Ctl__ConnRequest *request, uint64_t now_ns, struct ending *ret_refusal)
{
	struct conn *conn = conn_create(core, &request->uuid, true);

	if (!conn) {
		ending_set(ret_refusal, ENOMEM, "%s has no memory left", core->config->host);
		return NULL;
	}
	conn->since_ns = now_ns;
	conn_give_peer(conn, peer);
	copy_text(conn->service, sizeof(conn->service), request->service);
	if (peer)
		who_read(peer, request->who, &conn->other);
	else
		conn->other = conn_twin(core, conn)->session->who;
	conn->peer_qpn = endpoint_qpn(&request->endpoint);
	conn_set_deadline(core, conn,
		request->timeout_ms && request->timeout_ms < UINT32_MAX - SLACK_MS
			? request->timeout_ms + SLACK_MS
			: request->timeout_ms,
		now_ns);
	return conn;
}

static bool offer_to(struct core *core, struct listener *listener, struct peer *peer,
	const Ctl__ConnRequest *request, uint64_t now_ns, struct ending *ret_refusal)
{
	Ctl__ConnRequest forwarded = *request;
	struct conn *conn;
	Ctl__Who who;

	if (!may_connect(core, listener, request, ret_refusal))
		return false;
	conn = passive_new(core, peer, request, now_ns, ret_refusal);
	if (!conn)
		return false;
	conn_give_session(conn, listener->session);
	conn->listener = listener;
	listener->waiting++;
	who_fill(core, &conn->other, peer, &who);
	forwarded.who = &who;
	forwarded.listener = listener->number;
	forwarded.host = (char *)(uintptr_t) "";
	conn_send(core, conn, &ENVELOPE(0, CONN_REQUEST, conn_request, &forwarded));
	return true;
}

static bool defer_request(struct core *core, struct peer *peer, const Ctl__ConnRequest *request,
	uint64_t now_ns, struct ending *ret_refusal)
{
	struct conn *conn;

	/* Deferred requests belong to no user of this host, so no other limit applies to them. */
	if (core->deferred >= core->config->max_connections_per_user) {
		ending_set(ret_refusal, ECONNREFUSED,
			"nobody offers service %s on %s yet, and %u requests wait already",
			request->service, core->config->host, core->deferred);
		return false;
	}
	conn = passive_new(core, peer, request, now_ns, ret_refusal);
	if (!conn)
		return false;
	conn_hold(conn,
		&ENVELOPE(0, CONN_REQUEST, conn_request, (Ctl__ConnRequest *)(uintptr_t)request));
	if (!conn->held) {
		conn_forget(core, conn);
		ending_set(ret_refusal, ENOMEM, "%s has no memory left", core->config->host);
		return false;
	}
	conn->deferred = true;
	core->deferred++;
	return true;
}

bool conn_offer(struct core *core, struct peer *peer, const Ctl__ConnRequest *request,
	uint64_t now_ns, struct ending *ret_refusal)
{
	const struct conn *known = conns_find(core, request->uuid.data, true);
	struct listener *listener = service_find(core, request->service);

	/* Sent again, because the peer was disconnected. */
	if (known && peer && known->peer == peer)
		return true;
	if (known) {
		ending_set(ret_refusal, EEXIST, "a connection with this identifier exists already");
		return false;
	}
	if (core->draining[0]) {
		ending_set(ret_refusal, EBUSY, "%s accepts no connections: it is draining (%s)",
			core->config->host, core->draining);
		return false;
	}
	if (listener)
		return offer_to(core, listener, peer, request, now_ns, ret_refusal);
	if (is_relearning(core, now_ns))
		return defer_request(core, peer, request, now_ns, ret_refusal);
	ending_set(ret_refusal, ECONNREFUSED, "nobody offers service %s on %s", request->service,
		core->config->host);
	return false;
}

/* Passes the deferred requests for this service to its listener. NULL: refuses all deferred
 * requests. */
static void resume_requests(struct core *core, struct listener *listener, uint64_t now_ns)
{
	struct conn *conn = core->conns, *next;
	struct ending refusal;

	for (; conn && core->deferred; conn = next) {
		Ctl__Envelope *held = conn->held;
		struct peer *peer = conn->peer;
		bool is_taken = false;

		next = conn->hh.next;
		if (!conn->deferred || (listener && strcmp(conn->service, listener->service)))
			continue;
		ending_set(&refusal, ECONNREFUSED,
			"nobody offers service %s on %s since ferruled was started again",
			conn->service, core->config->host);
		conn->held = NULL;
		/* A new passive end is added at the end of the table. A refused twin may be the
		 * next in the table. */
		if (next && conn_twin(core, conn) == next)
			next = next->hh.next;
		conn_forget(core, conn);
		if (listener)
			is_taken = offer_to(
				core, listener, peer, held->conn_request, now_ns, &refusal);
		if (!is_taken)
			conn_refuse(core, peer, &held->conn_request->uuid, &refusal);
		ctl__envelope__free_unpacked(held, NULL);
	}
}

void conns_refuse_deferred(struct core *core)
{
	resume_requests(core, NULL, 0);
}

/* ---- listeners */

/* Returns false after a Failure. */
static bool may_listen(
	struct core *core, const struct session *session, uint64_t seq, const Ctl__Listen *message)
{
	const struct listener *there = service_find(core, message->service);

	if (core->draining[0])
		session_fail(core, session, seq, EBUSY,
			"%s accepts no listeners: it is draining (%s)", core->config->host,
			core->draining);
	else if (!is_service(message->service))
		session_fail(core, session, seq, EINVAL,
			"a service name is 1 to %d characters of A-Z a-z 0-9 . _ -", CORE_NAME);
	else if (!message->listener || listener_find(session, message->listener))
		session_fail(core, session, seq, EINVAL, "the process has a listener %u already",
			message->listener);
	else if (!port_find(session, message->port))
		session_fail(core, session, seq, EINVAL, "the process has no port %u open here",
			message->port);
	else if (there && may_see(session, there->session->uid))
		session_fail(core, session, seq, EADDRINUSE,
			"process %u (%s) offers service %s already", there->session->who.pid,
			there->session->who.program, message->service);
	else if (there)
		session_fail(core, session, seq, EADDRINUSE,
			"another user offers service %s already", message->service);
	else if (core_usage(core, session->uid).listeners >= core->config->max_listeners_per_user)
		session_fail(core, session, seq, EDQUOT,
			"the user has %u listeners on this host (max_listeners_per_user)",
			core->config->max_listeners_per_user);
	else
		return true;
	return false;
}

void conns_listen(struct core *core, struct session *session, uint64_t seq,
	const Ctl__Listen *message, uint64_t now_ns)
{
	Ctl__Listening listening = CTL__LISTENING__INIT;
	struct listener *listener;

	if (!may_listen(core, session, seq, message))
		return;
	listener = calloc(1, sizeof(*listener));
	if (!listener) {
		session_fail(core, session, seq, ENOMEM, "ferruled has no memory left");
		return;
	}
	listener->session = session;
	listener->number = message->listener;
	listener->port = port_find(session, message->port);
	listener->backlog = message->backlog ? message->backlog : BACKLOG;
	listener->any_user = message->any_user;
	if (message->service[0])
		copy_text(listener->service, sizeof(listener->service), message->service);
	else
		snprintf(listener->service, sizeof(listener->service), "s-%016" PRIx64,
			core->ops.random(core->ops.ctx));
	HASH_ADD_STR(core->listeners, service, listener);
	if (!hash_added(&listener->hh)) {
		free(listener);
		session_fail(core, session, seq, ENOMEM, "ferruled has no memory left");
		return;
	}
	list_add_tail(&session->listeners, &listener->of_session);
	session->user->usage.listeners++;
	listening.service = listener->service;
	session_send(core, session, &ENVELOPE(seq, LISTENING, listening, &listening));
	if (core->deferred)
		resume_requests(core, listener, now_ns);
}

/* Requests that were offered to the listener stay: its process still answers them. */
void conns_unlisten(struct core *core, struct session *session, uint32_t number, uint64_t now_ns)
{
	struct listener *listener = listener_find(session, number);

	if (!listener)
		return;
	LIST_EACH(struct conn, conn, &session->conns, of_session) {
		if (conn->listener == listener)
			conn->listener = NULL;
	}
	HASH_DEL(core->listeners, listener);
	list_remove(&listener->of_session);
	session->user->usage.listeners--;
	free(listener);
}
