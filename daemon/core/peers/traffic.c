/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether data flows while another daemon does not answer. Pages show when a queue pair last
 * received a packet. A connection is judged by its own queue pair. A job is judged by all its ranks
 * here and all their queue pairs over a network: when a rank is gone, collectives stop, and the
 * other ranks receive nothing either.
 */
#include <string.h>

#include "daemon/core/internal.h"

/* The local fabric has only peers of this host. */
static bool is_network(const struct port *port)
{
	return port->page.close && strcmp(port->device, "ring") != 0;
}

/* Records when data last arrived, for the process and its connections, from the port's page. A time
 * in the future is forged and would keep a connection for ever: it is ignored. */
static void read_port(const struct core *core, struct session *session, const struct port *port)
{
	uint32_t slots = page_used_slots(&port->page);
	struct page_qp qp;

	for (uint32_t i = 0; i < slots; i++) {
		struct conn *conn;

		if (!page_read_qp(&port->page, i, &qp) || qp.last_rx_ns > core->now_ns)
			continue;
		if (qp.last_rx_ns > session->received_ns)
			session->received_ns = qp.last_rx_ns;
		conn = conn_of_qp(session, port, qp.qpn);
		if (conn && qp.last_rx_ns > conn->received_ns)
			conn->received_ns = qp.last_rx_ns;
	}
}

/* Reads the pages of a process once in each call of the core, for all its connections and ranks. A
 * page has thousands of slots, and other users wait meanwhile. */
static void read_pages(const struct core *core, struct session *session)
{
	if (session->read_at_ns == core->now_ns)
		return;
	session->read_at_ns = core->now_ns;
	LIST_EACH(const struct port, port, &session->ports, of_session) {
		if (is_network(port))
			read_port(core, session, port);
	}
}

bool conn_receives(const struct core *core, const struct conn *conn, uint64_t since_ns)
{
	if (!conn->session || conn->state != CONN_ESTABLISHED || !conn->peer->up_ns)
		return false;
	read_pages(core, conn->session);
	return conn->received_ns > since_ns;
}

static bool session_receives(const struct core *core, struct session *session, uint64_t since_ns)
{
	read_pages(core, session);
	return session->received_ns > since_ns;
}

/* Returns true if both are ranks of one job. */
static bool is_same_job(const struct member *member, const struct member *other)
{
	if (member->group || other->group)
		return other->group == member->group;
	return other->peer == member->peer && other->session->uid == member->session->uid &&
		!strcmp(other->job, member->job);
}

bool job_receives(const struct core *core, const struct member *member, uint64_t since_ns)
{
	if (!member->peer->up_ns)
		return false;
	for (const struct member *other = core->members; other; other = other->hh.next) {
		if (other->session && is_same_job(member, other) &&
			session_receives(core, other->session, since_ns))
			return true;
	}
	return false;
}

static void refresh(struct core *core, struct session *session, uint64_t age_ns, uint64_t now_ns)
{
	if (session->refreshed_ns == now_ns)
		return;
	session->refreshed_ns = now_ns;
	session_request_page(core, session, age_ns, now_ns);
}

void traffic_refresh(struct core *core, const struct peer *peer, uint64_t age_ns, uint64_t now_ns)
{
	LIST_EACH(const struct conn, conn, &peer->conns, of_peer) {
		if (conn->session)
			refresh(core, conn->session, age_ns, now_ns);
	}
	LIST_EACH(const struct member, member, &peer->members, of_peer) {
		const struct member *other;

		for (other = core->members; other; other = other->hh.next) {
			if (other->session && is_same_job(member, other))
				refresh(core, other->session, age_ns, now_ns);
		}
	}
}
