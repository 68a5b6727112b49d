/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ferrulectl why`: a queue pair, and the view of the other end of its connection. That end is in a
 * process of this host, whose page is read, or on another host, whose daemon is asked.
 */
#include "daemon/core/query/query.h"

#include <errno.h>
#include <string.h>

#define PEER_NS UINT64_C(1000000000) /* time limit for another daemon's view */

static Ctl__QpInfo *info_with_drops(struct rows *rows, const struct found_qp *found)
{
	Ctl__QpInfo *info = qp_info(rows, found);
	struct page head;

	if (info && page_read_head(&found->port->page, &head))
		info->n_port_drops = report_counters(rows, &head, "drop_", &info->port_drops);
	return info;
}

static void view_from_page(
	struct core *core, struct request *request, const struct conn *other, uint64_t now_ns)
{
	struct found_qp found = { .session = other->session, .port = other->port };
	struct rows rows;
	Ctl__View view = CTL__VIEW__INIT;

	rows_init(&rows, core, request, now_ns);
	if (!other->session || other->session->lost || !other->port || !other->port->page.close ||
		!qp_of_port(core, other->port, other->qpn, &found.qp))
		snprintf(request->peer_error, sizeof(request->peer_error),
			"its process publishes no queue pair %u", other->qpn);
	else if (!(view.qp = info_with_drops(&rows, &found)) || rows.no_memory)
		snprintf(request->peer_error, sizeof(request->peer_error), "%s", strerror(ENOMEM));
	else if (!(request->view = envelope_copy(&ENVELOPE(request->seq, VIEW, view, &view))))
		snprintf(request->peer_error, sizeof(request->peer_error), "%s", strerror(ENOMEM));
	rows_fini(&rows);
}

static void ask_daemon(
	struct core *core, struct request *request, const struct conn *conn, uint64_t now_ns)
{
	Ctl__ViewRequest body = CTL__VIEW_REQUEST__INIT;
	Ctl__Envelope envelope;

	envelope = ENVELOPE(++core->next_seq, VIEW_REQUEST, view_request, &body);
	body.uuid.data = (uint8_t *)conn->key.uuid;
	body.uuid.len = UUID_SIZE;
	body.of_passive = !conn->key.passive;
	if (conn->peer->state != PEER_CONNECTED || !peer_send(core, conn->peer, &envelope)) {
		snprintf(request->peer_error, sizeof(request->peer_error),
			"the daemon of %s cannot be reached: %s", conn->peer->host,
			conn->peer->last_error[0] ? conn->peer->last_error : "not connected");
		return;
	}
	request->peer_session = conn->peer->session;
	request->peer_seq = envelope.seq;
	request->deadline_ns = now_ns + PEER_NS;
	snprintf(request->peer_error, sizeof(request->peer_error),
		"the daemon of %s has not answered for a second", conn->peer->host);
}

static const struct conn *conn_of(const struct found_qp *found)
{
	return conn_of_qp(found->session, found->port, found->qp.qpn);
}

static void why_answer(
	struct core *core, struct request *request, const struct found_qp *found, uint64_t now_ns)
{
	const struct conn *conn = conn_of(found);
	struct rows rows;
	Ctl__Report report = CTL__REPORT__INIT;
	Ctl__QpInfo *qp;
	Ctl__ConnInfo *info = NULL;

	rows_init(&rows, core, request, now_ns);
	qp = info_with_drops(&rows, found);
	report.n_qps = 1;
	report.qps = &qp;
	if (conn)
		info = report_conn(&rows, conn);
	report.n_connections = conn ? 1 : 0;
	report.connections = &info;
	if (request->view)
		report.peer_view = request->view->view->qp;
	else
		report.peer_error = (char *)request->peer_error;
	report_finish(&rows, &report);
}

/* The queue pair's own page is new: get the view of the other end. Returns true if it must be
 * awaited. */
static bool why_find_peer(
	struct core *core, struct request *request, const struct found_qp *found, uint64_t now_ns)
{
	const struct conn *conn = conn_of(found), *other;

	request->finds_peer = true;
	if (!conn) {
		copy_text(request->peer_error, sizeof(request->peer_error),
			"it was not connected by frl_connect(): no daemon knows the other end");
		return false;
	}
	if (conn->peer) {
		ask_daemon(core, request, conn, now_ns);
		return request->peer_session != 0;
	}
	other = conns_find(core, conn->key.uuid, !conn->key.passive);
	if (!other || !other->session) {
		copy_text(request->peer_error, sizeof(request->peer_error),
			"the process of the other end has gone");
		return false;
	}
	request->process = other->session;
	request_publish(core, request, now_ns);
	return request->awaited > 0;
}

void why_go_on(struct core *core, struct request *request, uint64_t now_ns)
{
	const struct conn *conn, *other;
	struct found_qp found;

	if (!qp_find(core, request, &found)) {
		request_free(request);
		return;
	}
	/* From now on the request means this queue pair, even if another process gets the same
	 * number. */
	request->query.pid = found.session->who.pid;
	request->query.port = found.port->number;
	if (!request->finds_peer && why_find_peer(core, request, &found, now_ns))
		return;
	conn = conn_of(&found);
	if (request->process && conn && !conn->peer) {
		other = conns_find(core, conn->key.uuid, !conn->key.passive);
		if (other && other->session == request->process)
			view_from_page(core, request, other, now_ns);
	}
	why_answer(core, request, &found, now_ns);
	request_free(request);
}

/* ---- requests of other daemons */

void view_go_on(struct core *core, struct request *request, uint64_t now_ns)
{
	const struct conn *conn = conns_find(core, request->uuid, request->of_passive);

	if (!conn)
		copy_text(request->peer_error, sizeof(request->peer_error),
			"its connection has ended there");
	else
		view_from_page(core, request, conn, now_ns);
	if (request->view)
		session_send(core, request->session, request->view);
	else
		session_fail(
			core, request->session, request->seq, ENOENT, "%s", request->peer_error);
	request_free(request);
}
