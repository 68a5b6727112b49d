/* SPDX-License-Identifier: BSD-3-Clause */
/* Splits a received frame into packets. The kernel delivers such a frame if nothing had to segment
 * it. The packets are those that the kernel's UDP segmentation would have made. */
#include "drivers/packet/internal.h"

#include <string.h>

#include "lib/base/bytes.h"

enum { IPV4_HEADER = 20, UDP_HEADER = 8 };

bool packet_cut(const struct virtio_net_hdr *vnet, const uint8_t *frame, size_t near_len,
	size_t len, struct packet_cut *ret_cut)
{
	struct packet_cut *cut = ret_cut;
	size_t body_sum;

	/* Other types are for TCP, or for IP fragments. */
	if ((vnet->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != PACKET_GSO_UDP || vnet->gso_size == 0 ||
		!packet_look(frame, near_len < len ? near_len : len, &cut->layout) ||
		len <= cut->layout.body)
		return false;
	body_sum = len - cut->layout.body;
	/* The lengths in the headers must match the frame exactly. */
	if (get_be16(frame + cut->layout.udp + 4) != UDP_HEADER + body_sum)
		return false;
	cut->body = vnet->gso_size;
	cut->n = (uint32_t)((body_sum + cut->body - 1) / cut->body);
	cut->last = (uint32_t)(body_sum - (size_t)(cut->n - 1) * cut->body);
	return true;
}

static void set_checksum(uint8_t *ip)
{
	uint32_t sum = 0;

	put_be16(ip + 10, 0);
	for (int i = 0; i < IPV4_HEADER; i += 2)
		sum += get_be16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	put_be16(ip + 10, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
}

void packet_cut_headers(
	const struct packet_cut *cut, const uint8_t *frame, uint32_t k, uint8_t *headers)
{
	const struct packet_layout *layout = &cut->layout;
	uint8_t *ip = headers + layout->l3, *udp = headers + layout->udp;
	uint32_t udp_len = UDP_HEADER + (k + 1 == cut->n ? cut->last : cut->body);

	if (headers != frame)
		memcpy(headers, frame, layout->body);
	put_be16(udp + 4, (uint16_t)udp_len);
	put_be16(udp + 6, 0);
	if (layout->ipv4) {
		put_be16(ip + 2, (uint16_t)(IPV4_HEADER + udp_len));
		put_be16(ip + 4, (uint16_t)(get_be16(frame + layout->l3 + 4) + k));
		set_checksum(ip);
	} else {
		put_be16(ip + 4, (uint16_t)udp_len);
	}
}
