/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of operators, and of other daemons about one queue pair. If the answer depends on pages,
 * processes with old pages are first asked to publish. A process that does not answer in time, such
 * as a stopped one, is reported as its last page shows it.
 *
 * Answers take time, and many requests may wait for the same event. So one request of each user is
 * continued at a time, and long reports are made in parts, as their reader takes them.
 */
#include "daemon/core/query/query.h"

#include <errno.h>
#include <ferrule/queue.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

enum {
	FRESH_MS = 100,      /* newer pages need not be published again */
	PUBLISH_MS = 100,    /* time limit for a process to publish */
	REFRESH_MS = 1000,   /* age and time limit for core_refresh() */
	REQUESTS_MAX = 16,   /* waiting requests of one session */
	REQUESTS_PEER = 256, /* and of another daemon */
	PAUSE_MIN_MS = 2,    /* until the next check for room */
	PAUSE_MAX_MS = 512,
	/* Limit for unread bytes of a long report before its next part is made. */
	REPORT_QUEUED_MAX = 128 << 10,
};

static void go_on(struct core *core, struct request *request, uint64_t now_ns);
static bool take_turn(struct core *core, struct request *request, uint64_t now_ns);

void request_free(struct request *request)
{
	list_remove(&request->node);
	list_remove(&request->of_session);
	if (request->view)
		ctl__envelope__free_unpacked(request->view, NULL);
	free(request);
}

/* ---- publishing */

/* Returns the first request, or the list head as LIST_EACH() ends on it. */
static struct request *first_request(struct core *core)
{
	return container_of(core->requests.next, struct request, node);
}

/* Returns true if the request is about this process, which may be being removed. */
static bool concerns(const struct request *request, const struct session *session)
{
	if (request->process)
		return session == request->process;
	if (session->kind != CORE_LOCAL || request->session->kind != CORE_LOCAL ||
		!may_see(request->session, session->uid))
		return false;
	return !request->query.pid || request->query.pid == session->who.pid;
}

/* Returns true if the process was asked to publish and still had time for it when the request
 * came. */
static bool is_awaited(const struct request *request, const struct session *session)
{
	return session->publish_seq && session->publish_seq <= request->publish_seq &&
		session->publish_by_ns > request->started_ns && concerns(request, session);
}

/* Returns true if a page is older than `age_ns`. A time in the future wraps to a large age. */
static bool is_older(const struct session *session, uint64_t age_ns, uint64_t now_ns)
{
	LIST_EACH(const struct port, port, &session->ports, of_session) {
		if (port->page.close && now_ns - page_published_ns(&port->page) > age_ns)
			return true;
	}
	return false;
}

/* Asks the process to publish unless a request is pending. */
static void request_page(struct core *core, struct session *session, uint64_t age_ns,
	uint64_t wait_ns, uint64_t now_ns)
{
	Ctl__Publish body = CTL__PUBLISH__INIT;

	if (session->lost || session->publish_seq || !is_older(session, age_ns, now_ns))
		return;
	session->publish_seq = ++core->next_seq;
	session->publish_by_ns = now_ns + wait_ns;
	session_send(core, session, &ENVELOPE(session->publish_seq, PUBLISH, publish, &body));
}

/* Does not wait: a stopped process keeps its old page. */
void core_refresh(struct core *core, uint64_t now_ns)
{
	struct session *session, *next;

	HASH_ITER(hh, core->sessions, session, next)
	{
		if (session->kind == CORE_LOCAL)
			request_page(core, session, REFRESH_MS * MS, REFRESH_MS * MS, now_ns);
	}
}

void session_request_page(
	struct core *core, struct session *session, uint64_t age_ns, uint64_t now_ns)
{
	request_page(core, session, age_ns, PUBLISH_MS * MS, now_ns);
}

void request_publish(struct core *core, struct request *request, uint64_t now_ns)
{
	struct session *session, *next;

	request->started_ns = now_ns;
	request->deadline_ns = now_ns + PUBLISH_MS * MS;
	HASH_ITER(hh, core->sessions, session, next)
	{
		if (concerns(request, session))
			request_page(core, session, FRESH_MS * MS, PUBLISH_MS * MS, now_ns);
	}
	request->publish_seq = core->next_seq;
	request->awaited = 0;
	HASH_ITER(hh, core->sessions, session, next)
	{
		if (is_awaited(request, session))
			request->awaited++;
	}
}

/* The process has published, or is gone. */
static void published(struct core *core, struct session *session, uint64_t now_ns)
{
	LIST_EACH(struct request, request, &core->requests, node) {
		if (is_awaited(request, session) && request->awaited)
			request->awaited--;
	}
	session->publish_seq = 0;
	/* take_turn() may free other requests: start over. */
	LIST_EACH(struct request, request, &core->requests, node) {
		if (!request->awaited && !request->peer_session && !request->in_row &&
			take_turn(core, request, now_ns))
			request_next = first_request(core);
	}
}

/* ---- kill-qp */

/* Makes the queue pair and its peer fail with the reason. */
static void kill_go_on(struct core *core, struct request *request, uint64_t now_ns)
{
	Ctl__FailQp fail = CTL__FAIL_QP__INIT;
	Ctl__ConnEnd end = CTL__CONN_END__INIT;
	char reason[CORE_REASON + 64];
	uint8_t uuid[UUID_SIZE];
	uint64_t closed = core->counters.ends_closed;
	struct found_qp found;
	struct conn *conn;
	Ctl__Envelope envelope;

	if (!qp_find(core, request, &found)) {
		request_free(request);
		return;
	}
	conn = conn_of_qp(found.session, found.port, found.qp.qpn);
	if (found.qp.state == FRL_QPS_RESET && !conn) {
		session_fail(core, request->session, request->seq, EINVAL,
			"queue pair %u of process %u (%s) is in RESET: there is nothing to fail",
			found.qp.qpn, found.session->who.pid, found.session->who.program);
		request_free(request);
		return;
	}
	snprintf(reason, sizeof(reason), "killed by an operator (uid %u)%s%s",
		(unsigned)request->session->uid, request->reason[0] ? ": " : "", request->reason);
	core_say(core, CORE_LOG_INFO, "queue pair %u of process %u (%s): %s", found.qp.qpn,
		found.session->who.pid, found.session->who.program, reason);
	core->counters.ends_killed++;
	fail.port = found.port->number;
	fail.qpn = found.qp.qpn;
	fail.error = ECANCELED;
	fail.reason = reason;
	envelope = ENVELOPE(0, FAIL_QP, fail_qp, &fail);
	session_send(core, found.session, &envelope);
	if (conn) {
		memcpy(uuid, conn->key.uuid, UUID_SIZE);
		end.uuid.data = uuid;
		end.uuid.len = UUID_SIZE;
		end.error = ECANCELED;
		end.reason = reason;
		end.to_passive = conn->key.passive;
		envelope.body_case = CTL__ENVELOPE__BODY_CONN_END;
		envelope.conn_end = &end;
		session_send(core, found.session, &envelope);
		/* Notifies the other end as if the process had ended the connection with this
		 * reason. */
		end.to_passive = !end.to_passive;
		conns_message(core, found.session, &envelope, now_ns);
		core->counters.ends_closed = closed; /* it counts as killed */
	}
	session_done(core, request->session, request->seq);
	request_free(request);
}

static void report_go_on(struct core *core, struct request *request, uint64_t now_ns)
{
	if (report_send(core, request, now_ns)) {
		request_free(request);
		return;
	}
	request->is_long = request->in_row = true;
	request->pause_ns = PAUSE_MIN_MS * MS;
	request->deadline_ns = now_ns + 1;
}

/* Returns true if the reader has not taken the previous part yet. */
static bool has_to_wait(struct core *core, const struct request *request)
{
	return request->is_long &&
		core->ops.queued(core->ops.ctx, request->session->id) > REPORT_QUEUED_MAX;
}

/* Continues a request for which nothing is awaited, if it is its user's turn. Returns false if it
 * must wait. */
static bool take_turn(struct core *core, struct request *request, uint64_t now_ns)
{
	struct user *user = request->session->user;
	uint64_t *turn_ns = user ? &user->turn_ns : &core->turn_ns;

	request->in_row = true;
	request->deadline_ns = now_ns + 1;
	if (*turn_ns == now_ns)
		return false;
	if (has_to_wait(core, request)) {
		request->deadline_ns = now_ns + request->pause_ns;
		if (request->pause_ns < PAUSE_MAX_MS * MS)
			request->pause_ns *= 2;
		return false;
	}
	*turn_ns = now_ns;
	go_on(core, request, now_ns);
	return true;
}

/* Continues a request without waiting any longer. May free it. */
static void go_on(struct core *core, struct request *request, uint64_t now_ns)
{
	request->awaited = 0;
	request->peer_session = 0;
	request->in_row = false;
	switch (request->kind) {
	case REQUEST_REPORT: report_go_on(core, request, now_ns); break;
	case REQUEST_WHY: why_go_on(core, request, now_ns); break;
	case REQUEST_KILL: kill_go_on(core, request, now_ns); break;
	case REQUEST_VIEW: view_go_on(core, request, now_ns); break;
	}
}

/* ---- incoming messages */

static struct request *request_new(
	struct core *core, struct session *session, uint64_t seq, enum request_kind kind)
{
	unsigned max = session->kind == CORE_LOCAL ? REQUESTS_MAX : REQUESTS_PEER;
	unsigned waiting = list_length(&session->requests);
	struct request *request;

	if (waiting >= max) {
		session_fail(core, session, seq, EBUSY,
			"%u of your requests wait for an answer already", waiting);
		return NULL;
	}
	request = calloc(1, sizeof(*request));
	if (!request) {
		session_fail(core, session, seq, ENOMEM, "no memory");
		return NULL;
	}
	request->session = session;
	request->seq = seq;
	request->kind = kind;
	ctl__query__init(&request->query);
	list_add_tail(&session->requests, &request->of_session);
	list_add_tail(&core->requests, &request->node);
	return request;
}

static void request_start(struct core *core, struct request *request, uint64_t now_ns)
{
	request_publish(core, request, now_ns);
	if (!request->awaited)
		go_on(core, request, now_ns);
}

static void on_query(struct core *core, struct session *session, uint64_t seq,
	const Ctl__Query *query, uint64_t now_ns)
{
	bool is_why = query->kind == CTL__QUERY_KIND__QUERY_WHY;
	bool is_conn = query->kind == CTL__QUERY_KIND__QUERY_CONNECTIONS ||
		query->kind == CTL__QUERY_KIND__QUERY_PEERS;
	struct request *request;

	if (query->kind <= CTL__QUERY_KIND__QUERY_NONE ||
		query->kind > CTL__QUERY_KIND__QUERY_WHY) {
		session_fail(
			core, session, seq, EINVAL, "unknown kind of query: %d", (int)query->kind);
		return;
	}
	if (is_why && !query->qpn) {
		session_fail(core, session, seq, EINVAL, "the number of a queue pair is required");
		return;
	}
	request = request_new(core, session, seq, is_why ? REQUEST_WHY : REQUEST_REPORT);
	if (!request)
		return;
	request->query.kind = query->kind;
	request->query.qpn = query->qpn;
	request->query.pid = query->pid;
	request->query.port = query->port;
	if (is_conn) /* needs no page */
		go_on(core, request, now_ns);
	else
		request_start(core, request, now_ns);
}

static void on_kill(struct core *core, struct session *session, uint64_t seq,
	const Ctl__KillQp *kill, uint64_t now_ns)
{
	struct request *request;

	if (!kill->qpn) {
		session_fail(core, session, seq, EINVAL, "the number of a queue pair is required");
		return;
	}
	request = request_new(core, session, seq, REQUEST_KILL);
	if (!request)
		return;
	request->query.qpn = kill->qpn;
	request->query.pid = kill->pid;
	request->query.port = kill->port;
	copy_text(request->reason, sizeof(request->reason), kill->reason);
	request_start(core, request, now_ns);
}

static void on_drain(struct core *core, struct session *session, uint64_t seq,
	const Ctl__Drain *drain, uint64_t now_ns)
{
	struct request *request;

	if (!session->is_operator) {
		session_fail(core, session, seq, EPERM,
			"only root and operators may drain a host: see `operators` in its "
			"configuration");
		return;
	}
	/* A repeated request, perhaps only to wait for the end, keeps the first reason. */
	if (drain->undo)
		core->draining[0] = '\0';
	else if (drain->reason[0] || !core->draining[0])
		copy_text(core->draining, sizeof(core->draining),
			drain->reason[0] ? drain->reason : "an operator drains this host");
	if (drain->undo)
		core_say(core, CORE_LOG_INFO, "draining is over");
	else
		core_say(core, CORE_LOG_INFO, "draining: %s", core->draining);
	request = request_new(core, session, seq, REQUEST_REPORT);
	if (!request)
		return;
	request->query.kind = CTL__QUERY_KIND__QUERY_STATS;
	go_on(core, request, now_ns);
}

static void on_view_request(struct core *core, struct session *session, uint64_t seq,
	const Ctl__ViewRequest *message, uint64_t now_ns)
{
	struct request *request;
	const struct conn *conn;

	if (message->uuid.len != UUID_SIZE)
		return;
	conn = conns_find(core, message->uuid.data, message->of_passive);
	if (!conn || !session->peer || conn->peer != session->peer || !conn->session) {
		session_fail(core, session, seq, ENOENT, "its connection has ended there");
		return;
	}
	request = request_new(core, session, seq, REQUEST_VIEW);
	if (!request)
		return;
	memcpy(request->uuid, message->uuid.data, UUID_SIZE);
	request->of_passive = message->of_passive;
	request->process = conn->session;
	request_start(core, request, now_ns);
}

void query_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	if (session->kind != CORE_LOCAL) {
		session_fail(core, session, envelope->seq, EPERM,
			"only users of this host may request that");
		return;
	}
	if (envelope->body_case == CTL__ENVELOPE__BODY_QUERY)
		on_query(core, session, envelope->seq, envelope->query, now_ns);
	else if (envelope->body_case == CTL__ENVELOPE__BODY_KILL_QP)
		on_kill(core, session, envelope->seq, envelope->kill_qp, now_ns);
	else if (envelope->body_case == CTL__ENVELOPE__BODY_DRAIN)
		on_drain(core, session, envelope->seq, envelope->drain, now_ns);
}

/* Returns the request whose ViewRequest this answers, or NULL. */
static struct request *request_of_answer(
	const struct core *core, const struct session *session, uint64_t seq)
{
	LIST_EACH(struct request, request, &core->requests, node) {
		if (request->peer_session == session->id && request->peer_seq == seq)
			return request;
	}
	return NULL;
}

static void on_view(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	struct request *request = request_of_answer(core, session, envelope->seq);

	if (!request)
		return;
	if (envelope->body_case == CTL__ENVELOPE__BODY_FAILURE)
		snprintf(request->peer_error, sizeof(request->peer_error), "its daemon says: %.*s",
			CORE_REASON, envelope->failure->text);
	else if (!envelope->view->qp)
		copy_text(request->peer_error, sizeof(request->peer_error),
			"its daemon has sent an empty answer");
	else
		request->view = envelope_copy(envelope);
	go_on(core, request, now_ns);
}

void query_answer(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	if (envelope->body_case == CTL__ENVELOPE__BODY_VIEW_REQUEST && session->kind != CORE_LOCAL)
		on_view_request(core, session, envelope->seq, envelope->view_request, now_ns);
	else if (session->kind != CORE_LOCAL && envelope->body_case != CTL__ENVELOPE__BODY_DONE)
		on_view(core, session, envelope, now_ns);
	else if (session->publish_seq && session->publish_seq == envelope->seq)
		published(core, session, now_ns);
}

void query_session_lost(struct core *core, struct session *session, uint64_t now_ns)
{
	while (!list_empty(&session->requests))
		request_free(container_of(session->requests.next, struct request, of_session));
	LIST_EACH(struct request, request, &core->requests, node) {
		if (request->peer_session != session->id)
			continue;
		copy_text(request->peer_error, sizeof(request->peer_error),
			"the connection to its daemon was lost");
		request->peer_session = 0;
		if (take_turn(core, request, now_ns))
			request_next = first_request(core);
	}
	published(core, session, now_ns);
	LIST_EACH(struct request, request, &core->requests, node) {
		if (request->process == session)
			request->process = NULL;
	}
}

uint64_t query_tick(struct core *core, uint64_t now_ns)
{
	uint64_t next_ns = CORE_NEVER;

	LIST_EACH(struct request, request, &core->requests, node) {
		if (request->deadline_ns <= now_ns) {
			if (take_turn(core, request, now_ns))
				request_next = first_request(core); /* it may have freed others */
			next_ns = now_ns + 1;
		} else if (request->deadline_ns < next_ns) {
			next_ns = request->deadline_ns;
		}
	}
	return next_ns;
}
