/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/neighbor.h"
#include "lib/wire/packet.h"
#include "tests/unit/wire/hex.h"
#include "tests/fixtures/program.h"

static const uint8_t mac_a[6] = { 0x02, 0, 0, 0, 0, 0x0a };
static const uint8_t mac_b[6] = { 0x02, 0, 0, 0, 0, 0x0b };
static const struct frl_ip v4_a = { { [10] = 0xff, 0xff, 10, 1, 1, 1 } };
static const struct frl_ip v4_b = { { [10] = 0xff, 0xff, 10, 1, 1, 2 } };
static const struct frl_ip v4_none = { { [10] = 0xff, 0xff } };
static const struct frl_ip v6_a = { { 0xfd, 0x00, [13] = 0xaa, 0xbb, 0x01 } };
static const struct frl_ip v6_b = { { 0xfd, 0x00, [13] = 0xcc, 0xdd, 0x02 } };
static const struct frl_ip v6_none;

/* Offsets in our solicitations and advertisements. */
enum {
	IP = ETH_LEN,
	ICMP = ETH_LEN + IPV6_LEN,
	TARGET = ICMP + 8,
	OPTION = ICMP + 24,
	ND_FRAME = OPTION + 8,
	ARP_FRAME = ETH_LEN + 28,
};

/* A asks or answers; in each case B is the other one. */
static const struct {
	const char *name;
	bool request;
	const struct frl_ip *sender, *target;
	size_t len;
	uint8_t dst_mac[6];
} rows[] = {
	{ "ARP request", true, &v4_a, &v4_b, ARP_FRAME, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } },
	{ "ARP probe", true, &v4_none, &v4_b, ARP_FRAME, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } },
	{ "ARP reply", false, &v4_a, &v4_b, ARP_FRAME, { 0x02, 0, 0, 0, 0, 0x0b } },
	{ "solicitation", true, &v6_a, &v6_b, ND_FRAME, { 0x33, 0x33, 0xff, 0xcc, 0xdd, 0x02 } },
	{ "advertisement", false, &v6_a, &v6_b, ND_FRAME, { 0x02, 0, 0, 0, 0, 0x0b } },
};

static size_t encode_row(uint8_t out[NEIGHBOR_MAX_FRAME], int row)
{
	struct neighbor_message message = {
		.request = rows[row].request,
		.sender_ip = *rows[row].sender,
		.target_ip = *rows[row].target,
	};

	memcpy(message.sender_mac, mac_a, 6);
	memcpy(message.dst_mac, mac_b, 6);
	return neighbor_encode(out, &message);
}

/* From a block of exactly that size. */
static bool decode_copy(struct neighbor_message *message, const uint8_t *frame, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	bool good;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame, len);
	good = neighbor_decode(message, len ? copy : copy + 1, len);
	free(copy);
	return good;
}

/* As for a peer that computes its checksum right, whatever it says. */
static void fix_checksum(uint8_t *frame)
{
	uint16_t len = get_be16(frame + IP + 4);
	struct frl_ip src, dst;
	uint16_t sum;

	memcpy(src.bytes, frame + IP + 8, 16);
	memcpy(dst.bytes, frame + IP + 24, 16);
	put_be16(frame + ICMP + 2, 0);
	sum = (uint16_t)~checksum_fold(
		checksum_add(checksum_pseudo(&src, &dst, 58, len), frame + ICMP, len));
	memcpy(frame + ICMP + 2, &sum, 2);
}

START_LOOP_TEST(roundtrip, ROWS(rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME + 20];
	struct neighbor_message message;
	size_t len = encode_row(frame, _i);

	memset(&message, 0xff, sizeof(message));
	ck_assert_uint_eq(len, rows[_i].len);
	ck_assert_mem_eq(frame, rows[_i].dst_mac, 6);
	ck_assert_mem_eq(frame + 6, mac_a, 6);
	ck_assert(decode_copy(&message, frame, len));
	ck_assert_int_eq(message.request, rows[_i].request);
	ck_assert(ip_equal(&message.sender_ip, rows[_i].sender));
	ck_assert(ip_equal(&message.target_ip, rows[_i].target));
	ck_assert_mem_eq(message.sender_mac, mac_a, 6);
	ck_assert_mem_eq(message.dst_mac, rows[_i].dst_mac, 6);
	ck_assert_int_eq(message.unicast, !rows[_i].request);
	ck_assert_int_eq(message.has_mac, rows[_i].sender != &v4_none);
	ck_assert_int_eq(message.override, 1);
	ck_assert_uint_eq(message.vlan, 0);

	memset(frame + len, 0xee, sizeof(frame) - len);
	ck_assert_msg(decode_copy(&message, frame, len + 18), "padded");
}
END_TEST

/* Puts a tag in front of what is at byte 12. */
static void add_tag(uint8_t *frame, size_t len, uint16_t ethertype, uint16_t tag)
{
	ck_assert_uint_ge(len, ETH_LEN);
	memmove(frame + 16, frame + 12, len - 12);
	put_be16(frame + 12, ethertype);
	put_be16(frame + 14, tag);
}

static const struct {
	uint16_t ethertype, tag, vlan;
	bool good;
} tags[] = {
	{ ETHERTYPE_VLAN, 10, 10, true },
	{ ETHERTYPE_VLAN, 0xf00a, 10, true }, /* priority and eligible to be dropped */
	{ ETHERTYPE_VLAN, 4094, 4094, true },
	{ ETHERTYPE_VLAN, 0xe000, 0, true }, /* priority alone */
	{ ETHERTYPE_VLAN, 4095, 0, false },  /* reserved */
	{ ETHERTYPE_SERVICE_VLAN, 10, 0, false },
};

START_LOOP_TEST(tagged, ROWS(rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME + 2 * VLAN_LEN];
	struct neighbor_message message;

	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		size_t len = encode_row(frame, _i);

		add_tag(frame, len, tags[i].ethertype, tags[i].tag);
		memset(&message, 0xff, sizeof(message));
		ck_assert_msg(decode_copy(&message, frame, len + VLAN_LEN) == tags[i].good,
			"tag %#x", tags[i].tag);
		if (!tags[i].good)
			continue;
		ck_assert_uint_eq(message.vlan, tags[i].vlan);
		for (size_t cut = 0; cut < len + VLAN_LEN; cut++)
			ck_assert_msg(!decode_copy(&message, frame, cut), "%zu bytes", cut);
		add_tag(frame, len + VLAN_LEN, ETHERTYPE_VLAN, 10);
		ck_assert_msg(!decode_copy(&message, frame, len + 2 * VLAN_LEN), "two tags");
	}
}
END_TEST

/* A tag is all that a VLAN adds. */
START_LOOP_TEST(encoded_with_tag, ROWS(rows))
{
	uint8_t want[NEIGHBOR_MAX_FRAME], frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	size_t len = encode_row(want, _i);

	ck_assert(neighbor_decode(&message, want, len));
	message.vlan = 0x123;
	add_tag(want, len, ETHERTYPE_VLAN, 0x123);
	ck_assert_uint_eq(neighbor_encode(frame, &message), len + VLAN_LEN);
	ck_assert_mem_eq(frame, want, len + VLAN_LEN);
}
END_TEST

/* To the one that is known, to hear whether it is still there. */
START_LOOP_TEST(unicast_request, ROWS(rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message, again;
	size_t len = encode_row(frame, _i);

	if (!rows[_i].request)
		return;
	ck_assert(neighbor_decode(&message, frame, len));
	message.unicast = true;
	memcpy(message.dst_mac, mac_b, 6);
	ck_assert_uint_eq(neighbor_encode(frame, &message), len);
	ck_assert_mem_eq(frame, mac_b, 6);
	if (len == ND_FRAME)
		ck_assert_mem_eq(frame + IP + 24, v6_b.bytes, 16);
	ck_assert(decode_copy(&again, frame, len));
	ck_assert(again.request && again.unicast);
	ck_assert(ip_equal(&again.target_ip, rows[_i].target));
	ck_assert(ip_equal(&again.sender_ip, rows[_i].sender));
}
END_TEST

START_LOOP_TEST(cut_frame, ROWS(rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	size_t len = encode_row(frame, _i);

	for (size_t cut = 0; cut < len; cut++)
		ck_assert_msg(
			!decode_copy(&message, frame, cut), "%s, %zu bytes", rows[_i].name, cut);
}
END_TEST

/* The length in the IPv6 header and the checksum agree with the cut. */
START_LOOP_TEST(cut_message, ROWS(rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	size_t len = encode_row(frame, _i);
	if (len != ND_FRAME)
		return;
	for (size_t cut = ICMP + 4; cut < len; cut++) {
		put_be16(frame + IP + 4, (uint16_t)(cut - ICMP));
		fix_checksum(frame);
		ck_assert_msg(decode_copy(&message, frame, cut) == (cut == OPTION), "%s, %zu bytes",
			rows[_i].name, cut);
	}
}
END_TEST

/* Any flipped bit of the addresses or of ICMPv6 spoils the checksum. */
START_LOOP_TEST(flipped_bit, ROWS(rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	size_t len = encode_row(frame, _i);

	if (len != ND_FRAME)
		return;
	for (size_t bit = (IP + 8) * 8; bit < len * 8; bit++) {
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(!decode_copy(&message, frame, len), "bit %zu", bit);
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

enum kind {
	ARP_REQUEST = 0,
	ARP_REPLY = 2,
	SOLICITATION = 3,
	ADVERTISEMENT = 4,
};

/* One byte is set to another value, and the checksum is right. */
static const struct {
	const char *name;
	enum kind kind;
	size_t at;
	uint8_t value;
	bool good;
} byte_rows[] = {
	{ "as it was", ARP_REQUEST, ETH_LEN, 0, true },
	{ "hardware type", ARP_REQUEST, ETH_LEN + 1, 6, false },
	{ "protocol", ARP_REQUEST, ETH_LEN + 2, 0x86, false },
	{ "hardware length", ARP_REQUEST, ETH_LEN + 4, 8, false },
	{ "protocol length", ARP_REQUEST, ETH_LEN + 5, 16, false },
	{ "reverse ARP", ARP_REQUEST, ETH_LEN + 7, 3, false },
	{ "operation 0", ARP_REQUEST, ETH_LEN + 7, 0, false },
	{ "operation 258", ARP_REPLY, ETH_LEN + 6, 1, false },
	{ "group address as sender", ARP_REPLY, ETH_LEN + 8, 0x03, false },
	{ "IP group as sender", ARP_REPLY, ETH_LEN + 14, 224, false },
	{ "ethertype", ARP_REPLY, 13, 0, false },
	{ "as it was", SOLICITATION, IP, 0x60, true },
	{ "IP version", SOLICITATION, IP, 0x40, false },
	{ "next header", SOLICITATION, IP + 6, 17, false },
	{ "hop limit", SOLICITATION, IP + 7, 254, false },
	{ "hop limit", ADVERTISEMENT, IP + 7, 254, false },
	{ "echo request", SOLICITATION, ICMP, 128, false },
	{ "router solicitation", SOLICITATION, ICMP, 133, false },
	{ "code", SOLICITATION, ICMP + 1, 1, false },
	{ "multicast target", SOLICITATION, TARGET, 0xff, false },
	{ "multicast sender", SOLICITATION, IP + 8, 0xff, false },
	{ "option of length 0", SOLICITATION, OPTION + 1, 0, false },
	{ "option past the end", SOLICITATION, OPTION + 1, 2, false },
	{ "option far past the end", SOLICITATION, OPTION + 1, 255, false },
	{ "other option", SOLICITATION, OPTION, 14, true },
	{ "group address in the option", SOLICITATION, OPTION + 2, 0x03, false },
	{ "option of length 0", ADVERTISEMENT, OPTION + 1, 0, false },
	{ "option past the end", ADVERTISEMENT, OPTION + 1, 2, false },
	{ "other option", ADVERTISEMENT, OPTION, 1, true },
	{ "router, solicited, override", ADVERTISEMENT, ICMP + 4, 0xe0, true },
	{ "solicited, but to all", ADVERTISEMENT, IP + 24, 0xff, false },
};

START_LOOP_TEST(changed_byte, ROWS(byte_rows))
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	size_t len = encode_row(frame, (int)byte_rows[_i].kind);

	frame[byte_rows[_i].at] = byte_rows[_i].value;
	if (len == ND_FRAME)
		fix_checksum(frame);
	ck_assert_msg(
		decode_copy(&message, frame, len) == byte_rows[_i].good, "%s", byte_rows[_i].name);
}
END_TEST

/* Linux leaves the option out when it asks one station; the frame says who it is. */
START_TEST(solicitation_without_option)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;

	encode_row(frame, SOLICITATION);
	put_be16(frame + IP + 4, 24);
	fix_checksum(frame);
	ck_assert(decode_copy(&message, frame, OPTION));
	ck_assert_mem_eq(message.sender_mac, mac_a, 6);
}
END_TEST

/* So does it when it is asked alone; else the answer tells nothing then. */
START_TEST(advertisement_without_option)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;

	encode_row(frame, ADVERTISEMENT);
	put_be16(frame + IP + 4, 24);
	for (unsigned flags = 0; flags < 0x100; flags += 0x20) {
		bool solicited = flags & 0x40;

		frame[ICMP + 4] = (uint8_t)flags;
		fix_checksum(frame);
		ck_assert_int_eq(decode_copy(&message, frame, OPTION), solicited);
		if (!solicited)
			continue;
		ck_assert(!message.has_mac);
		ck_assert_int_eq(message.override, (flags & 0x20) != 0);
		ck_assert_mem_eq(message.sender_mac, mac_a, 6);
	}
}
END_TEST

/* IPv4-mapped addresses, which are for ARP alone, are not believed in IPv6. */
START_TEST(mapped_address)
{
	static const size_t at[] = { IP + 8, IP + 24, TARGET };

	for (int row = SOLICITATION; row <= ADVERTISEMENT; row++) {
		for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
			uint8_t frame[NEIGHBOR_MAX_FRAME];
			struct neighbor_message message;

			encode_row(frame, row);
			memcpy(frame + at[i], v4_b.bytes, 16);
			fix_checksum(frame);
			ck_assert_msg(!decode_copy(&message, frame, ND_FRAME), "row %d, at %zu",
				row, at[i]);
		}
	}
}
END_TEST

/* A probe names no sender: it goes to the target's group, without the option. */
START_TEST(duplicate_address_probe)
{
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;

	encode_row(frame, SOLICITATION);
	memset(frame + IP + 8, 0, 16);
	fix_checksum(frame);
	ck_assert_msg(!decode_copy(&message, frame, ND_FRAME), "with an option");

	put_be16(frame + IP + 4, 24);
	fix_checksum(frame);
	ck_assert(decode_copy(&message, frame, OPTION));
	ck_assert(message.request);
	ck_assert(ip_equal(&message.sender_ip, &v6_none));
	ck_assert(ip_equal(&message.target_ip, &v6_b));

	memcpy(frame + IP + 24, v6_b.bytes, 16);
	fix_checksum(frame);
	ck_assert_msg(!decode_copy(&message, frame, OPTION), "not to the group");
}
END_TEST

/* The answer to it goes to everybody. */
START_TEST(answer_to_probe)
{
	static const uint8_t to_all[6] = { 0x33, 0x33, 0, 0, 0, 1 };
	struct neighbor_message message = { .sender_ip = v6_a, .target_ip = v6_none };
	uint8_t frame[NEIGHBOR_MAX_FRAME];

	memcpy(message.sender_mac, mac_a, 6);
	memcpy(message.dst_mac, mac_b, 6);
	ck_assert_uint_eq(neighbor_encode(frame, &message), ND_FRAME);
	ck_assert_mem_eq(frame, to_all, 6);
	ck_assert_uint_eq(frame[IP + 24], 0xff);
	ck_assert_uint_eq(frame[ICMP + 4], 0x20);
	ck_assert(decode_copy(&message, frame, ND_FRAME));
	ck_assert(ip_equal(&message.sender_ip, &v6_a));
}
END_TEST

/* As tcpdump would show them; the checksum was computed apart from this code. */
START_TEST(golden_bytes)
{
	static const char arp[] =
		"ffffffffffff 02000000000a 0806 0001 0800 06 04 0001 02000000000a 0a010101 "
		"000000000000 0a010102";
	static const char icmp[] =
		"87 00 064a 00000000 fd000000000000000000000000ccdd02 0101 02000000000a";
	uint8_t frame[NEIGHBOR_MAX_FRAME], want[NEIGHBOR_MAX_FRAME];
	size_t n = from_hex(want, sizeof(want), arp);

	ck_assert_uint_eq(encode_row(frame, ARP_REQUEST), n);
	ck_assert_mem_eq(frame, want, n);
	n = from_hex(want, sizeof(want), icmp);
	ck_assert_uint_eq(encode_row(frame, SOLICITATION), ICMP + n);
	ck_assert_mem_eq(frame + ICMP, want, n);
}
END_TEST

/* Frames of Linux, recorded from its network stack: A is 52:54:00:aa:00:01 and B ends in 02. */
static const struct {
	const char *bytes;
	bool request, unicast, has_mac, override;
	uint16_t vlan;
	const char *sender, *target; /* 16 bytes each */
	const char *encoded;         /* by us; NULL: the same */
} linux_rows[] = {
	{ "ffffffffffff 525400aa0001 0806 00010800 06040001 525400aa0001 0a090001 000000000000"
	  "0a090002",
		true, false, true, true, 0, "00000000000000000000ffff0a090001",
		"00000000000000000000ffff0a090002", NULL },
	{ "525400aa0001 525400aa0002 8100000a 0806 00010800 06040001 525400aa0002 0a0a0002"
	  "000000000000 0a0a0001",
		true, true, true, true, 10, "00000000000000000000ffff0a0a0002",
		"00000000000000000000ffff0a0a0001", NULL },
	{ "525400aa0002 525400aa0001 8100000a 0806 00010800 06040002 525400aa0001 0a0a0001"
	  "525400aa0002 0a0a0002",
		false, true, true, true, 10, "00000000000000000000ffff0a0a0001",
		"00000000000000000000ffff0a0a0002", NULL },
	{ "525400aa0001 525400aa0002 86dd 6000000000203aff fe80000000000000505400fffeaa0002"
	  "fe80000000000000505400fffeaa0001 87003922 00000000 fe80000000000000505400fffeaa0001"
	  "0101525400aa0002",
		true, true, true, true, 0, "fe80000000000000505400fffeaa0002",
		"fe80000000000000505400fffeaa0001", NULL },
	{ "525400aa0002 525400aa0001 86dd 6000000000183aff fe80000000000000505400fffeaa0001"
	  "fe80000000000000505400fffeaa0002 88004c2b 40000000 fe80000000000000505400fffeaa0001",
		false, true, false, false, 0, "fe80000000000000505400fffeaa0001",
		"fe80000000000000505400fffeaa0002",
		"525400aa0002 525400aa0001 86dd 6000000000203aff fe80000000000000505400fffeaa0001"
		"fe80000000000000505400fffeaa0002 8800d722 60000000"
		"fe80000000000000505400fffeaa0001 0201525400aa0001" },
};

START_LOOP_TEST(as_linux_does, ROWS(linux_rows))
{
	uint8_t frame[128], out[NEIGHBOR_MAX_FRAME];
	struct neighbor_message message;
	struct frl_ip sender, target;
	size_t len = from_hex(frame, sizeof(frame), linux_rows[_i].bytes);

	from_hex(sender.bytes, 16, linux_rows[_i].sender);
	from_hex(target.bytes, 16, linux_rows[_i].target);
	ck_assert(decode_copy(&message, frame, len));
	ck_assert_int_eq(message.request, linux_rows[_i].request);
	ck_assert_int_eq(message.unicast, linux_rows[_i].unicast);
	ck_assert_int_eq(message.has_mac, linux_rows[_i].has_mac);
	ck_assert_int_eq(message.override, linux_rows[_i].override);
	ck_assert_uint_eq(message.vlan, linux_rows[_i].vlan);
	ck_assert_mem_eq(message.sender_mac, frame + 6, 6);
	ck_assert(ip_equal(&message.sender_ip, &sender));
	ck_assert(ip_equal(&message.target_ip, &target));
	if (linux_rows[_i].encoded)
		len = from_hex(frame, sizeof(frame), linux_rows[_i].encoded);
	ck_assert_uint_eq(neighbor_encode(out, &message), len);
	ck_assert_mem_eq(out, frame, len);
}
END_TEST

TEST_FILE(neighbor)
