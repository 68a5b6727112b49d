/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of the control protocol: valid messages come out unchanged, and invalid ones are
 * refused. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/control/frame.h"
#include "tests/fixtures/program.h"

static uint8_t ones[FRAME_MAX];

static uint8_t *pack(const Ctl__Envelope *envelope, size_t *ret_size)
{
	uint8_t *frame;

	*ret_size = frame_size(envelope);
	frame = malloc(*ret_size);
	ck_assert_ptr_nonnull(frame);
	frame_pack(envelope, frame);
	return frame;
}

/* Returns NULL with *ret_why, or the message, to be freed. */
static Ctl__Envelope *round_trip(const Ctl__Envelope *envelope, const char **ret_why)
{
	size_t size;
	uint8_t *frame = pack(envelope, &size);
	Ctl__Envelope *got;

	ck_assert_int_eq(frame_length(frame, size, FRAME_MAX), (int)size);
	got = frame_unpack(frame, size, ret_why);
	free(frame);
	return got;
}

static void expect_fine(const Ctl__Envelope *envelope)
{
	const char *why = NULL;
	Ctl__Envelope *got = round_trip(envelope, &why);

	ck_assert_msg(got != NULL, "%s", why);
	ck_assert_int_eq(got->body_case, envelope->body_case);
	ctl__envelope__free_unpacked(got, NULL);
}

static void expect_refused(const Ctl__Envelope *envelope, const char *reason)
{
	const char *why = NULL;
	Ctl__Envelope *got = round_trip(envelope, &why);

	ck_assert_msg(got == NULL, "taken, where '%s' was expected", reason);
	ck_assert_ptr_nonnull(why);
	ck_assert_msg(strstr(why, reason) != NULL, "'%s' instead of '%s'", why, reason);
}

/* A valid ConnRequest. */
struct request {
	Ctl__Envelope envelope;
	Ctl__ConnRequest body;
	Ctl__ConnParams params;
};

static void make_request(struct request *request)
{
	envelope_init(&request->envelope);
	ctl__conn_request__init(&request->body);
	ctl__conn_params__init(&request->params);
	request->envelope.body_case = CTL__ENVELOPE__BODY_CONN_REQUEST;
	request->envelope.conn_request = &request->body;
	request->body.uuid = (ProtobufCBinaryData){ UUID_SIZE, ones };
	request->body.endpoint = (ProtobufCBinaryData){ ENDPOINT_BYTES, ones };
	request->body.private_data = (ProtobufCBinaryData){ PRIVATE_BYTES, ones };
	request->body.service = (char *)"service";
	request->body.params = &request->params;
}

START_TEST(request_comes_through)
{
	struct request request;
	Ctl__Envelope *got;
	const char *why;

	make_request(&request);
	request.envelope.seq = 77;
	got = round_trip(&request.envelope, &why);
	ck_assert_ptr_nonnull(got);
	ck_assert_uint_eq(got->version, CONTROL_VERSION);
	ck_assert_uint_eq(got->seq, 77);
	ck_assert_str_eq(got->conn_request->service, "service");
	ck_assert_uint_eq(got->conn_request->private_data.len, PRIVATE_BYTES);
	ck_assert_mem_eq(got->conn_request->endpoint.data, ones, ENDPOINT_BYTES);
	ctl__envelope__free_unpacked(got, NULL);
}
END_TEST

START_TEST(lengths)
{
	uint8_t frame[FRAME_HEADER + 10] = { 0, 0, 0, 10 };

	for (size_t size = 0; size < sizeof(frame); size++)
		ck_assert_int_eq(frame_length(frame, size, FRAME_MAX_STRANGER), 0);
	ck_assert_int_eq(frame_length(frame, sizeof(frame), FRAME_MAX_STRANGER), sizeof(frame));
	ck_assert_int_eq(frame_length(frame, sizeof(frame) + 5, 10), sizeof(frame));
	ck_assert_int_eq(frame_length(frame, 4, 9), -EMSGSIZE);
	ck_assert_int_eq(frame_length(frame, 3, 9), 0);
	put_be32(frame, FRAME_MAX);
	ck_assert_int_eq(frame_length(frame, sizeof(frame), FRAME_MAX), 0);
	put_be32(frame, FRAME_MAX + 1);
	ck_assert_int_eq(frame_length(frame, sizeof(frame), FRAME_MAX), -EMSGSIZE);
	/* A request for more than the limit is refused. */
	ck_assert_int_eq(frame_length(frame, sizeof(frame), SIZE_MAX), -EMSGSIZE);
	put_be32(frame, UINT32_MAX);
	ck_assert_int_eq(frame_length(frame, sizeof(frame), SIZE_MAX), -EMSGSIZE);
	put_be32(frame, 0);
	ck_assert_int_eq(frame_length(frame, FRAME_HEADER, FRAME_MAX), FRAME_HEADER);
}
END_TEST

START_TEST(sizes_of_bytes)
{
	struct request request;

	for (size_t size = 0; size < 2 * UUID_SIZE; size++) {
		make_request(&request);
		request.body.uuid.len = size;
		if (size == UUID_SIZE)
			expect_fine(&request.envelope);
		else
			expect_refused(&request.envelope, "uuid");
	}
	make_request(&request);
	request.body.endpoint.len = ENDPOINT_BYTES - 1;
	expect_refused(&request.envelope, "endpoint");
	make_request(&request);
	request.body.private_data.len = PRIVATE_BYTES + 1;
	expect_refused(&request.envelope, "private_data");
	request.body.private_data.len = 0;
	expect_fine(&request.envelope);
}
END_TEST

START_TEST(macs)
{
	Ctl__DescribePort describe = CTL__DESCRIBE_PORT__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_DESCRIBE_PORT;
	envelope.describe_port = &describe;
	describe.nonce = (ProtobufCBinaryData){ 16, ones };
	for (size_t size = 0; size < 9; size++) {
		describe.mac = (ProtobufCBinaryData){ size, ones };
		if (size == 0 || size == 6)
			expect_fine(&envelope);
		else
			expect_refused(&envelope, "mac");
	}
	describe.mac.len = 6;
	describe.nonce.len = 15;
	expect_refused(&envelope, "nonce");
}
END_TEST

START_TEST(missing_parts)
{
	Ctl__PortOpened opened = CTL__PORT_OPENED__INIT;
	Ctl__Lease lease = CTL__LEASE__INIT;
	struct request request;
	Ctl__Envelope envelope;

	make_request(&request);
	request.body.params = NULL;
	expect_refused(&request.envelope, "params");
	envelope_init(&envelope);
	expect_refused(&envelope, "no body");
	envelope.body_case = CTL__ENVELOPE__BODY_PORT_OPENED;
	envelope.port_opened = &opened;
	expect_refused(&envelope, "lease");
	opened.lease = &lease;
	expect_fine(&envelope);
	/* The rules hold for messages within messages as well. */
	lease.mac = (ProtobufCBinaryData){ 5, ones };
	expect_refused(&envelope, "mac");
}
END_TEST

/* The accepted texts; the last column is the text after cleaning. */
static const struct {
	const char *text;
	const char *reason; /* NULL: fine */
	const char *cleaned;
} texts[] = {
	{ "", NULL, "" },
	{ "plain text, with 'marks' (and more) ~", NULL, "plain text, with 'marks' (and more) ~" },
	{ "Gr\xc3\xb6\xc3\x9f"
	  "e",
		NULL,
		"Gr\xc3\xb6\xc3\x9f"
		"e" },
	{ "\xe2\x82\xac \xf0\x9f\x98\x80", NULL, "\xe2\x82\xac \xf0\x9f\x98\x80" },
	{ "two\nlines", "control", "two?lines" },
	{ "\x1b[31mred", "control", "?[31mred" },
	{ "tab\there", "control", "tab?here" },
	{ "\x7f", "control", "?" },
	{ "\xc2\x9b"
	  "31m",
		"control", "??31m" }, /* CSI of eight bits */
	{ "\xe2\x80\xae"
	  "abc",
		"control", "???abc" }, /* from right to left */
	{ "\xe2\x81\xa6"
	  "abc",
		"control", "???abc" },
	{ "\xe2\x80\xa8", "control", "???" }, /* line separator */
	{ "\x80", "UTF-8", "?" },             /* no first byte */
	{ "\xc3", "UTF-8", "?" },             /* cut off */
	{ "\xe2\x82", "UTF-8", "??" },
	{ "\xf0\x9f\x98", "UTF-8", "???" },
	{ "\xc3(", "UTF-8", "?(" },
	{ "\xc0\x8a", "UTF-8", "??" }, /* a line end in two bytes */
	{ "\xe0\x80\x8a", "UTF-8", "???" },
	{ "\xf0\x80\x80\x8a", "UTF-8", "????" },
	{ "\xed\xa0\x80", "UTF-8", "???" },      /* half of a surrogate pair */
	{ "\xf4\x90\x80\x80", "UTF-8", "????" }, /* beyond U+10FFFF */
	{ "\xf8\x88\x80\x80\x80", "UTF-8", "?????" },
	{ "\xff", "UTF-8", "?" },
};

START_LOOP_TEST(text, ROWS(texts))
{
	Ctl__Failure failure = CTL__FAILURE__INIT;
	Ctl__Envelope envelope;
	char copy[64];

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
	envelope.failure = &failure;
	failure.error = EINVAL;
	strcpy(copy, texts[_i].text);
	failure.text = copy;
	if (texts[_i].reason)
		expect_refused(&envelope, texts[_i].reason);
	else
		expect_fine(&envelope);
	frame_clean_text(copy);
	ck_assert_str_eq(copy, texts[_i].cleaned);
	expect_fine(&envelope);
}
END_TEST

START_TEST(lengths_of_text)
{
	static char longest[1024 + 2];
	Ctl__Failure failure = CTL__FAILURE__INIT;
	struct request request;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
	envelope.failure = &failure;
	failure.error = EINVAL;
	failure.text = longest;
	memset(longest, 'x', 1024);
	expect_fine(&envelope);
	longest[1024] = 'x';
	expect_refused(&envelope, "1024");
	make_request(&request);
	request.body.service = longest;
	longest[64] = '\0';
	expect_fine(&request.envelope);
	longest[64] = 'x';
	longest[65] = '\0';
	expect_refused(&request.envelope, "service");
	request.body.service = (char *)"";
	request.body.host = longest;
	longest[65] = 'x';
	longest[255] = '\0';
	expect_fine(&request.envelope);
	longest[255] = 'x';
	longest[256] = '\0';
	expect_refused(&request.envelope, "host");
}
END_TEST

START_TEST(lists_of_text)
{
	char *addresses[] = { (char *)"10.1.1.1/24", (char *)"fd00::1\n/64" };
	Ctl__DescribePort describe = CTL__DESCRIBE_PORT__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_DESCRIBE_PORT;
	envelope.describe_port = &describe;
	describe.nonce = (ProtobufCBinaryData){ 16, ones };
	describe.addresses = addresses;
	describe.n_addresses = 1;
	expect_fine(&envelope);
	describe.n_addresses = 2;
	expect_refused(&envelope, "addresses");
}
END_TEST

START_TEST(lists_of_messages)
{
	Ctl__Sync__Conn a = CTL__SYNC__CONN__INIT, b = CTL__SYNC__CONN__INIT;
	Ctl__Sync__Conn *conns[] = { &a, &b };
	Ctl__Sync sync = CTL__SYNC__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_SYNC;
	envelope.sync = &sync;
	sync.n_conns = 2;
	sync.conns = conns;
	a.uuid = b.uuid = (ProtobufCBinaryData){ UUID_SIZE, ones };
	expect_fine(&envelope);
	b.uuid.len = 3;
	expect_refused(&envelope, "uuid");
}
END_TEST

START_TEST(numbers)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
	envelope.failure = &failure;
	expect_refused(&envelope, "errno");
	failure.error = 4096;
	expect_refused(&envelope, "errno");
	failure.error = UINT32_MAX;
	expect_refused(&envelope, "errno");
	failure.error = 4095;
	expect_fine(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &hello;
	expect_refused(&envelope, "role");
	hello.role = (Ctl__Role)4;
	expect_refused(&envelope, "role");
	hello.role = (Ctl__Role)-1;
	expect_refused(&envelope, "role");
	hello.role = CTL__ROLE__ROLE_DAEMON;
	expect_fine(&envelope);
}
END_TEST

START_TEST(versions)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	struct request request;
	Ctl__Envelope envelope;

	make_request(&request);
	request.envelope.version = CONTROL_VERSION + 1;
	expect_refused(&request.envelope, "version");
	envelope_init(&envelope);
	envelope.version = CONTROL_VERSION + 1;
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &hello;
	hello.role = CTL__ROLE__ROLE_PROCESS;
	expect_fine(&envelope);
}
END_TEST

/* A field of a later release in this version: field 200, empty. */
START_TEST(unknown_body)
{
	static const uint8_t frame[] = { 0, 0, 0, 7, 0x08, CONTROL_VERSION, 0x10, 5, 0xc2, 0x0c,
		0 };
	const char *why = "";
	Ctl__Envelope *got = frame_unpack(frame, sizeof(frame), &why);

	ck_assert_msg(got != NULL, "%s", why);
	ck_assert_int_eq(got->body_case, CTL__ENVELOPE__BODY__NOT_SET);
	ck_assert_uint_eq(got->seq, 5);
	ctl__envelope__free_unpacked(got, NULL);
}
END_TEST

START_TEST(garbage)
{
	static uint8_t frame[FRAME_HEADER + 100];
	const char *why;

	memset(frame + FRAME_HEADER, 0xff, 100);
	for (size_t size = 0; size <= 100; size++) {
		why = NULL;
		ck_assert_ptr_null(frame_unpack(frame, FRAME_HEADER + size, &why));
		ck_assert_ptr_nonnull(why);
	}
}
END_TEST

/* Each truncated message lacks something, or is none; never a crash. */
START_TEST(cut_off)
{
	struct request request;
	const char *why;
	uint8_t *frame;
	size_t size;

	make_request(&request);
	frame = pack(&request.envelope, &size);
	for (size_t cut = FRAME_HEADER; cut < size; cut++) {
		uint8_t *part = malloc(cut);

		memcpy(part, frame, cut);
		ctl__envelope__free_unpacked(frame_unpack(part, cut, &why), NULL);
		free(part);
	}
	free(frame);
}
END_TEST

/* Two bytes become a struct of hundreds: a message of nothing else would fill the memory. */
START_TEST(small_message_of_much_memory)
{
	size_t payload = FRAME_MAX, at = FRAME_HEADER;
	uint8_t *frame = malloc(FRAME_HEADER + payload);
	const char *why = "";

	ck_assert_ptr_nonnull(frame);
	put_be32(frame, (uint32_t)payload);
	frame[at++] = 0x08;
	frame[at++] = CONTROL_VERSION;
	/* A Report (71) of the rest, of ports (1) that are empty. */
	frame[at++] = 0xba;
	frame[at++] = 0x04;
	payload -= 4 + 3;
	frame[at++] = (uint8_t)(0x80 | (payload & 0x7f));
	frame[at++] = (uint8_t)(0x80 | (payload >> 7 & 0x7f));
	frame[at++] = (uint8_t)(payload >> 14);
	for (; at + 1 < FRAME_HEADER + FRAME_MAX; at += 2) {
		frame[at] = 0x0a;
		frame[at + 1] = 0;
	}
	ck_assert_ptr_null(frame_unpack(frame, at, &why));
	free(frame);
}
END_TEST

/* An honest daemon's report of many queue pairs is accepted. */
START_TEST(large_report)
{
	enum { QPS = 5000 };
	Ctl__DaemonInfo daemon = CTL__DAEMON_INFO__INIT;
	Ctl__Report report = CTL__REPORT__INIT;
	Ctl__QpInfo *infos = calloc(QPS, sizeof(*infos));
	Ctl__QpInfo **list = calloc(QPS, sizeof(*list));
	Ctl__Envelope envelope;

	ck_assert(infos && list);
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_REPORT;
	envelope.report = &report;
	report.daemon = &daemon;
	report.n_qps = QPS;
	report.qps = list;
	for (int i = 0; i < QPS; i++) {
		list[i] = &infos[i];
		ctl__qp_info__init(list[i]);
		list[i]->pid = 1000;
		list[i]->qpn = 16 + (uint32_t)i;
		list[i]->program = (char *)"a";
		list[i]->type = (char *)"RC";
		list[i]->state = (char *)"RTS";
		list[i]->peer_ip = (char *)"::1";
		list[i]->waits_for = (char *)"nothing";
		list[i]->path_mtu = 1024;
	}
	expect_fine(&envelope);
	free(list);
	free(infos);
}
END_TEST

TEST_FILE(frame)
