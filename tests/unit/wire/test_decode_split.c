/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames whose payload, or the end of them, lies elsewhere. Headers are in blocks of exactly their
 * size, so that the address sanitizer sees a read behind them; the payload's address is one that
 * nothing can read.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/wire/packet.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum {
	OPCODES = 32, /* of RC */
	PAYLOAD = 1024,
	MOST_OFF = 4, /* bytes that a length is wrong by */
	RANDOM_ROUNDS = 20000,
};

static const uint8_t *const nowhere = (const uint8_t *)16;

static bool has_payload(int opcode)
{
	return opcode_known((uint8_t)opcode) && !(opcode_table[opcode].flags & OPCODE_NO_PAYLOAD);
}

static struct wire_headers headers_of(uint8_t opcode)
{
	const struct opcode_info *op = &opcode_table[opcode];
	struct wire_headers h = {
		.bth = { .opcode = opcode, .pkey = PKEY_DEFAULT, .dest_qpn = 0x11, .psn = { 7 } },
	};

	if (op->headers & HEADER_RETH)
		h.reth = (struct reth){ 0x123456789abcdef0, 0x55667788, 0x99aabb };
	if (op->headers & HEADER_AETH)
		h.aeth = (struct aeth){ 0x1f, 0x654321 };
	if (op->headers & HEADER_IMMDT)
		h.imm_data = 0xcafe1234;
	if (op->headers & HEADER_IETH)
		h.invalidate_rkey = 0x5a5a0001;
	return h;
}

/* The headers alone; the frame's lengths still count `payload_len` bytes behind them. */
static struct frame headers_only(int variant, uint8_t opcode, uint32_t payload_len)
{
	struct wire_headers h = headers_of(opcode);
	struct frame frame = make_frame(variant, &h, payload_len, false);

	frame.len = frame.payload;
	return frame;
}

/* The first `len` bytes of the frame; *packet points into freed memory after that. */
static enum wire_verdict decode_cut(
	struct wire_packet *packet, const struct frame *frame, size_t len, size_t payload_len)
{
	uint8_t *copy = malloc(len ? len : 1);
	enum wire_verdict verdict;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame->bytes, len);
	verdict = wire_decode_split(packet, len ? copy : copy + 1, len, nowhere, payload_len);
	free(copy);
	return verdict;
}

static enum wire_verdict decode(const struct frame *frame, size_t payload_len)
{
	struct wire_packet packet;

	return decode_cut(&packet, frame, frame->len, payload_len);
}

static void expect(enum wire_verdict got, enum wire_verdict want, const char *what)
{
	ck_assert_msg(got == want, "%s: %s, not %s", what, wire_verdict_name(got),
		wire_verdict_name(want));
}

static void check_accepted(int variant, uint8_t opcode, uint32_t payload_len)
{
	struct frame frame = headers_only(variant, opcode, payload_len);
	struct wire_headers h = headers_of(opcode);
	struct wire_packet packet;

	memset(&packet, 0xa5, sizeof(packet));
	expect(wire_decode_split(&packet, frame.bytes, frame.len, nowhere, payload_len), WIRE_OK,
		"accepted");
	ck_assert_ptr_eq(packet.payload, nowhere);
	ck_assert_uint_eq(packet.payload_len, payload_len);
	ck_assert_ptr_eq(packet.op, &opcode_table[opcode]);
	ck_assert_ptr_eq(packet.l3, frame.bytes + frame.l3);
	ck_assert_uint_eq(packet.headers_len, frame.payload - frame.l3);
	ck_assert_uint_eq(packet.traffic_class, 0x6a);
	ck_assert(ip_is_v4(&packet.src_ip) == frame.ipv4);
	ck_assert_uint_eq(packet.src_ip.bytes[15], 1);
	ck_assert_uint_eq(packet.dst_ip.bytes[15], 2);
	ck_assert_uint_eq(packet.h.bth.dest_qpn, 0x11);
	ck_assert_uint_eq(packet.h.bth.psn.value, 7);
	ck_assert_uint_eq(packet.h.bth.pad, 0);
	if (packet.op->headers & HEADER_RETH) {
		ck_assert_uint_eq(packet.h.reth.va, h.reth.va);
		ck_assert_uint_eq(packet.h.reth.rkey, h.reth.rkey);
		ck_assert_uint_eq(packet.h.reth.dma_length, h.reth.dma_length);
	}
	if (packet.op->headers & HEADER_AETH)
		ck_assert_uint_eq(packet.h.aeth.msn, h.aeth.msn);
	if (packet.op->headers & HEADER_IMMDT)
		ck_assert_uint_eq(packet.h.imm_data, h.imm_data);
	if (packet.op->headers & HEADER_IETH)
		ck_assert_uint_eq(packet.h.invalidate_rkey, h.invalidate_rkey);
	/* Trimmed already. */
	expect(wire_trim(&packet, false), WIRE_OK, "trim");
	ck_assert_uint_eq(packet.payload_len, payload_len);
}

START_LOOP_TEST(accepted, OPCODES)
{
	static const uint32_t payloads[] = { 4, 64, 256, 1024, 4092, 4096 };

	if (!has_payload(_i))
		return;
	for (int variant = 0; variant < VARIANTS; variant++)
		for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++)
			check_accepted(variant, (uint8_t)_i, payloads[i]);
}
END_TEST

START_LOOP_TEST(cut_headers, OPCODES)
{
	if (!has_payload(_i))
		return;
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = headers_only(variant, (uint8_t)_i, PAYLOAD);
		size_t ip_len = frame.ipv4 ? IPV4_LEN : IPV6_LEN;
		struct wire_packet packet;

		for (size_t len = 0; len < frame.len; len++)
			expect(decode_cut(&packet, &frame, len, PAYLOAD),
				len < frame.l3 + ip_len ? WIRE_SHORT : WIRE_BAD_IP, "cut");
	}
}
END_TEST

/* The same with lengths that are right for what is left: as a sender would that makes no sense. */
START_LOOP_TEST(cut_packet, OPCODES)
{
	if (!has_payload(_i))
		return;
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = headers_only(variant, (uint8_t)_i, PAYLOAD);
		struct wire_packet packet;

		for (size_t len = frame.bth; len < frame.len; len++) {
			struct frame cut = frame;

			set_lengths(&cut, len - frame.udp + PAYLOAD);
			expect(decode_cut(&packet, &cut, len, PAYLOAD), WIRE_SHORT, "cut");
		}
		for (size_t len = frame.udp; len < frame.bth; len++) {
			struct frame cut = frame;

			set_lengths(&cut, len - frame.udp + PAYLOAD);
			expect(decode_cut(&packet, &cut, len, PAYLOAD), WIRE_SHORT, "cut UDP");
		}
	}
}
END_TEST

START_LOOP_TEST(payload_length_disagrees, OPCODES)
{
	if (!has_payload(_i))
		return;
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = headers_only(variant, (uint8_t)_i, PAYLOAD);

		for (unsigned off = 1; off <= MOST_OFF; off++) {
			expect(decode(&frame, PAYLOAD - off), WIRE_BAD_IP, "less payload");
			expect(decode(&frame, PAYLOAD + off), WIRE_SHORT, "more payload");
		}
		expect(decode(&frame, 0), WIRE_BAD_IP, "no payload");
	}
}
END_TEST

/* Only one of IP and UDP is wrong. */
START_TEST(length_in_a_header_is_wrong)
{
	for (int variant = 0; variant < VARIANTS; variant++) {
		for (int off = -MOST_OFF; off <= MOST_OFF; off++) {
			struct frame frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);
			size_t right = frame.len - frame.udp + PAYLOAD;
			struct frame other = frame;

			if (off == 0)
				continue;
			put_be16(frame.bytes + frame.udp + 4, (uint16_t)(right + (size_t)off));
			expect(decode(&frame, PAYLOAD), off > 0 ? WIRE_BAD_UDP : WIRE_SHORT,
				"UDP length");
			set_lengths(&other, right + (size_t)off);
			put_be16(other.bytes + other.udp + 4, (uint16_t)right);
			expect(decode(&other, PAYLOAD), off > 0 ? WIRE_BAD_IP : WIRE_BAD_UDP,
				"IP length");
		}
	}
}
END_TEST

START_TEST(pad_is_refused)
{
	for (int variant = 0; variant < VARIANTS; variant++) {
		for (unsigned pad = 1; pad < 4; pad++) {
			struct frame frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);

			frame.bytes[frame.bth + 1] |= (uint8_t)(pad << 4);
			expect(decode(&frame, PAYLOAD), WIRE_BAD_LENGTH, "pad");
		}
	}
}
END_TEST

START_TEST(not_a_multiple_of_4)
{
	for (int variant = 0; variant < VARIANTS; variant++) {
		for (unsigned more = 1; more < 4; more++) {
			struct frame frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);

			set_lengths(&frame, frame.len - frame.udp + PAYLOAD + more);
			expect(decode(&frame, PAYLOAD + more), WIRE_BAD_LENGTH, "odd");
		}
	}
}
END_TEST

START_TEST(udp_checksum_is_refused)
{
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);

		/* One of them is right for the headers alone. */
		for (unsigned sum = 1; sum <= 0xffff; sum++) {
			struct wire_packet packet;

			put_be16(frame.bytes + frame.udp + 6, (uint16_t)sum);
			if (wire_decode_split(&packet, frame.bytes, frame.len, nowhere, PAYLOAD) !=
				WIRE_BAD_UDP)
				ck_abort_msg("UDP checksum %04x", sum);
		}
	}
}
END_TEST

START_TEST(bytes_behind_the_headers)
{
	for (int variant = 0; variant < VARIANTS; variant++) {
		for (unsigned extra = 1; extra <= 64; extra++) {
			struct frame frame = headers_only(variant, OP_WRITE_ONLY_IMM, PAYLOAD);
			struct wire_packet packet;

			frame.len += extra;
			/* Filled up, as Ethernet does with short frames: they are not counted. */
			expect(decode_cut(&packet, &frame, frame.len, PAYLOAD), WIRE_OK, "filled");
			ck_assert_ptr_eq(packet.payload, nowhere);
			ck_assert_uint_eq(packet.payload_len, PAYLOAD);
			/* Or payload in both places. */
			set_lengths(&frame, frame.len - frame.udp + PAYLOAD);
			expect(decode(&frame, PAYLOAD), WIRE_BAD_LENGTH, "payload twice");
			/* The lengths agree with what is there, but for where it is. */
			frame = headers_only(variant, OP_WRITE_ONLY_IMM, PAYLOAD);
			frame.len += extra;
			expect(decode(&frame, PAYLOAD - extra), WIRE_BAD_LENGTH, "moved");
		}
	}
}
END_TEST

START_TEST(huge_payload)
{
	static const size_t huge[] = { 65535 - IPV4_LEN, 65535, 65536, 65536 + PAYLOAD, 1u << 31,
		UINT32_MAX, (size_t)UINT32_MAX + 1, (size_t)UINT32_MAX + 1 + PAYLOAD, SIZE_MAX / 2,
		SIZE_MAX / 2 + 1 };

	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);

		for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++)
			ck_assert_int_ne(decode(&frame, huge[i]), WIRE_OK);
		/* Sums with what is in the frame wrap around. */
		for (size_t below = 0; below < 8192; below++)
			ck_assert_int_ne(decode(&frame, SIZE_MAX - below), WIRE_OK);
		set_lengths(&frame, 65535 - IPV4_LEN);
		ck_assert_int_ne(decode(&frame, 65536 + PAYLOAD), WIRE_OK);
	}
}
END_TEST

START_TEST(no_payload)
{
	for (int variant = 0; variant < VARIANTS; variant++) {
		struct frame frame = headers_only(variant, OP_SEND_ONLY, 0);
		struct wire_packet packet;

		expect(decode_cut(&packet, &frame, frame.len, 0), WIRE_OK, "empty");
		ck_assert_uint_eq(packet.payload_len, 0);
		expect(decode(&frame, 4), WIRE_SHORT, "payload that no length counts");
	}
}
END_TEST

START_TEST(other_protocols)
{
	static const uint8_t arp[2] = { 0x08, 0x06 };
	struct frame frame;

	for (int variant = 0; variant < VARIANTS; variant++) {
		frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);
		memcpy(frame.bytes + frame.l3 - 2, arp, 2);
		expect(decode(&frame, PAYLOAD), WIRE_ARP, "ARP");
		frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);
		put_be16(frame.bytes + frame.udp + 2, 53);
		expect(decode(&frame, PAYLOAD), WIRE_NOT_ROCE, "DNS");
		frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);
		frame.bytes[frame.bth + 1] |= 1;
		expect(decode(&frame, PAYLOAD), WIRE_BAD_VERSION, "version");
		frame = headers_only(variant, OP_SEND_ONLY, PAYLOAD);
		frame.bytes[frame.bth] = 0x1f;
		expect(decode(&frame, PAYLOAD), WIRE_BAD_OPCODE, "opcode");
	}
}
END_TEST

/* Nothing behind the headers is read, whatever they say, and payload is never more than there
 * is. */
START_TEST(random_damage)
{
	struct random_state random;

	random_seed(&random, 1);
	for (int round = 0; round < RANDOM_ROUNDS; round++) {
		struct frame frame = headers_only(
			(int)random_below(&random, VARIANTS), OP_WRITE_ONLY, PAYLOAD);
		size_t payload_len = PAYLOAD, len = frame.len;
		struct wire_packet packet;

		for (uint64_t flips = random_below(&random, 4); flips; flips--)
			frame.bytes[random_below(&random, len)] = (uint8_t)random_u64(&random);
		fix_ip_checksum(&frame);
		if (random_below(&random, 2))
			len = random_below(&random, len + 1);
		if (random_below(&random, 2))
			payload_len = random_u64(&random) >> random_below(&random, 64);
		if (decode_cut(&packet, &frame, len, payload_len) != WIRE_OK)
			continue;
		ck_assert_uint_eq(packet.payload_len, payload_len);
		ck_assert_ptr_eq(packet.payload, nowhere);
		ck_assert_uint_le(packet.headers_len, len);
	}
}
END_TEST

/* ---- frames in two parts, of which the first alone can be read */

/* The first `near_len` bytes, in a block of their own; the rest is nowhere. */
static enum wire_verdict decode_far(
	struct wire_packet *packet, const struct frame *frame, size_t near_len, size_t far_len)
{
	uint8_t *copy = malloc(near_len ? near_len : 1);
	enum wire_verdict verdict;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame->bytes, near_len);
	verdict = wire_decode_part(packet, near_len ? copy : copy + 1, near_len, far_len);
	if (verdict == WIRE_OK) {
		ck_assert_uint_eq(packet->payload - copy, frame->payload);
		ck_assert_uint_eq(packet->l3 - copy, frame->l3);
	}
	free(copy);
	return verdict;
}

static void same_packet(const struct wire_packet *a, const struct wire_packet *b)
{
	ck_assert_ptr_eq(a->op, b->op);
	ck_assert_uint_eq(a->payload_len, b->payload_len);
	ck_assert_uint_eq(a->headers_len, b->headers_len);
	ck_assert_mem_eq(&a->h.bth, &b->h.bth, sizeof(a->h.bth));
	ck_assert_uint_eq(a->n_tags, b->n_tags);
	ck_assert_uint_eq(a->vlan, b->vlan);
	ck_assert(ip_equal(&a->src_ip, &b->src_ip) && ip_equal(&a->dst_ip, &b->dst_ip));
	if (a->op->headers & HEADER_RETH)
		ck_assert_mem_eq(&a->h.reth, &b->h.reth, sizeof(a->h.reth));
}

/* Cut anywhere behind its headers it is the packet that it is whole, whatever follows it. */
static void check_halves(const struct frame *frame)
{
	struct wire_packet whole, far;

	memset(&whole, 0, sizeof(whole));
	memset(&far, 0, sizeof(far));
	expect(wire_decode(&whole, frame->bytes, frame->len), WIRE_OK, "whole");
	for (size_t near_len = frame->payload; near_len <= frame->len; near_len++) {
		for (size_t trail = 0; trail <= 8; trail += 1 + trail / 2 * 3) {
			expect(decode_far(&far, frame, near_len, frame->len - near_len + trail),
				WIRE_OK, "in two parts");
			same_packet(&far, &whole);
		}
		for (size_t less = 1; less <= 4 && less <= frame->len - near_len; less++)
			expect(decode_far(&far, frame, near_len, frame->len - near_len - less),
				WIRE_BAD_IP, "too short");
	}
}

START_LOOP_TEST(two_parts, 256)
{
	static const uint32_t payloads[] = { 0, 3, 8, 100, 257 };
	struct wire_headers h = { .bth = { .opcode = (uint8_t)_i, .dest_qpn = 0x11 } };

	if (!opcode_known((uint8_t)_i))
		return;
	if (opcode_table[_i].headers & HEADER_RETH)
		h.reth = (struct reth){ 0x123456789abcdef0, 0x55667788, 0x99aabb };
	for (int variant = 0; variant < VARIANTS; variant++) {
		for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
			struct frame frame = make_frame(variant, &h, payloads[i], i & 1);

			check_halves(&frame);
		}
	}
}
END_TEST

/* A packet that ends in the near part, though the frame goes on; and one that its UDP length cuts
 * in there. */
START_LOOP_TEST(ends_in_the_near_part, VARIANTS)
{
	struct wire_headers h = headers_of(OP_SEND_ONLY);
	struct frame frame = make_frame(_i, &h, 32, true);
	struct wire_packet packet;

	for (size_t far_len = 1; far_len < 200; far_len++) {
		frame.len += 1;
		expect(decode_far(&packet, &frame, frame.len, far_len), WIRE_OK, "padded");
		ck_assert_uint_eq(packet.payload_len, 32 + ICRC_LEN);
	}
	frame = make_frame(_i, &h, 512, true);
	put_be16(frame.bytes + frame.udp + 4, UDP_LEN + BTH_LEN + 8);
	expect(decode_far(&packet, &frame, frame.payload + 100, frame.len - frame.payload - 100),
		WIRE_OK, "shorter than IP says");
	ck_assert_uint_eq(packet.payload_len, 8);
	/* Headers that the near part does not hold are none. */
	expect(decode_far(&packet, &frame, frame.bth + 4, 600), WIRE_SHORT, "cut headers");
}
END_TEST

/* One that reaches into the far part is somebody else's to verify, who is told that there is one;
 * another one is verified here. */
START_LOOP_TEST(checksum_of_two_parts, VARIANTS)
{
	struct wire_headers h = headers_of(OP_SEND_ONLY);
	struct frame frame = make_frame(_i, &h, 200, true);
	struct wire_packet packet;
	size_t near_len = frame.payload + 16;

	for (unsigned has = 0; has < 2; has++) {
		uint8_t *copy = malloc(near_len);

		ck_assert_ptr_nonnull(copy);
		put_be16(frame.bytes + frame.udp + 6, has ? 0x1234 : 0);
		memcpy(copy, frame.bytes, near_len);
		expect(wire_decode_part(&packet, copy, near_len, frame.len - near_len), WIRE_OK,
			"not seen here");
		ck_assert_int_eq(wire_has_udp_checksum(&packet), has);
		free(copy);
	}
	expect(decode_far(&packet, &frame, frame.len, 5), WIRE_BAD_UDP, "it is here");
}
END_TEST

/* Sums of lengths that wrap around, and lengths at random. */
START_TEST(damaged_parts)
{
	struct random_state random;

	random_seed(&random, 7);
	for (int round = 0; round < RANDOM_ROUNDS; round++) {
		struct wire_headers h = headers_of(OP_WRITE_ONLY);
		struct frame frame = make_frame(
			(int)random_below(&random, VARIANTS), &h, PAYLOAD, true);
		size_t near_len = random_below(&random, frame.len + 1), far_len;
		struct wire_packet packet;
		uint8_t *copy = malloc(near_len ? near_len : 1);

		ck_assert_ptr_nonnull(copy);
		for (uint64_t flips = random_below(&random, 4); flips; flips--)
			frame.bytes[random_below(&random, 80)] = (uint8_t)random_u64(&random);
		fix_ip_checksum(&frame);
		far_len = random_u64(&random) >> random_below(&random, 64);
		memcpy(copy, frame.bytes, near_len);
		if (wire_decode_part(&packet, near_len ? copy : copy + 1, near_len, far_len) ==
			WIRE_OK) {
			ck_assert(packet.payload <= copy + near_len);
			ck_assert_uint_le(packet.payload_len, 65535);
			ck_assert(
				packet.payload_len <= near_len + far_len || far_len > SIZE_MAX / 2);
		}
		free(copy);
	}
}
END_TEST

TEST_FILE(decode_split)
