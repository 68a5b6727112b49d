/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/config*.c: for each setting a right value, one too small, one too large and one of the
 * wrong type; conditions between settings; and that errors name the line.
 */
#include "tests/unit/daemon/config/config_fixture.h"
#include "tests/fixtures/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>

/* ---- numbers */

#define NUMBER(member, value, least, most)                                                      \
	{                                                                                       \
#member, offsetof(struct config, member), sizeof(((struct config *)0)->member), \
			value, least, most                                                      \
	}

static const struct {
	const char *name;
	size_t offset, width;
	long long value, least, most;
} numbers[] = {
	NUMBER(listen_port, 7476, 1, 65535),
	NUMBER(metrics_port, 9476, 1, 65535),
	NUMBER(hold_ms, 10000, 0, 3600000),
	NUMBER(keepalive_ms, 3000, 100, 600000),
	NUMBER(relearn_ms, 2000, 0, 60000),
	NUMBER(idle_exit_ms, 10000, 0, 86400000),
	NUMBER(max_sessions, 4096, 8, 65536),
	NUMBER(max_sessions_per_user, 1024, 1, 65536),
	NUMBER(max_ports_per_user, 1024, 1, 65536),
	NUMBER(max_listeners_per_user, 1024, 1, 65536),
	NUMBER(max_connections_per_user, 65536, 1, 1048576),
	NUMBER(max_qps_per_user, 65536, 1, 16777216),
	NUMBER(max_groups_per_user, 256, 1, 65536),
	NUMBER(max_peers, 1024, 1, 65536),
	NUMBER(hello_ms, 5000, 100, 60000),
};

static long long number_in(const struct config *config, int row)
{
	const char *place = (const char *)config + numbers[row].offset;
	uint16_t narrow;
	uint32_t wide;

	if (numbers[row].width == sizeof(narrow)) {
		memcpy(&narrow, place, sizeof(narrow));
		return narrow;
	}
	memcpy(&wide, place, sizeof(wide));
	return wide;
}

static void take_number(int row, long long value)
{
	struct config *config;
	char text[100];

	snprintf(text, sizeof(text), "%s = %lld;\n", numbers[row].name, value);
	config = config_right(text);
	ck_assert_int_eq(number_in(config, row), value);
	config_free(config);
}

static void refuse_number(int row, const char *value, const char *words)
{
	char text[100], place[100];

	snprintf(text, sizeof(text), "# first\n%s = %s;\n", numbers[row].name, value);
	snprintf(place, sizeof(place), "2: %s: ", numbers[row].name);
	config_wrong(text, place, words);
}

START_LOOP_TEST(number, ROWS(numbers))
{
	struct config *config = config_new();
	char range[60], text[40];

	ck_assert_int_eq(number_in(config, _i), numbers[_i].value);
	config_free(config);
	take_number(_i, numbers[_i].least);
	take_number(_i, numbers[_i].most);
	snprintf(range, sizeof(range), "must be %lld to %lld", numbers[_i].least, numbers[_i].most);
	snprintf(text, sizeof(text), "%lld", numbers[_i].least - 1);
	refuse_number(_i, text, range);
	snprintf(text, sizeof(text), "%lld", numbers[_i].most + 1);
	refuse_number(_i, text, range);
	refuse_number(_i, "4294967296000L", range);
	refuse_number(_i, "\"9000\"", "must be a whole number");
	refuse_number(_i, "9000.0", "must be a whole number");
	refuse_number(_i, "true", "must be a whole number");
	refuse_number(_i, "[ 9000 ]", "must be a whole number");
}
END_TEST

/* ---- texts */

#define TEXT(member) #member, offsetof(struct config, member)
#define LONG_HOST                                  \
	"a234567890123456789012345678901234567890" \
	"1234567890123456789012345678901234567890"

static const struct {
	const char *name;
	size_t offset;
	const char *value, *expected; /* NULL: none */
} texts[] = {
	{ TEXT(host), "node-1.example_x", "node-1.example_x" },
	{ TEXT(socket), "/tmp/x.sock", "/tmp/x.sock" },
	{ TEXT(listen_address), "127.0.0.1", "127.0.0.1" },
	{ TEXT(listen_address), "127.8.9.1", "127.8.9.1" },
	{ TEXT(listen_address), "::1", "::1" },
	{ TEXT(listen_address), "", NULL },
	{ TEXT(metrics_address), "0.0.0.0", "0.0.0.0" },
	{ TEXT(metrics_address), "", NULL },
	{ TEXT(tls_key), "", NULL },
	{ TEXT(user), "root", "root" },
	{ TEXT(user), "", NULL },
};

START_LOOP_TEST(string, ROWS(texts))
{
	char line[300];
	struct config *config;
	const char *value;

	snprintf(line, sizeof(line), "insecure = true; %s = \"%s\";\n", texts[_i].name,
		texts[_i].value);
	config = config_right(line);
	memcpy(&value, (char *)config + texts[_i].offset, sizeof(value));
	if (texts[_i].expected)
		ck_assert_str_eq(value, texts[_i].expected);
	else
		ck_assert_ptr_null(value);
	config_free(config);
}
END_TEST

static const struct config_wrong_row wrong[] = {
	/* the file */
	{ "hold = 1;", "1: hold: ", "is hold_ms meant?" },
	{ "\n\nfoo = 1;", "3: foo: ", "no such setting" },
	{ "hold_ms = 1;\nhold_ms = 2;", "2: ", "duplicate" },
	{ "hold_ms = ;\n", "1: ", "syntax error" },
	{ "user = \"x\n", "2: ", "syntax error" },
	{ "\nhold_ms = 4294967297;", "2: ", "too large" },
	{ "\nhold_ms = 99999999999999999999L;", "2: ", "too large" },
	{ "\nhold_ms = 0xFFFFFFFF;", "2: ", "too large" },
	{ "/* \" */ hold_ms = 5; # 1\nhello_ms = 3000000000;", "2: ", "too large" },
	{ "\n@include \"/etc/passwd\"\n", "2: ", "in this one" },
	{ " @include \"/etc/passwd\"", "1: ", "in this one" },
	/* texts */
	{ "host = \"\";", "1: host: ", "must be 1 to 255" },
	{ "host = \"a b\";", "1: host: ", "must be 1 to 255" },
	{ "host = 5;", "1: host: ", "in quotes" },
	{ "host = \"a\\nb\";", "1: host: ", "printable" },
	{ "host = \"" LONG_HOST LONG_HOST LONG_HOST LONG_HOST "\";",
		"1: host: ", "320 characters" },
	{ "socket = \"x.sock\";", "1: socket: ", "absolute path" },
	{ "socket = \"\";", "1: socket: ", "absolute path" },
	{ "socket = \"/" LONG_HOST LONG_HOST "\";", "1: socket: ", "at most 107" },
	{ "listen_address = \"localhost\";", "1: listen_address: ", "IPv4 or IPv6 address" },
	{ "listen_address = \"127.0.0.1:80\";", "1: listen_address: ", "without a port" },
	{ "listen_address = 1;", "1: listen_address: ", "in quotes" },
	{ "insecure = \"yes\";", "1: insecure: ", "true or false" },
	{ "insecure = 1;", "1: insecure: ", "true or false" },
	{ "tls_key = \"key.pem\";", "1: tls_key: ", "absolute path" },
	{ "user = \"nobody-of-that-name\";", "1: user: ", "there is no user" },
	{ "operators = \"root\";", "1: operators: ", "must be a list" },
	{ "operators = [ \"nobody-of-that-name\" ];", "1: operators[0]: ", "does not exist" },
	{ "operators = [ -1 ];", "1: operators[0]: ", "0 to 4294967294" },
	{ "operators = [ 4294967295L ];", "1: operators[0]: ", "0 to 4294967294" },
	{ "operators = (\n\n true );", "3: operators[0]: ", "in quotes" },
	/* TLS */
	{ "\nlisten_address = \"0.0.0.0\";", "2: listen_address: ", "there is no TLS" },
	{ "\nlisten_address = \"::\";", "2: listen_address: ", "there is no TLS" },
	{ "\nlisten_address = \"127.0.0.1\";", "2: listen_address: ", "there is no TLS" },
	{ "\nlisten_address = \"10.0.0.1\";", "2: listen_address: ", "insecure = true" },
	{ "\ntls_key = \"/a\";", "2: tls_key: ", "all three" },
	{ "tls_key = \"/a\";\ntls_ca = \"/b\";", "2: tls_ca: ", "without tls_certificate" },
};

START_LOOP_TEST(refused, ROWS(wrong))
{
	config_wrong(wrong[_i].text, wrong[_i].place, wrong[_i].words);
}
END_TEST

/* Values at each limit that are still right. */
static const char *const right[] = {
	"",
	"# nothing\n",
	"operators = [];",
	"fabrics = ();",
	"insecure = true; listen_address = \"0.0.0.0\";",
	"listen_address = \"::\"; tls_key = \"/a\"; tls_ca = \"/b\"; tls_certificate = \"/c\";",
	"tls_key = \"\"; tls_ca = \"\"; tls_certificate = \"\";",
	"tls_key = \"\"; hold_ms = 5; # \" 4000000000\n",
	"/* @include \"x\" \n 4000000000 */ hold_ms = 0x10;",
	"// 4000000000 \"\nhold_ms = 0016;",
	"hold_ms = 16L # 99999999999\n",
	"host = \"4000000000\";",
};

START_LOOP_TEST(taken, ROWS(right))
{
	config_free(config_right(right[_i]));
}
END_TEST

START_TEST(defaults)
{
	struct config *config = config_new();
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	ck_assert_str_eq(config->host, host);
	ck_assert_str_eq(config->socket, "/run/ferrule/ferruled.sock");
	ck_assert_ptr_null(config->path);
	ck_assert_ptr_null(config->listen_address);
	ck_assert_str_eq(config->metrics_address, "127.0.0.1");
	ck_assert(config->metrics_by_default);
	ck_assert_ptr_null(config->user);
	ck_assert(!config->insecure && !config->n_fabrics && !config->n_operators);
	config_free(config);
	config_free(NULL);
}
END_TEST

/* ---- the file as such */

START_TEST(files)
{
	static char large[(256 << 10) + 2];
	struct config *config;

	ck_assert_ptr_null(config_load("/nowhere/x.conf", config_error, sizeof(config_error)));
	ck_assert_str_eq(
		config_error, "/nowhere/x.conf: cannot be opened: No such file or directory");
	ck_assert_ptr_null(config_load("/tmp", config_error, sizeof(config_error)));
	ck_assert_str_eq(config_error, "/tmp: is not a regular file; must be one");
	memset(large, '\n', sizeof(large));
	ck_assert_ptr_null(config_from_bytes(large, (256 << 10) + 1));
	ck_assert_ptr_nonnull(
		strstr(config_error, ": is too large; must have at most 262144 bytes"));
	config = config_from_bytes(large, 256 << 10);
	ck_assert_msg(config, "%s", config_error);
	config_free(config);
	ck_assert_ptr_null(config_from_bytes("hold_ms = 5;\0", 13));
	ck_assert_ptr_nonnull(strstr(config_error, ": has zero bytes"));
}
END_TEST

/* Root must not follow files that others can write. */
START_TEST(world_writable)
{
	struct config *config = config_right("hold_ms = 5;");

	config_free(config);
	ck_assert_int_eq(chmod(config_path, 0666), 0);
	config = config_load(config_path, config_error, sizeof(config_error));
	if (geteuid() == 0)
		ck_assert(!config && strstr(config_error, "chmod o-w"));
	else
		ck_assert_ptr_nonnull(config);
	config_free(config);
}
END_TEST

/* An error that does not fit is truncated at any place. */
START_TEST(short_errors)
{
	char all[512], cut[512];
	size_t size;

	ck_assert_ptr_null(config_from_bytes("hold_ms = \"x\";", 14));
	strcpy(all, config_error);
	for (size = 1; size < strlen(all); size++) {
		memset(cut, 'x', sizeof(cut));
		ck_assert_ptr_null(config_load(config_path, cut, size));
		ck_assert_uint_eq(strlen(cut), size - 1);
		ck_assert_mem_eq(cut, all, size - 1);
	}
}
END_TEST

START_TEST(fixed)
{
	struct config *a = config_new(), *b = config_new();

	ck_assert_ptr_null(config_fixed_difference(a, b));
	b->hold_ms++;
	ck_assert_ptr_null(config_fixed_difference(a, b));
	b->user = strdup("nobody");
	ck_assert_str_eq(config_fixed_difference(a, b), "user");
	ck_assert_str_eq(config_fixed_difference(b, a), "user");
	a->user = strdup("nobody");
	ck_assert_ptr_null(config_fixed_difference(a, b));
	b->socket[1]++;
	ck_assert_str_eq(config_fixed_difference(a, b), "socket");
	a->socket[1]++;
	ck_assert_ptr_null(config_fixed_difference(a, b));
	b->metrics_port++;
	ck_assert_str_eq(config_fixed_difference(a, b), "metrics_port");
	free(b->metrics_address);
	b->metrics_address = NULL;
	ck_assert_str_eq(config_fixed_difference(a, b), "metrics_address");
	b->listen_port++;
	ck_assert_str_eq(config_fixed_difference(a, b), "listen_port");
	b->listen_address = strdup("127.0.0.1");
	ck_assert_str_eq(config_fixed_difference(a, b), "listen_address");
	config_free(a);
	config_free(b);
}
END_TEST

/* ---- warnings */

static void keep_line(void *arg, const char *line)
{
	char *lines = arg;

	snprintf(lines + strlen(lines), 2000 - strlen(lines), "%s\n", line);
}

static void warns(const char *text, const char *words)
{
	struct config *config = config_right(text);
	char lines[2000] = "";

	config_warnings(config, keep_line, lines);
	if (words)
		ck_assert_msg(strstr(lines, words), "\"%s\" lacks \"%s\"", lines, words);
	else
		ck_assert_str_eq(lines, "");
	config_free(config);
}

START_TEST(warnings)
{
	char key[] = "/tmp/test_config_key_XXXXXX";
	char text[200];
	int fd = mkstemp(key);

	close(fd);
	snprintf(text, sizeof(text), "tls_key = \"%s\"; tls_ca = \"/x\"; tls_certificate = \"/x\";",
		key);
	warns(text, NULL);
	chmod(key, 0640);
	warns(text, NULL);
	chmod(key, 0644);
	warns(text, "chmod 640 or 600");
	chmod(key, 0660);
	warns(text, "chmod 640 or 600");
	unlink(key);
	warns(text, NULL);
	warns("", NULL);
	warns("insecure = true; metrics_port = 9000;", NULL);
	warns("insecure = true; listen_address = \"127.0.0.1\";", "insecure: ");
	warns("insecure = true; listen_address = \"0.0.0.0\";", "insecure: ");
	warns("metrics_address = \"::\";", "metrics_address: ");
	warns(PORTS("\"a\", \"b\""), "2 ports share the 1 addresses");
	warns(FABRIC("mac_pool = \"02:00:00:00:00:01-02:00:00:00:00:01\";"), NULL);
	warns("fabrics = ( { name = \"a\"; ports = [ \"a\", \"b\", \"c\" ];\n"
	      "addresses = [ \"fd00::ff-fd00::1:0/64\" ];\n"
	      "mac_pool = \"02:00:00:00:00:01-02:00:00:00:00:02\"; } );",
		"3 ports share 2 MAC addresses");
}
END_TEST

/* ---- documentation */

static char *read_source(const char *name)
{
	const char *root = getenv("FRL_SOURCE_ROOT");
	char file[512];
	char *text = calloc(1, 200000);
	FILE *in;

	snprintf(file, sizeof(file), "%s/%s", root ? root : ".", name);
	in = fopen(file, "r");
	ck_assert_msg(in, "%s: %s", file, strerror(errno));
	ck_assert_uint_gt(fread(text, 1, 199999, in), 0);
	fclose(in);
	return text;
}

/* The last part of a setting's name. */
static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

START_TEST(rows)
{
	size_t count, i;
	const struct config_row *row = config_rows(&count);

	ck_assert_uint_ge(count, 30);
	for (i = 0; i < count; i++) {
		ck_assert(row[i].name[0] && row[i].default_text[0] && row[i].range[0]);
		ck_assert_msg(strlen(row[i].help) > 10, "%s: no help", row[i].name);
	}
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		char value[30], range[60];
		size_t k = 0;

		while (k < count && strcmp(row[k].name, numbers[i].name) != 0)
			k++;
		ck_assert_msg(k < count, "%s: no row", numbers[i].name);
		snprintf(value, sizeof(value), "%lld", numbers[i].value);
		snprintf(range, sizeof(range), "%lld to %lld", numbers[i].least, numbers[i].most);
		ck_assert_str_eq(row[k].default_text, value);
		ck_assert_str_eq(row[k].range, range);
	}
}
END_TEST

/* The manual has each setting with its default and its range, as the table has. */
START_TEST(manual)
{
	char *text = read_source("docs/man/ferruled.conf.5");
	size_t count, i;
	const struct config_row *row = config_rows(&count);

	for (i = 0; i < count; i++) {
		char entry[400];

		snprintf(entry, sizeof(entry), ".TP\n.B %s\n", last_part(row[i].name));
		ck_assert_msg(strstr(text, entry), "the manual lacks %s", row[i].name);
		snprintf(entry, sizeof(entry), "\nRange: %s.\nDefault: %s.\n", row[i].range,
			row[i].default_text);
		ck_assert_msg(strstr(text, entry), "the manual lacks%sof %s", entry, row[i].name);
	}
	free(text);
}
END_TEST

/* The sample has them all; it is right as it is, and with everything uncommented. */
START_TEST(sample)
{
	char *text = read_source("daemon/ferruled.conf");
	size_t count, i, length = strlen(text);
	const struct config_row *row = config_rows(&count);
	struct config *config = config_right(text);
	char *p;

	config_free(config);
	for (i = 0; i < count; i++) {
		char entry[100];

		snprintf(entry, sizeof(entry), "%s = ", last_part(row[i].name));
		ck_assert_msg(strstr(text, entry), "the sample lacks %s", row[i].name);
	}
	/* Settings are behind "#", text behind "# ". */
	for (p = text; p && *p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (p[0] == '#' && p[1] != ' ' && p[1] != '\n')
			memmove(p, p + 1, strlen(p));
	}
	ck_assert_uint_lt(strlen(text), length);
	config = config_right(text);
	ck_assert_uint_eq(config->n_fabrics, 2);
	ck_assert_ptr_nonnull(config->tls_key);
	config_free(config);
	free(text);
}
END_TEST

TEST_MAIN(config)
{
	return run_suite(all_tests(config_setup, config_teardown));
}
