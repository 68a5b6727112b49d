/* SPDX-License-Identifier: BSD-3-Clause */
/* Files made here block by block, in both byte orders; whole, cut and damaged. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/dlt.h>

#include "tools/pcap/pcapng.h"
#include "lib/base/bytes.h"
#include "tests/fixtures/program.h"

enum {
	MAX_FILE = 4096,
	SECTION = 0x0a0d0d0a,
	INTERFACE = 1,
	OLD_PACKET = 2,
	SIMPLE_PACKET = 3,
	STATISTICS = 5,
	PACKET = 6,
};

struct made {
	uint8_t bytes[MAX_FILE];
	size_t len;
	bool big_endian;
};

static void add_u16(struct made *made, uint16_t value)
{
	uint8_t *p = made->bytes + made->len;

	p[made->big_endian ? 1 : 0] = (uint8_t)value;
	p[made->big_endian ? 0 : 1] = (uint8_t)(value >> 8);
	made->len += 2;
}

static void add_u32(struct made *made, uint32_t value)
{
	if (made->big_endian)
		put_be32(made->bytes + made->len, value);
	else
		put_le32(made->bytes + made->len, value);
	made->len += 4;
}

static void add_bytes(struct made *made, const void *bytes, size_t len)
{
	memcpy(made->bytes + made->len, bytes, len);
	made->len += len;
	while (made->len % 4)
		made->bytes[made->len++] = 0;
}

static size_t begin(struct made *made, uint32_t type)
{
	size_t start = made->len;

	add_u32(made, type);
	add_u32(made, 0);
	return start;
}

static void end(struct made *made, size_t start)
{
	size_t stop = made->len;

	made->len = start + 4;
	add_u32(made, (uint32_t)(stop + 4 - start));
	made->len = stop;
	add_u32(made, (uint32_t)(stop + 4 - start));
}

static void add_section(struct made *made, bool big_endian)
{
	size_t start;

	made->big_endian = big_endian;
	start = begin(made, SECTION);
	add_u32(made, 0x1a2b3c4d);
	add_u16(made, 1);
	add_u16(made, 0);
	add_u32(made, UINT32_MAX);
	add_u32(made, UINT32_MAX);
	end(made, start);
}

/* `resolution`: of the times; 6 is what holds without the option. */
static void add_interface(
	struct made *made, uint16_t link_type, uint32_t snapshot_len, uint8_t resolution)
{
	size_t start = begin(made, INTERFACE);

	add_u16(made, link_type);
	add_u16(made, 0);
	add_u32(made, snapshot_len);
	if (resolution != 6) {
		add_u16(made, 2); /* its name: an option that does not matter, of odd length */
		add_u16(made, 5);
		add_bytes(made, "veth0", 5);
		add_u16(made, 9);
		add_u16(made, 1);
		add_bytes(made, &resolution, 1);
		add_u32(made, 0);
	}
	end(made, start);
}

static void add_packet(struct made *made, uint32_t interface, uint64_t time, const char *text)
{
	size_t start = begin(made, PACKET);

	add_u32(made, interface);
	add_u32(made, (uint32_t)(time >> 32));
	add_u32(made, (uint32_t)time);
	add_u32(made, (uint32_t)strlen(text));
	add_u32(made, (uint32_t)strlen(text) + 10);
	add_bytes(made, text, strlen(text));
	end(made, start);
}

static void add_old_packet(struct made *made, uint16_t interface, const char *text)
{
	size_t start = begin(made, OLD_PACKET);

	add_u16(made, interface);
	add_u16(made, 77); /* packets dropped */
	add_u32(made, 0);
	add_u32(made, 5);
	add_u32(made, (uint32_t)strlen(text));
	add_u32(made, (uint32_t)strlen(text));
	add_bytes(made, text, strlen(text));
	end(made, start);
}

static void add_simple_packet(struct made *made, uint32_t len, const char *text)
{
	size_t start = begin(made, SIMPLE_PACKET);

	add_u32(made, len);
	add_bytes(made, text, strlen(text));
	end(made, start);
}

static void add_statistics(struct made *made)
{
	size_t start = begin(made, STATISTICS);

	add_u32(made, 0);
	end(made, start);
}

/* Two sections of different byte orders, with interfaces that differ in everything. */
static struct made make_file(bool big_endian)
{
	struct made made = { .len = 0 };

	add_section(&made, big_endian);
	add_interface(&made, 1, 4, 6);
	add_interface(&made, 101, 65535, 9);
	add_statistics(&made);
	add_packet(&made, 0, 1000001, "ether");
	add_packet(&made, 1, 5000000001, "raw");
	add_simple_packet(&made, 9, "snap");
	add_old_packet(&made, 1, "oldest");
	add_section(&made, !big_endian);
	add_interface(&made, 113, 0, 6);
	add_statistics(&made);
	add_simple_packet(&made, 5, "whole");
	return made;
}

static const struct {
	int link_type;
	const char *text;
	size_t len;
	uint64_t time_ns;
} expected[] = {
	{ DLT_EN10MB, "ether", 15, 1000001000 },
	{ DLT_RAW, "raw", 13, 5000000001 },
	{ DLT_EN10MB, "snap", 9, 0 },
	{ DLT_RAW, "oldest", 6, 5 },
	{ DLT_LINUX_SLL, "whole", 5, 0 },
};

/* How many packets there are until the end or, then *ret_error is set, what cannot be read. */
static int read_all(const struct made *made, size_t len, bool compare, const char **ret_error)
{
	FILE *stream = fmemopen((void *)(uintptr_t)made->bytes, len, "rb");
	struct pcap_record record;
	struct pcap_ng ng;
	int packets = 0;
	int result;

	ck_assert_ptr_nonnull(stream);
	*ret_error = pcap_ng_open(&ng, stream);
	if (*ret_error) {
		fclose(stream);
		return 0;
	}
	while ((result = pcap_ng_next(&ng, &record, ret_error)) == 1) {
		uint8_t sum = 0;

		/* Every byte can be read. */
		for (size_t i = 0; i < record.captured; i++)
			sum ^= record.frame[i];
		ck_assert_int_ge(sum, 0);
		if (compare) {
			ck_assert_int_lt(packets, ROWS(expected));
			ck_assert_int_eq(record.link_type, expected[packets].link_type);
			ck_assert_uint_eq(record.captured, strlen(expected[packets].text));
			ck_assert_mem_eq(record.frame, expected[packets].text, record.captured);
			ck_assert_uint_eq(record.len, expected[packets].len);
			ck_assert_uint_eq(record.time_ns, expected[packets].time_ns);
		}
		packets++;
	}
	ck_assert(result == 0 ? !*ret_error : *ret_error != NULL);
	pcap_ng_close(&ng);
	fclose(stream);
	return packets;
}

START_LOOP_TEST(whole, 2)
{
	struct made made = make_file(_i);
	const char *error;

	ck_assert_int_eq(read_all(&made, made.len, true, &error), ROWS(expected));
	ck_assert_ptr_null(error);
}
END_TEST

/* Packets before the cut are read; the cut is reported unless it is between two blocks. */
START_LOOP_TEST(cut, 2)
{
	struct made made = make_file(_i);
	int clean = 0;

	for (size_t len = 1; len < made.len; len++) {
		const char *error;
		int packets = read_all(&made, len, true, &error);

		ck_assert_int_lt(packets, ROWS(expected));
		clean += !error;
	}
	ck_assert_int_eq(clean, 11); /* blocks but the last */
}
END_TEST

/* Every byte is each of some others: nothing is read that is not there. */
START_LOOP_TEST(any_byte_damaged, 2)
{
	static const uint8_t others[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	struct made made = make_file(_i);

	for (size_t at = 0; at < made.len; at++) {
		for (size_t i = 0; i < sizeof(others); i++) {
			uint8_t right = made.bytes[at];
			const char *error;

			made.bytes[at] = others[i];
			read_all(&made, made.len, false, &error);
			made.bytes[at] = right;
		}
	}
}
END_TEST

/* A timestamp of so many units in nanoseconds. */
static const struct {
	uint8_t resolution;
	uint64_t time;
	uint64_t ns;
} time_rows[] = {
	{ 6, 1, 1000 },
	{ 0, 3, 3000000000 },
	{ 3, 7, 7000000 },
	{ 9, 123456789012345, 123456789012345 },
	{ 12, 5999, 5 },
	{ 127, UINT64_MAX, 0 },
	{ 0x80, 2, 2000000000 },
	{ 0x80 | 1, 3, 1500000000 },
	{ 0x80 | 30, 1u << 29, 500000000 },
	{ 0x80 | 63, UINT64_C(1) << 62, 500000000 },
	{ 0xff, UINT64_MAX, 0 },
};

START_LOOP_TEST(times, ROWS(time_rows))
{
	struct made made = { .len = 0 };
	struct pcap_record record;
	const char *error = NULL;
	struct pcap_ng ng;
	FILE *stream;

	add_section(&made, false);
	add_interface(&made, 1, 0, time_rows[_i].resolution);
	add_packet(&made, 0, time_rows[_i].time, "x");
	stream = fmemopen(made.bytes, made.len, "rb");
	ck_assert_ptr_null(pcap_ng_open(&ng, stream));
	ck_assert_int_eq(pcap_ng_next(&ng, &record, &error), 1);
	ck_assert_uint_eq(record.time_ns, time_rows[_i].ns);
	ck_assert_int_eq(pcap_ng_next(&ng, &record, &error), 0);
	pcap_ng_close(&ng);
	fclose(stream);
}
END_TEST

START_TEST(interface_that_is_not_there)
{
	struct made made = { .len = 0 };
	const char *error;

	add_section(&made, false);
	add_simple_packet(&made, 1, "x");
	ck_assert_int_eq(read_all(&made, made.len, false, &error), 0);
	ck_assert_ptr_nonnull(error);
	/* Interfaces of one section are not those of the next. */
	made.len = 0;
	add_section(&made, false);
	add_interface(&made, 1, 0, 6);
	add_packet(&made, 0, 0, "x");
	add_section(&made, false);
	add_packet(&made, 0, 0, "x");
	ck_assert_int_eq(read_all(&made, made.len, false, &error), 1);
	ck_assert_ptr_nonnull(error);
}
END_TEST

TEST_FILE(pcap_ng)
