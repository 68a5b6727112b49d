/* SPDX-License-Identifier: BSD-3-Clause */
/* Echo: which requests are answered, and with what. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/icmp.h"
#include "lib/wire/packet.h"
#include "tests/unit/wire/hex.h"
#include "tests/fixtures/program.h"

/* Requests and replies, made apart from this code; the one over IPv6 is on VLAN 10. Both have
 * another hop limit than ours, a traffic class, and an odd number of bytes. */
static const char request_v4[] =
	"525400aa0002 525400aa0001 0800 456a0025beef40000701a06a 0a0900010a090002"
	"0800eb3412340001616263646566676869";
static const char reply_v4[] =
	"525400aa0001 525400aa0002 0800 45680025000040004001265c 0a0900020a090001"
	"0000f33412340001616263646566676869";
static const char request_v6[] = "525400aa0002 525400aa0001 8100000a 86dd 66a1234500113a01"
				 "fd090000000000000000000000000001 fd090000000000000000000000000002"
				 "800078d212340001616263646566676869";
static const char reply_v6[] = "525400aa0001 525400aa0002 8100000a 86dd 6680000000113a40"
			       "fd090000000000000000000000000002 fd090000000000000000000000000001"
			       "810077d212340001616263646566676869";

/* Where they keep things. */
enum {
	V4_IP = ETH_LEN,
	V4_ICMP = V4_IP + IPV4_LEN,
	V4_END = V4_ICMP + 17,
	V6_IP = ETH_LEN + VLAN_LEN,
	V6_ICMP = V6_IP + IPV6_LEN,
	V6_END = V6_ICMP + 17,
	JUMBO = 9000,
	MAX_FRAME = JUMBO + ETH_LEN + VLAN_LEN,
};

static const struct {
	const char *request, *reply;
	size_t ip, icmp, end;
	uint16_t vlan;
} families[] = {
	{ request_v4, reply_v4, V4_IP, V4_ICMP, V4_END, 0 },
	{ request_v6, reply_v6, V6_IP, V6_ICMP, V6_END, 10 },
};

enum { V4, V6, FAMILIES };

/* From a block of exactly that size. */
static bool decode_copy(const uint8_t *frame, size_t len)
{
	struct icmp_echo echo;
	uint8_t *copy = malloc(len ? len : 1);
	bool good;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame, len);
	good = icmp_echo_decode(&echo, len ? copy : copy + 1, len);
	free(copy);
	return good;
}

/* As for a peer that computes its checksums right, whatever it says. */
static void fix_checksums(uint8_t *frame, size_t end, int family)
{
	uint8_t *ip = frame + families[family].ip, *icmp = frame + families[family].icmp;
	size_t len = end - families[family].icmp;
	struct frl_ip src, dst;
	uint64_t sum = 0;

	memset(icmp + 2, 0, 2);
	if (family == V4) {
		memset(ip + 10, 0, 2);
		checksum_store(ip + 10, checksum_add(0, ip, IPV4_LEN));
	} else {
		memcpy(src.bytes, ip + 8, 16);
		memcpy(dst.bytes, ip + 24, 16);
		/* The pseudo header of IPv6 whatever the addresses are. */
		sum = checksum_add(0, &src, 16);
		sum = checksum_add(sum, &dst, 16);
		sum = checksum_add(
			sum, (const uint8_t[]){ (uint8_t)(len >> 8), (uint8_t)len, 0, 58 }, 4);
	}
	checksum_store(icmp + 2, checksum_add(sum, icmp, len));
}

START_LOOP_TEST(golden_bytes, FAMILIES)
{
	uint8_t frame[128], reply[128], out[128];
	struct icmp_echo echo;
	size_t len = from_hex(frame, sizeof(frame), families[_i].request);
	size_t reply_len = from_hex(reply, sizeof(reply), families[_i].reply);

	ck_assert_uint_eq(len, families[_i].end);
	ck_assert(icmp_echo_decode(&echo, frame, len));
	ck_assert_mem_eq(echo.dst_mac, frame, 6);
	ck_assert_mem_eq(echo.src_mac, frame + 6, 6);
	ck_assert_uint_eq(echo.vlan, families[_i].vlan);
	ck_assert_uint_eq(echo.traffic_class, 0x6a);
	ck_assert_uint_eq(echo.src_ip.bytes[15], 1);
	ck_assert_uint_eq(echo.dst_ip.bytes[15], 2);
	ck_assert_int_eq(ip_is_v4(&echo.src_ip), _i == V4);
	ck_assert(echo.message == frame + families[_i].icmp);
	ck_assert_uint_eq(echo.message_len, 17);
	memset(out, 0xa5, sizeof(out));
	ck_assert_uint_eq(icmp_echo_reply(out, sizeof(out), &echo), reply_len);
	ck_assert_mem_eq(out, reply, reply_len);
	for (size_t i = reply_len; i < sizeof(out); i++)
		ck_assert_uint_eq(out[i], 0xa5);
	for (size_t room = 0; room < reply_len; room++)
		ck_assert_uint_eq(icmp_echo_reply(out, room, &echo), 0);
	ck_assert_uint_eq(icmp_echo_reply(out, reply_len, &echo), reply_len);
	/* A reply is no request. */
	ck_assert(!decode_copy(reply, reply_len));
}
END_TEST

/* A request of ours is one that this code answers, and the reply has its label. */
START_LOOP_TEST(own_requests, FAMILIES)
{
	static const uint32_t lens[] = { 64, 1068, 4141, JUMBO };
	uint8_t frame[128], request[MAX_FRAME], reply[MAX_FRAME];
	struct icmp_label label = { .id = 0x1234, .sequence = 0x5678 }, got;
	struct icmp_echo peer, echo;

	from_hex(frame, sizeof(frame), families[_i].request);
	ck_assert(icmp_echo_decode(&peer, frame, families[_i].end));
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		size_t len = families[_i].ip + lens[i];

		label.ip_len = lens[i];
		memset(request, 0xa5, sizeof(request));
		ck_assert_uint_eq(icmp_echo_request(request, len - 1, &peer, &label), 0);
		ck_assert_uint_eq(icmp_echo_request(request, len, &peer, &label), len);
		ck_assert(!icmp_reply_decode(&echo, &got, request, len));
		ck_assert(icmp_echo_decode(&echo, request, len));
		ck_assert(ip_equal(&echo.dst_ip, &peer.src_ip));
		ck_assert_mem_eq(request, peer.src_mac, 6);
		if (_i == V4) /* never cut on the way */
			ck_assert_uint_eq(get_be16(request + V4_IP + 6), 0x4000);
		ck_assert_uint_eq(icmp_echo_reply(reply, sizeof(reply), &echo), len);
		ck_assert(icmp_reply_decode(&echo, &got, reply, len));
		ck_assert(ip_equal(&echo.src_ip, &peer.src_ip));
		ck_assert_uint_eq(got.id, label.id);
		ck_assert_uint_eq(got.sequence, label.sequence);
		ck_assert_uint_eq(got.ip_len, lens[i]);
		reply[len - 1] ^= 1;
		ck_assert(!icmp_reply_decode(&echo, &got, reply, len));
	}
}
END_TEST

START_LOOP_TEST(cut_and_padded, FAMILIES)
{
	uint8_t frame[128] = { 0 };
	size_t len = from_hex(frame, sizeof(frame), families[_i].request);

	for (size_t cut = 0; cut < len; cut++)
		ck_assert_msg(!decode_copy(frame, cut), "%zu bytes", cut);
	ck_assert(decode_copy(frame, len));
	memset(frame + len, 0xee, sizeof(frame) - len);
	ck_assert(decode_copy(frame, sizeof(frame)));
}
END_TEST

/* The length in the IP header and the checksums agree with the cut. */
START_LOOP_TEST(cut_message, FAMILIES)
{
	uint8_t frame[128];
	size_t len = from_hex(frame, sizeof(frame), families[_i].request);

	for (size_t cut = families[_i].icmp + 4; cut <= len; cut++) {
		if (_i == V4)
			put_be16(frame + V4_IP + 2, (uint16_t)(cut - V4_IP));
		else
			put_be16(frame + V6_IP + 4, (uint16_t)(cut - V6_ICMP));
		fix_checksums(frame, cut, _i);
		ck_assert_msg(decode_copy(frame, cut) == (cut >= families[_i].icmp + 8),
			"%zu bytes", cut);
	}
}
END_TEST

/* Any flipped bit that a checksum covers. */
START_LOOP_TEST(flipped_bit, FAMILIES)
{
	uint8_t frame[128];
	size_t len = from_hex(frame, sizeof(frame), families[_i].request);
	size_t from = _i == V4 ? V4_IP : V6_IP + 8;

	for (size_t bit = from * 8; bit < len * 8; bit++) {
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(!decode_copy(frame, len), "bit %zu", bit);
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

/* Bytes are set to others, and the checksums are right. */
static const struct {
	const char *name;
	int family;
	size_t at;
	const char *bytes;
	bool good;
} rows[] = {
	{ "as it was", V4, V4_ICMP + 4, "00", true },
	{ "to a group of stations", V4, 0, "53", false },
	{ "broadcast", V4, 0, "ffffffffffff", false },
	{ "from a group of stations", V4, 6, "53", false },
	{ "from no station", V4, 6, "000000000000", false },
	{ "ethertype", V4, 12, "86dd", false },
	{ "version", V4, V4_IP, "65", false },
	{ "header length", V4, V4_IP, "44", false },
	{ "options", V4, V4_IP, "46", false },
	{ "longer than the frame", V4, V4_IP + 2, "0026", false },
	{ "shorter than its header", V4, V4_IP + 2, "0013", false },
	{ "first fragment", V4, V4_IP + 6, "2000", false },
	{ "later fragment", V4, V4_IP + 6, "0001", false },
	{ "last fragment", V4, V4_IP + 6, "1fff", false },
	{ "reserved bit", V4, V4_IP + 6, "8000", false },
	{ "may be fragmented", V4, V4_IP + 6, "0000", true },
	{ "time to live 0", V4, V4_IP + 8, "00", true },
	{ "UDP", V4, V4_IP + 9, "11", false },
	{ "from 0.9.0.1", V4, V4_IP + 12, "00", false },
	{ "from this machine", V4, V4_IP + 12, "7f000001", false },
	{ "from a group", V4, V4_IP + 12, "e0000001", false },
	{ "from a reserved address", V4, V4_IP + 12, "f0000001", false },
	{ "from everybody", V4, V4_IP + 12, "ffffffff", false },
	{ "from 223.9.0.1", V4, V4_IP + 12, "df", true },
	{ "to a group", V4, V4_IP + 16, "e0000001", false },
	{ "to everybody", V4, V4_IP + 16, "ffffffff", false },
	{ "echo reply", V4, V4_ICMP, "00", false },
	{ "time stamp", V4, V4_ICMP, "0d", false },
	{ "redirect", V4, V4_ICMP, "05", false },
	{ "code", V4, V4_ICMP + 1, "01", false },
	{ "as it was", V6, V6_ICMP + 4, "00", true },
	{ "to a group of stations", V6, 0, "33", false },
	{ "from a group of stations", V6, 6, "33", false },
	{ "priority alone", V6, 14, "e000", true },
	{ "reserved VLAN", V6, 14, "0fff", false },
	{ "tag of a provider", V6, 12, "88a8", false },
	{ "ethertype", V6, 16, "0800", false },
	{ "two tags", V6, 16, "8100", false },
	{ "version", V6, V6_IP, "46", false },
	{ "longer than the frame", V6, V6_IP + 4, "0012", false },
	{ "extension header", V6, V6_IP + 6, "00", false },
	{ "fragment", V6, V6_IP + 6, "2c", false },
	{ "ICMP of IPv4", V6, V6_IP + 6, "01", false },
	{ "hop limit 0", V6, V6_IP + 7, "00", true },
	{ "from a group", V6, V6_IP + 8, "ff", false },
	{ "from nobody", V6, V6_IP + 8, "0000 000000000000 0000000000000000", false },
	{ "from this machine", V6, V6_IP + 8, "0000 000000000000 0000000000000001", false },
	{ "from an address of IPv4", V6, V6_IP + 8, "0000 000000000000 0000ffff0a090001", false },
	{ "to an address of IPv4", V6, V6_IP + 24, "0000 000000000000 0000ffff0a090002", false },
	{ "to a group", V6, V6_IP + 24, "ff", false },
	{ "link-local", V6, V6_IP + 8, "fe80", true },
	{ "echo reply", V6, V6_ICMP, "81", false },
	{ "solicitation", V6, V6_ICMP, "87", false },
	{ "ICMP echo request", V6, V6_ICMP, "08", false },
	{ "code", V6, V6_ICMP + 1, "01", false },
};

START_LOOP_TEST(changed_bytes, ROWS(rows))
{
	uint8_t frame[128], bytes[16];
	size_t len = from_hex(frame, sizeof(frame), families[rows[_i].family].request);

	memcpy(frame + rows[_i].at, bytes, from_hex(bytes, sizeof(bytes), rows[_i].bytes));
	fix_checksums(frame, len, rows[_i].family);
	ck_assert_msg(decode_copy(frame, len) == rows[_i].good, "%s", rows[_i].name);
}
END_TEST

static const size_t sizes[] = { 0, 1, 2, 3, 4, 5, 56, 63, 1471, 1472, 1473, 8951, 8952 };

/* Up to what fits a jumbo frame. The reply, made a request again, is the other's. */
START_LOOP_TEST(any_size, ROWS(sizes))
{
	static uint8_t frame[MAX_FRAME], out[MAX_FRAME];

	for (int family = V4; family <= V6; family++) {
		size_t icmp = families[family].icmp, end = icmp + 8 + sizes[_i];
		struct icmp_echo echo;

		from_hex(frame, sizeof(frame), families[family].request);
		for (size_t i = 0; i < sizes[_i]; i++)
			frame[icmp + 8 + i] = (uint8_t)(i * 7 + i / 256);
		put_be16(frame + families[family].ip + (family == V4 ? 2 : 4),
			(uint16_t)(end - (family == V4 ? (size_t)V4_IP : icmp)));
		fix_checksums(frame, end, family);
		ck_assert(decode_copy(frame, end));
		ck_assert(icmp_echo_decode(&echo, frame, end));
		ck_assert_uint_eq(icmp_echo_reply(out, sizeof(out), &echo), end);
		ck_assert_mem_eq(out + icmp + 4, frame + icmp + 4, end - icmp - 4);
		ck_assert_mem_eq(out, frame + 6, 6);
		ck_assert_mem_eq(out + 6, frame, 6);
		ck_assert_uint_eq(out[icmp], family == V4 ? 0 : 129);
		out[icmp] = frame[icmp];
		ck_assert(!decode_copy(out, end));
		fix_checksums(out, end, family);
		ck_assert(decode_copy(out, end));
	}
}
END_TEST

TEST_FILE(icmp)
