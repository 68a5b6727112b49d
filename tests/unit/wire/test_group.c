/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership in groups: the reports, and which queries ask for them. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/group.h"
#include "lib/wire/packet.h"
#include "tests/unit/wire/hex.h"
#include "tests/fixtures/ip_text.h"
#include "tests/fixtures/program.h"

static const uint8_t own_mac[6] = { 0x52, 0x54, 0, 0xaa, 0, 2 };

/* Made apart from this code. */
static const struct {
	const char *name;
	bool leave;
	const char *group, *src;
	uint16_t vlan;
	const char *bytes;
} reports[] = {
	{ "IGMP report", false, "239.129.9.9", "10.9.0.2", 0,
		"01005e010909 525400aa0002 0800 46c00020000040000102e182 0a090002ef810909"
		"94040000 1600f174ef810909" },
	{ "IGMP leave", true, "239.129.9.9", "10.9.0.2", 10,
		"01005e000002 525400aa0002 8100000a 0800 46c00020000040000102fa0a"
		"0a090002e0000002 94040000 1700f074ef810909" },
	{ "MLD report", false, "ff12::1:2:3", "fe80::5054:ff:feaa:2", 10,
		"333300020003 525400aa0002 8100000a 86dd 6000000000200001"
		"fe80000000000000505400fffeaa0002 ff120000000000000000000100020003"
		"3a00050200000100 83002ffa00000000ff120000000000000000000100020003" },
	{ "MLD done", true, "ff12::1:2:3", "fe80::5054:ff:feaa:2", 0,
		"333300000002 525400aa0002 86dd 6000000000200001"
		"fe80000000000000505400fffeaa0002 ff020000000000000000000000000002"
		"3a00050200000100 84002f0e00000000ff120000000000000000000100020003" },
};

START_LOOP_TEST(encode_report, ROWS(reports))
{
	uint8_t want[128], out[GROUP_MAX_FRAME];
	size_t len = from_hex(want, sizeof(want), reports[_i].bytes);
	struct group_report report = {
		.leave = reports[_i].leave,
		.group = ip(reports[_i].group),
		.src_ip = ip(reports[_i].src),
		.vlan = reports[_i].vlan,
	};
	struct group_query query;

	memcpy(report.src_mac, own_mac, 6);
	memset(out, 0xa5, sizeof(out));
	ck_assert_msg(group_encode_report(out, &report) == len, "%s", reports[_i].name);
	ck_assert_mem_eq(out, want, len);
	/* A report is no query. */
	ck_assert(!group_decode_query(&query, out, len));
}
END_TEST

/* The header of what Linux sends (version 3 of IGMP) is that of our reports. */
START_TEST(as_linux_does)
{
	static const char linux_report[] =
		"01005e000016 525400aa0002 0800 46c00028 0000 4000 0102 f9ee 0a090002 e0000016"
		"94040000 2200e1eb 00000001 04000000ef090909";
	uint8_t theirs[128], out[GROUP_MAX_FRAME];
	struct group_report report = { .group = ip("239.9.9.9"), .src_ip = ip("10.9.0.2") };

	from_hex(theirs, sizeof(theirs), linux_report);
	memcpy(report.src_mac, own_mac, 6);
	group_encode_report(out, &report);
	ck_assert_mem_eq(out + 6, theirs + 6, 10);  /* up to the length */
	ck_assert_mem_eq(out + 18, theirs + 18, 6); /* up to the checksum */
	ck_assert_mem_eq(out + 26, theirs + 26, 4); /* source */
	ck_assert_mem_eq(out + 34, theirs + 34, 4); /* option */
}
END_TEST

static const struct {
	const char *ip;
	bool reported;
} groups[] = {
	{ "224.0.0.1", false },
	{ "224.0.0.2", true },
	{ "239.255.255.255", true },
	{ "224.0.0.251", true },
	{ "10.9.0.1", false },
	{ "240.0.0.1", false },
	{ "255.255.255.255", false },
	{ "0.0.0.0", false },
	{ "ff02::1", false },
	{ "ff02::2", true },
	{ "ff02::1:ffaa:2", true },
	{ "ff12::1", true },
	{ "ff01::5", false },
	{ "ff11::5", false },
	{ "ff00::5", false },
	{ "ff0e::1", true },
	{ "ff05::1", true },
	{ "fe80::1", false },
	{ "::", false },
};

START_LOOP_TEST(reported, ROWS(groups))
{
	struct frl_ip group = ip(groups[_i].ip);

	ck_assert_msg(group_is_reported(&group) == groups[_i].reported, "%s", groups[_i].ip);
}
END_TEST

static const struct {
	const char *name;
	const char *bytes;
	uint16_t vlan;
	uint32_t max_delay_ms;
	bool ipv4;
	const char *group; /* NULL: all */
	size_t ip, message, end;
} queries[] = {
	{ "IGMPv1",
		"01005e000001 525400aa0001 0800 45c0001c0000400001028f15 0a090001e0000001"
		"1100eeff00000000",
		0, 10000, true, NULL, 14, 34, 42 },
	{ "IGMPv2",
		"01005e000001 525400aa0001 0800 46c00020000040000102fa0c 0a090001e0000001"
		"94040000 1164ee9b00000000",
		0, 10000, true, NULL, 14, 38, 46 },
	{ "IGMPv2, one group",
		"01005e010203 525400aa0001 8100000a 0800 46c00020000040000102e909"
		"0a090001ef010203 94040000 110afdf0ef010203",
		10, 1000, true, "239.1.2.3", 18, 42, 50 },
	{ "IGMPv3",
		"01005e000001 525400aa0001 0800 46c00024000040000102fa08 0a090001e0000001"
		"94040000 1164ec1e00000000027d0000",
		0, 10000, true, NULL, 14, 38, 50 },
	{ "IGMPv3, slow",
		"01005e000001 525400aa0001 0800 46c00024000040000102fa08 0a090001e0000001"
		"94040000 119febe300000000027d0000",
		0, 49600, true, NULL, 14, 38, 50 },
	{ "IGMPv3, sources",
		"01005e010203 525400aa0001 0800 46c0002c000040000102e8fd 0a090001ef010203"
		"94040000 110ae75cef010203027d00020a0900010a090002",
		0, 1000, true, "239.1.2.3", 14, 38, 58 },
	{ "MLDv1",
		"333300000001 525400aa0002 86dd 6000000000200001"
		"fe80000000000000505400fffeaa0002 ff020000000000000000000000000001"
		"3a00050200000100 820009182710000000000000000000000000000000000000",
		0, 10000, false, NULL, 14, 62, 86 },
	{ "MLDv1, one group",
		"333300020003 525400aa0002 8100000a 86dd 6000000000200001"
		"fe80000000000000505400fffeaa0002 ff120000000000000000000100020003"
		"3a00050200000100 82002d1203e80000ff120000000000000000000100020003",
		10, 1000, false, "ff12::1:2:3", 18, 66, 90 },
	{ "MLDv2",
		"333300000001 525400aa0002 86dd 6000000000240001"
		"fe80000000000000505400fffeaa0002 ff020000000000000000000000000001"
		"3a00050200000100 820006972710000000000000000000000000000000000000027d0000",
		0, 10000, false, NULL, 14, 62, 90 },
	{ "MLDv2, slow",
		"333300000001 525400aa0002 86dd 6000000000240001"
		"fe80000000000000505400fffeaa0002 ff020000000000000000000000000001"
		"3a00050200000100 82002da7ffff000000000000000000000000000000000000027d0000",
		0, 8387584, false, NULL, 14, 62, 90 },
	{ "MLDv2, sources",
		"333300020003 525400aa0002 86dd 6000000000340001"
		"fe80000000000000505400fffeaa0002 ff120000000000000000000100020003"
		"3a00050200000100"
		"82002d7503e80000ff120000000000000000000100020003027d0001fd090000"
		"000000000000000000000001",
		0, 1000, false, "ff12::1:2:3", 14, 62, 106 },
};

enum {
	IGMPV1,
	IGMPV2,
	IGMPV2_GROUP,
	IGMPV3,
	IGMPV3_SLOW,
	IGMPV3_SOURCES,
	MLDV1,
	MLDV1_GROUP,
	MLDV2,
	MLDV2_SLOW,
	MLDV2_SOURCES,
	N_QUERIES,
};

/* From a block of exactly that size. */
static bool decode_copy(struct group_query *query, const uint8_t *frame, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	bool good;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame, len);
	good = group_decode_query(query, len ? copy : copy + 1, len);
	free(copy);
	return good;
}

/* As for a peer that computes its checksums right, whatever it says. */
static void fix_checksums(uint8_t *frame, size_t end, int row)
{
	uint8_t *header = frame + queries[row].ip, *message = frame + queries[row].message;
	size_t len = end - queries[row].message;
	uint64_t sum = 0;

	memset(message + 2, 0, 2);
	if (queries[row].ipv4) {
		memset(header + 10, 0, 2);
		checksum_store(header + 10,
			checksum_add(0, header, queries[row].message - queries[row].ip));
	} else {
		sum = checksum_add(0, header + 8, 32);
		sum = checksum_add(sum, (const uint8_t[]){ 0, (uint8_t)len, 0, 58 }, 4);
	}
	checksum_store(message + 2, checksum_add(sum, message, len));
}

START_LOOP_TEST(decode_query, N_QUERIES)
{
	uint8_t frame[160];
	struct group_query query;
	struct frl_ip group;
	size_t len = from_hex(frame, sizeof(frame), queries[_i].bytes);

	ck_assert_uint_eq(len, queries[_i].end);
	memset(&query, 0xff, sizeof(query));
	ck_assert_msg(decode_copy(&query, frame, len), "%s", queries[_i].name);
	ck_assert_uint_eq(query.vlan, queries[_i].vlan);
	ck_assert_uint_eq(query.max_delay_ms, queries[_i].max_delay_ms);
	ck_assert_int_eq(query.ipv4, queries[_i].ipv4);
	ck_assert_int_eq(query.all, queries[_i].group == NULL);
	if (queries[_i].group) {
		group = ip(queries[_i].group);
		ck_assert(ip_equal(&query.group, &group));
	}
	memset(frame + len, 0xee, sizeof(frame) - len);
	ck_assert_msg(decode_copy(&query, frame, sizeof(frame)), "padded");
	for (size_t cut = 0; cut < len; cut++)
		ck_assert_msg(
			!decode_copy(&query, frame, cut), "%s, %zu bytes", queries[_i].name, cut);
}
END_TEST

/* Any flipped bit that a checksum covers. */
START_LOOP_TEST(flipped_bit, N_QUERIES)
{
	uint8_t frame[160];
	struct group_query query;
	size_t len = from_hex(frame, sizeof(frame), queries[_i].bytes);

	for (size_t bit = queries[_i].ip * 8; bit < len * 8; bit++) {
		size_t at = bit / 8 - queries[_i].ip;

		/* IPv6, its addresses, and no options. */
		if (!queries[_i].ipv4 && (at < 8 || (at >= 40 && at < 48)))
			continue;
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(!decode_copy(&query, frame, len), "bit %zu", bit);
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

/* The lengths that tell the version; the IP header and the checksums agree with the cut. */
START_LOOP_TEST(cut_message, N_QUERIES)
{
	uint8_t frame[160];
	struct group_query query;
	size_t len = from_hex(frame, sizeof(frame), queries[_i].bytes);
	size_t base = queries[_i].ipv4 ? 8 : 24, sources = queries[_i].ipv4 ? 11 : 27;

	if (len - queries[_i].message > base)
		frame[queries[_i].message + sources] = 0;
	for (size_t cut = queries[_i].message + 4; cut <= len; cut++) {
		size_t n = cut - queries[_i].message;

		put_be16(frame + queries[_i].ip + (queries[_i].ipv4 ? 2 : 4),
			(uint16_t)(cut - queries[_i].ip - (queries[_i].ipv4 ? 0 : IPV6_LEN)));
		fix_checksums(frame, cut, _i);
		ck_assert_msg(decode_copy(&query, frame, cut) == (n == base || n >= base + 4),
			"%s, %zu bytes", queries[_i].name, n);
	}
}
END_TEST

START_TEST(cut_options)
{
	uint8_t frame[160];
	struct group_query query;

	from_hex(frame, sizeof(frame), queries[MLDV1].bytes);
	for (size_t cut = 54; cut < 66; cut++) {
		put_be16(frame + 18, (uint16_t)(cut - 54));
		ck_assert_msg(!decode_copy(&query, frame, cut), "%zu bytes", cut);
	}
}
END_TEST

/* Bytes are set to others, and the checksums are right. Options of IPv6 begin at byte 54. */
static const struct {
	const char *name;
	int query;
	size_t at;
	const char *bytes;
	bool good;
} rows[] = {
	{ "as it was", IGMPV2, 40, "0000", true },
	{ "ethertype", IGMPV2, 12, "86dd", false },
	{ "version", IGMPV2, 14, "66", false },
	{ "header length 16", IGMPV2, 14, "44", false },
	{ "header past the end", IGMPV2, 14, "4f", false },
	{ "longer than the frame", IGMPV2, 16, "0021", false },
	{ "shorter than its header", IGMPV2, 16, "0017", false },
	{ "fragment", IGMPV2, 20, "2000", false },
	{ "later fragment", IGMPV2, 20, "0001", false },
	{ "from beyond this link", IGMPV2, 22, "02", false },
	{ "ICMP", IGMPV2, 23, "01", false },
	{ "another option", IGMPV2, 34, "01010101", true },
	{ "to a host", IGMPV2, 30, "0a090002", false },
	{ "for all to one group", IGMPV2, 30, "ef010203", false },
	{ "report", IGMPV2, 38, "16", false },
	{ "group is none", IGMPV2, 42, "0a090002", false },
	{ "group is a host", IGMPV2, 30, "0a090002 94040000 11640000 0a090002", false },
	{ "for a group to all", IGMPV2, 42, "ef010203", false },
	{ "for a group to another", IGMPV2_GROUP, 46, "ef010204", false },
	{ "reserved VLAN", IGMPV2_GROUP, 14, "0fff", false },
	{ "sources past the end", IGMPV3, 48, "0001", false },
	{ "many sources", IGMPV3, 48, "ffff", false },
	{ "too many sources", IGMPV3_SOURCES, 48, "0003", false },
	{ "fewer sources", IGMPV3_SOURCES, 48, "0001", true },
	{ "as it was", MLDV1, 68, "0000", true },
	{ "ethertype", MLDV1, 12, "0800", false },
	{ "version", MLDV1, 14, "40", false },
	{ "longer than the frame", MLDV1, 18, "0021", false },
	{ "shorter than its options", MLDV1, 18, "0007", false },
	{ "no options", MLDV1, 20, "3a", false },
	{ "from beyond this link", MLDV1, 21, "02", false },
	{ "from a global address", MLDV1, 22, "fd09", false },
	{ "from nobody", MLDV1, 22, "0000 000000000000 0000000000000000", false },
	{ "to a host", MLDV1, 38, "fe80", false },
	{ "for all to another group", MLDV1, 53, "02", false },
	{ "UDP behind options", MLDV1, 54, "11", false },
	{ "more options than bytes", MLDV1, 55, "04", false },
	{ "padding past the end", MLDV1, 55, "04 05020000 0120", false },
	{ "many more options than bytes", MLDV1, 55, "ff", false },
	{ "option past the end", MLDV1, 57, "05", false },
	{ "option far past the end", MLDV1, 57, "ff", false },
	{ "alert of another kind", MLDV1, 58, "0001", false },
	{ "no alert", MLDV1, 56, "0104", false },
	{ "alert of four bytes", MLDV1, 56, "050400000000", false },
	{ "alert at the end", MLDV1, 56, "000005020000", true },
	{ "half an option", MLDV1, 56, "050200000001", false },
	{ "unknown option to skip", MLDV1, 60, "1e00", true },
	{ "unknown option to mind", MLDV1, 60, "5e00", false },
	{ "report", MLDV1, 62, "83", false },
	{ "code", MLDV1, 63, "01", false },
	{ "group is none", MLDV1, 70, "fe80", false },
	{ "group of IPv4", MLDV1, 80, "ffffef010203", false },
	{ "for a group to all", MLDV1, 70, "ff12", false },
	{ "for a group to another", MLDV1_GROUP, 89, "04", false },
	{ "sources past the end", MLDV2, 88, "0001", false },
	{ "many sources", MLDV2, 88, "ffff", false },
	{ "too many sources", MLDV2_SOURCES, 88, "0002", false },
	{ "fewer sources", MLDV2_SOURCES, 88, "0000", true },
};

START_LOOP_TEST(changed_bytes, ROWS(rows))
{
	uint8_t frame[160], bytes[16];
	struct group_query query;
	size_t len = from_hex(frame, sizeof(frame), queries[rows[_i].query].bytes);

	memcpy(frame + rows[_i].at, bytes, from_hex(bytes, sizeof(bytes), rows[_i].bytes));
	fix_checksums(frame, len, rows[_i].query);
	ck_assert_msg(decode_copy(&query, frame, len) == rows[_i].good, "%s", rows[_i].name);
}
END_TEST

/* RFC 3376, 4.1.1 and RFC 3810, 5.1.3. */
static const struct {
	int query;
	const char *code;
	uint32_t max_delay_ms;
} delays[] = {
	{ IGMPV2, "00", 10000 },
	{ IGMPV2, "01", 100 },
	{ IGMPV2, "7f", 12700 },
	{ IGMPV2, "ff", 25500 }, /* no floating point in version 2 */
	{ IGMPV3, "00", 0 },
	{ IGMPV3, "7f", 12700 },
	{ IGMPV3, "80", 12800 },
	{ IGMPV3, "8f", 24800 },
	{ IGMPV3, "ff", 3174400 },
	{ MLDV1, "0000", 0 },
	{ MLDV1, "ffff", 65535 },
	{ MLDV2, "0000", 0 },
	{ MLDV2, "7fff", 32767 },
	{ MLDV2, "8000", 32768 },
	{ MLDV2, "8001", 32776 },
	{ MLDV2, "ffff", 8387584 },
};

START_LOOP_TEST(delay, ROWS(delays))
{
	int row = delays[_i].query;
	uint8_t frame[160], *message = frame + queries[row].message;
	struct group_query query;
	size_t len = from_hex(frame, sizeof(frame), queries[row].bytes);

	from_hex(message + (queries[row].ipv4 ? 1 : 4), 2, delays[_i].code);
	fix_checksums(frame, len, row);
	ck_assert(decode_copy(&query, frame, len));
	ck_assert_uint_eq(query.max_delay_ms, delays[_i].max_delay_ms);
}
END_TEST

static const struct {
	int query;
	const char *group;
	uint16_t vlan;
	bool asked;
} asked[] = {
	{ IGMPV2, "239.1.2.3", 0, true },
	{ IGMPV2, "239.1.2.3", 10, false },
	{ IGMPV2, "224.0.0.1", 0, false },
	{ IGMPV2, "ff12::1:2:3", 0, false },
	{ IGMPV2_GROUP, "239.1.2.3", 10, true },
	{ IGMPV2_GROUP, "239.1.2.3", 0, false },
	{ IGMPV2_GROUP, "239.1.2.4", 10, false },
	{ IGMPV3_SOURCES, "239.1.2.3", 0, true },
	{ MLDV1, "ff12::1:2:3", 0, true },
	{ MLDV1, "ff02::1", 0, false },
	{ MLDV1, "239.1.2.3", 0, false },
	{ MLDV1, "ff12::1:2:3", 10, false },
	{ MLDV1_GROUP, "ff12::1:2:3", 10, true },
	{ MLDV1_GROUP, "ff12::1:2:4", 10, false },
};

START_LOOP_TEST(is_asked, ROWS(asked))
{
	uint8_t frame[160];
	struct group_query query;
	struct frl_ip group = ip(asked[_i].group);
	size_t len = from_hex(frame, sizeof(frame), queries[asked[_i].query].bytes);

	ck_assert(group_decode_query(&query, frame, len));
	ck_assert_int_eq(group_is_queried(&query, &group, asked[_i].vlan), asked[_i].asked);
}
END_TEST

TEST_FILE(group)
