/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/packet.h"

#include <assert.h>

#include "lib/base/bytes.h"

enum {
	PROTOCOL_UDP = 17,
	IPV4_DONT_FRAGMENT = 0x4000,
	FLOW_LABEL_MASK = 0xfffff,
	BTH_PAD_BITS = 3 << 4,
	PATH_COPIED = 64, /* bytes of the template, in registers */
};

static void init_ipv4(struct wire_path *path, const struct wire_path_config *config)
{
	uint8_t *ip = path->headers + path->l3_offset;

	ip[0] = 0x45;
	ip[1] = config->traffic_class;
	put_be16(ip + 6, IPV4_DONT_FRAGMENT);
	ip[8] = config->hop_limit;
	ip[9] = PROTOCOL_UDP;
	memcpy(ip + 12, config->src_ip.bytes + 12, 4);
	memcpy(ip + 16, config->dst_ip.bytes + 12, 4);
	path->checksum = IPV4_LEN;
	for (int i = 0; i < IPV4_LEN; i += 2)
		path->checksum += get_be16(ip + i);
	while (path->checksum > UINT16_MAX)
		path->checksum = (path->checksum & UINT16_MAX) + (path->checksum >> 16);
}

static void init_ipv6(struct wire_path *path, const struct wire_path_config *config)
{
	uint8_t *ip = path->headers + path->l3_offset;

	put_be32(ip,
		UINT32_C(6) << 28 | (uint32_t)config->traffic_class << 20 |
			(config->flow_label & FLOW_LABEL_MASK));
	ip[6] = PROTOCOL_UDP;
	ip[7] = config->hop_limit;
	memcpy(ip + 8, config->src_ip.bytes, 16);
	memcpy(ip + 24, config->dst_ip.bytes, 16);
}

void wire_path_init(struct wire_path *path, const struct wire_path_config *config)
{
	uint8_t *ethertype = path->headers + ETH_LEN - 2;
	uint8_t *udp;

	assert(config->vlan < 4096 && config->priority < 8);
	assert(ip_is_v4(&config->src_ip) == ip_is_v4(&config->dst_ip));
	memset(path, 0, sizeof(*path));
	memcpy(path->headers, config->dst_mac, 6);
	memcpy(path->headers + 6, config->src_mac, 6);
	if (config->vlan || config->priority) {
		put_be16(ethertype, ETHERTYPE_VLAN);
		put_be16(ethertype + 2, (uint16_t)(config->priority << 13 | config->vlan));
		ethertype += VLAN_LEN;
	}
	path->l3_offset = (uint8_t)(ethertype + 2 - path->headers);
	path->ipv4 = ip_is_v4(&config->dst_ip);
	if (path->ipv4) {
		put_be16(ethertype, ETHERTYPE_IPV4);
		init_ipv4(path, config);
		udp = ethertype + 2 + IPV4_LEN;
	} else {
		put_be16(ethertype, ETHERTYPE_IPV6);
		init_ipv6(path, config);
		udp = ethertype + 2 + IPV6_LEN;
	}
	put_be16(udp, config->udp_src_port);
	put_be16(udp + 2, ROCE_UDP_PORT);
	path->headers_len = (uint8_t)(udp + UDP_LEN - path->headers);
}

void wire_path_set_src_port(struct wire_path *path, uint16_t udp_src_port)
{
	put_be16(path->headers + path->headers_len - UDP_LEN, udp_src_port);
}

void wire_path_set_dst_mac(struct wire_path *path, const uint8_t mac[6])
{
	memcpy(path->headers, mac, 6);
}

uint16_t wire_udp_src_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn)
{
	uint64_t mix = (uint64_t)local_qpn * remote_qpn;
	uint32_t label = flow_label & FLOW_LABEL_MASK;

	mix ^= mix >> 20;
	mix ^= mix >> 40;
	if (!label)
		label = mix & FLOW_LABEL_MASK;
	return (uint16_t)(0xc000 | ((label & 0x3fff) ^ (label >> 14)));
}

bool wire_multicast_mac(const struct frl_ip *ip, uint8_t ret_mac[6])
{
	static const uint8_t ipv4_prefix[] = { 0x01, 0x00, 0x5e };

	if (!ip_is_multicast(ip))
		return false;
	memset(ret_mac, 0x33, 2);
	memcpy(ret_mac + 2, ip->bytes + 12, 4);
	if (ip_is_v4(ip)) {
		memcpy(ret_mac, ipv4_prefix, sizeof(ipv4_prefix));
		ret_mac[3] &= 0x7f;
	}
	return true;
}

static inline void encode_bth(uint8_t *p, const struct bth *bth, uint32_t pad)
{
	p[0] = bth->opcode;
	p[1] = (uint8_t)((bth->flags & ~BTH_PAD_BITS) | pad << 4);
	put_be16(p + 2, bth->pkey);
	put_be32(p + 4,
		(uint32_t)(bth->congestion & BTH_CONGESTION_BITS) << 24 |
			(bth->dest_qpn & 0xffffff));
	put_be32(p + 8, (uint32_t)bth->ack_request << 31 | (bth->psn.value & PSN_MASK));
}

static inline void encode_reth(uint8_t *p, const struct reth *reth)
{
	put_be64(p, reth->va);
	put_be32(p + 8, reth->rkey);
	put_be32(p + 12, reth->dma_length);
}

static inline void encode_atomic_eth(uint8_t *p, const struct atomic_eth *atomic)
{
	put_be64(p, atomic->va);
	put_be32(p + 8, atomic->rkey);
	put_be64(p + 12, atomic->swap_add);
	put_be64(p + 20, atomic->compare);
}

/* In the order of enum wire_header. */
static __attribute__((noinline)) void encode_extended(
	uint8_t *p, const struct wire_headers *h, uint8_t headers)
{
	if (headers & HEADER_DETH) {
		put_be32(p, h->deth.qkey);
		put_be32(p + 4, h->deth.src_qpn & 0xffffff);
		p += DETH_LEN;
	}
	if (headers & HEADER_RETH) {
		encode_reth(p, &h->reth);
		p += RETH_LEN;
	}
	if (headers & HEADER_ATOMICETH) {
		encode_atomic_eth(p, &h->atomic);
		p += ATOMICETH_LEN;
	}
	if (headers & HEADER_AETH) {
		put_be32(p, (uint32_t)h->aeth.syndrome << 24 | (h->aeth.msn & 0xffffff));
		p += AETH_LEN;
	}
	if (headers & HEADER_ATOMICACKETH) {
		put_be64(p, h->atomic_original);
		p += ATOMICACKETH_LEN;
	}
	if (headers & HEADER_IMMDT) {
		memcpy(p, &h->imm_data, IMMDT_LEN);
		p += IMMDT_LEN;
	}
	if (headers & HEADER_IETH)
		put_be32(p, h->invalidate_rkey);
}

/* Lengths of IP and UDP, and the IPv4 checksum that changes with them (RFC 1624). */
static inline void patch_lengths(
	uint8_t *ip, uint8_t *udp, const struct wire_path *path, uint32_t udp_len)
{
	uint32_t sum;

	put_be16(udp + 4, (uint16_t)udp_len);
	put_be16(udp + 6, 0); /* there is no checksum */
	if (!path->ipv4) {
		put_be16(ip + 4, (uint16_t)udp_len);
		return;
	}
	sum = path->checksum + udp_len; /* below 2^17 */
	put_be16(ip + 2, (uint16_t)(IPV4_LEN + udp_len));
	put_be16(ip + 10, (uint16_t) ~(sum + (sum >> 16)));
}

size_t wire_encode(uint8_t *out, const struct wire_path *path, const struct wire_headers *h,
	uint32_t payload_len, bool has_icrc, uint8_t *ret_trailer_len)
{
	const struct opcode_info *op = &opcode_table[h->bth.opcode];
	uint32_t pad = -payload_len & 3;
	uint32_t trailer_len = pad + (has_icrc ? (uint32_t)ICRC_LEN : 0);
	uint32_t transport_len = BTH_LEN + (uint32_t)op->headers_len;
	uint8_t *bth = out + path->headers_len;
	size_t len = path->headers_len + transport_len;
	uint32_t udp_len = UDP_LEN + transport_len + payload_len + trailer_len;

	static_assert((int)PATH_COPIED <= WIRE_MAX_HEADERS, "the whole template can be copied");
	static_assert(sizeof(path->headers) - PATH_COPIED <= 4, "lengths are written anyway");
	assert(opcode_known(h->bth.opcode) && udp_len <= UINT16_MAX - IPV4_LEN);
	*ret_trailer_len = (uint8_t)trailer_len;
	memcpy(out, path->headers, PATH_COPIED);
	patch_lengths(out + path->l3_offset, bth - UDP_LEN, path, udp_len);
	encode_bth(bth, &h->bth, pad);
	if (op->headers == HEADER_RETH)
		encode_reth(bth + BTH_LEN, &h->reth);
	else if (op->headers)
		encode_extended(bth + BTH_LEN, h, op->headers);
	return len;
}
