/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/packet.h"

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/icrc.h"
#include "lib/wire/lanes.h"

enum {
	PROTOCOL_HOP_BY_HOP = 0, /* of IPv6 */
	PROTOCOL_ICMP = 1,
	PROTOCOL_IGMP = 2,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMPV6 = 58,
	ROCE_PORT_BYTES = (ROCE_UDP_PORT & 0xff) << 8 | ROCE_UDP_PORT >> 8, /* in memory order */
	MAX_TAGS = 2,
	BTH_VERSION_MASK = 0x0f,
};

/* The remaining frame: `len` bytes at `at`, followed by `elsewhere` bytes in other memory. Lengths
 * in headers count both; only the first part is read. */
struct rest {
	const uint8_t *at;
	size_t len;
	size_t elsewhere;
	/* Both parts are the frame, which may extend beyond the packet. Otherwise the second part
	 * is exactly the payload. */
	bool is_frame;
};

/* Reduces the rest to `len` bytes, as a header says. Returns false if there are fewer, or if
 * payload would be cut off. */
static inline bool cut(struct rest *rest, size_t len)
{
	if (len > rest->len + rest->elsewhere || (len < rest->elsewhere && !rest->is_frame))
		return false;
	if (!rest->is_frame) {
		rest->len = len - rest->elsewhere;
	} else if (len > rest->len) {
		rest->elsewhere = len - rest->len;
	} else {
		rest->len = len;
		rest->elsewhere = 0;
	}
	return true;
}

static inline void skip(struct rest *rest, size_t len)
{
	rest->at += len;
	rest->len -= len;
}

const char *wire_verdict_name(enum wire_verdict verdict)
{
	static const char *const names[] = {
		[WIRE_OK] = "ok",
		[WIRE_ARP] = "arp",
		[WIRE_ICMP] = "icmp",
		[WIRE_IGMP] = "igmp",
		[WIRE_NOT_ROCE] = "not_roce",
		[WIRE_SHORT] = "short",
		[WIRE_BAD_IP] = "bad_ip",
		[WIRE_BAD_UDP] = "bad_udp",
		[WIRE_BAD_LENGTH] = "bad_length",
		[WIRE_BAD_VERSION] = "bad_version",
		[WIRE_BAD_OPCODE] = "bad_opcode",
	};

	return verdict < sizeof(names) / sizeof(names[0]) ? names[verdict] : "unknown";
}

/* Classifies an IPv4 packet that is not UDP. IGMP has an IP option (RFC 2236, 2). */
static enum wire_verdict other_ipv4(uint8_t protocol)
{
	switch (protocol) {
	case PROTOCOL_ICMP: return WIRE_ICMP;
	case PROTOCOL_IGMP: return WIRE_IGMP;
	default: return WIRE_NOT_ROCE;
	}
}

static inline enum wire_verdict decode_ipv4(struct wire_packet *packet, struct rest *rest)
{
	const uint8_t *ip = rest->at;
	uint16_t total;

	if (rest->len < IPV4_LEN)
		return WIRE_SHORT;
	if (ip[0] >> 4 != 4)
		return WIRE_BAD_IP;
	if (ip[9] != PROTOCOL_UDP)
		return other_ipv4(ip[9]);
	/* No options (Annex A17.3.1) and no fragments. */
	if (ip[0] != 0x45 || (get_be16(ip + 6) & 0xbfff) != 0)
		return WIRE_BAD_IP;
	if (checksum_fold(checksum_add(0, ip, IPV4_LEN)) != 0xffff)
		return WIRE_BAD_IP;
	total = get_be16(ip + 2);
	if (!cut(rest, total) || rest->len < IPV4_LEN)
		return WIRE_BAD_IP;
	packet->src_ip = ip_from_v4(ip + 12);
	packet->dst_ip = ip_from_v4(ip + 16);
	packet->traffic_class = ip[1];
	skip(rest, IPV4_LEN);
	return WIRE_OK;
}

static inline enum wire_verdict decode_ipv6(struct wire_packet *packet, struct rest *rest)
{
	const uint8_t *ip = rest->at;
	uint16_t payload;

	if (rest->len < IPV6_LEN)
		return WIRE_SHORT;
	if (ip[0] >> 4 != 6)
		return WIRE_BAD_IP;
	payload = get_be16(ip + 4);
	if (!cut(rest, IPV6_LEN + (size_t)payload) || rest->len < IPV6_LEN)
		return WIRE_BAD_IP;
	if (ip[6] == PROTOCOL_ICMPV6)
		return WIRE_ICMP;
	/* Multicast listener discovery has a hop-by-hop option (RFC 2710, 3). */
	if (ip[6] == PROTOCOL_HOP_BY_HOP && rest->len > IPV6_LEN && ip[IPV6_LEN] == PROTOCOL_ICMPV6)
		return WIRE_ICMP;
	if (ip[6] != PROTOCOL_UDP)
		return WIRE_NOT_ROCE;
	memcpy(packet->src_ip.bytes, ip + 8, 16);
	memcpy(packet->dst_ip.bytes, ip + 24, 16);
	/* IPv4-mapped addresses stand for IPv4 from here on, and are invalid on the wire (RFC
	 * 6890). */
	if (ip_is_v4(&packet->src_ip) || ip_is_v4(&packet->dst_ip))
		return WIRE_BAD_IP;
	packet->traffic_class = (uint8_t)(get_be16(ip) >> 4);
	skip(rest, IPV6_LEN);
	return WIRE_OK;
}

static bool udp_checksum_ok(const struct wire_packet *packet, const struct rest *udp)
{
	uint64_t sum = checksum_pseudo(
		&packet->src_ip, &packet->dst_ip, PROTOCOL_UDP, (uint16_t)udp->len);

	return checksum_fold(checksum_add(sum, udp->at, udp->len)) == 0xffff;
}

static inline enum wire_verdict decode_udp(struct wire_packet *packet, struct rest *rest)
{
	const uint8_t *udp = rest->at;
	uint16_t len;

	if (rest->len < UDP_LEN)
		return WIRE_SHORT;
	if (get_be16(udp + 2) != ROCE_UDP_PORT)
		return WIRE_NOT_ROCE;
	len = get_be16(udp + 4);
	if (!cut(rest, len) || rest->len < UDP_LEN)
		return WIRE_BAD_UDP;
	/* Payload in other memory is not read here. A split frame is sent without a checksum; a
	 * frame with a far part may have one, see wire_has_udp_checksum(). */
	if (get_be16(udp + 6) != 0 &&
		!(rest->elsewhere ? rest->is_frame : udp_checksum_ok(packet, rest)))
		return WIRE_BAD_UDP;
	skip(rest, UDP_LEN);
	return WIRE_OK;
}

/* Also reads the four bytes before `p`. */
static inline void decode_bth(struct bth *bth, const uint8_t *p)
{
	const bytes16 keep = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0,
		BTH_CONGESTION_BITS, BTH_ACK_REQUEST, 0, 0 };

	store16(bth,
		order16(load16(p - 4), 4, 5, 7, 6, 11, 10, 9, 8, 15, 14, 13, 12, 8, 12, 0, 0) &
			keep);
}

static inline void decode_reth(struct reth *reth, const uint8_t *p)
{
	store16(reth, order16(load16(p), 7, 6, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 15, 14, 13, 12));
}

static inline struct atomic_eth decode_atomic_eth(const uint8_t *p)
{
	return (struct atomic_eth){
		.va = get_be64(p),
		.rkey = get_be32(p + 8),
		.swap_add = get_be64(p + 12),
		.compare = get_be64(p + 20),
	};
}

/* In the order of enum wire_header. */
static __attribute__((noinline)) void decode_extended(
	struct wire_headers *h, uint8_t headers, const uint8_t *p)
{
	if (headers & HEADER_DETH) {
		h->deth = (struct deth){ get_be32(p), get_be32(p + 4) & 0xffffff };
		p += DETH_LEN;
	}
	if (headers & HEADER_RETH) {
		decode_reth(&h->reth, p);
		p += RETH_LEN;
	}
	if (headers & HEADER_ATOMICETH)
		h->atomic = decode_atomic_eth(p);
	if (headers & HEADER_AETH) {
		h->aeth = (struct aeth){ p[0], get_be32(p) & 0xffffff };
		p += AETH_LEN;
	}
	if (headers & HEADER_ATOMICACKETH)
		h->atomic_original = get_be64(p);
	if (headers & HEADER_IMMDT)
		memcpy(&h->imm_data, p, IMMDT_LEN);
	if (headers & HEADER_IETH)
		h->invalidate_rkey = get_be32(p);
}

void wire_decode_headers(struct wire_headers *h, const uint8_t *bth)
{
	uint8_t bytes[4 + BTH_LEN] = { 0 };

	memcpy(bytes + 4, bth, BTH_LEN);
	decode_bth(&h->bth, bytes + 4);
	decode_extended(h, opcode_table[bth[0]].headers, bth + BTH_LEN);
}

static inline enum wire_verdict decode_transport(struct wire_packet *packet, struct rest *rest)
{
	const uint8_t *bth = rest->at;
	const struct opcode_info *op;

	if (rest->len < BTH_LEN)
		return WIRE_SHORT;
	if (bth[1] & BTH_VERSION_MASK) /* IBTA 9.6.1.1.3 */
		return WIRE_BAD_VERSION;
	op = &opcode_table[bth[0]];
	if (!op->name)
		return WIRE_BAD_OPCODE;
	if (rest->len < BTH_LEN + (size_t)op->headers_len)
		return WIRE_SHORT;
	if ((rest->len + rest->elsewhere) % 4)
		return WIRE_BAD_LENGTH;
	packet->op = op;
	decode_bth(&packet->h.bth, bth);
	decode_extended(&packet->h, op->headers, bth + BTH_LEN);
	skip(rest, BTH_LEN + (size_t)op->headers_len);
	return WIRE_OK;
}

static inline bool is_tag(uint16_t ethertype)
{
	return ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_SERVICE_VLAN;
}

/* Removes the tags. Returns the following type, which may be that of another tag. */
static enum wire_verdict decode_tags(
	struct wire_packet *packet, struct rest *rest, uint16_t *ethertype)
{
	uint16_t outer = rest->len < VLAN_LEN ? 0 : get_be16(rest->at);

	while (is_tag(*ethertype) && packet->n_tags < MAX_TAGS) {
		if (rest->len < VLAN_LEN)
			return WIRE_SHORT;
		*ethertype = get_be16(rest->at + 2);
		skip(rest, VLAN_LEN);
		packet->n_tags++;
	}
	packet->priority = (uint8_t)(outer >> 13);
	packet->vlan = outer & 0x0fff;
	return WIRE_OK;
}

static inline enum wire_verdict decode(struct wire_packet *packet, struct rest rest)
{
	enum wire_verdict verdict;
	uint16_t ethertype;

	if (rest.len < ETH_LEN)
		return WIRE_SHORT;
	ethertype = get_be16(rest.at + ETH_LEN - 2);
	skip(&rest, ETH_LEN);
	packet->n_tags = 0;
	packet->priority = 0;
	packet->vlan = 0;
	if (is_tag(ethertype)) {
		verdict = decode_tags(packet, &rest, &ethertype);
		if (verdict != WIRE_OK)
			return verdict;
	}
	packet->l3 = rest.at;
	switch (ethertype) {
	case ETHERTYPE_IPV4: verdict = decode_ipv4(packet, &rest); break;
	case ETHERTYPE_IPV6: verdict = decode_ipv6(packet, &rest); break;
	case ETHERTYPE_ARP: return WIRE_ARP;
	default: return WIRE_NOT_ROCE;
	}
	if (verdict == WIRE_OK)
		verdict = decode_udp(packet, &rest);
	if (verdict == WIRE_OK)
		verdict = decode_transport(packet, &rest);
	if (verdict != WIRE_OK)
		return verdict;
	packet->headers_len = (uint32_t)(rest.at - packet->l3);
	packet->payload = rest.at;
	packet->payload_len = (uint32_t)(rest.len + rest.elsewhere);
	return WIRE_OK;
}

/* Loads in the processor's byte order. */
static inline uint32_t word32(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

static inline uint64_t word64(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/*
 * Returns true if the checksum is correct. An IPv4 header without options then sums up to a
 * multiple of 0xffff in one's complement; not 0, since the version is not 0. Carries wrap around,
 * as 2^64 - 1 is a multiple of 0xffff.
 */
static inline bool ipv4_checksum_ok(const uint8_t *ip)
{
	uint64_t a = word64(ip), b = word64(ip + 8), c = word32(ip + 16);

	a += b;
	a += a < b;
	a += c;
	a += a < c;
	return a % 0xffff == 0;
}

/* The same as ip_from_v4() for both addresses. */
static inline void decode_ipv4_addresses(struct wire_packet *packet, const uint8_t *ip)
{
	const words16 prefix = { 0, UINT64_C(0xffff) << 16 };
	const words16 keep = { 0, UINT64_C(0xffffffff) << 32 };

	/* The last four of the bytes loaded. */
	store16(&packet->src_ip, (bytes16)(((words16)load16(ip) & keep) | prefix));
	store16(&packet->dst_ip, (bytes16)(((words16)load16(ip + 4) & keep) | prefix));
}

/*
 * Decodes the most common packet: IPv4 without tag, options or UDP checksum, with matching
 * lengths. Returns false for any other packet and any error; decode() then finds the verdict.
 */
static inline bool decode_common(struct wire_packet *packet, const uint8_t *frame, size_t len)
{
	const uint8_t *ip = frame + ETH_LEN, *udp = ip + IPV4_LEN, *bth = udp + UDP_LEN;
	const struct opcode_info *op;
	uint32_t udp_len, headers_len;

	/* Ethertype, version and length of the IPv4 header; fragment and protocol; destination
	 * port and checksum of UDP; version of the BTH. */
	if (len < ETH_LEN + IPV4_LEN + UDP_LEN + BTH_LEN ||
		(word32(ip - 2) & 0x00ffffff) != 0x00450008 ||
		(word32(ip + 6) & 0xff00ffbf) != PROTOCOL_UDP << 24 ||
		(word64(udp + 2) & ((uint64_t)BTH_VERSION_MASK << 56 | 0x0000ffff0000ffff)) !=
			ROCE_PORT_BYTES ||
		!ipv4_checksum_ok(ip))
		return false;
	udp_len = get_be16(udp + 4);
	op = &opcode_table[bth[0]];
	headers_len = UDP_LEN + BTH_LEN + (uint32_t)op->headers_len;
	if (get_be16(ip + 2) != IPV4_LEN + udp_len || ETH_LEN + IPV4_LEN + udp_len > len ||
		udp_len < headers_len || udp_len % 4 != 0 || op->operation == OPERATION_NONE)
		return false;
	packet->op = op;
	decode_bth(&packet->h.bth, bth);
	decode_ipv4_addresses(packet, ip);
	packet->vlan = 0;
	packet->n_tags = 0;
	packet->priority = 0;
	packet->traffic_class = ip[1];
	packet->l3 = ip;
	packet->headers_len = IPV4_LEN + headers_len;
	packet->payload = udp + headers_len;
	packet->payload_len = udp_len - headers_len;
	if (op->headers == HEADER_RETH)
		decode_reth(&packet->h.reth, bth + BTH_LEN);
	else if (op->headers)
		decode_extended(&packet->h, op->headers, bth + BTH_LEN);
	return true;
}

static __attribute__((noinline)) enum wire_verdict decode_other(
	struct wire_packet *packet, const uint8_t *frame, size_t len)
{
	return decode(packet, (struct rest){ .at = frame, .len = len });
}

enum wire_verdict wire_decode(struct wire_packet *packet, const uint8_t *frame, size_t len)
{
	return decode_common(packet, frame, len) ? WIRE_OK : decode_other(packet, frame, len);
}

enum wire_verdict wire_decode_part(
	struct wire_packet *packet, const uint8_t *frame, size_t len, size_t rest_len)
{
	return decode(packet,
		(struct rest){ .at = frame, .len = len, .elsewhere = rest_len, .is_frame = true });
}

bool wire_has_udp_checksum(const struct wire_packet *packet)
{
	return get_be16(packet->payload - packet->op->headers_len - BTH_LEN - 2) != 0;
}

enum wire_verdict wire_decode_split(struct wire_packet *packet, const uint8_t *frame, size_t len,
	const uint8_t *payload, size_t payload_len)
{
	const struct rest rest = { .at = frame, .len = len, .elsewhere = payload_len };
	enum wire_verdict verdict = decode(packet, rest);

	if (verdict != WIRE_OK)
		return verdict;
	/* The frame must hold only the headers, and the packet has no pad or ICRC. */
	if (packet->payload_len != payload_len || packet->h.bth.pad != 0)
		return WIRE_BAD_LENGTH;
	packet->payload = payload;
	packet->payload_len = (uint32_t)payload_len;
	return WIRE_OK;
}

bool wire_icrc_ok(const struct wire_packet *packet)
{
	size_t len = (size_t)packet->payload_len + packet->h.bth.pad;
	const uint8_t *trailer = packet->payload + len;

	return icrc_load(trailer) ==
		icrc_whole(packet->l3, packet->headers_len, packet->payload, len);
}
