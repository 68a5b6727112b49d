/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/packet.h"

#include <assert.h>

#include "lib/base/bytes.h"

enum {
	PROTOCOL_UDP = 17,
	IPV4_DONT_FRAGMENT = 0x4000,
	FLOW_LABEL_MASK = 0xfffff,
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
	for (int i = 0; i < IPV4_LEN; i += 2)
		path->checksum += get_be16(ip + i);
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

static inline void encode_bth(uint8_t *p, const struct bth *bth, uint8_t pad)
{
	p[0] = bth->opcode;
	p[1] = (uint8_t)(bth->solicited << 7 | bth->migrated << 6 | pad << 4 |
		(bth->version & 0x0f));
	put_be16(p + 2, bth->pkey);
	p[4] = (uint8_t)(bth->fecn << 7 | bth->becn << 6);
	put_be24(p + 5, bth->dest_qpn);
	p[8] = (uint8_t)(bth->ack_request << 7);
	put_be24(p + 9, bth->psn.value);
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
static inline uint8_t *encode_extended(uint8_t *p, const struct wire_headers *h, uint8_t headers)
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
		p[0] = h->aeth.syndrome;
		put_be24(p + 1, h->aeth.msn);
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
	if (headers & HEADER_IETH) {
		put_be32(p, h->invalidate_rkey);
		p += IETH_LEN;
	}
	return p;
}

/* Lengths of IP and UDP, and the IPv4 checksum that changes with them (RFC 1624). */
static inline void patch_lengths(uint8_t *out, const struct wire_path *path, uint32_t udp_len)
{
	uint8_t *ip = out + path->l3_offset;
	uint32_t sum;

	put_be16(out + path->headers_len - UDP_LEN + 4, (uint16_t)udp_len);
	if (!path->ipv4) {
		put_be16(ip + 4, (uint16_t)udp_len);
		return;
	}
	put_be16(ip + 2, (uint16_t)(IPV4_LEN + udp_len));
	sum = path->checksum + IPV4_LEN + udp_len;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put_be16(ip + 10, (uint16_t)~sum);
}

size_t wire_encode(uint8_t *out, const struct wire_path *path, const struct wire_headers *h,
	uint32_t payload_len, bool has_icrc, uint8_t *ret_trailer_len)
{
	uint8_t pad = -payload_len & 3;
	uint8_t trailer_len = (uint8_t)(pad + (has_icrc ? ICRC_LEN : 0));
	uint8_t *bth = out + path->headers_len;
	uint8_t *end;
	uint32_t udp_len;

	static_assert(
		sizeof(path->headers) <= WIRE_MAX_HEADERS, "the whole template can be copied");
	assert(opcode_known(h->bth.opcode));
	memcpy(out, path->headers, sizeof(path->headers));
	encode_bth(bth, &h->bth, pad);
	end = encode_extended(bth + BTH_LEN, h, opcode_table[h->bth.opcode].headers);
	udp_len = UDP_LEN + (uint32_t)(end - bth) + payload_len + trailer_len;
	assert(udp_len <= UINT16_MAX - IPV4_LEN);
	patch_lengths(out, path, udp_len);
	*ret_trailer_len = trailer_len;
	return (size_t)(end - out);
}
