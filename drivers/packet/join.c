/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joins packets into one frame for the kernel's UDP segmentation. All headers before the UDP
 * payload must be equal, except lengths, identification and checksums. All packets are as long as
 * the first; only the last may be shorter.
 *
 * The kernel numbers the packets of a frame in their IPv4 identification, which the ICRC covers.
 * The ICRC is linear: the effect of a new identification depends only on the number of bytes after
 * that field. The payload therefore need not be read again.
 */
#include "drivers/packet/internal.h"

#include <string.h>

#include "lib/base/bytes.h"

enum {
	ETHERTYPE_AT = 12,
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	TYPE_VLAN = 0x8100,
	IPV4_HEADER = 20,
	IPV6_HEADER = 40,
	UDP_HEADER = 8,
	PROTOCOL_UDP = 17,
	ROCE_PORT = 4791,
	IP_MAX = 65535,
};

bool packet_look(const uint8_t *frame, size_t len, struct packet_layout *ret_layout)
{
	size_t l3 = ETH_HEADER;
	uint16_t type;
	bool ipv4;

	if (len < l3 + VLAN_TAG)
		return false;
	type = get_be16(frame + ETHERTYPE_AT);
	if (type == TYPE_VLAN) {
		type = get_be16(frame + ETHERTYPE_AT + VLAN_TAG);
		l3 += VLAN_TAG;
	}
	ipv4 = type == TYPE_IPV4;
	if ((!ipv4 && type != TYPE_IPV6) ||
		len < l3 + (ipv4 ? IPV4_HEADER : IPV6_HEADER) + UDP_HEADER)
		return false;
	if (ipv4 ? frame[l3] != 0x45 || frame[l3 + 9] != PROTOCOL_UDP ||
				(get_be16(frame + l3 + 6) & 0xbfff)
		 : frame[l3] >> 4 != 6 || frame[l3 + 6] != PROTOCOL_UDP)
		return false;
	ret_layout->l3 = (uint8_t)l3;
	ret_layout->udp = (uint8_t)(l3 + (ipv4 ? IPV4_HEADER : IPV6_HEADER));
	ret_layout->body = (uint8_t)(ret_layout->udp + UDP_HEADER);
	ret_layout->ipv4 = ipv4;
	return get_be16(frame + ret_layout->udp + 2) == ROCE_PORT;
}

static uint32_t packet_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

static bool is_same(const uint8_t *a, const uint8_t *b, size_t from, size_t to)
{
	return memcmp(a + from, b + from, to - from) == 0;
}

/* Returns true if the packet can follow one with these headers. */
static bool is_alike(const struct packet_layout *layout, const uint8_t *a, const uint8_t *b)
{
	size_t l3 = layout->l3, udp = layout->udp;

	/* Compare IPv4 except total length, identification and checksum; IPv6 except the length. */
	if (layout->ipv4 ? !is_same(a, b, 0, l3 + 2) || !is_same(a, b, l3 + 6, l3 + 10) ||
				!is_same(a, b, l3 + 12, udp)
			 : !is_same(a, b, 0, l3 + 4) || !is_same(a, b, l3 + 6, udp))
		return false;
	return is_same(a, b, udp, udp + 4) && is_same(a, b, udp + 6, udp + 8);
}

/* A packet without a UDP checksum: otherwise the kernel would have to compute one for each
 * packet. */
static bool can_lead(const struct port_packet *packet, struct packet_batch *batch)
{
	const uint8_t *header = packet->header;
	uint32_t len = packet_len(packet);

	if (!packet_look(header, packet->header_len, &batch->layout) ||
		get_be16(header + batch->layout.udp + 6) != 0 || len <= batch->layout.body ||
		get_be16(header + batch->layout.udp + 4) != len - batch->layout.udp)
		return false;
	batch->body = (uint16_t)(len - batch->layout.body);
	return true;
}

void packet_join(const struct port_packet packets[], uint16_t n, struct packet_batch *ret_batch)
{
	struct packet_batch *batch = ret_batch;
	uint32_t most;

	*batch = (struct packet_batch){ .n = 1 };
	if (packets[0].alone || !can_lead(&packets[0], batch))
		return;
	batch->body_sum = batch->body;
	/* The IPv6 length excludes its own header. */
	most = IP_MAX - (uint32_t)(batch->layout.body - batch->layout.l3);
	while (batch->n < n && batch->n < PACKET_JOIN_MAX) {
		const struct port_packet *packet = &packets[batch->n];
		uint32_t len = packet_len(packet);
		uint32_t body = len - batch->layout.body;

		if (packet->alone || packet->header_len < batch->layout.body ||
			len <= batch->layout.body || body > batch->body ||
			batch->body_sum + body > most ||
			get_be16(packet->header + batch->layout.udp + 4) != body + UDP_HEADER ||
			!is_alike(&batch->layout, packets[0].header, packet->header))
			return;
		batch->n++;
		batch->body_sum += body;
		if (body < batch->body)
			return;
	}
}

static uint32_t sum16(uint32_t sum, const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i += 2)
		sum += get_be16(bytes + i);
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

void packet_batch_headers(const struct packet_batch *batch, const struct port_packet *first,
	uint8_t headers[PACKET_HEADERS_MAX], struct virtio_net_hdr *ret_vnet)
{
	const struct packet_layout *layout = &batch->layout;
	uint8_t *ip = headers + layout->l3, *udp = headers + layout->udp;
	uint32_t udp_len = UDP_HEADER + batch->body_sum;
	uint32_t sum = udp_len + PROTOCOL_UDP;

	memcpy(headers, first->header, layout->body);
	put_be16(udp + 4, (uint16_t)udp_len);
	if (layout->ipv4) {
		put_be16(ip + 2, (uint16_t)(IPV4_HEADER + udp_len));
		put_be16(ip + 10, 0);
		put_be16(ip + 10, (uint16_t)~fold(sum16(0, ip, IPV4_HEADER)));
		sum = sum16(sum, ip + 12, 8);
	} else {
		put_be16(ip + 4, (uint16_t)udp_len);
		sum = sum16(sum, ip + 8, 32);
	}
	/* The kernel completes the checksum for each packet. */
	put_be16(udp + 6, fold(sum));
	*ret_vnet = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = PACKET_GSO_UDP,
		.hdr_len = layout->body,
		.gso_size = batch->body,
		.csum_start = layout->udp,
		.csum_offset = 6,
	};
}

/* ---- the ICRC: polynomials over GF(2), modulo that of CRC-32, most significant bit first */

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		product ^= a >> 31 ? b : 0;
		b = (b >> 1) ^ (b & 1 ? UINT32_C(0xedb88320) : 0);
	}
	return product;
}

/* Returns x to the power of 8 * `bytes`. */
static uint32_t shift_by(uint32_t bytes)
{
	uint32_t power = UINT32_C(1) << 31; /* x to the power of 0 */
	uint32_t square = UINT32_C(1) << 23;

	for (; bytes; bytes >>= 1) {
		if (bytes & 1)
			power = multiply(square, power);
		square = multiply(square, square);
	}
	return power;
}

uint32_t packet_icrc_change(struct packet_power *power, uint16_t id_change, uint32_t bytes_behind)
{
	/* The register takes the bytes of the field at its lower end, and shifts by the field and
	 * all following bytes. Here the field is at the upper end, which is 16 bits further. */
	uint32_t field = (uint32_t)(id_change >> 8) << 16 | (uint32_t)(id_change & 0xff) << 24;
	uint32_t bytes = bytes_behind + 4;

	if (power->bytes != bytes)
		*power = (struct packet_power){ bytes, shift_by(bytes) };
	return multiply(field, power->value);
}
