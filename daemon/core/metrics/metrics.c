/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Metrics as Prometheus text: https://prometheus.io/docs/instrumenting/exposition_formats/. Each
 * name appears once: help, type, then samples. Names are ferrule_, the object, the unit, and _total
 * for counters.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "daemon/core/metrics/totals.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void header(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP ferrule_%s %s\n# TYPE ferrule_%s %s\n", name, help, name, type);
}

/* Writes a metric without labels. */
static void single(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	header(out, name, type, help);
	fprintf(out, "ferrule_%s %llu\n", name, (unsigned long long)value);
}

static void label(FILE *out, const char *before, const char *name, const char *value)
{
	fprintf(out, "%s%s=\"", before, name);
	for (; *value; value++) {
		if (*value == '\n') {
			fputs("\\n", out);
			continue;
		}
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		fputc(*value, out);
	}
	fputc('"', out);
}

static void sample(FILE *out, const char *name, const char *label_name, const char *label_value,
	uint64_t value)
{
	fprintf(out, "ferrule_%s", name);
	label(out, "{", label_name, label_value);
	fprintf(out, "} %llu\n", (unsigned long long)value);
}

/* ---- ports */

/* Counters that form one metric with a label, by prefix or full name. The rest after a prefix is
 * the value of the label; a full name is used as it is. */
static const struct counter_group {
	const char *start;
	const char *family;
	const char *label;
	const char *help;
} groups[] = {
	{ "drop_", "port_drops", "reason", "Frames and packets dropped, by reason." },
	{ "out_of_sequence", "port_drops", "reason", NULL },
	{ "stale_acks", "port_drops", "reason", NULL },
	{ "naks_sent_", "port_naks_sent", "kind", "Negative acknowledgements sent, by kind." },
	{ "naks_received_", "port_naks_received", "kind",
		"Negative acknowledgements received, by kind." },
};

static const struct {
	const char *name, *what;
} counters[TOTAL_COUNTERS] = {
#define COUNTER_ROW(name, what) { #name, what },
	FRL_COUNTERS(COUNTER_ROW)
#undef COUNTER_ROW
};

static const struct counter_group *group_of(const char *counter)
{
	size_t i;

	for (i = 0; i < COUNT(groups); i++) {
		if (strncmp(counter, groups[i].start, strlen(groups[i].start)) == 0)
			return &groups[i];
	}
	return NULL;
}

static const char *value_of(const struct counter_group *group, const char *counter)
{
	const char *rest = counter + strlen(group->start);

	return *rest ? rest : counter;
}

/* Writes the sum over all ports of one user on one device. */
static void port_sample(FILE *out, const struct total *total, const char *family,
	const struct counter_group *group, size_t counter)
{
	char uid[12] = "other";

	if (total->key.uid != TOTAL_OTHERS)
		snprintf(uid, sizeof(uid), "%u", total->key.uid);
	fprintf(out, "ferrule_%s_total", family);
	label(out, "{", "fabric", total->key.fabric);
	label(out, ",", "device", total->key.device);
	label(out, ",", "uid", uid);
	if (group)
		label(out, ",", group->label, value_of(group, counters[counter].name));
	fprintf(out, "} %llu\n", (unsigned long long)total->counters[counter]);
}

/* The unit of "bytes_placed" moves to the end. */
static void family_name(const char *counter, char *name, size_t size)
{
	static const char bytes[] = "bytes_";

	if (strncmp(counter, bytes, strlen(bytes)) == 0)
		snprintf(name, size, "port_%s_bytes", counter + strlen(bytes));
	else
		snprintf(name, size, "port_%s", counter);
}

static void write_counter(const struct core *core, FILE *out, size_t counter)
{
	const struct total *total;
	char name[64], full[80];

	family_name(counters[counter].name, name, sizeof(name));
	snprintf(full, sizeof(full), "%s_total", name);
	header(out, full, "counter", counters[counter].what);
	for (total = core->totals; total; total = total->hh.next)
		port_sample(out, total, name, NULL, counter);
}

static void write_group(const struct core *core, FILE *out, const struct counter_group *first)
{
	const struct total *total;
	char full[80];
	size_t i;

	snprintf(full, sizeof(full), "%s_total", first->family);
	header(out, full, "counter", first->help);
	for (i = 0; i < TOTAL_COUNTERS; i++) {
		const struct counter_group *group = group_of(counters[i].name);

		if (!group || strcmp(group->family, first->family) != 0)
			continue;
		for (total = core->totals; total; total = total->hh.next)
			port_sample(out, total, group->family, group, i);
	}
}

static void write_counters(const struct core *core, FILE *out)
{
	size_t i;

	for (i = 0; i < TOTAL_COUNTERS; i++) {
		if (!group_of(counters[i].name))
			write_counter(core, out, i);
	}
	for (i = 0; i < COUNT(groups); i++) {
		if (groups[i].help)
			write_group(core, out, &groups[i]);
	}
}

/* ---- sums over a fabric */

struct fabric_sums {
	uint64_t ports;
	uint64_t qps[TOTAL_TYPES][TOTAL_STATES];
	uint64_t waits[TOTAL_WAITS];
};

static void sum_fabric(const struct core *core, const char *fabric, struct fabric_sums *sums)
{
	const struct total *total;
	size_t type, state, wait;

	memset(sums, 0, sizeof(*sums));
	for (total = core->totals; total; total = total->hh.next) {
		if (strcmp(total->key.fabric, fabric) != 0)
			continue;
		sums->ports += total->ports;
		for (type = 0; type < TOTAL_TYPES; type++) {
			for (state = 0; state < TOTAL_STATES; state++)
				sums->qps[type][state] += total->qps[type][state];
		}
		for (wait = 0; wait < TOTAL_WAITS; wait++)
			sums->waits[wait] += total->waits[wait];
	}
}

static void write_ports_of(const struct core *core, FILE *out, const char *fabric)
{
	struct fabric_sums sums;

	sum_fabric(core, fabric, &sums);
	sample(out, "ports", "fabric", fabric, sums.ports);
}

static void write_qps_of(const struct core *core, FILE *out, const char *fabric)
{
	static const char *const types[TOTAL_TYPES] = {
		[FRL_QPT_GSI] = "GSI", [FRL_QPT_RC] = "RC", [FRL_QPT_UC] = "UC", [FRL_QPT_UD] = "UD"
	};
	struct fabric_sums sums;
	size_t type, state;

	sum_fabric(core, fabric, &sums);
	for (type = FRL_QPT_RC; type < TOTAL_TYPES; type++) {
		for (state = 0; state < TOTAL_STATES; state++) {
			fputs("ferrule_queue_pairs", out);
			label(out, "{", "fabric", fabric);
			label(out, ",", "type", types[type]);
			label(out, ",", "state", frl_qp_state_str((enum frl_qp_state)state));
			fprintf(out, "} %llu\n", (unsigned long long)sums.qps[type][state]);
		}
	}
}

static void write_waits_of(const struct core *core, FILE *out, const char *fabric)
{
	static const char *const waits[TOTAL_WAITS] = {
#define WAIT_NAME(name, what, hint) what,
		PAGE_WAITS(WAIT_NAME)
#undef WAIT_NAME
	};
	struct fabric_sums sums;
	size_t wait;

	sum_fabric(core, fabric, &sums);
	for (wait = 0; wait < TOTAL_WAITS; wait++) {
		fputs("ferrule_queue_pairs_waiting", out);
		label(out, "{", "fabric", fabric);
		label(out, ",", "for", waits[wait]);
		fprintf(out, "} %llu\n", (unsigned long long)sums.waits[wait]);
	}
}

static bool is_configured(const struct core *core, const char *fabric)
{
	size_t i;

	if (strcmp(fabric, "local") == 0)
		return true;
	for (i = 0; i < core->config->n_fabrics; i++) {
		if (strcmp(core->config->fabrics[i].name, fabric) == 0)
			return true;
	}
	return false;
}

/* Calls `write` for the local fabric, the configured ones, and former ones that still have sums. */
static void each_fabric(const struct core *core, FILE *out,
	void (*write)(const struct core *core, FILE *out, const char *fabric))
{
	const struct total *total, *earlier;
	size_t i;

	write(core, out, "local");
	for (i = 0; i < core->config->n_fabrics; i++)
		write(core, out, core->config->fabrics[i].name);
	for (total = core->totals; total; total = total->hh.next) {
		if (is_configured(core, total->key.fabric))
			continue;
		for (earlier = core->totals; earlier != total; earlier = earlier->hh.next) {
			if (strcmp(earlier->key.fabric, total->key.fabric) == 0)
				break;
		}
		if (earlier == total)
			write(core, out, total->key.fabric);
	}
}

static void write_leases_of(const struct core *core, FILE *out, const char *fabric)
{
	uint64_t counts[3] = { 0 }; /* in use, resting, free */
	static const char *const states[3] = { "in_use", "resting", "free" };
	size_t i;

	if (strcmp(fabric, "local") == 0)
		return;
	LIST_EACH(const struct lease, lease, &core->leases, node) {
		if (strcmp(lease->fabric, fabric) == 0)
			counts[lease->port ? 0 : 1]++;
	}
	for (i = 0; i < core->config->n_fabrics; i++) {
		const struct config_fabric *config = &core->config->fabrics[i];

		if (strcmp(config->name, fabric) == 0 && config->n_ports > counts[0])
			counts[2] = config->n_ports - counts[0];
	}
	for (i = 0; i < 3; i++) {
		fputs("ferrule_leases", out);
		label(out, "{", "fabric", fabric);
		label(out, ",", "state", states[i]);
		fprintf(out, "} %llu\n", (unsigned long long)counts[i]);
	}
}

static void write_fabrics(const struct core *core, FILE *out)
{
	header(out, "ports", "gauge", "Ports that processes have open.");
	each_fabric(core, out, write_ports_of);
	header(out, "queue_pairs", "gauge", "Queue pairs, by transport type and state.");
	each_fabric(core, out, write_qps_of);
	header(out, "queue_pairs_waiting", "gauge", "Queue pairs, by what they wait for.");
	each_fabric(core, out, write_waits_of);
	header(out, "leases", "gauge",
		"Leases in use, leases that rest (reserved after use), and free ports.");
	each_fabric(core, out, write_leases_of);
}

/* ---- the daemon */

static void write_sessions(const struct core *core, FILE *out)
{
	static const char *const roles[] = { [CTL__ROLE__ROLE_NONE] = "none",
		[CTL__ROLE__ROLE_PROCESS] = "process",
		[CTL__ROLE__ROLE_OPERATOR] = "operator",
		[CTL__ROLE__ROLE_DAEMON] = "daemon" };
	uint64_t counts[COUNT(roles)] = { 0 };
	const struct session *session;
	size_t i;

	for (session = core->sessions; session; session = session->hh.next) {
		if ((size_t)session->role < COUNT(roles))
			counts[session->role]++;
	}
	header(out, "sessions", "gauge",
		"Open sessions, by role of the other end; none: no Hello yet.");
	for (i = 0; i < COUNT(roles); i++)
		sample(out, "sessions", "role", roles[i], counts[i]);
}

static void write_connections(const struct core *core, FILE *out)
{
	static const char *const states[] = { [CONN_REQUESTED] = "requested",
		[CONN_REPLIED] = "replied",
		[CONN_ESTABLISHED] = "established" };
	uint64_t counts[COUNT(states)] = { 0 };
	const struct conn *conn;
	size_t i;

	for (conn = core->conns; conn; conn = conn->hh.next)
		counts[conn->state]++;
	header(out, "connections", "gauge", "Ends of connections on this host, by state.");
	for (i = 0; i < COUNT(states); i++)
		sample(out, "connections", "state", states[i], counts[i]);
}

static void write_peers(const struct core *core, FILE *out)
{
	static const char *const states[] = {
		[PEER_DIALLING] = "dialling", [PEER_CONNECTED] = "connected", [PEER_LOST] = "lost"
	};
	uint64_t counts[COUNT(states)] = { 0 };
	const struct peer *peer;
	size_t i;

	for (peer = core->peers; peer; peer = peer->hh.next)
		counts[peer->state]++;
	header(out, "peers", "gauge", "Daemons of other hosts, by state.");
	for (i = 0; i < COUNT(states); i++)
		sample(out, "peers", "state", states[i], counts[i]);
}

static void write_results(const struct core *core, FILE *out)
{
	const struct core_counters *c = &core->counters;

	single(out, "connects_started_total", "counter", "Connection requests of processes.",
		c->connects);
	header(out, "connects_total", "counter", "Connection requests, by result.");
	sample(out, "connects_total", "result", "established", c->connects_established);
	sample(out, "connects_total", "result", "refused", c->connects_refused);
	sample(out, "connects_total", "result", "timed_out", c->connects_timed_out);
	header(out, "connection_ends_total", "counter",
		"Ends of connections, by cause: closed by a process, process died, host gone, "
		"operator.");
	sample(out, "connection_ends_total", "cause", "closed", c->ends_closed);
	sample(out, "connection_ends_total", "cause", "died", c->ends_died);
	sample(out, "connection_ends_total", "cause", "host_gone", c->ends_host_gone);
	sample(out, "connection_ends_total", "cause", "killed", c->ends_killed);
}

static void write_latency(const struct core *core, FILE *out)
{
	static const char name[] = "connect_duration_seconds";
	const struct core_counters *c = &core->counters;
	unsigned long long sum = 0;
	size_t i;

	header(out, name, "histogram",
		"Time from a process's request to the established connection.");
	for (i = 0; i < LATENCY_BUCKETS; i++) {
		sum += c->latency_count[i];
		fprintf(out, "ferrule_%s_bucket{le=\"%g\"} %llu\n", name, latency_bounds_s[i], sum);
	}
	sum += c->latency_count[LATENCY_BUCKETS];
	fprintf(out, "ferrule_%s_bucket{le=\"+Inf\"} %llu\n", name, sum);
	fprintf(out, "ferrule_%s_sum %.9g\nferrule_%s_count %llu\n", name, c->latency_sum_s, name,
		sum);
}

static void write_daemon(const struct core *core, FILE *out, uint64_t now_ns)
{
	const struct core_counters *c = &core->counters;

	header(out, "build_info", "gauge", "1, with the release as a label.");
	sample(out, "build_info", "version", FERRULE_RELEASE, 1);
	header(out, "uptime_seconds", "gauge", "Since the daemon was started.");
	fprintf(out, "ferrule_uptime_seconds %.3f\n", (double)(now_ns - core->started_ns) / 1e9);
	single(out, "draining", "gauge", "1 while the host accepts no new work.",
		core->draining[0] != '\0');
	single(out, "relearning", "gauge",
		"1 while processes come back after a crash of the daemon.",
		core->relearn_until_ns && now_ns < core->relearn_until_ns);
	single(out, "listeners", "gauge", "Services that processes offer.",
		HASH_COUNT(core->listeners));
	single(out, "groups", "gauge", "Jobs that this daemon keeps.", HASH_COUNT(core->groups));
	single(out, "sessions_opened_total", "counter", "Sessions that were opened.", c->sessions);
	single(out, "sessions_refused_total", "counter", "Sessions refused because of limits.",
		c->sessions_refused);
	single(out, "bad_messages_total", "counter", "Invalid or forbidden messages.",
		c->bad_messages);
	single(out, "leases_granted_total", "counter", "Ports leased.", c->leases);
	single(out, "leases_refused_total", "counter", "Leases refused.", c->leases_refused);
	single(out, "groups_started_total", "counter", "Jobs that this daemon has kept.",
		c->groups);
	single(out, "group_mail_dropped_total", "counter",
		"Mail between ranks dropped because the recipient, or a host on the route, was too "
		"slow.",
		c->mail_dropped);
	single(out, "peers_lost_total", "counter", "Other hosts declared dead.", c->peers_lost);
}

void core_write_metrics(struct core *core, FILE *out, uint64_t now_ns)
{
	totals_update(core);
	write_daemon(core, out, now_ns);
	write_sessions(core, out);
	write_connections(core, out);
	write_peers(core, out);
	write_results(core, out);
	write_latency(core, out);
	write_fabrics(core, out);
	write_counters(core, out);
}
