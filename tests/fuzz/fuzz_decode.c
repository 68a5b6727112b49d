/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decodes any bytes as a frame in every way that the engine does, and encodes the result again. For
 * libFuzzer, and for tests/unit/fuzz/test_fuzz_corpus.c, which replays corpus/decode.
 */
#include "tests/fuzz/fuzz_decode.h"

#include <stdbool.h>
#include <stdlib.h>

#include "lib/wire/neighbor.h"
#include "lib/wire/packet.h"

/* A finding ends the fuzzer, which then keeps the input. */
static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_bounds(const struct wire_packet *packet, const uint8_t *frame, size_t len)
{
	require(packet->l3 >= frame + ETH_LEN);
	require(packet->payload == packet->l3 + packet->headers_len);
	require(packet->payload + packet->payload_len <= frame + len);
	require(packet->headers_len <= WIRE_MAX_HEADERS - ETH_LEN);
	require(packet->op->name && packet->op->operation != OPERATION_NONE);
	require(packet->op == &opcode_table[packet->h.bth.opcode]);
	require(packet->n_tags <= 2 && packet->priority < 8 && packet->vlan < 4096);
}

/* Compares the headers that the opcode has; memcmp() would see the bytes between the fields. */
static void same_headers(const struct wire_headers *a, const struct wire_headers *b)
{
	uint8_t headers = opcode_table[a->bth.opcode].headers;

	require(b->bth.opcode == a->bth.opcode);
	require(b->bth.dest_qpn == a->bth.dest_qpn);
	require(psn_equal(b->bth.psn, a->bth.psn));
	require(b->bth.pkey == a->bth.pkey && b->bth.ack_request == a->bth.ack_request);
	if (headers & HEADER_DETH)
		require(b->deth.qkey == a->deth.qkey && b->deth.src_qpn == a->deth.src_qpn);
	if (headers & HEADER_RETH)
		require(b->reth.va == a->reth.va && b->reth.rkey == a->reth.rkey &&
			b->reth.dma_length == a->reth.dma_length);
	if (headers & HEADER_ATOMICETH)
		require(b->atomic.va == a->atomic.va && b->atomic.rkey == a->atomic.rkey &&
			b->atomic.swap_add == a->atomic.swap_add &&
			b->atomic.compare == a->atomic.compare);
	if (headers & HEADER_AETH)
		require(b->aeth.syndrome == a->aeth.syndrome && b->aeth.msn == a->aeth.msn);
	if (headers & HEADER_ATOMICACKETH)
		require(b->atomic_original == a->atomic_original);
	if (headers & HEADER_IMMDT)
		require(b->imm_data == a->imm_data);
	if (headers & HEADER_IETH)
		require(b->invalidate_rkey == a->invalidate_rkey);
}

/* A packet that can be decoded and understood can be encoded, and is then decoded to the same. */
static void encode_again(const struct wire_packet *packet)
{
	const struct wire_path_config config = {
		.src_ip = packet->src_ip,
		.dst_ip = packet->dst_ip,
		.vlan = packet->vlan,
		.priority = packet->priority,
		.traffic_class = packet->traffic_class,
		.flow_label = packet->h.bth.dest_qpn & 0xfffff,
	};
	uint8_t frame[WIRE_MAX_HEADERS + 64];
	struct wire_packet again;
	struct wire_path path;
	uint8_t trailer;
	size_t len;

	require(ip_is_v4(&packet->src_ip) == ip_is_v4(&packet->dst_ip));
	wire_path_init(&path, &config);
	len = wire_encode(frame, &path, &packet->h, 0, false, &trailer);
	require(trailer == 0);
	require(len <= WIRE_MAX_HEADERS);
	require(wire_decode(&again, frame, len) == WIRE_OK);
	same_headers(&packet->h, &again.h);
	require(ip_equal(&again.src_ip, &packet->src_ip));
	require(ip_equal(&again.dst_ip, &packet->dst_ip));
	require(again.traffic_class == packet->traffic_class);
	require(again.vlan == packet->vlan && again.priority == packet->priority);
	require(again.n_tags == (packet->vlan || packet->priority));
}

/* The headers of a packet alone, with its payload elsewhere, are the same packet. */
static void check_split(const struct wire_packet *packet, const uint8_t *frame)
{
	static const uint8_t elsewhere[1];
	size_t headers = (size_t)(packet->payload - frame);
	enum wire_verdict verdict;
	struct wire_packet split;

	verdict = wire_decode_split(&split, frame, headers, elsewhere, packet->payload_len);
	if (verdict != WIRE_OK)
		return;
	require(split.payload == elsewhere);
	require(split.payload_len == packet->payload_len);
	require(split.headers_len == packet->headers_len);
	same_headers(&packet->h, &split.h);
}

/* The same for the frame in two parts: without a checksum it gives the same verdict as the whole
 * one. */
static void check_far(
	const struct wire_packet *packet, enum wire_verdict whole, const uint8_t *frame, size_t len)
{
	size_t near_len = len < 118 ? len : 118;
	enum wire_verdict verdict;
	struct wire_packet far;

	verdict = wire_decode_part(&far, frame, near_len, len - near_len);
	if (whole == WIRE_OK) {
		require(verdict == WIRE_OK);
		require(far.payload == packet->payload);
		require(far.payload_len == packet->payload_len);
		require(wire_has_udp_checksum(&far) == wire_has_udp_checksum(packet));
		same_headers(&packet->h, &far.h);
	} else if (whole != WIRE_BAD_UDP) {
		require(verdict == whole);
	}
}

static void check_packet(const uint8_t *frame, size_t len)
{
	enum wire_verdict verdict;
	struct wire_packet packet;
	struct wire_packet bare;

	verdict = wire_decode(&packet, frame, len);
	check_far(&packet, verdict, frame, len);
	if (verdict != WIRE_OK)
		return;
	check_bounds(&packet, frame, len);
	if (opcode_known(packet.h.bth.opcode))
		encode_again(&packet);
	check_split(&packet, frame);
	bare = packet;
	if (wire_trim(&bare, false) == WIRE_OK)
		check_bounds(&bare, frame, len);
	if (wire_trim(&packet, true) == WIRE_OK) {
		check_bounds(&packet, frame, len);
		wire_icrc_ok(&packet);
	}
}

static void check_neighbor(const uint8_t *frame, size_t len)
{
	struct neighbor_message message, again;
	uint8_t out[NEIGHBOR_MAX_FRAME];

	if (!neighbor_decode(&message, frame, len))
		return;
	require(!(message.sender_mac[0] & 1));
	/* A probe has no sender address to give its family, and must not carry the option. */
	if (message.request && ip_equal(&message.sender_ip, &(struct frl_ip){ { 0 } }))
		return;
	if (ip_is_v4(&message.sender_ip) != ip_is_v4(&message.target_ip))
		return;
	len = neighbor_encode(out, &message);
	require(len <= sizeof(out));
	require(neighbor_decode(&again, out, len));
	require(again.request == message.request);
	require(ip_equal(&again.sender_ip, &message.sender_ip));
	require(mac_equal(again.sender_mac, message.sender_mac));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_packet(data, size);
	check_neighbor(data, size);
	return 0;
}
