/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/packet.h"

#include <assert.h>

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/lanes.h"

enum {
	PROTOCOL_UDP = 17,
	IPV4_DONT_FRAGMENT = 0x4000,
	FLOW_LABEL_MASK = 0xfffff,
	BTH_PAD_BITS = 3 << 4,
	/* Bytes of the template that are copied in registers: over IPv4, and the additional ones
	 * over IPv6. */
	PATH_COPIED = 48,
	PATH_COPIED_IPV6 = 16,
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
	path->checksum = checksum_fold(checksum_add(0, ip, IPV4_LEN));
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

/* Writes length and checksum (none) of UDP, and the BTH, which starts at `p`. */
static inline void encode_bth(uint8_t *p, const struct bth *bth, uint32_t pad, uint32_t udp_len)
{
	const bytes16 keep = { 0, 0, 0, 0, 0xff, (uint8_t)~BTH_PAD_BITS, 0xff, 0xff,
		BTH_CONGESTION_BITS, 0xff, 0xff, 0xff, BTH_ACK_REQUEST, 0xff, 0xff, 0xff };
	const words16 computed = { __builtin_bswap16((uint16_t)udp_len) | (uint64_t)pad << 44 };
	bytes16 bytes = load16(bth);

	static_assert(offsetof(struct bth, pkey) == 2 && offsetof(struct bth, dest_qpn) == 4 &&
			offsetof(struct bth, psn) == 8,
		"the fields are at the offsets used below");
	bytes = order16(bytes, 0, 0, 0, 0, 0, 1, 3, 2, 12, 6, 5, 4, 13, 10, 9, 8) & keep;
	store16(p - 4, bytes | (bytes16)computed);
}

static inline void encode_reth(uint8_t *p, const struct reth *reth)
{
	static_assert(offsetof(struct reth, rkey) == 8 && offsetof(struct reth, dma_length) == 12,
		"the fields have the order of the wire");
	store16(p, order16(load16(reth), 7, 6, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 15, 14, 13, 12));
}

static inline void encode_atomic_eth(uint8_t *p, const struct atomic_eth *atomic)
{
	put_be64(p, atomic->va);
	put_be32(p + 8, atomic->rkey);
	put_be64(p + 12, atomic->swap_add);
	put_be64(p + 20, atomic->compare);
}

/* In the order of enum wire_header. Returns `len`, as this is the last step of encoding. */
static __attribute__((noinline)) size_t encode_extended(
	uint8_t *p, const struct wire_headers *h, uint8_t headers, size_t len)
{
	assert(opcode_known(h->bth.opcode));
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
	return len;
}

/* Sets the length in the IP header, which ends at `udp`, and updates the IPv4 checksum (RFC 1624).
 */
static inline void patch_ip(
	uint8_t *out, uint8_t *udp, const struct wire_path *path, uint32_t udp_len)
{
	uint16_t total, checksum;
	uint32_t sum;

	if (!path->ipv4) {
		memcpy(out + PATH_COPIED, path->headers + PATH_COPIED, PATH_COPIED_IPV6);
		put_be16(udp - IPV6_LEN + 4, (uint16_t)udp_len);
		return;
	}
	total = __builtin_bswap16((uint16_t)(IPV4_LEN + udp_len));
	sum = path->checksum + total; /* below 2^17 */
	checksum = (uint16_t) ~(sum + (sum >> 16));
	memcpy(udp - IPV4_LEN + 2, &total, sizeof(total));
	memcpy(udp - IPV4_LEN + 10, &checksum, sizeof(checksum));
}

size_t wire_encode(uint8_t *out, const struct wire_path *path, const struct wire_headers *h,
	uint32_t payload_len, bool has_icrc, uint8_t *ret_trailer_len)
{
	const struct opcode_info *op = &opcode_table[h->bth.opcode];
	uint32_t pad = -payload_len & 3;
	uint32_t trailer_len = pad + (has_icrc ? (uint32_t)ICRC_LEN : 0);
	uint32_t transport_len = BTH_LEN + (uint32_t)op->headers_len;
	uint32_t udp_len = UDP_LEN + transport_len + payload_len + trailer_len;
	size_t len = path->headers_len + (size_t)transport_len;
	uint8_t *bth = out + path->headers_len;

	static_assert((int)PATH_COPIED + PATH_COPIED_IPV6 <= WIRE_MAX_HEADERS &&
			ETH_LEN + VLAN_LEN + IPV4_LEN + UDP_LEN - 4 <= PATH_COPIED &&
			sizeof(path->headers) - 4 <= PATH_COPIED + PATH_COPIED_IPV6,
		"the copies cover the template, except for bytes that encode_bth() "
		"writes");
	*ret_trailer_len = (uint8_t)trailer_len;
	assert(udp_len <= UINT16_MAX - IPV4_LEN);
	memcpy(out, path->headers, PATH_COPIED);
	patch_ip(out, bth - UDP_LEN, path, udp_len);
	encode_bth(bth, &h->bth, pad, udp_len);
	if (op->headers != HEADER_RETH)
		return encode_extended(bth + BTH_LEN, h, op->headers, len);
	encode_reth(bth + BTH_LEN, &h->reth);
	return len;
}
