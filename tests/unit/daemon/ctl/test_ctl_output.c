/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrulectl's tables and JSON. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/json.h"
#include "daemon/ctl/table.h"
#include "lib/control/control.pb-c.h"
#include "tests/fixtures/program.h"

/* ---- numbers with units */

enum unit { COUNT, BYTES, AGE };

static const struct {
	enum unit unit;
	double value;
	const char *text;
} unit_rows[] = {
	{ COUNT, 0, "0" },
	{ COUNT, 9999, "9999" },
	{ COUNT, 12345, "12.3k" },
	{ COUNT, 999999, "1.0M" },
	{ COUNT, 123456789, "123M" },
	{ COUNT, 18446744073709551615.0, "18.4E" },
	{ BYTES, 0, "0 B" },
	{ BYTES, 1023, "1023 B" },
	{ BYTES, 1024, "1.0 KiB" },
	{ BYTES, 1536, "1.5 KiB" },
	{ BYTES, 5.0 * 1024 * 1024 * 1024, "5.0 GiB" },
	{ AGE, -1, "-" },
	{ AGE, 0, "0ms" },
	{ AGE, 0.0421, "42ms" },
	{ AGE, 59.9, "59.9s" },
	{ AGE, 61, "1m01s" },
	{ AGE, 3600, "1h00m" },
	{ AGE, 86399, "23h59m" },
	{ AGE, 90000, "1d01h" },
	{ AGE, 172799, "1d23h" },
};

START_LOOP_TEST(numbers_have_units, ROWS(unit_rows))
{
	char text[64];

	switch (unit_rows[_i].unit) {
	case COUNT: text_count(text, sizeof(text), unit_rows[_i].value); break;
	case BYTES: text_bytes(text, sizeof(text), unit_rows[_i].value); break;
	case AGE: text_age(text, sizeof(text), unit_rows[_i].value); break;
	}
	ck_assert_str_eq(text, unit_rows[_i].text);
}
END_TEST

/* ---- tables */

static const struct column columns[] = {
	{ "QPN", "qpn", CELL_NUMBER, KEEP_ALWAYS, false },
	{ "PROGRAM", "program", CELL_TEXT, 40, false },
	{ "TX", "tx_bytes", CELL_BYTES, 80, true },
	{ "STATE", "state", CELL_TEXT, 99, false },
	{ "PSN", "send_psn", CELL_PSN, 0, false },
};

static json_t *rows;

static struct table table_of_two(void)
{
	json_decref(rows);
	rows = json_pack("[{s:i,s:s,s:i,s:s,s:i},{s:i,s:s,s:i,s:s}]", "qpn", 7, "program",
		"k\xc3\xa4se" /* four characters */, "tx_bytes", 2048, "state", "RTS", "send_psn",
		0xbeef, "qpn", 16777215, "program", "longer-name", "tx_bytes", 10, "state", "ERR");
	ck_assert_ptr_nonnull(rows);
	return (struct table){ .columns = columns, .n_columns = 5, .rows = rows };
}

static char *print(const struct table *table)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	table_print(out, table);
	fclose(out);
	return text;
}

static void check_prints(const struct table *table, const char *expected)
{
	char *text = print(table);

	ck_assert_str_eq(text, expected);
	free(text);
}

START_TEST(all_fits)
{
	struct table table = table_of_two();

	check_prints(&table,
		"     QPN  PROGRAM           TX  STATE\n"
		"       7  k\xc3\xa4se         2.0 KiB  RTS\n"
		"16777215  longer-name     10 B  ERR\n");
	table.width = 37;
	check_prints(&table,
		"     QPN  PROGRAM           TX  STATE\n"
		"       7  k\xc3\xa4se         2.0 KiB  RTS\n"
		"16777215  longer-name     10 B  ERR\n");
}
END_TEST

START_TEST(the_least_important_column_leaves_first)
{
	struct table table = table_of_two();

	table.width = 36;
	check_prints(&table,
		"     QPN       TX  STATE\n"
		"       7  2.0 KiB  RTS\n"
		"16777215     10 B  ERR\n");
	table.width = 20;
	check_prints(&table,
		"     QPN  STATE\n"
		"       7  RTS\n"
		"16777215  ERR\n");
	table.width = 3; /* what identifies a row stays */
	check_prints(&table, "     QPN\n       7\n16777215\n");
}
END_TEST

START_TEST(wide_shows_everything)
{
	struct table table = table_of_two();
	char *text;

	table.wide = true;
	text = print(&table);
	ck_assert_ptr_nonnull(strstr(text, "0x00beef"));
	free(text);
}
END_TEST

START_TEST(lines_are_cut)
{
	struct table table = table_of_two();

	for (int i = 0; i < 2; i++)
		json_array_append(rows, json_array_get(rows, 0));
	json_array_remove(rows, 1);
	json_array_append(rows, json_array_get(rows, 0));
	table.n_columns = 1;
	table.lines = 3;
	check_prints(&table, "QPN\n  7\n  7\n... 2 more\n");
	table.lines = 4;
	check_prints(&table, "QPN\n  7\n  7\n  7\n  7\n");
}
END_TEST

START_TEST(counters_become_rates)
{
	struct table table = table_of_two();
	json_t *before = json_pack("[{s:i},n]", "tx_bytes", 48);
	char text[CELL_SIZE];

	table.before = before;
	table.seconds = 2;
	table_cell(&table, 0, &columns[2], text);
	ck_assert_str_eq(text, "1000 B");
	table_cell(&table, 1, &columns[2], text); /* new: no rate yet */
	ck_assert_str_eq(text, "0 B");
	table_cell(&table, 0, &columns[0], text); /* no counter */
	ck_assert_str_eq(text, "7");
	/* Another one with this number, or a new start. */
	json_object_set_new(json_array_get(before, 0), "tx_bytes", json_integer(5000));
	table_cell(&table, 0, &columns[2], text);
	ck_assert_str_eq(text, "0 B");
	json_decref(before);
}
END_TEST

/* ---- JSON */

static void check_member(const json_t *object, const char *name, json_type type)
{
	const json_t *member = json_object_get(object, name);

	ck_assert_msg(member != NULL, "there is no %s", name);
	ck_assert_msg(
		json_typeof(member) == type, "%s has type %d", name, (int)json_typeof(member));
}

START_TEST(messages_become_objects)
{
	Ctl__Counter counters[2] = { CTL__COUNTER__INIT, CTL__COUNTER__INIT };
	Ctl__Counter *list[] = { &counters[0], &counters[1] };
	char *addresses[] = { (char *)"10.0.0.1/24" };
	Ctl__PortInfo port = CTL__PORT_INFO__INIT;
	json_t *object;

	counters[0].name = (char *)"tx_packets";
	counters[0].value = 5;
	counters[1].name = (char *)"all";
	counters[1].value = UINT64_MAX;
	port.pid = UINT32_MAX;
	port.addresses = addresses;
	port.n_addresses = 1;
	port.published_age_s = -1;
	port.lease_age_s = 0.5;
	port.counters = list;
	port.n_counters = 2;
	object = json_of_message(&port.base);
	check_member(object, "program", JSON_STRING);
	check_member(object, "published_age_s", JSON_NULL);
	check_member(object, "lease_age_s", JSON_REAL);
	ck_assert_int_eq(json_integer_value(json_object_get(object, "pid")), UINT32_MAX);
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(object, "addresses"), 0)),
		"10.0.0.1/24");
	ck_assert_int_eq(json_integer_value(json_object_get(
				 json_object_get(object, "counters"), "tx_packets")),
		5);
	check_member(json_object_get(object, "counters"), "all", JSON_REAL);
	json_decref(object);
}
END_TEST

START_TEST(lists_are_there_when_empty)
{
	Ctl__Report report = CTL__REPORT__INIT;
	Ctl__Sync__Conn conn = CTL__SYNC__CONN__INIT;
	uint8_t uuid[] = { 0x00, 0xff, 0x1a };
	json_t *object = json_of_message(&report.base);

	check_member(object, "qps", JSON_ARRAY);
	check_member(object, "more", JSON_FALSE);
	ck_assert_ptr_null(json_object_get(object, "daemon"));
	json_decref(object);
	conn.uuid.data = uuid;
	conn.uuid.len = sizeof(uuid);
	object = json_of_message(&conn.base);
	ck_assert_str_eq(json_string_value(json_object_get(object, "uuid")), "00ff1a");
	json_decref(object);
}
END_TEST

START_TEST(a_oneof_has_one_member)
{
	Ctl__Envelope envelope = CTL__ENVELOPE__INIT;
	Ctl__Query query = CTL__QUERY__INIT;
	json_t *object;

	envelope.body_case = CTL__ENVELOPE__BODY_QUERY;
	envelope.query = &query;
	query.kind = CTL__QUERY_KIND__QUERY_WHY;
	object = json_of_message(&envelope.base);
	ck_assert_uint_eq(json_object_size(object), 3); /* version, seq, query */
	ck_assert_str_eq(
		json_string_value(json_object_get(json_object_get(object, "query"), "kind")),
		"query_why");
	json_decref(object);
}
END_TEST

TEST_FILE(ctl_output)
