/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/wire/packet_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"

uint16_t udp_checksum(const struct frame *frame)
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

enum wire_verdict decode_copy(struct wire_packet *packet, const struct frame *frame, size_t len)
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

void assert_verdict(enum wire_verdict got, enum wire_verdict want, const char *what)
{
	ck_assert_msg(got == want, "%s: %s, not %s", what, wire_verdict_name(got),
		wire_verdict_name(want));
}

void random_headers(struct wire_headers *h, uint8_t opcode, struct random_state *random)
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

/* Compares the extended headers that this opcode has. */
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

void assert_same_headers(const struct wire_headers *a, const struct wire_headers *b)
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

void check_roundtrip(int variant, const struct wire_headers *h, uint32_t payload_len, bool has_icrc)
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
