/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoding, byte by byte, against headers that others sent or that were written by hand. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/wire/packet_fixture.h"
#include "tests/unit/wire/hex.h"
#include "tests/fixtures/program.h"

/* As Linux sent it (see test_icrc.c), but for the identification, which is 0 with us. */
START_TEST(golden_bytes)
{
	static const char bytes[] =
		"020000000002 020000000001 0800 45000030 00004000 401126a9 0a090001 0a090002 c1ba "
		"12b7 001c 0000 0430ffff 0000001a 80e34db6";
	struct wire_headers h = {
		.bth = { .opcode = OP_SEND_ONLY,
			.pad = 1, /* not looked at */
			.pkey = PKEY_DEFAULT,
			.dest_qpn = 0x1a,
			.ack_request = true,
			.psn = { 0xe34db6 } },
	};
	struct wire_path_config config = {
		.src_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 }),
		.dst_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 2 }),
		.hop_limit = 64,
		.udp_src_port = wire_udp_src_port(0, 0x1a, 0x11),
	};
	uint8_t out[WIRE_MAX_HEADERS], golden[WIRE_MAX_HEADERS], trailer;
	size_t n = from_hex(golden, sizeof(golden), bytes);
	struct wire_path path;

	memcpy(config.src_mac, mac_a, 6);
	memcpy(config.dst_mac, mac_b, 6);
	wire_path_init(&path, &config);
	ck_assert_uint_eq(wire_encode(out, &path, &h, 1, true, &trailer), n);
	ck_assert_mem_eq(out, golden, n);
	ck_assert_uint_eq(trailer, 3 + ICRC_LEN);
	ck_assert_uint_eq(wire_encode(out, &path, &h, 1, false, &trailer), n);
	ck_assert_uint_eq(trailer, 3);
}
END_TEST

/* The tag, the flow label and everything else that a path adds, against the same put in by hand. */
START_LOOP_TEST(path_headers, 8)
{
	struct wire_path_config config = {
		.vlan = _i & 1 ? 10 : 0,
		.priority = _i & 2 ? 5 : 0,
		.traffic_class = 0xb9,
		.hop_limit = 17,
		.flow_label = _i & 4 ? 0xfedcb : 0,
		.udp_src_port = 0xd00d,
	};
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	bool has_tag = config.vlan || config.priority;
	uint8_t out[WIRE_MAX_HEADERS + 8] = { 0 };
	struct wire_packet packet;
	struct wire_path path;
	uint8_t trailer;
	size_t len;

	for (int family = 0; family < 2; family++) {
		struct frame frame = make_frame(family, &h, 4, false);

		memcpy(config.src_mac, mac_a, 6);
		memcpy(config.dst_mac, mac_b, 6);
		assert_verdict(wire_decode(&packet, frame.bytes, frame.len), WIRE_OK, "plain");
		config.src_ip = packet.src_ip;
		config.dst_ip = packet.dst_ip;
		wire_path_init(&path, &config);
		len = wire_encode(out, &path, &h, 4, false, &trailer);

		put_be16(frame.bytes + frame.udp, 0xd00d);
		if (family == 0) {
			frame.bytes[frame.l3 + 1] = 0xb9;
			frame.bytes[frame.l3 + 8] = 17;
			fix_ip_checksum(&frame);
		} else {
			put_be32(frame.bytes + frame.l3, 0x6b900000 | config.flow_label);
			frame.bytes[frame.l3 + 7] = 17;
		}
		if (has_tag) {
			insert_tag(&frame);
			put_be16(frame.bytes + 14, (uint16_t)(config.priority << 13 | config.vlan));
		}
		ck_assert_uint_eq(len, frame.payload);
		ck_assert_mem_eq(out, frame.bytes, len);
		assert_verdict(wire_decode(&packet, out, len + 4), WIRE_OK, "encoded");
		ck_assert_uint_eq(packet.n_tags, has_tag);
		ck_assert_uint_eq(packet.vlan, config.vlan);
		ck_assert_uint_eq(packet.priority, config.priority);
	}
}
END_TEST

/* Written by hand from the layouts in IBTA volume 1, 9.3 and 9.4. */
static const struct {
	uint8_t opcode;
	struct wire_headers h;
	uint8_t bytes[ATOMICETH_LEN];
	size_t len;
} extended_rows[] = {
	{ TRANSPORT_UD | OP_SEND_ONLY, { .deth = { 0x01234567, 0x89abcd } },
		{ 0x01, 0x23, 0x45, 0x67, 0, 0x89, 0xab, 0xcd }, 8 },
	{ OP_READ_REQUEST, { .reth = { 0x0102030405060708, 0x090a0b0c, 0x0d0e0f10 } },
		{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 }, 16 },
	{ OP_CMP_SWAP,
		{ .atomic = { 0x0102030405060708, 0x090a0b0c, 0x0d0e0f1011121314,
			  0x15161718191a1b1c } },
		{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
			24, 25, 26, 27, 28 },
		28 },
	{ OP_ATOMIC_ACK, { .atomic_original = 0x05060708090a0b0c, .aeth = { 1, 0x020304 } },
		{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, 12 },
	{ OP_SEND_LAST_INV, { .invalidate_rkey = 0x01020304 }, { 1, 2, 3, 4 }, 4 },
};

START_LOOP_TEST(golden_extended_headers, ROWS(extended_rows))
{
	struct wire_headers h = extended_rows[_i].h;
	size_t len = extended_rows[_i].len;
	struct wire_headers decoded;
	struct frame frame;

	h.bth = simple_headers(extended_rows[_i].opcode).bth;
	frame = make_frame(0, &h, 0, true);
	ck_assert_uint_eq(frame.payload - frame.bth, BTH_LEN + len);
	ck_assert_mem_eq(frame.bytes + frame.bth + BTH_LEN, extended_rows[_i].bytes, len);
	memset(&decoded, 0xa5, sizeof(decoded));
	wire_decode_headers(&decoded, frame.bytes + frame.bth);
	assert_same_headers(&decoded, &h);
}
END_TEST

/* The byte between Q_Key and source QPN is reserved: neither sent nor looked at. */
START_TEST(deth_reserved_byte)
{
	struct wire_headers h = simple_headers(TRANSPORT_UD | OP_SEND_ONLY);
	struct wire_headers decoded;
	struct frame frame;

	h.deth = (struct deth){ .qkey = 1, .src_qpn = 0xff000002 };
	frame = make_frame(0, &h, 0, true);
	ck_assert_uint_eq(frame.bytes[frame.bth + BTH_LEN + 4], 0);
	frame.bytes[frame.bth + BTH_LEN + 4] = 0xff;
	wire_decode_headers(&decoded, frame.bytes + frame.bth);
	ck_assert_uint_eq(decoded.deth.src_qpn, 2);
}
END_TEST

static const struct {
	uint32_t flow_label, a, b;
	uint16_t port;
} port_rows[] = {
	{ 0, 0x1a, 0x11, 49594 }, /* these as recorded from Linux */
	{ 0, 0x21, 0x18, 49944 }, { 0, 0x2a, 0x21, 50538 }, { 0, 0x60, 0x58, 57600 },
	{ 0, 0x64, 0x5c, 58352 }, { 0x12345, 0x2b, 0x22, 58177 }, { 0x32d12, 0x56, 0x4d, 60702 },
	{ 0, 0, 0, 0xc000 }, { 0x00001, 0x1a, 0x11, 0xc001 },
	{ 0xfffff, 0x1a, 0x11, 0xffc0 }, /* 0x3fff ^ 0x3f */
	{ 0xf00000, 0x1a, 0x11, 49594 }, /* none of its 20 bits */
};

START_LOOP_TEST(udp_src_port, ROWS(port_rows))
{
	uint32_t label = port_rows[_i].flow_label;
	uint32_t a = port_rows[_i].a;
	uint32_t b = port_rows[_i].b;

	ck_assert_uint_eq(wire_udp_src_port(label, a, b), port_rows[_i].port);
	ck_assert_uint_eq(wire_udp_src_port(label, b, a), port_rows[_i].port);
	ck_assert_uint_ge(wire_udp_src_port(label, 0xffffff - a, 0xfedcba), 0xc000);
}
END_TEST

static const struct {
	struct frl_ip ip;
	bool is_group;
	uint8_t mac[6];
} group_rows[] = {
	{ { { [10] = 0xff, 0xff, 239, 9, 9, 9 } }, true, { 0x01, 0x00, 0x5e, 0x09, 0x09, 0x09 } },
	{ { { [10] = 0xff, 0xff, 224, 255, 1, 2 } }, true, { 0x01, 0x00, 0x5e, 0x7f, 0x01, 0x02 } },
	{ { { 0xff, 0x0e, [12] = 0xfe, 0xdc, 0xba, 0x98 } }, true,
		{ 0x33, 0x33, 0xfe, 0xdc, 0xba, 0x98 } },
	{ { { [10] = 0xff, 0xff, 10, 9, 0, 1 } }, false, { 0 } },
	{ { { [10] = 0xff, 0xff, 240, 0, 0, 1 } }, false, { 0 } },
	{ { { [10] = 0xff, 0xff, 223, 255, 255, 255 } }, false, { 0 } },
	{ { { 0xfe, 0x80, [15] = 1 } }, false, { 0 } },
	{ { { 0 } }, false, { 0 } },
};

START_LOOP_TEST(multicast_mac, ROWS(group_rows))
{
	static const uint8_t untouched[6] = { 1, 2, 3, 4, 5, 6 };
	uint8_t mac[6];

	memcpy(mac, untouched, 6);
	ck_assert(wire_multicast_mac(&group_rows[_i].ip, mac) == group_rows[_i].is_group);
	ck_assert_mem_eq(mac, group_rows[_i].is_group ? group_rows[_i].mac : untouched, 6);
}
END_TEST

START_TEST(verdict_names)
{
	for (int i = 0; i <= WIRE_BAD_OPCODE; i++)
		ck_assert_ptr_nonnull(wire_verdict_name((enum wire_verdict)i));
	ck_assert_str_eq(wire_verdict_name(WIRE_BAD_LENGTH), "bad_length");
	ck_assert_str_eq(wire_verdict_name((enum wire_verdict)99), "unknown");
}
END_TEST

TEST_FILE(packet_golden)
