/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/show.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/json.h"
#include "daemon/ctl/table.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct column port_columns[] = {
	{ "PID", "pid", CELL_NUMBER, KEEP_ALWAYS, false },
	{ "PROGRAM", "program", CELL_TEXT, 70, false },
	{ "UID", "uid", CELL_NUMBER, 20, false },
	{ "PORT", "port", CELL_NUMBER, 30, false },
	{ "FABRIC", "fabric", CELL_TEXT, 90, false },
	{ "STATE", "state", CELL_TEXT, 80, false },
	{ "DEVICE", "device", CELL_TEXT, 40, false },
	{ "ADDRESS", "addresses", CELL_TEXT, 95, false },
	{ "MAC", "mac", CELL_TEXT, 50, false },
	{ "MTU", "path_mtu", CELL_NUMBER, 45, false },
	{ "QPS", "qps", CELL_NUMBER, 85, false },
	{ "QPN FIRST", "qpn_first", CELL_NUMBER, 0, false },
	{ "QPNS", "qpn_count", CELL_NUMBER, 0, false },
	{ "AGE", "lease_age_s", CELL_AGE, 35, false },
	{ "PUBLISHED", "published_age_s", CELL_AGE, 0, false },
};

static const struct column qp_columns[] = {
	{ "QPN", "qpn", CELL_NUMBER, KEEP_ALWAYS, false },
	{ "PID", "pid", CELL_NUMBER, 95, false },
	{ "PROGRAM", "program", CELL_TEXT, 40, false },
	{ "UID", "uid", CELL_NUMBER, 0, false },
	{ "PORT", "port", CELL_NUMBER, 0, false },
	{ "TYPE", "type", CELL_TEXT, 50, false },
	{ "STATE", "state", CELL_TEXT, 99, false },
	{ "PEER", "peer_ip", CELL_TEXT, 65, false },
	{ "PEER QPN", "peer_qpn", CELL_NUMBER, 60, false },
	{ "HOST", "peer_host", CELL_TEXT, 30, false },
	{ "SERVICE", "service", CELL_TEXT, 28, false },
	{ "JOB", "job", CELL_TEXT, 27, false },
	{ "RANK", "rank", CELL_TEXT, 32, false },
	{ "PEER RANK", "peer_rank", CELL_TEXT, 31, false },
	{ "WAITS FOR", "waits_for", CELL_TEXT, 85, false },
	{ "SINCE", "waiting_s", CELL_AGE, 58, false },
	{ "OUT", "outstanding_packets", CELL_COUNT, 55, false },
	{ "TX", "tx_bytes", CELL_BYTES, 80, true },
	{ "RX", "rx_bytes", CELL_BYTES, 79, true },
	{ "TX PKT", "tx_packets", CELL_COUNT, 22, true },
	{ "RX PKT", "rx_packets", CELL_COUNT, 21, true },
	{ "RETX", "retransmits", CELL_COUNT, 75, true },
	{ "TIMEOUTS", "timeouts", CELL_COUNT, 20, true },
	{ "RNR RX", "rnr_received", CELL_COUNT, 18, true },
	{ "RNR TX", "rnr_sent", CELL_COUNT, 17, true },
	{ "RTT", "rtt_us", CELL_MICROS, 45, false },
	{ "MTU", "path_mtu", CELL_NUMBER, 15, false },
	{ "SQ", "send_queue", CELL_COUNT, 14, false },
	{ "RQ", "recv_queue", CELL_COUNT, 13, false },
	{ "SEND PSN", "send_psn", CELL_PSN, 0, false },
	{ "ACKED", "acked_psn", CELL_PSN, 0, false },
	{ "RECV PSN", "recv_psn", CELL_PSN, 0, false },
	{ "IDLE RX", "idle_rx_s", CELL_AGE, 0, false },
	{ "IDLE TX", "idle_tx_s", CELL_AGE, 0, false },
	{ "PUBLISHED", "published_age_s", CELL_AGE, 0, false },
	{ "LAST ERROR", "last_error", CELL_TEXT, 10, false },
};

static const struct column conn_columns[] = {
	{ "QPN", "qpn", CELL_NUMBER, KEEP_ALWAYS, false },
	{ "PID", "pid", CELL_NUMBER, 95, false },
	{ "PROGRAM", "program", CELL_TEXT, 40, false },
	{ "UID", "uid", CELL_NUMBER, 0, false },
	{ "STATE", "state", CELL_TEXT, 99, false },
	{ "SERVICE", "service", CELL_TEXT, 90, false },
	{ "PASSIVE", "passive", CELL_YES, 50, false },
	{ "PEER HOST", "peer_host", CELL_TEXT, 92, false },
	{ "PEER PROGRAM", "peer_program", CELL_TEXT, 30, false },
	{ "PEER PID", "peer_pid", CELL_NUMBER, 60, false },
	{ "PEER QPN", "peer_qpn", CELL_NUMBER, 70, false },
	{ "AGE", "age_s", CELL_AGE, 65, false },
	{ "UUID", "uuid", CELL_TEXT, 0, false },
};

static const struct column peer_columns[] = {
	{ "HOST", "host", CELL_TEXT, KEEP_ALWAYS, false },
	{ "ADDRESS", "address", CELL_TEXT, 80, false },
	{ "STATE", "state", CELL_TEXT, 99, false },
	{ "TLS", "tls", CELL_YES, 70, false },
	{ "CERTIFICATE", "certificate", CELL_TEXT, 20, false },
	{ "RELEASE", "release", CELL_TEXT, 30, false },
	{ "CONNS", "connections", CELL_COUNT, 90, false },
	{ "SILENT", "silent_s", CELL_AGE, 60, false },
	{ "RTT", "rtt_us", CELL_MICROS, 50, false },
	{ "LAST ERROR", "last_error", CELL_TEXT, 40, false },
};

static const struct column counter_columns[] = {
	{ "COUNTER", "name", CELL_TEXT, KEEP_ALWAYS, false },
	{ "VALUE", "value", CELL_COUNT, KEEP_ALWAYS, true },
};

struct show {
	const char *name;
	Ctl__QueryKind kind;
	const struct column *columns;
	size_t n_columns;
	const char *none; /* text if there is no row; or NULL */
};

static const struct show shows[] = {
	{ "ports", CTL__QUERY_KIND__QUERY_PORTS, port_columns, COUNT(port_columns),
		"No process of yours has a port." },
	{ "qps", CTL__QUERY_KIND__QUERY_QPS, qp_columns, COUNT(qp_columns),
		"No process of yours has a queue pair." },
	{ "connections", CTL__QUERY_KIND__QUERY_CONNECTIONS, conn_columns, COUNT(conn_columns),
		"No process of yours has a connection." },
	{ "peers", CTL__QUERY_KIND__QUERY_PEERS, peer_columns, COUNT(peer_columns),
		"No other host is connected." },
	{ "stats", CTL__QUERY_KIND__QUERY_STATS, counter_columns, COUNT(counter_columns), NULL },
};

const struct show *show_find(const char *name)
{
	size_t i;

	for (i = 0; i < COUNT(shows); i++) {
		if (strcmp(shows[i].name, name) == 0)
			return &shows[i];
	}
	return NULL;
}

const char *show_name(const struct show *show)
{
	return show->name;
}

int show_ask(const struct show *show, struct link *link, uint32_t qpn, uint32_t pid,
	struct answer *answer)
{
	Ctl__Query query = CTL__QUERY__INIT;

	query.kind = show->kind;
	query.qpn = qpn;
	query.pid = pid;
	return link_ask(link, &ENVELOPE(0, QUERY, query, &query), answer);
}

/* ---- rows in order */

/* Compares the identity of two rows, which is the same in later reports. */
static int compare(const json_t *a, const json_t *b)
{
	static const char *const numbers[] = { "pid", "port", "qpn", "lease_id" };
	static const char *const words[] = { "host", "address", "uuid", "name" };
	size_t i;

	for (i = 0; i < COUNT(numbers); i++) {
		json_int_t left = json_integer_value(json_object_get(a, numbers[i]));
		json_int_t right = json_integer_value(json_object_get(b, numbers[i]));

		if (left != right)
			return left < right ? -1 : 1;
	}
	for (i = 0; i < COUNT(words); i++) {
		const char *left = json_string_value(json_object_get(a, words[i]));
		const char *right = json_string_value(json_object_get(b, words[i]));
		int order = left && right ? strcmp(left, right) : 0;

		if (order)
			return order;
	}
	return json_is_true(json_object_get(a, "passive")) -
		json_is_true(json_object_get(b, "passive"));
}

static int compare_rows(const void *a, const void *b)
{
	return compare(*(json_t *const *)a, *(json_t *const *)b);
}

/* Returns a new sorted array of the same objects, and releases the old one. */
static json_t *sorted(json_t *rows)
{
	size_t count = json_array_size(rows), i;
	json_t **list = calloc(count + 1, sizeof(json_t *)), *array = json_array(), *row;

	if (!list || !array) {
		free(list);
		json_decref(array);
		return rows;
	}
	json_array_foreach(rows, i, row) list[i] = row;
	qsort(list, count, sizeof(*list), compare_rows);
	for (i = 0; i < count; i++)
		json_array_append(array, list[i]);
	free(list);
	json_decref(rows);
	return array;
}

/* Processes report their own counters: limits sums to the range of JSON integers. */
static void add_counter(json_t *sums, const Ctl__Counter *counter)
{
	uint64_t sum = (uint64_t)json_integer_value(json_object_get(sums, counter->name));

	if (__builtin_add_overflow(sum, counter->value, &sum) || sum > INT64_MAX)
		sum = INT64_MAX;
	json_object_set_new(sums, counter->name, json_integer((json_int_t)sum));
}

/* Adds the counters of the daemon and of all ports by name. */
static json_t *sum_up(const Ctl__Report *report)
{
	json_t *sums = json_object(), *rows = json_array(), *value;
	const char *name;

	for (size_t port = 0; port <= report->n_ports; port++) {
		size_t n = port < report->n_ports ? report->ports[port]->n_counters
						  : report->daemon->n_counters;
		Ctl__Counter *const *list = port < report->n_ports ? report->ports[port]->counters
								   : report->daemon->counters;

		for (size_t i = 0; i < n; i++)
			add_counter(sums, list[i]);
	}
	json_object_foreach(sums, name, value)
		json_array_append_new(rows, json_pack("{s:s,s:O}", "name", name, "value", value));
	json_decref(sums);
	return rows;
}

/* Returns the rows of a table, in order. */
static json_t *rows_of(const struct show *show, const struct answer *answer)
{
	const Ctl__Report *report = &answer->report;

	switch ((int)show->kind) {
	case CTL__QUERY_KIND__QUERY_PORTS:
		return sorted(json_of_list(report->ports, report->n_ports));
	case CTL__QUERY_KIND__QUERY_QPS: return sorted(json_of_list(report->qps, report->n_qps));
	case CTL__QUERY_KIND__QUERY_CONNECTIONS:
		return sorted(json_of_list(report->connections, report->n_connections));
	case CTL__QUERY_KIND__QUERY_PEERS:
		return sorted(json_of_list(report->peers, report->n_peers));
	default: return sorted(sum_up(report));
	}
}

/* Returns for each row the matching row of `before`, or null. */
static json_t *match(const json_t *rows, const json_t *before)
{
	json_t *list = json_array(), *row;
	size_t i, at = 0;

	json_array_foreach(rows, i, row)
	{
		json_t *found = NULL;

		while (at < json_array_size(before) && compare(json_array_get(before, at), row) < 0)
			at++;
		if (at < json_array_size(before) && compare(json_array_get(before, at), row) == 0)
			found = json_incref(json_array_get(before, at));
		json_array_append_new(list, found ? found : json_null());
	}
	return list;
}

/* ---- both forms */

static void print_daemon(FILE *out, const Ctl__DaemonInfo *daemon)
{
	char uptime[32];
	size_t i;

	text_age(uptime, sizeof(uptime), daemon->uptime_s);
	fprintf(out, "ferruled %s on %s, process %u, up %s%s\n", daemon->release, daemon->host,
		daemon->pid, uptime, daemon->is_private ? ", private" : "");
	if (daemon->draining[0])
		fprintf(out, "draining: %s\n", daemon->draining);
	fprintf(out, "socket  %s\n", daemon->socket);
	if (daemon->config[0])
		fprintf(out, "config  %s\n", daemon->config);
	if (daemon->listen[0])
		fprintf(out, "peers   %s\n", daemon->listen);
	if (daemon->metrics[0])
		fprintf(out, "metrics %s\n", daemon->metrics);
	for (i = 0; i < daemon->n_fabrics; i++)
		fprintf(out, "fabric  %s\n", daemon->fabrics[i]);
	fprintf(out, "%u processes, %u ports, %u listeners, %u connections\n%u peers, %u groups\n",
		daemon->processes, daemon->ports, daemon->listeners, daemon->connections,
		daemon->peers, daemon->groups);
}

void show_print(FILE *out, const struct show *show, const struct show_options *options,
	const struct answer *answer, const struct answer *before, double seconds)
{
	const Ctl__DaemonInfo *daemon = answer->report.daemon;
	json_t *rows = rows_of(show, answer), *earlier = before ? rows_of(show, before) : NULL;
	json_t *matched = before ? match(rows, earlier) : NULL;
	struct table table = { .columns = show->columns,
		.n_columns = show->n_columns,
		.rows = rows,
		.before = matched,
		.seconds = seconds,
		.width = options->wide ? 0 : options->width,
		.lines = options->lines,
		.wide = options->wide };

	if (show->kind == CTL__QUERY_KIND__QUERY_STATS)
		print_daemon(out, daemon);
	else if (daemon->draining[0])
		fprintf(out, "draining: %s\n", daemon->draining);
	if (json_array_size(rows))
		table_print(out, &table);
	else if (show->none)
		fprintf(out, "%s\n", show->none);
	json_decref(rows);
	json_decref(earlier);
	json_decref(matched);
}

json_t *show_json(const struct show *show, const struct answer *answer)
{
	static const struct show ports = { .kind = CTL__QUERY_KIND__QUERY_PORTS };
	bool is_stats = show->kind == CTL__QUERY_KIND__QUERY_STATS;
	json_t *object = json_object();

	json_object_set_new(
		object, is_stats ? "ports" : show->name, rows_of(is_stats ? &ports : show, answer));
	json_object_set_new(object, "daemon", json_of_message(&answer->report.daemon->base));
	return object;
}

void print_json(FILE *out, json_t *json, bool one_line)
{
	json_dumpf(json, out,
		JSON_REAL_PRECISION(12) | (one_line ? JSON_COMPACT : (size_t)JSON_INDENT(2)));
	fputc('\n', out);
	json_decref(json);
}
