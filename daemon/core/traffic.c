/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether data flows while another daemon does not answer. The pages of processes tell when a queue
 * pair has last received a packet. A connection has its own queue pair. Of a job any one of its
 * ranks here counts, with any queue pair over a network: when a rank is gone, collectives stop, and
 * so does what the others receive.
 */
#include <string.h>

#include "daemon/core/internal.h"

#define MS UINT64_C(1000000)

/* On the local fabric there are only peers of this host. */
static bool is_network(const struct port *port)
{
	return port->page.close && strcmp(port->device, "ring") != 0;
}

/* Returns when a queue pair of the port has last received a packet; `qpn` 0: any of them. */
static uint64_t port_received_ns(const struct port *port, uint32_t qpn)
{
	uint32_t slots = page_used_slots(&port->page);
	uint64_t last_ns = 0;
	struct page_qp qp;

	for (uint32_t i = 0; i < slots; i++) {
		if (page_read_qp(&port->page, i, &qp) && (!qpn || qp.qpn == qpn) &&
			qp.last_rx_ns > last_ns)
			last_ns = qp.last_rx_ns;
	}
	return last_ns;
}

bool conn_receives(const struct conn *conn, uint64_t since_ns)
{
	return conn->port && conn->port->page.close &&
		port_received_ns(conn->port, conn->qp_key.qpn) > since_ns;
}

/* All members of a job ask for the same in one call of the core: the answer is kept for that. */
static bool session_receives(const struct core *core, struct session *session, uint64_t since_ns)
{
	if (session->received_at_ns == core->now_ns)
		return session->receives;
	session->received_at_ns = core->now_ns;
	session->receives = false;
	LIST_EACH(const struct port, port, &session->ports, of_session) {
		if (is_network(port) && port_received_ns(port, 0) > since_ns) {
			session->receives = true;
			break;
		}
	}
	return session->receives;
}

/* Are they ranks of one job? */
static bool is_mate(const struct member *member, const struct member *other)
{
	if (member->group || other->group)
		return other->group == member->group;
	return other->peer == member->peer && other->session->uid == member->session->uid &&
		!strcmp(other->job, member->job);
}

bool job_receives(const struct core *core, const struct member *member, uint64_t since_ns)
{
	for (const struct member *other = core->members; other; other = other->hh.next) {
		if (other->session && is_mate(member, other) &&
			session_receives(core, other->session, since_ns))
			return true;
	}
	return false;
}

void traffic_refresh(struct core *core, const struct peer *peer, uint64_t age_ns, uint64_t now_ns)
{
	LIST_EACH(const struct conn, conn, &peer->conns, of_peer) {
		if (conn->session)
			session_request_page(core, conn->session, age_ns, now_ns);
	}
	LIST_EACH(const struct member, member, &peer->members, of_peer) {
		const struct member *other;

		for (other = core->members; other; other = other->hh.next) {
			if (other->session && is_mate(member, other))
				session_request_page(core, other->session, age_ns, now_ns);
		}
	}
}
