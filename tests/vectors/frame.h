/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole frames made with our own encoder, for tests that then damage them. */
#ifndef FERRULE_TESTS_VECTORS_FRAME_H
#define FERRULE_TESTS_VECTORS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/icrc.h"
#include "lib/wire/packet.h"

enum {
	VARIANTS = 4, /* IPv4 or IPv6, with and without a VLAN tag */
	MAX_FRAME = WIRE_MAX_HEADERS + WIRE_IBTA_MTU + 3 + ICRC_LEN,
};

static const uint8_t mac_a[6] = { 2, 0, 0, 0, 0, 1 };
static const uint8_t mac_b[6] = { 2, 0, 0, 0, 0, 2 };

struct frame {
	uint8_t bytes[MAX_FRAME];
	size_t len;
	size_t l3; /* offsets */
	size_t udp;
	size_t bth;
	size_t payload; /* behind the headers */
	bool ipv4;
};

static inline struct wire_path make_path(bool ipv4)
{
	struct wire_path_config config = {
		.traffic_class = 0x6a,
		.hop_limit = 64,
		.udp_src_port = 0xc1ba,
	};
	struct wire_path path;

	memcpy(config.src_mac, mac_a, 6);
	memcpy(config.dst_mac, mac_b, 6);
	if (ipv4) {
		config.src_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 });
		config.dst_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 2 });
	} else {
		config.src_ip = (struct frl_ip){ { 0xfd, 0x09, [15] = 1 } };
		config.dst_ip = (struct frl_ip){ { 0xfd, 0x09, [15] = 2 } };
	}
	wire_path_init(&path, &config);
	return path;
}

static inline bool is_ipv4(int variant)
{
	return !(variant & 1);
}

static inline bool is_tagged(int variant)
{
	return variant & 2;
}

static inline void insert_tag(struct frame *frame)
{
	memmove(frame->bytes + 16, frame->bytes + 12, frame->len - 12);
	put_be16(frame->bytes + 12, ETHERTYPE_VLAN);
	put_be16(frame->bytes + 14, 0x600a);
	frame->len += VLAN_LEN;
	frame->l3 += VLAN_LEN;
	frame->udp += VLAN_LEN;
	frame->bth += VLAN_LEN;
	frame->payload += VLAN_LEN;
}

/* A whole frame: headers, payload bytes 1, 2, 3, ..., pad, ICRC. */
static inline struct frame make_frame(
	int variant, const struct wire_headers *h, uint32_t payload_len, bool has_icrc)
{
	struct wire_path path = make_path(is_ipv4(variant));
	struct frame frame = { .l3 = ETH_LEN, .ipv4 = is_ipv4(variant) };
	uint8_t trailer;
	uint32_t crc;
	size_t end;

	frame.payload = wire_encode(frame.bytes, &path, h, payload_len, has_icrc, &trailer);
	frame.udp = frame.l3 + (frame.ipv4 ? IPV4_LEN : IPV6_LEN);
	frame.bth = frame.udp + UDP_LEN;
	for (uint32_t i = 0; i < payload_len; i++)
		frame.bytes[frame.payload + i] = (uint8_t)(i + 1);
	frame.len = frame.payload + payload_len + trailer;
	memset(frame.bytes + frame.payload + payload_len, 0, trailer);
	if (has_icrc) {
		end = frame.len - ICRC_LEN;
		crc = icrc_headers(frame.bytes + frame.l3, frame.payload - frame.l3);
		crc = icrc_update(crc, frame.bytes + frame.payload, end - frame.payload);
		icrc_store(frame.bytes + end, crc);
	}
	if (is_tagged(variant))
		insert_tag(&frame);
	return frame;
}

/* For a frame with an ICRC. The UDP source port of a connection on the local fabric tells which
 * queue pair of the peer has sent it. */
static inline void set_sender(struct frame *frame, uint32_t qpn)
{
	size_t end = frame->len - ICRC_LEN;
	uint32_t crc;

	put_be16(frame->bytes + frame->udp, (uint16_t)(0xc000 | (qpn & 0x3fff)));
	crc = icrc_headers(frame->bytes + frame->l3, frame->payload - frame->l3);
	crc = icrc_update(crc, frame->bytes + frame->payload, end - frame->payload);
	icrc_store(frame->bytes + end, crc);
}

static inline struct wire_headers simple_headers(uint8_t opcode)
{
	return (struct wire_headers){
		.bth = { .opcode = opcode, .pkey = PKEY_DEFAULT, .dest_qpn = 0x11, .psn = { 7 } },
	};
}

static inline void fix_ip_checksum(struct frame *frame)
{
	uint8_t *ip = frame->bytes + frame->l3;
	uint32_t sum = 0;

	if (!frame->ipv4)
		return;
	put_be16(ip + 10, 0);
	for (int i = 0; i < IPV4_LEN; i += 2)
		sum += get_be16(ip + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put_be16(ip + 10, (uint16_t)~sum);
}

/* Sets the lengths in IP and UDP to `ip_payload`, as if the packet had been sent that short. */
static inline void set_lengths(struct frame *frame, size_t ip_payload)
{
	uint8_t *ip = frame->bytes + frame->l3;

	if (frame->ipv4)
		put_be16(ip + 2, (uint16_t)(IPV4_LEN + ip_payload));
	else
		put_be16(ip + 4, (uint16_t)ip_payload);
	put_be16(frame->bytes + frame->udp + 4, (uint16_t)ip_payload);
	fix_ip_checksum(frame);
}

#endif
