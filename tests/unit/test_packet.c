/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in blocks of exactly their size, so that the address sanitizer sees a read behind them. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/wire/packet.h"
#include "tests/vectors/frame.h"

enum {
	OPCODES = 256,
	BTH_FLAGS_BYTE = 1, /* SE, MigReq, pad, version */
};

/* As an independent implementation would: sixteen bits at a time. */
static uint16_t udp_checksum(const struct frame *frame)
{
	const uint8_t *ip = frame->bytes + frame->l3;
	const uint8_t *udp = frame->bytes + frame->udp;
	size_t at = frame->ipv4 ? 12 : 8;
	size_t len = get_be16(udp + 4);
	uint32_t sum = 17 + (uint32_t)len;

	for (; at < (frame->ipv4 ? 20u : 40u); at += 2)
		sum += get_be16(ip + at);
	for (size_t i = 0; i < len; i += 2)
		sum += i == 6 ? 0 : get_be16(udp + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0xffff : (uint16_t)~sum;
}

/* Decodes `len` bytes of the frame; *packet points into freed memory after that. */
static enum wire_verdict decode_copy(
	struct wire_packet *packet, const struct frame *frame, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	enum wire_verdict verdict;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame->bytes, len);
	verdict = wire_decode(packet, len ? copy : copy + 1, len);
	if (verdict == WIRE_OK && wire_trim(packet, true) == WIRE_OK)
		wire_icrc_ok(packet);
	free(copy);
	return verdict;
}

static void assert_verdict(enum wire_verdict got, enum wire_verdict want, const char *what)
{
	ck_assert_msg(got == want, "%s: %s, not %s", what, wire_verdict_name(got),
		wire_verdict_name(want));
}

static void random_headers(struct wire_headers *h, uint8_t opcode, struct random_state *random)
{
	const struct opcode_info *op = &opcode_table[opcode];

	memset(h, 0, sizeof(*h));
	h->bth.opcode = opcode;
	h->bth.solicited = random_below(random, 2);
	h->bth.migrated = random_below(random, 2);
	h->bth.fecn = random_below(random, 2);
	h->bth.becn = random_below(random, 2);
	h->bth.ack_request = random_below(random, 2);
	h->bth.pkey = (uint16_t)random_u64(random);
	h->bth.dest_qpn = random_u64(random) & 0xffffff;
	h->bth.psn = psn_make((uint32_t)random_u64(random));
	if (op->headers & HEADER_DETH)
		h->deth = (struct deth){ (uint32_t)random_u64(random),
			random_u64(random) & 0xffffff };
	if (op->headers & HEADER_RETH)
		h->reth = (struct reth){ random_u64(random), (uint32_t)random_u64(random),
			(uint32_t)random_u64(random) };
	if (op->headers & HEADER_ATOMICETH)
		h->atomic = (struct atomic_eth){ random_u64(random), (uint32_t)random_u64(random),
			random_u64(random), random_u64(random) };
	if (op->headers & HEADER_AETH)
		h->aeth = (struct aeth){ (uint8_t)random_u64(random),
			random_u64(random) & 0xffffff };
	if (op->headers & HEADER_ATOMICACKETH)
		h->atomic_original = random_u64(random);
	if (op->headers & HEADER_IMMDT)
		h->imm_data = (uint32_t)random_u64(random);
	if (op->headers & HEADER_IETH)
		h->invalidate_rkey = (uint32_t)random_u64(random);
}

/* Those that this opcode has. */
static void assert_same_extended(
	uint8_t headers, const struct wire_headers *a, const struct wire_headers *b)
{
	if (headers & HEADER_DETH) {
		ck_assert_uint_eq(a->deth.qkey, b->deth.qkey);
		ck_assert_uint_eq(a->deth.src_qpn, b->deth.src_qpn);
	}
	if (headers & HEADER_RETH) {
		ck_assert_uint_eq(a->reth.va, b->reth.va);
		ck_assert_uint_eq(a->reth.rkey, b->reth.rkey);
		ck_assert_uint_eq(a->reth.dma_length, b->reth.dma_length);
	}
	if (headers & HEADER_ATOMICETH) {
		ck_assert_uint_eq(a->atomic.va, b->atomic.va);
		ck_assert_uint_eq(a->atomic.rkey, b->atomic.rkey);
		ck_assert_uint_eq(a->atomic.swap_add, b->atomic.swap_add);
		ck_assert_uint_eq(a->atomic.compare, b->atomic.compare);
	}
	if (headers & HEADER_AETH) {
		ck_assert_uint_eq(a->aeth.syndrome, b->aeth.syndrome);
		ck_assert_uint_eq(a->aeth.msn, b->aeth.msn);
	}
	if (headers & HEADER_ATOMICACKETH)
		ck_assert_uint_eq(a->atomic_original, b->atomic_original);
	if (headers & HEADER_IMMDT)
		ck_assert_uint_eq(a->imm_data, b->imm_data);
	if (headers & HEADER_IETH)
		ck_assert_uint_eq(a->invalidate_rkey, b->invalidate_rkey);
}

static void assert_same_headers(const struct wire_headers *a, const struct wire_headers *b)
{
	ck_assert_uint_eq(a->bth.opcode, b->bth.opcode);
	ck_assert_uint_eq(a->bth.version, b->bth.version);
	ck_assert_uint_eq(a->bth.solicited, b->bth.solicited);
	ck_assert_uint_eq(a->bth.migrated, b->bth.migrated);
	ck_assert_uint_eq(a->bth.fecn, b->bth.fecn);
	ck_assert_uint_eq(a->bth.becn, b->bth.becn);
	ck_assert_uint_eq(a->bth.ack_request, b->bth.ack_request);
	ck_assert_uint_eq(a->bth.pkey, b->bth.pkey);
	ck_assert_uint_eq(a->bth.dest_qpn, b->bth.dest_qpn);
	ck_assert_uint_eq(a->bth.psn.value, b->bth.psn.value);
	assert_same_extended(opcode_table[a->bth.opcode].headers, a, b);
}

static void check_roundtrip(
	int variant, const struct wire_headers *h, uint32_t payload_len, bool has_icrc)
{
	struct frame frame = make_frame(variant, h, payload_len, has_icrc);
	struct wire_path path = make_path(frame.ipv4);
	uint32_t pad = -payload_len & 3;
	struct wire_packet packet;

	memset(&packet, 0xa5, sizeof(packet));
	assert_verdict(wire_decode(&packet, frame.bytes, frame.len), WIRE_OK, "roundtrip");
	assert_same_headers(&packet.h, h);
	ck_assert_uint_eq(packet.h.bth.pad, pad);
	ck_assert_ptr_eq(packet.op, &opcode_table[h->bth.opcode]);
	ck_assert_uint_eq(packet.traffic_class, 0x6a);
	ck_assert_uint_eq(packet.n_tags, is_tagged(variant));
	ck_assert_uint_eq(packet.vlan, is_tagged(variant) ? 10 : 0);
	ck_assert_uint_eq(packet.priority, is_tagged(variant) ? 3 : 0);
	ck_assert(ip_is_v4(&packet.src_ip) == frame.ipv4);
	ck_assert_uint_eq(packet.src_ip.bytes[15], 1);
	ck_assert_uint_eq(packet.dst_ip.bytes[15], 2);
	ck_assert_ptr_eq(packet.l3, frame.bytes + frame.l3);
	ck_assert_uint_eq(packet.headers_len, frame.payload - frame.l3);
	ck_assert_uint_eq(packet.headers_len,
		path.headers_len - ETH_LEN + BTH_LEN + (size_t)packet.op->headers_len);
	ck_assert_ptr_eq(packet.payload, frame.bytes + frame.payload);
	ck_assert_uint_eq(packet.payload_len, payload_len + pad + (has_icrc ? ICRC_LEN : 0));
	assert_verdict(wire_trim(&packet, has_icrc), WIRE_OK, "trim");
	ck_assert_uint_eq(packet.payload_len, payload_len);
	ck_assert_uint_eq(frame.len - frame.bth, (frame.len - frame.bth) / 4 * 4);
	if (has_icrc)
		ck_assert(wire_icrc_ok(&packet));
}

START_TEST(roundtrip)
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

static enum wire_verdict verdict_of_cut_frame(const struct frame *frame, size_t len)
{
	return len < frame->udp ? WIRE_SHORT : WIRE_BAD_IP;
}

/* The frame ends early, the lengths in it do not. */
START_TEST(cut_frame)
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
START_TEST(cut_packet)
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

/* What follows the packet in its frame is not looked at. */
START_TEST(padded_frame)
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

enum { N_WRONG = sizeof(wrong_rows) / sizeof(wrong_rows[0]) };

START_TEST(wrong)
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

enum { N_TAG_ROWS = sizeof(tag_rows) / sizeof(tag_rows[0]) };

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

START_TEST(tags)
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
START_TEST(tagged_arp)
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

START_TEST(udp_checksum_is_verified)
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
START_TEST(pad_longer_than_payload)
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

START_TEST(every_version_and_opcode)
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

START_TEST(wrong_icrc)
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

/* As Linux sent it (see test_icrc.c), but for the identification, which is 0 with us. */
START_TEST(golden_bytes)
{
	static const uint8_t golden[] = {
		0x02,
		0x00,
		0x00,
		0x00,
		0x00,
		0x02,
		0x02,
		0x00,
		0x00,
		0x00,
		0x00,
		0x01,
		0x08,
		0x00,
		0x45,
		0x00,
		0x00,
		0x30,
		0x00,
		0x00,
		0x40,
		0x00,
		0x40,
		0x11,
		0x26,
		0xa9,
		0x0a,
		0x09,
		0x00,
		0x01,
		0x0a,
		0x09,
		0x00,
		0x02,
		0xc1,
		0xba,
		0x12,
		0xb7,
		0x00,
		0x1c,
		0x00,
		0x00,
		0x04,
		0x30,
		0xff,
		0xff,
		0x00,
		0x00,
		0x00,
		0x1a,
		0x80,
		0xe3,
		0x4d,
		0xb6,
	};
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
	struct wire_path path;
	uint8_t out[WIRE_MAX_HEADERS];
	uint8_t trailer;

	memcpy(config.src_mac, mac_a, 6);
	memcpy(config.dst_mac, mac_b, 6);
	wire_path_init(&path, &config);
	ck_assert_uint_eq(wire_encode(out, &path, &h, 1, true, &trailer), sizeof(golden));
	ck_assert_mem_eq(out, golden, sizeof(golden));
	ck_assert_uint_eq(trailer, 3 + ICRC_LEN);
	ck_assert_uint_eq(wire_encode(out, &path, &h, 1, false, &trailer), sizeof(golden));
	ck_assert_uint_eq(trailer, 3);
}
END_TEST

/* The tag, the flow label and everything else that a path adds, against the same put in by hand. */
START_TEST(path_headers)
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

enum { N_EXTENDED = sizeof(extended_rows) / sizeof(extended_rows[0]) };

START_TEST(golden_extended_headers)
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

enum { N_PORTS = sizeof(port_rows) / sizeof(port_rows[0]) };

START_TEST(udp_src_port)
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

enum { N_GROUPS = sizeof(group_rows) / sizeof(group_rows[0]) };

START_TEST(multicast_mac)
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

int main(void)
{
	Suite *suite = suite_create("packet");
	TCase *tcase = tcase_create("packet");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, roundtrip, 0, OPCODES);
	tcase_add_loop_test(tcase, cut_frame, 0, OPCODES);
	tcase_add_loop_test(tcase, cut_packet, 0, OPCODES);
	tcase_add_loop_test(tcase, padded_frame, 0, VARIANTS);
	tcase_add_loop_test(tcase, wrong, 0, N_WRONG);
	tcase_add_loop_test(tcase, tags, 0, N_TAG_ROWS);
	tcase_add_loop_test(tcase, tagged_arp, 0, N_TAG_ROWS);
	tcase_add_test(tcase, ipv4_options);
	tcase_add_test(tcase, hop_by_hop_options);
	tcase_add_test(tcase, ipv4_address_over_ipv6);
	tcase_add_test(tcase, wrong_ip_checksum);
	tcase_add_loop_test(tcase, udp_checksum_is_verified, 0, VARIANTS);
	tcase_add_loop_test(tcase, pad_longer_than_payload, 0, VARIANTS);
	tcase_add_loop_test(tcase, every_version_and_opcode, 0, OPCODES);
	tcase_add_loop_test(tcase, wrong_icrc, 0, VARIANTS);
	tcase_add_test(tcase, golden_bytes);
	tcase_add_loop_test(tcase, path_headers, 0, 8);
	tcase_add_loop_test(tcase, golden_extended_headers, 0, N_EXTENDED);
	tcase_add_test(tcase, deth_reserved_byte);
	tcase_add_loop_test(tcase, udp_src_port, 0, N_PORTS);
	tcase_add_loop_test(tcase, multicast_mac, 0, N_GROUPS);
	tcase_add_test(tcase, verdict_names);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
