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
	const char *none; /* when there is no row */
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
	{ "stats", CTL__QUERY_KIND__QUERY_STATS, counter_columns, COUNT(counter_columns), "" },
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

struct row_list {
	ProtobufCMessage **rows;
	size_t count;
};

static struct row_list rows_of(const struct show *show, const struct answer *answer)
{
	const Ctl__Report *report = &answer->report;
	struct row_list list = { NULL, 0 };

	switch ((int)show->kind) {
	case CTL__QUERY_KIND__QUERY_PORTS:
		list = (struct row_list){ (ProtobufCMessage **)report->ports, report->n_ports };
		break;
	case CTL__QUERY_KIND__QUERY_QPS:
		list = (struct row_list){ (ProtobufCMessage **)report->qps, report->n_qps };
		break;
	case CTL__QUERY_KIND__QUERY_CONNECTIONS:
		list = (struct row_list){ (ProtobufCMessage **)report->connections,
			report->n_connections };
		break;
	case CTL__QUERY_KIND__QUERY_PEERS:
		list = (struct row_list){ (ProtobufCMessage **)report->peers, report->n_peers };
		break;
	}
	return list;
}

static uint64_t number(const ProtobufCMessage *row, const char *name)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
		row->descriptor, name);
	const void *at = field ? (const uint8_t *)row + field->offset : NULL;

	if (!field || field->type == PROTOBUF_C_TYPE_STRING)
		return 0;
	if (field->type == PROTOBUF_C_TYPE_UINT64)
		return *(const uint64_t *)at;
	if (field->type == PROTOBUF_C_TYPE_BOOL)
		return *(const protobuf_c_boolean *)at != 0;
	return *(const uint32_t *)at;
}

static const char *word(const ProtobufCMessage *row, const char *name)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
		row->descriptor, name);

	if (!field || field->type != PROTOBUF_C_TYPE_STRING ||
		field->label == PROTOBUF_C_LABEL_REPEATED)
		return "";
	return *(const char *const *)(const void *)((const uint8_t *)row + field->offset);
}

/* By what a row is known: the same in a later report. */
static int compare(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
	static const char *const numbers[] = { "pid", "port", "qpn", "lease_id" };
	static const char *const words[] = { "host", "address", "uuid" };
	size_t i;

	for (i = 0; i < COUNT(numbers); i++) {
		uint64_t left = number(a, numbers[i]), right = number(b, numbers[i]);

		if (left != right)
			return left < right ? -1 : 1;
	}
	for (i = 0; i < COUNT(words); i++) {
		int order = strcmp(word(a, words[i]), word(b, words[i]));

		if (order)
			return order;
	}
	return (int)number(a, "passive") - (int)number(b, "passive");
}

static int compare_rows(const void *a, const void *b)
{
	return compare(*(ProtobufCMessage *const *)a, *(ProtobufCMessage *const *)b);
}

static void sort(const struct show *show, struct answer *answer)
{
	struct row_list list = rows_of(show, answer);

	if (list.count)
		qsort(list.rows, list.count, sizeof(*list.rows), compare_rows);
}

/* For each row the one of `before` that is the same, or NULL. Freed by the caller. */
static const ProtobufCMessage **match(struct row_list now, struct row_list before)
{
	const ProtobufCMessage **list = calloc(now.count + 1, sizeof(*list));
	size_t i;

	for (i = 0; list && before.count && i < now.count; i++) {
		ProtobufCMessage **found = bsearch(&now.rows[i], before.rows, before.count,
			sizeof(*before.rows), compare_rows);

		if (found)
			list[i] = *found;
	}
	return list;
}

/* ---- stats */

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

/* Counters of all ports, added up by name. */
struct totals {
	Ctl__Counter *list;
	const ProtobufCMessage **rows;
	size_t count, room;
};

static void add_total(struct totals *totals, const Ctl__Counter *counter)
{
	size_t i;

	for (i = 0; i < totals->count; i++) {
		if (strcmp(totals->list[i].name, counter->name) == 0) {
			totals->list[i].value += counter->value;
			return;
		}
	}
	if (totals->count == totals->room) {
		size_t room = totals->room ? 2 * totals->room : 128;
		Ctl__Counter *list = realloc(totals->list, room * sizeof(*list));

		if (!list)
			return;
		totals->list = list;
		totals->room = room;
	}
	totals->list[totals->count++] = *counter;
}

static struct totals sum_up(const struct answer *answer)
{
	const Ctl__Report *report = &answer->report;
	struct totals totals = { NULL, NULL, 0, 0 };
	size_t i, j;

	for (i = 0; report->daemon && i < report->daemon->n_counters; i++)
		add_total(&totals, report->daemon->counters[i]);
	for (i = 0; i < report->n_ports; i++) {
		for (j = 0; j < report->ports[i]->n_counters; j++)
			add_total(&totals, report->ports[i]->counters[j]);
	}
	totals.rows = calloc(totals.count + 1, sizeof(*totals.rows));
	for (i = 0; totals.rows && i < totals.count; i++)
		totals.rows[i] = &totals.list[i].base;
	if (!totals.rows)
		totals.count = 0;
	return totals;
}

static const ProtobufCMessage **match_totals(const struct totals *now, const struct totals *before)
{
	const ProtobufCMessage **list = calloc(now->count + 1, sizeof(*list));
	size_t i, j;

	for (i = 0; list && i < now->count; i++) {
		for (j = 0; j < before->count && !list[i]; j++) {
			if (strcmp(now->list[i].name, before->list[j].name) == 0)
				list[i] = before->rows[j];
		}
	}
	return list;
}

static void print_stats(
	FILE *out, struct table *table, struct answer *answer, const struct answer *before)
{
	struct totals now = sum_up(answer);
	struct totals then = { NULL, NULL, 0, 0 };
	const ProtobufCMessage **matched = NULL;

	if (before) {
		then = sum_up(before);
		matched = match_totals(&now, &then);
	}
	table->rows = now.rows;
	table->n_rows = now.count;
	table->before = matched;
	if (now.count)
		table_print(out, table);
	free(matched);
	free(then.list);
	free(then.rows);
	free(now.list);
	free(now.rows);
}

/* ---- both forms */

void show_print(FILE *out, const struct show *show, const struct show_options *options,
	struct answer *answer, const struct answer *before, double seconds)
{
	struct table table = { .columns = show->columns,
		.n_columns = show->n_columns,
		.seconds = seconds,
		.width = options->wide ? 0 : options->width,
		.lines = options->lines,
		.wide = options->wide };
	const ProtobufCMessage **matched = NULL;
	struct row_list list;

	if (show->kind == CTL__QUERY_KIND__QUERY_STATS) {
		print_daemon(out, answer->report.daemon);
		print_stats(out, &table, answer, before);
		return;
	}
	sort(show, answer);
	list = rows_of(show, answer);
	if (answer->report.daemon->draining[0])
		fprintf(out, "draining: %s\n", answer->report.daemon->draining);
	if (!list.count) {
		fprintf(out, "%s\n", show->none);
		return;
	}
	if (before)
		matched = match(list, rows_of(show, before));
	table.rows = (const ProtobufCMessage *const *)list.rows;
	table.n_rows = list.count;
	table.before = matched;
	table_print(out, &table);
	free(matched);
}

json_t *show_json(const struct show *show, struct answer *answer)
{
	json_t *object = json_object();
	struct row_list list;

	sort(show, answer);
	list = rows_of(show, answer);
	if (show->kind == CTL__QUERY_KIND__QUERY_STATS)
		json_object_set_new(object, "ports",
			json_of_list(answer->report.ports, answer->report.n_ports));
	else
		json_object_set_new(object, show->name, json_of_list(list.rows, list.count));
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
