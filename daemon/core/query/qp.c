/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs, as the pages of their processes show them. Pages are not trusted. */
#include "daemon/core/query/query.h"

#include <errno.h>
#include <string.h>

#include "lib/base/net/ip.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const type_names[] = { "", "GSI", "RC", "UC", "UD" };
static const char *const state_names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
static const char *const wait_names[] = {
#define WAIT_NAME(name, what, hint) what,
	PAGE_WAITS(WAIT_NAME)
#undef WAIT_NAME
};

/* Adds slots of the port to its user's usage, up to the limit. */
static void take_slots(struct core *core, struct port *port, uint32_t more)
{
	struct user *user = port->session->user;
	uint32_t max = user->uid ? core->config->max_qps_per_user : UINT32_MAX;
	uint32_t left = max > user->usage.slots ? max - user->usage.slots : 0;

	if (more > left && !user->lacks_slots)
		core_say(core, CORE_LOG_WARNING,
			"user %u has more queue pairs than the %u that are reported "
			"(max_qps_per_user)",
			(unsigned)user->uid, max);
	user->lacks_slots = user->lacks_slots || more > left;
	if (more > left)
		more = left;
	port->slots += more;
	user->usage.slots += more;
}

uint32_t qp_slots(struct core *core, struct port *port)
{
	uint32_t used = port->page.close ? page_used_slots(&port->page) : 0;

	/* Slots are never given back: otherwise a user could exceed the limit by moving them
	 * between ports. */
	if (used > port->slots)
		take_slots(core, port, used - port->slots);
	return used < port->slots ? used : port->slots;
}

bool qp_of_port(struct core *core, struct port *port, uint32_t qpn, struct page_qp *ret)
{
	uint32_t slots = qp_slots(core, port), i;

	for (i = 0; qpn && i < slots; i++) {
		if (page_read_qp(&port->page, i, ret) && ret->qpn == qpn)
			return true;
	}
	return false;
}

static char *name_of(const char *const *names, size_t count, unsigned value)
{
	return (char *)(value < count ? names[value] : "?");
}

char *ip_text(struct rows *rows, const struct frl_ip *ip)
{
	static const struct frl_ip none;

	return rows_text(rows, "%s", memcmp(ip, &none, sizeof(none)) == 0 ? "" : format_ip(ip));
}

static void add_counters(Ctl__QpInfo *info, const struct page_qp *qp)
{
	info->tx_packets = qp->tx_packets;
	info->tx_bytes = qp->tx_bytes;
	info->rx_packets = qp->rx_packets;
	info->rx_bytes = qp->rx_bytes;
	info->retransmits = qp->retransmits;
	info->timeouts = qp->timeouts;
	info->rnr_received = qp->rnr_received;
	info->rnr_sent = qp->rnr_sent;
}

static void add_waiting(struct rows *rows, Ctl__QpInfo *info, const struct page_qp *qp)
{
	bool waits = qp->wait != PAGE_WAIT_NOTHING;

	info->waits_for = name_of(wait_names, COUNT(wait_names), qp->wait);
	info->waiting_s = waits && qp->waiting_since_ns ? rows_age_s(rows, qp->waiting_since_ns)
							: 0;
	info->deadline_ms = -1;
	if (qp->deadline_ns > rows->now_ns)
		info->deadline_ms = (double)(qp->deadline_ns - rows->now_ns) / 1e6;
	else if (qp->deadline_ns)
		info->deadline_ms = 0;
	info->retries_left = qp->retries_left;
	info->rnr_retries_left = qp->rnr_retries_left;
	info->lossless = qp->lossless;
	info->timeout_ms_total = qp->give_up_ns / 1000000 > UINT32_MAX
		? UINT32_MAX
		: (uint32_t)(qp->give_up_ns / 1000000);
}

/* Adds nothing for a process in several jobs: any of them may use the queue pair. */
static void add_job(struct rows *rows, Ctl__QpInfo *info, const struct session *session)
{
	const struct member *member;

	if (list_length(&session->members) != 1)
		return;
	member = container_of(session->members.next, struct member, of_session);
	/* The key of a group is USER/JOB. If another daemon keeps the group, the member has the
	 * name of the job. */
	info->job = rows_text(
		rows, "%s", member->group ? strchr(member->group->key, '/') + 1 : member->job);
	info->rank = rows_text(rows, "%u", member->rank);
}

Ctl__QpInfo *qp_info(struct rows *rows, const struct found_qp *found)
{
	const struct session *session = found->session;
	const struct page_qp *qp = &found->qp;
	const struct conn *conn = conn_of_qp(session, found->port, qp->qpn);
	Ctl__QpInfo *info = rows_alloc(rows, sizeof(*info));
	char error[PAGE_REASON];
	struct frl_ip peer_ip;

	if (!info)
		return NULL;
	ctl__qp_info__init(info);
	memcpy(peer_ip.bytes, qp->remote_ip, sizeof(peer_ip.bytes));
	info->pid = session->who.pid;
	info->uid = session->uid;
	info->program = rows_text(rows, "%s", session->who.program);
	info->port = found->port->number;
	info->qpn = qp->qpn;
	info->type = name_of(type_names, COUNT(type_names), qp->type);
	info->state = name_of(state_names, COUNT(state_names), qp->state);
	info->peer_ip = ip_text(rows, &peer_ip);
	info->peer_qpn = qp->dest_qpn;
	if (conn) {
		info->peer_host = rows_text(rows, "%s",
			conn->other.host[0] ? conn->other.host : rows->core->config->host);
		info->service = rows_text(rows, "%s", conn->service);
	} else if (qp->peer_rank) {
		info->peer_rank = rows_text(rows, "%u", qp->peer_rank - 1);
		info->peer_host = rows_text(rows, "%s", qp->peer_host);
	}
	add_job(rows, info, session);
	info->path_mtu = qp->path_mtu;
	info->send_psn = qp->send_psn & 0xffffff;
	info->acked_psn = qp->acked_psn & 0xffffff;
	info->recv_psn = qp->recv_psn & 0xffffff;
	info->outstanding_packets = (qp->send_psn - qp->acked_psn) & 0xffffff;
	info->send_queue = qp->send_queue;
	info->recv_queue = qp->recv_queue;
	add_counters(info, qp);
	info->rtt_us = (double)qp->rtt_ns / 1e3;
	add_waiting(rows, info, qp);
	memcpy(error, qp->error, sizeof(error));
	error[sizeof(error) - 1] = '\0';
	info->last_error = rows_text(rows, "%s", error);
	info->last_error_age_s = error[0] ? rows_age_s(rows, qp->error_ns) : 0;
	info->published_age_s = rows_age_s(rows, page_published_ns(&found->port->page));
	info->idle_rx_s = rows_age_s(rows, qp->last_rx_ns);
	info->idle_tx_s = rows_age_s(rows, qp->last_tx_ns);
	return info;
}

/* ---- search */

struct search {
	struct found_qp found;
	unsigned count;
	char where[300]; /* processes and ports with this number */
};

static void search_session(struct core *core, const struct request *request,
	struct session *session, struct search *search)
{
	LIST_EACH(struct port, port, &session->ports, of_session) {
		struct page_qp qp;
		size_t length = strlen(search->where);

		if (request->query.port && request->query.port != port->number)
			continue;
		if (!qp_of_port(core, port, request->query.qpn, &qp))
			continue;
		if (search->count++ == 0) {
			search->found.session = session;
			search->found.port = port;
			search->found.qp = qp;
		}
		snprintf(search->where + length, sizeof(search->where) - length,
			"%s%u (%.20s, port %u)", length ? ", " : "", session->who.pid,
			session->who.program, port->number);
	}
}

bool qp_find(struct core *core, const struct request *request, struct found_qp *ret)
{
	const struct session *asks = request->session;
	struct session *session, *next;
	struct search search = { .count = 0 };

	HASH_ITER(hh, core->sessions, session, next)
	{
		/* Do not reveal that another user has such a queue pair. */
		if (session->kind == CORE_LOCAL && !session->lost && may_see(asks, session->uid) &&
			(!request->query.pid || request->query.pid == session->who.pid))
			search_session(core, request, session, &search);
	}
	if (search.count == 1) {
		*ret = search.found;
		return true;
	}
	if (search.count)
		session_fail(core, asks, request->seq, EINVAL,
			"%u processes or ports have a queue pair %u; say which with --pid (and "
			"--port): %s",
			search.count, request->query.qpn, search.where);
	else
		session_fail(core, asks, request->seq, ENOENT,
			request->query.pid ? "process %2$u has no queue pair %1$u that you may see"
					   : "no process has a queue pair %u that you may see",
			request->query.qpn, request->query.pid);
	return false;
}
