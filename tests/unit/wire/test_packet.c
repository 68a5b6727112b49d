/* SPDX-License-Identifier: BSD-3-Clause */
/* Decoding of frames: the results, which are refused, and why. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/wire/packet_fixture.h"
#include "tests/fixtures/program.h"

enum {
	OPCODES = 256,
	BTH_FLAGS_BYTE = 1, /* SE, MigReq, pad, version */
};

START_LOOP_TEST(roundtrip, OPCODES)
{
	static const uint32_t payloads[] = { 0, 1, 2, 3, 4, 5, 63, 1023, 1024, 4095, 4096 };
	struct random_state random;
	struct wire_headers h;

	if (!opcode_known((uint8_t)_i))
		return;
	random_seed(&random, (uint64_t)_i);
	for (int variant = 0; variant < VARIANTS; variant++) {
		for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
			random_headers(&h, (uint8_t)_i, &random);
			check_roundtrip(variant, &h, payloads[i], true);
			check_roundtrip(variant, &h, payloads[i], false);
		}
	}
}
END_TEST

/* Fields that have no place on the wire, or are computed, are not sent. */
START_LOOP_TEST(reserved_bits, OPCODES)
{
	struct wire_headers h = simple_headers((uint8_t)_i), dirty;

	if (!opcode_known((uint8_t)_i))
		return;
	dirty = h;
	dirty.bth.pad = 2;
	dirty.bth.congestion |= 0x3f;
	dirty.bth.ack_bits |= 0x7f;
	dirty.bth.dest_qpn |= 0xff000000;
	dirty.bth.psn.value |= 0xff000000;
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame clean = make_frame(variant, &h, 5, true);
		struct frame frame = make_frame(variant, &dirty, 5, true);

		ck_assert_uint_eq(frame.len, clean.len);
		ck_assert_mem_eq(frame.bytes, clean.bytes, clean.len);
	}
}
END_TEST

static enum wire_verdict verdict_of_cut_frame(const struct frame *frame, size_t len)
{
	return len < frame->udp ? WIRE_SHORT : WIRE_BAD_IP;
}

/* The frame ends early, the lengths in it do not. */
START_LOOP_TEST(cut_frame, OPCODES)
{
	struct wire_headers h = simple_headers((uint8_t)_i);
	struct wire_packet packet;

	if (!opcode_known((uint8_t)_i))
		return;
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = make_frame(variant, &h, 5, true);

		for (size_t len = 0; len < frame.len; len++)
			assert_verdict(decode_copy(&packet, &frame, len),
				verdict_of_cut_frame(&frame, len), opcode_table[_i].name);
		assert_verdict(decode_copy(&packet, &frame, frame.len), WIRE_OK, "whole");
	}
}
END_TEST

static enum wire_verdict verdict_of_cut_packet(uint8_t opcode, size_t udp_len)
{
	if (udp_len < UDP_LEN + BTH_LEN + (size_t)opcode_table[opcode].headers_len)
		return WIRE_SHORT;
	return udp_len % 4 ? WIRE_BAD_LENGTH : WIRE_OK;
}

/* The packet was sent too short: all lengths agree. */
START_LOOP_TEST(cut_packet, OPCODES)
{
	struct wire_headers h = simple_headers((uint8_t)_i);
	struct wire_packet packet;

	if (!opcode_known((uint8_t)_i))
		return;
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = make_frame(variant, &h, 5, true);

		for (size_t udp_len = 0; frame.udp + udp_len < frame.len; udp_len++) {
			set_lengths(&frame, udp_len);
			assert_verdict(decode_copy(&packet, &frame, frame.udp + udp_len),
				verdict_of_cut_packet((uint8_t)_i, udp_len), opcode_table[_i].name);
		}
	}
}
END_TEST

/* Bytes behind the packet in its frame are not looked at. */
START_LOOP_TEST(padded_frame, VARIANTS)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);

	for (size_t extra = 0; extra < 64; extra++) {
		struct frame frame = make_frame(_i, &h, 1, true);
		struct wire_packet packet;

		memset(frame.bytes + frame.len, 0xee, extra);
		assert_verdict(
			wire_decode(&packet, frame.bytes, frame.len + extra), WIRE_OK, "padded");
		assert_verdict(wire_trim(&packet, true), WIRE_OK, "padded");
		ck_assert_uint_eq(packet.payload_len, 1);
		ck_assert(wire_icrc_ok(&packet));
	}
}
END_TEST

enum base {
	AT_FRAME,
	AT_L3,
	AT_UDP,
	AT_BTH,
};

enum family {
	BOTH,
	V4,
	V6,
};

/* One 16-bit word of a SEND_ONLY of 5 bytes (IP payload 32) is set to another value. */
static const struct {
	const char *name;
	enum family family;
	enum base base;
	int offset;
	uint16_t value;
	enum wire_verdict verdict;
} wrong_rows[] = {
	{ "unknown ethertype", BOTH, AT_L3, -2, 0x8915, WIRE_NOT_ROCE },
	{ "ARP", BOTH, AT_L3, -2, ETHERTYPE_ARP, WIRE_ARP },
	{ "a tag before nothing that is known", BOTH, AT_L3, -2, ETHERTYPE_VLAN, WIRE_NOT_ROCE },
	{ "IPv4 of version 6", V4, AT_L3, 0, 0x656a, WIRE_BAD_IP },
	{ "IPv4 with options", V4, AT_L3, 0, 0x466a, WIRE_BAD_IP },
	{ "IPv4 with a header of 16 bytes", V4, AT_L3, 0, 0x446a, WIRE_BAD_IP },
	{ "IPv4 total length 19", V4, AT_L3, 2, 19, WIRE_BAD_IP },
	{ "IPv4 total length 0", V4, AT_L3, 2, 0, WIRE_BAD_IP },
	{ "IPv4 total length 27", V4, AT_L3, 2, 27, WIRE_SHORT },
	{ "IPv4 total length below UDP's", V4, AT_L3, 2, 51, WIRE_BAD_UDP },
	{ "IPv4 total length past the frame", V4, AT_L3, 2, 53, WIRE_BAD_IP },
	{ "IPv4 total length 65535", V4, AT_L3, 2, 0xffff, WIRE_BAD_IP },
	{ "IPv4 identification", V4, AT_L3, 4, 0x1234, WIRE_OK },
	{ "may be fragmented", V4, AT_L3, 6, 0, WIRE_OK },
	{ "first fragment", V4, AT_L3, 6, 0x2000, WIRE_BAD_IP },
	{ "last fragment", V4, AT_L3, 6, 0x0001, WIRE_BAD_IP },
	{ "late fragment", V4, AT_L3, 6, 0x1000, WIRE_BAD_IP },
	{ "reserved flag", V4, AT_L3, 6, 0xc000, WIRE_BAD_IP },
	{ "TCP", V4, AT_L3, 8, 0x4006, WIRE_NOT_ROCE },
	{ "ICMP", V4, AT_L3, 8, 0x4001, WIRE_ICMP },
	{ "IGMP", V4, AT_L3, 8, 0x0102, WIRE_IGMP },
	{ "hop limit 0", V4, AT_L3, 8, 0x0011, WIRE_OK },
	{ "IPv6 of version 4", V6, AT_L3, 0, 0x46a0, WIRE_BAD_IP },
	{ "IPv6 payload length 0", V6, AT_L3, 4, 0, WIRE_SHORT },
	{ "IPv6 payload length 7", V6, AT_L3, 4, 7, WIRE_SHORT },
	{ "IPv6 payload length below UDP's", V6, AT_L3, 4, 31, WIRE_BAD_UDP },
	{ "IPv6 payload length past the frame", V6, AT_L3, 4, 33, WIRE_BAD_IP },
	{ "IPv6 payload length 65535", V6, AT_L3, 4, 0xffff, WIRE_BAD_IP },
	{ "IPv6 hop-by-hop options", V6, AT_L3, 6, 0x0040, WIRE_NOT_ROCE },
	{ "IPv6 fragment", V6, AT_L3, 6, 0x2c40, WIRE_NOT_ROCE },
	{ "ICMPv6", V6, AT_L3, 6, 0x3aff, WIRE_ICMP },
	{ "another port", BOTH, AT_UDP, 2, 4790, WIRE_NOT_ROCE },
	{ "source port", BOTH, AT_UDP, 0, 1, WIRE_OK },
	{ "UDP length 0", BOTH, AT_UDP, 4, 0, WIRE_BAD_UDP },
	{ "UDP length 7", BOTH, AT_UDP, 4, 7, WIRE_BAD_UDP },
	{ "UDP length 8", BOTH, AT_UDP, 4, 8, WIRE_SHORT },
	{ "UDP length 19", BOTH, AT_UDP, 4, 19, WIRE_SHORT },
	{ "UDP length 20", BOTH, AT_UDP, 4, 20, WIRE_OK },
	{ "UDP length 21", BOTH, AT_UDP, 4, 21, WIRE_BAD_LENGTH },
	{ "UDP length 30", BOTH, AT_UDP, 4, 30, WIRE_BAD_LENGTH },
	{ "UDP length past the packet", BOTH, AT_UDP, 4, 33, WIRE_BAD_UDP },
	{ "UDP length 65535", BOTH, AT_UDP, 4, 0xffff, WIRE_BAD_UDP },
	{ "wrong UDP checksum", BOTH, AT_UDP, 6, 1, WIRE_BAD_UDP },
	{ "BTH version 1", BOTH, AT_BTH, 0, OP_SEND_ONLY << 8 | 0x01, WIRE_BAD_VERSION },
	{ "BTH version 8", BOTH, AT_BTH, 0, OP_SEND_ONLY << 8 | 0x08, WIRE_BAD_VERSION },
	{ "reserved opcode", BOTH, AT_BTH, 0, 0x1500, WIRE_BAD_OPCODE },
	{ "unreliable read", BOTH, AT_BTH, 0, 0x2c00, WIRE_BAD_OPCODE },
	{ "version before opcode", BOTH, AT_BTH, 0, 0x1501, WIRE_BAD_VERSION },
	{ "AETH, then 4 bytes", BOTH, AT_BTH, 0, OP_ACKNOWLEDGE << 8, WIRE_OK },
	{ "headers longer than the packet", BOTH, AT_BTH, 0, OP_FETCH_ADD << 8, WIRE_SHORT },
	{ "reserved bits", BOTH, AT_BTH, 4, 0x3f00, WIRE_OK },
};

START_LOOP_TEST(wrong, ROWS(wrong_rows))
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct wire_packet packet;

	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = make_frame(variant, &h, 5, true);
		const size_t bases[] = { 0, frame.l3, frame.udp, frame.bth };
		size_t at = bases[wrong_rows[_i].base] + (size_t)wrong_rows[_i].offset;

		if (wrong_rows[_i].family != BOTH && (wrong_rows[_i].family == V4) != frame.ipv4)
			continue;
		put_be16(frame.bytes + at, wrong_rows[_i].value);
		fix_ip_checksum(&frame);
		assert_verdict(decode_copy(&packet, &frame, frame.len), wrong_rows[_i].verdict,
			wrong_rows[_i].name);
	}
}
END_TEST

/* Up to two tags of either type are taken off; the outer one's identifier and priority are told. */
static const struct {
	const char *name;
	uint16_t tags[3][2]; /* type and TCI, outer one first */
	enum wire_verdict verdict;
	uint8_t n_tags;
	uint16_t vlan;
	uint8_t priority;
} tag_rows[] = {
	{ "none", { { 0 } }, WIRE_OK, 0, 0, 0 },
	{ "one", { { 0x8100, 0x000a } }, WIRE_OK, 1, 10, 0 },
	{ "all bits", { { 0x8100, 0xffff } }, WIRE_OK, 1, 0xfff, 7 },
	{ "drop eligible", { { 0x8100, 0x1001 } }, WIRE_OK, 1, 1, 0 },
	{ "priority only", { { 0x8100, 0xa000 } }, WIRE_OK, 1, 0, 5 },
	{ "service tag alone", { { 0x88a8, 0x4064 } }, WIRE_OK, 1, 100, 2 },
	{ "QinQ", { { 0x88a8, 0x6064 }, { 0x8100, 0x200a } }, WIRE_OK, 2, 100, 3 },
	{ "twice the same", { { 0x8100, 0x0064 }, { 0x8100, 0x000a } }, WIRE_OK, 2, 100, 0 },
	{ "inner and outer exchanged", { { 0x8100, 0x200a }, { 0x88a8, 0x6064 } }, WIRE_OK, 2, 10,
		1 },
	{ "three", { { 0x88a8, 1 }, { 0x8100, 2 }, { 0x8100, 3 } }, WIRE_NOT_ROCE, 0, 0, 0 },
};

static struct frame tagged_frame(int variant, const uint16_t tags[3][2])
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct frame frame = make_frame(variant & 1, &h, 5, true);

	for (int i = 2; i >= 0; i--) {
		if (!tags[i][0])
			continue;
		insert_tag(&frame);
		put_be16(frame.bytes + 12, tags[i][0]);
		put_be16(frame.bytes + 14, tags[i][1]);
	}
	return frame;
}

START_LOOP_TEST(tags, ROWS(tag_rows))
{
	struct wire_packet packet;

	for (int family = 0; family < 2; family++) {
		struct frame frame = tagged_frame(family, tag_rows[_i].tags);

		memset(&packet, 0xa5, sizeof(packet));
		assert_verdict(wire_decode(&packet, frame.bytes, frame.len), tag_rows[_i].verdict,
			tag_rows[_i].name);
		if (tag_rows[_i].verdict != WIRE_OK)
			continue;
		ck_assert_uint_eq(packet.n_tags, tag_rows[_i].n_tags);
		ck_assert_uint_eq(packet.vlan, tag_rows[_i].vlan);
		ck_assert_uint_eq(packet.priority, tag_rows[_i].priority);
		ck_assert_ptr_eq(packet.l3, frame.bytes + frame.l3);
		assert_verdict(wire_trim(&packet, true), WIRE_OK, "trim");
		ck_assert(wire_icrc_ok(&packet));
		for (size_t len = 0; len < frame.len; len++)
			assert_verdict(decode_copy(&packet, &frame, len),
				verdict_of_cut_frame(&frame, len), tag_rows[_i].name);
	}
}
END_TEST

/* ARP and ICMP are told as what they are behind tags as well. */
START_LOOP_TEST(tagged_arp, ROWS(tag_rows))
{
	struct frame frame = tagged_frame(0, tag_rows[_i].tags);
	struct wire_packet packet;

	put_be16(frame.bytes + frame.l3 - 2, ETHERTYPE_ARP);
	assert_verdict(decode_copy(&packet, &frame, frame.len),
		tag_rows[_i].verdict == WIRE_OK ? WIRE_ARP : WIRE_NOT_ROCE, tag_rows[_i].name);
}
END_TEST

/* As IGMP is sent, with the router alert option (RFC 2236). UDP with an option is refused. */
START_TEST(ipv4_options)
{
	static const struct {
		uint8_t protocol;
		enum wire_verdict verdict;
	} rows[] = { { 1, WIRE_ICMP }, { 2, WIRE_IGMP }, { 6, WIRE_NOT_ROCE },
		{ 17, WIRE_BAD_IP } };
	struct wire_packet packet;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct frame frame = tagged_frame(0, tag_rows[0].tags);
		uint8_t *ip = frame.bytes + frame.l3;

		ip[0] = 0x46;
		ip[9] = rows[i].protocol;
		put_be32(ip + IPV4_LEN, 0x94040000);
		assert_verdict(decode_copy(&packet, &frame, frame.len), rows[i].verdict, "option");
	}
}
END_TEST

/* As multicast listener discovery is sent: with the router alert option (RFC 2710). */
START_TEST(hop_by_hop_options)
{
	static const struct {
		uint8_t protocol; /* behind them */
		enum wire_verdict verdict;
	} rows[] = { { 58, WIRE_ICMP }, { 6, WIRE_NOT_ROCE }, { 17, WIRE_NOT_ROCE } };
	struct wire_packet packet;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct frame frame = tagged_frame(1, tag_rows[0].tags);

		frame.bytes[frame.l3 + 6] = 0;
		frame.bytes[frame.l3 + IPV6_LEN] = rows[i].protocol;
		assert_verdict(
			decode_copy(&packet, &frame, frame.len), rows[i].verdict, "hop-by-hop");
		put_be16(frame.bytes + frame.l3 + 4, 0);
		assert_verdict(decode_copy(&packet, &frame, frame.l3 + IPV6_LEN), WIRE_NOT_ROCE,
			"nothing behind the header");
	}
}
END_TEST

/* ::ffff:a.b.c.d stands for IPv4 everywhere here, so it must not come in over IPv6. */
START_TEST(ipv4_address_over_ipv6)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	const struct frl_ip mapped = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 });
	struct wire_packet packet;

	for (size_t at = 8; at <= 24; at += 16) {
		struct frame frame = make_frame(1, &h, 5, true);

		memcpy(frame.bytes + frame.l3 + at, mapped.bytes, 16);
		assert_verdict(decode_copy(&packet, &frame, frame.len), WIRE_BAD_IP, "mapped");
	}
}
END_TEST

/* Each bit of an IPv4 header, so that its checksum is wrong: never accepted. */
START_TEST(wrong_ip_checksum)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct frame frame = make_frame(0, &h, 5, true);
	struct wire_packet packet;

	for (size_t bit = 0; bit < IPV4_LEN * 8; bit++) {
		uint8_t *byte = frame.bytes + frame.l3 + bit / 8;

		*byte ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_ne(decode_copy(&packet, &frame, frame.len), WIRE_OK);
		*byte ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

START_LOOP_TEST(udp_checksum_is_verified, VARIANTS)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct wire_packet packet;

	for (uint32_t payload_len = 0; payload_len < 40; payload_len++) {
		struct frame frame = make_frame(_i, &h, payload_len, true);
		uint8_t *checksum = frame.bytes + frame.udp + 6;

		put_be16(checksum, udp_checksum(&frame));
		assert_verdict(decode_copy(&packet, &frame, frame.len), WIRE_OK, "right");
		for (size_t at = frame.udp; at < frame.len; at++) {
			frame.bytes[at] ^= 0x10;
			ck_assert_int_ne(decode_copy(&packet, &frame, frame.len), WIRE_OK);
			frame.bytes[at] ^= 0x10;
		}
	}
}
END_TEST

/* A pad that is longer than what there is. */
START_LOOP_TEST(pad_longer_than_payload, VARIANTS)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);

	for (uint8_t pad = 0; pad < 4; pad++) {
		for (uint32_t len = 0; len <= 8; len += 4) {
			struct frame frame = make_frame(_i, &h, len, false);
			struct wire_packet packet;

			frame.bytes[frame.bth + BTH_FLAGS_BYTE] = (uint8_t)(pad << 4);
			assert_verdict(wire_decode(&packet, frame.bytes, frame.len), WIRE_OK, "");
			ck_assert_uint_eq(packet.h.bth.pad, pad);
			assert_verdict(wire_trim(&packet, true),
				pad + ICRC_LEN > (int)len ? WIRE_BAD_LENGTH : WIRE_OK, "ICRC");
			assert_verdict(wire_decode(&packet, frame.bytes, frame.len), WIRE_OK, "");
			assert_verdict(wire_trim(&packet, false),
				pad > len ? WIRE_BAD_LENGTH : WIRE_OK, "no ICRC");
		}
	}
}
END_TEST

START_LOOP_TEST(every_version_and_opcode, OPCODES)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct wire_packet packet;

	for (int version = 0; version < 16; version++) {
		struct frame frame = make_frame(0, &h, 64, true);

		frame.bytes[frame.bth] = (uint8_t)_i;
		frame.bytes[frame.bth + BTH_FLAGS_BYTE] = (uint8_t)version;
		assert_verdict(decode_copy(&packet, &frame, frame.len),
			version                              ? WIRE_BAD_VERSION
				: opcode_table[_i].operation ? WIRE_OK
							     : WIRE_BAD_OPCODE,
			"version and opcode");
	}
}
END_TEST

START_LOOP_TEST(wrong_icrc, VARIANTS)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct frame frame = make_frame(_i, &h, 5, true);
	struct wire_packet packet;

	for (size_t at = frame.bth + 5; at < frame.len; at++) {
		frame.bytes[at] ^= 0x04;
		assert_verdict(wire_decode(&packet, frame.bytes, frame.len), WIRE_OK, "flipped");
		assert_verdict(wire_trim(&packet, true), WIRE_OK, "flipped");
		ck_assert_msg(!wire_icrc_ok(&packet), "byte %zu", at);
		frame.bytes[at] ^= 0x04;
	}
}
END_TEST

/* Most packets go a way of their own through wire_decode(). Frames that may go on elsewhere never
 * do, and where nothing does, all is as if they could not. */
static void check_both_ways(const struct frame *frame, size_t len)
{
	struct wire_packet a, b;
	enum wire_verdict verdict = wire_decode(&a, frame->bytes, len);

	ck_assert_int_eq(wire_decode_part(&b, frame->bytes, len, 0), verdict);
	if (verdict != WIRE_OK)
		return;
	assert_same_headers(&a.h, &b.h);
	ck_assert_uint_eq(a.h.bth.pad, b.h.bth.pad);
	ck_assert_ptr_eq(a.op, b.op);
	ck_assert_ptr_eq(a.l3, b.l3);
	ck_assert_ptr_eq(a.payload, b.payload);
	ck_assert_uint_eq(a.payload_len, b.payload_len);
	ck_assert_uint_eq(a.headers_len, b.headers_len);
	ck_assert_mem_eq(&a.src_ip, &b.src_ip, sizeof(a.src_ip));
	ck_assert_mem_eq(&a.dst_ip, &b.dst_ip, sizeof(a.dst_ip));
	ck_assert_uint_eq(a.traffic_class, b.traffic_class);
	ck_assert(a.n_tags == b.n_tags && a.priority == b.priority && a.vlan == b.vlan);
}

START_TEST(both_ways)
{
	struct random_state random;
	uint32_t n_ok = 0;

	random_seed(&random, 11);
	for (int round = 0; round < 60000; round++) {
		struct wire_headers h;
		struct frame frame;
		size_t len;

		random_headers(&h, (uint8_t)random_below(&random, OPCODES), &random);
		if (!opcode_known(h.bth.opcode))
			continue;
		frame = make_frame((int)random_below(&random, VARIANTS), &h,
			(uint32_t)random_below(&random, 80), random_below(&random, 2));
		for (uint64_t flips = random_below(&random, 3); flips; flips--)
			frame.bytes[random_below(&random, 80)] ^= (uint8_t)(1
				<< random_below(&random, 8));
		if (frame.ipv4 && random_below(&random, 2))
			fix_ip_checksum(&frame);
		len = random_below(&random, 8) ? frame.len : random_below(&random, frame.len + 1);
		check_both_ways(&frame, len);
		n_ok += wire_decode(&(struct wire_packet){ 0 }, frame.bytes, len) == WIRE_OK;
	}
	ck_assert_uint_gt(n_ok, 1000);
}
END_TEST

TEST_FILE(packet)
