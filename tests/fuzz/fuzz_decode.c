/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any bytes as a frame: decoded in every way that the engine does, and what came out encoded again.
 * For libFuzzer, and for tests/unit/test_fuzz_corpus.c, which replays corpus/decode.
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
	require(opcode_known(packet->h.bth.opcode));
}

/* Whatever can be decoded can be encoded, and is then decoded to the same. */
static void encode_again(const struct wire_packet *packet)
{
	const struct wire_path_config config = {
		.src_ip = packet->src_ip,
		.dst_ip = packet->dst_ip,
		.traffic_class = packet->traffic_class,
	};
	uint8_t frame[WIRE_MAX_HEADERS + 64];
	struct wire_packet again;
	struct wire_path path;
	uint8_t trailer;
	size_t len;

	/* An IPv6 header can hold one mapped IPv4 address, or two. */
	if (ip_is_v4(&packet->src_ip) != ip_is_v4(&packet->dst_ip))
		return;
	wire_path_init(&path, &config);
	len = wire_encode(frame, &path, &packet->h, 0, false, &trailer);
	require(trailer == 0);
	require(wire_decode(&again, frame, len) == WIRE_OK);
	require(again.h.bth.dest_qpn == packet->h.bth.dest_qpn);
	require(psn_equal(again.h.bth.psn, packet->h.bth.psn));
	require(again.h.reth.va == packet->h.reth.va);
	require(again.h.aeth.msn == packet->h.aeth.msn);
	require(again.h.imm_data == packet->h.imm_data);
	require(ip_equal(&again.src_ip, &packet->src_ip));
	require(again.traffic_class == packet->traffic_class);
}

static void check_packet(const uint8_t *frame, size_t len)
{
	struct wire_packet packet;
	struct wire_packet bare;

	if (wire_decode(&packet, frame, len) != WIRE_OK)
		return;
	check_bounds(&packet, frame, len);
	encode_again(&packet);
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
	/* A probe has no sender whose family could be told, and may not carry the option. */
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
