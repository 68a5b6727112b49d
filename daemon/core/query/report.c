/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of `ferrulectl ports|qps|connections|peers|stats`, as far as the user may see them. */
#include "daemon/core/query/query.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/leases/leases.h"

static bool is_mine(const struct rows *rows, const struct session *session)
{
	return session && session->kind == CORE_LOCAL && !session->lost &&
		may_see(rows->request->session, session->uid);
}

static bool is_asked(const struct rows *rows, const struct session *session)
{
	return is_mine(rows, session) &&
		(!rows->request->query.pid || rows->request->query.pid == session->who.pid);
}

/* ---- ports */

static char *mac_text(struct rows *rows, const uint8_t mac[6])
{
	return rows_text(rows, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
		mac[4], mac[5]);
}

size_t report_counters(
	struct rows *rows, const struct page *page, const char *prefix, Ctl__Counter ***ret_list)
{
	uint32_t count = page->counters, i;
	Ctl__Counter *counters, **list;
	size_t n = 0;

	if (count > PAGE_COUNTERS)
		count = PAGE_COUNTERS;
	counters = rows_alloc(rows, count * sizeof(*counters));
	list = rows_alloc(rows, count * sizeof(*list));
	if (!counters || !list)
		return 0;
	for (i = 0; i < count; i++) {
		char name[PAGE_COUNTER_NAME];

		memcpy(name, page->counter[i].name, sizeof(name));
		name[sizeof(name) - 1] = '\0';
		if (strncmp(name, prefix, strlen(prefix)) != 0)
			continue;
		ctl__counter__init(&counters[n]);
		counters[n].name = rows_text(rows, "%s", name);
		counters[n].value = page->counter[i].value;
		list[n] = &counters[n];
		n++;
	}
	*ret_list = list;
	return n;
}

static void add_lease(struct rows *rows, Ctl__PortInfo *info, const struct lease *lease)
{
	info->lease_id = lease->id;
	info->lease_age_s = rows_age_s(rows, lease->since_ns);
	info->qpn_first = lease->qpn_first;
	info->qpn_count = lease->qpn_count;
}

static uint32_t count_qps(struct rows *rows, struct port *port)
{
	uint32_t slots = qp_slots(rows->core, port), qps = 0, i;
	struct page_qp qp;

	for (i = 0; i < slots; i++) {
		if (page_read_qp(&port->page, i, &qp) && qp.qpn)
			qps++;
	}
	rows_count(rows, slots);
	return qps;
}

static void add_port(struct rows *rows, struct port *port)
{
	const struct session *session = port->session;
	Ctl__PortInfo *info = rows_alloc(rows, sizeof(*info));
	struct page head;
	uint32_t i;

	if (!info)
		return;
	ctl__port_info__init(info);
	info->pid = session->who.pid;
	info->uid = session->uid;
	info->program = rows_text(rows, "%s", session->who.program);
	info->port = port->number;
	info->fabric = rows_text(rows, "%s", port->fabric[0] ? port->fabric : "local");
	info->device = rows_text(rows, "%s", port->device);
	info->state = (char *)(port->described ? "open" : "opening");
	info->published_age_s = -1;
	info->lease_age_s = rows_age_s(rows, port->since_ns);
	if (port->described) {
		info->mac = mac_text(rows, port->mac);
		info->path_mtu = port->path_mtu;
		info->addresses = rows_alloc(rows, 4 * sizeof(*info->addresses));
		for (i = 0; info->addresses && i < port->n_addresses && i < 4; i++)
			info->addresses[info->n_addresses++] = rows_text(
				rows, "%s", port->addresses[i]);
	}
	if (port->lease)
		add_lease(rows, info, port->lease);
	if (port->page.close && page_read_head(&port->page, &head)) {
		info->qps = count_qps(rows, port);
		info->published_age_s = rows_age_s(rows, atomic_load(&head.published_ns));
		info->n_counters = report_counters(rows, &head, "", &info->counters);
	}
	rows_add(rows, &info->base);
}

/* Adds a lease whose address rests. */
static void add_held(struct rows *rows, const struct lease *lease)
{
	Ctl__PortInfo *info = rows_alloc(rows, sizeof(*info));
	uint32_t i;

	if (!info)
		return;
	ctl__port_info__init(info);
	info->fabric = rows_text(rows, "%s", lease->fabric);
	info->device = rows_text(rows, "%s", lease->devargs ? lease->devargs : "");
	info->state = (char *)"held";
	info->published_age_s = -1;
	add_lease(rows, info, lease);
	if (lease->has_mac)
		info->mac = mac_text(rows, lease->mac);
	info->addresses = rows_alloc(rows, 4 * sizeof(*info->addresses));
	for (i = 0; info->addresses && i < lease->n_addresses && i < 4; i++)
		info->addresses[info->n_addresses++] = ip_text(rows, &lease->addresses[i]);
	rows_add(rows, &info->base);
}

/* Visits the requested ports from the end of the previous part on. Returns false at the end of this
 * part. Sessions are ordered by number. */
static bool each_port(
	struct rows *rows, struct report_at *at, bool (*visit)(struct rows *, struct port *))
{
	struct session *session, *next;

	HASH_ITER(hh, rows->core->sessions, session, next)
	{
		uint32_t number = 0;

		if (!is_asked(rows, session) || session->id < at->session)
			continue;
		if (session->id > at->session)
			*at = (struct report_at){ .session = session->id };
		LIST_EACH(struct port, port, &session->ports, of_session) {
			if (number++ < at->port)
				continue;
			if (!visit(rows, port))
				return false;
			at->port = number;
			at->slot = 0;
		}
	}
	at->session = UINT64_MAX;
	return true;
}

static bool visit_port(struct rows *rows, struct port *port)
{
	if (rows->is_full)
		return false;
	add_port(rows, port);
	return true;
}

static void report_ports(struct rows *rows)
{
	struct report_at *at = &rows->request->at;

	if (!each_port(rows, at, visit_port) || !rows->request->session->is_operator ||
		rows->request->query.pid)
		return;
	LIST_EACH(const struct lease, lease, &rows->core->leases, node) {
		if (rows->is_full)
			break;
		if (lease->port || lease->id <= at->lease)
			continue;
		add_held(rows, lease);
		at->lease = lease->id;
	}
}

/* ---- queue pairs */

static bool visit_qps(struct rows *rows, struct port *port)
{
	const Ctl__Query *query = &rows->request->query;
	struct found_qp found = { .session = port->session, .port = port };
	uint32_t slots = qp_slots(rows->core, port), *slot = &rows->request->at.slot;

	if (query->port && query->port != port->number)
		return true;
	for (; *slot < slots; (*slot)++) {
		Ctl__QpInfo *info;

		if (rows->is_full)
			return false;
		rows_count(rows, 1);
		if (!page_read_qp(&port->page, *slot, &found.qp) ||
			(query->qpn && found.qp.qpn != query->qpn))
			continue;
		info = qp_info(rows, &found);
		if (info)
			rows_add(rows, &info->base);
	}
	return true;
}

static void report_qps(struct rows *rows)
{
	each_port(rows, &rows->request->at, visit_qps);
}

/* ---- connections and peers */

Ctl__ConnInfo *report_conn(struct rows *rows, const struct conn *conn)
{
	static const char *const names[] = {
		[CONN_REQUESTED] = "requested",
		[CONN_REPLIED] = "replied",
		[CONN_ESTABLISHED] = "established",
	};
	Ctl__ConnInfo *info = rows_alloc(rows, sizeof(*info));
	int i;

	if (!info)
		return NULL;
	ctl__conn_info__init(info);
	info->uuid = rows_alloc(rows, 2 * UUID_SIZE + 1);
	if (!info->uuid)
		return NULL;
	for (i = 0; i < UUID_SIZE; i++)
		snprintf(info->uuid + 2 * i, 3, "%02x", conn->key.uuid[i]);
	info->passive = conn->key.passive != 0;
	info->state = (char *)(conn->session ? names[conn->state] : "not resumed");
	if (conn->session) {
		info->pid = conn->session->who.pid;
		info->uid = conn->session->uid;
		info->program = rows_text(rows, "%s", conn->session->who.program);
	}
	info->service = rows_text(rows, "%s", conn->service);
	info->peer_host = rows_text(
		rows, "%s", conn->other.host[0] ? conn->other.host : rows->core->config->host);
	if (!conn->other.host[0] && conn->peer)
		info->peer_host = rows_text(rows, "%s", conn->peer->host);
	info->peer_program = rows_text(rows, "%s", conn->other.program);
	info->peer_pid = conn->other.pid;
	info->qpn = conn->qpn;
	info->peer_qpn = conn->peer_qpn;
	info->age_s = rows_age_s(rows, conn->since_ns);
	return info;
}

static bool is_my_conn(const struct rows *rows, const struct conn *conn)
{
	if (!conn->session)
		return rows->request->session->is_operator;
	return is_mine(rows, conn->session);
}

static void report_conns(struct rows *rows)
{
	const Ctl__Query *query = &rows->request->query;
	uint64_t *at = &rows->request->at.conn;
	struct conn *conn;

	for (conn = rows->core->conns; conn && !rows->is_full; conn = conn->hh.next) {
		Ctl__ConnInfo *info;

		if (conn->number <= *at)
			continue;
		*at = conn->number;
		if (!is_my_conn(rows, conn) || (query->qpn && query->qpn != conn->qpn) ||
			(query->pid && (!conn->session || conn->session->who.pid != query->pid)))
			continue;
		info = report_conn(rows, conn);
		if (info)
			rows_add(rows, &info->base);
	}
}

static uint32_t count_conns(const struct rows *rows, const struct peer *peer)
{
	uint32_t count = 0;

	LIST_EACH(const struct conn, conn, &peer->conns, of_peer) {
		count += is_my_conn(rows, conn);
	}
	return count;
}

/* Users who are not operators see the hosts of their own connections only. */
static void report_peers(struct rows *rows)
{
	static const char *const names[] = {
		[PEER_DIALLING] = "dialling",
		[PEER_CONNECTED] = "connected",
		[PEER_LOST] = "lost",
	};
	struct core *core = rows->core;
	struct peer *peer, *next;

	HASH_ITER(hh, core->peers, peer, next)
	{
		const struct session *session = session_find(core, peer->session);
		uint32_t conns = count_conns(rows, peer);
		Ctl__PeerInfo *info;

		if (peer->is_self || (!conns && !rows->request->session->is_operator))
			continue;
		info = rows_alloc(rows, sizeof(*info));
		if (!info)
			break;
		ctl__peer_info__init(info);
		info->host = rows_text(rows, "%s", peer->name[0] ? peer->name : peer->host);
		info->address = peer->port ? rows_text(rows, "%s:%u", peer->host, peer->port)
					   : rows_text(rows, "%s", peer->host);
		info->state = (char *)names[peer->state];
		info->release = rows_text(rows, "%s", peer->release);
		info->connections = conns;
		info->silent_s = rows_age_s(rows, peer->last_rx_ns);
		info->rtt_us = (double)peer->rtt_ns / 1e3;
		info->last_error = rows_text(rows, "%s", peer->last_error);
		if (session && session->tls) {
			info->tls = true;
			info->certificate = rows_text(rows, "%s", peer->name);
		}
		rows_add(rows, &info->base);
	}
	rows->is_full = false; /* they are few: in one part */
}

/* ---- the daemon */

static void count_things(struct rows *rows, Ctl__DaemonInfo *info)
{
	struct core *core = rows->core;
	struct session *session, *next;
	struct conn *conn, *next_conn;

	HASH_ITER(hh, core->sessions, session, next)
	{
		if (!is_mine(rows, session))
			continue;
		if (session->role == CTL__ROLE__ROLE_PROCESS)
			info->processes++;
		info->ports += list_length(&session->ports);
		info->listeners += list_length(&session->listeners);
	}
	HASH_ITER(hh, core->conns, conn, next_conn)
	{
		info->connections += is_my_conn(rows, conn);
	}
}

static void add_counters(struct rows *rows, Ctl__DaemonInfo *info)
{
	const struct core_counters *of = &rows->core->counters;
	const struct {
		const char *name;
		uint64_t value;
	} all[] = {
		{ "sessions", of->sessions },
		{ "sessions_refused", of->sessions_refused },
		{ "bad_messages", of->bad_messages },
		{ "leases", of->leases },
		{ "leases_refused", of->leases_refused },
		{ "connects", of->connects },
		{ "connects_established", of->connects_established },
		{ "connects_refused", of->connects_refused },
		{ "connects_timed_out", of->connects_timed_out },
		{ "ends_closed", of->ends_closed },
		{ "ends_died", of->ends_died },
		{ "ends_host_gone", of->ends_host_gone },
		{ "ends_killed", of->ends_killed },
		{ "groups", of->groups },
		{ "peers_lost", of->peers_lost },
	};
	size_t count = sizeof(all) / sizeof(all[0]), i;
	Ctl__Counter *counters = rows_alloc(rows, count * sizeof(*counters));

	info->counters = rows_alloc(rows, count * sizeof(*info->counters));
	if (!counters || !info->counters)
		return;
	for (i = 0; i < count; i++) {
		ctl__counter__init(&counters[i]);
		counters[i].name = (char *)all[i].name;
		counters[i].value = all[i].value;
		info->counters[i] = &counters[i];
	}
	info->n_counters = count;
}

static char *fabric_text(struct rows *rows, const struct config_fabric *fabric)
{
	char *text = rows_text(rows, "%s", fabric->name);
	size_t i;

	for (i = 0; i < fabric->n_ports; i++)
		text = rows_text(rows, "%.500s %.500s", text, fabric->ports[i].devargs);
	return text;
}

/* Adds figures of the whole host, for operators only. */
static void add_operators_part(struct rows *rows, Ctl__DaemonInfo *info)
{
	struct core *core = rows->core;

	info->peers = HASH_COUNT(core->peers);
	info->groups = HASH_COUNT(core->groups);
	info->metrics = rows_text(rows, "%s", core->facts.metrics ? core->facts.metrics : "");
	info->config = rows_text(rows, "%s", core->config->path ? core->config->path : "");
	add_counters(rows, info);
}

Ctl__DaemonInfo *report_daemon(struct rows *rows, bool is_last)
{
	struct core *core = rows->core;
	Ctl__DaemonInfo *info = rows_alloc(rows, sizeof(*info));
	size_t i;

	if (!info)
		return NULL;
	ctl__daemon_info__init(info);
	info->host = rows_text(rows, "%s", core->config->host ? core->config->host : "");
	info->release = (char *)FERRULE_RELEASE;
	info->pid = (uint32_t)core->facts.pid;
	info->uptime_s = rows_age_s(rows, core->started_ns);
	info->is_private = core->facts.is_private;
	info->draining = rows_text(rows, "%s", core->draining);
	info->socket = rows_text(rows, "%s", core->facts.socket ? core->facts.socket : "");
	/* Any process may need to pass this address to its job on other hosts. */
	info->listen = rows_text(rows, "%s", core->facts.listen ? core->facts.listen : "");
	if (!is_last)
		return info;
	count_things(rows, info);
	info->fabrics = rows_alloc(rows, core->config->n_fabrics * sizeof(*info->fabrics));
	for (i = 0; info->fabrics && i < core->config->n_fabrics; i++)
		info->fabrics[info->n_fabrics++] = fabric_text(rows, &core->config->fabrics[i]);
	if (rows->request->session->is_operator)
		add_operators_part(rows, info);
	return info;
}

static void report_rows(struct rows *rows)
{
	enum _Ctl__QueryKind kind = rows->request->query.kind;

	switch ((int)kind) {
	case CTL__QUERY_KIND__QUERY_STATS: /* includes counters of ports */
		kind = CTL__QUERY_KIND__QUERY_PORTS;
		report_ports(rows);
		break;
	case CTL__QUERY_KIND__QUERY_PORTS: report_ports(rows); break;
	case CTL__QUERY_KIND__QUERY_QPS: report_qps(rows); break;
	case CTL__QUERY_KIND__QUERY_CONNECTIONS: report_conns(rows); break;
	case CTL__QUERY_KIND__QUERY_PEERS: report_peers(rows); break;
	}
	rows_flush(rows, kind);
}

void report_finish(struct rows *rows, Ctl__Report *report)
{
	const struct request *request = rows->request;

	report->daemon = report_daemon(rows, true);
	if (rows->no_memory)
		session_fail(rows->core, request->session, request->seq, ENOMEM, "no memory");
	else
		session_send(rows->core, request->session,
			&ENVELOPE(request->seq, REPORT, report, report));
	rows_fini(rows);
}

bool report_send(struct core *core, struct request *request, uint64_t now_ns)
{
	Ctl__Report report = CTL__REPORT__INIT;
	struct rows rows;

	rows_init(&rows, core, request, now_ns);
	report_rows(&rows);
	if (rows.is_full && !rows.no_memory) {
		rows_fini(&rows);
		return false;
	}
	report_finish(&rows, &report);
	return true;
}
