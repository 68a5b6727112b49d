/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/group.h"

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/ether.h"
#include "lib/wire/packet.h"

enum {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_IGMP = 2,
	PROTOCOL_ICMPV6 = 58,
	ONE_HOP = 1,

	IGMP_LEN = 8,
	IGMPV3_QUERY_LEN = 12, /* without sources */
	IGMP_QUERY = 0x11,
	IGMPV2_REPORT = 0x16,
	IGMPV2_LEAVE = 0x17,
	IGMPV1_DELAY_MS = 10000, /* of a version 1 query (RFC 2236, 4) */
	IPV4_ALERT_LEN = IPV4_LEN + 4,
	IPV4_VERSION_IHL = 0x46,
	IPV4_CONTROL = 0xc0, /* precedence: internetwork control */
	IPV4_DONT_FRAGMENT = 0x4000,

	MLD_LEN = 24,
	MLDV2_QUERY_LEN = 28, /* without sources */
	MLD_QUERY = 130,
	MLDV1_REPORT = 131,
	MLDV1_DONE = 132,

	HOP_BY_HOP_LEN = 8, /* with one router alert */
	OPTION_PAD1 = 0,
	OPTION_ROUTER_ALERT = 5,
	OPTION_UNKNOWN_DROP = 0xc0, /* either bit: an unknown option must not be skipped (RFC 8200,
				     * 4.2) */
};

static const struct frl_ip all_systems = { { [10] = 0xff, 0xff, 224, 0, 0, 1 } };
static const struct frl_ip all_routers_v4 = { { [10] = 0xff, 0xff, 224, 0, 0, 2 } };
static const struct frl_ip all_nodes = { { 0xff, 0x02, [15] = 1 } };
static const struct frl_ip all_routers = { { 0xff, 0x02, [15] = 2 } };
static const struct frl_ip no_group_v4 = { { [10] = 0xff, 0xff } };
static const struct frl_ip no_group;

bool group_is_reported(const struct frl_ip *ip)
{
	if (!ip_is_multicast(ip))
		return false;
	if (ip_is_v4(ip))
		return !ip_equal(ip, &all_systems);
	/* Scope 0 is reserved; scope 1 is the interface. */
	return !ip_equal(ip, &all_nodes) && (ip->bytes[1] & 0x0f) > 1;
}

static size_t encode_igmp(uint8_t *ip, const struct group_report *report, const struct frl_ip *dst)
{
	static const uint8_t router_alert[4] = { 0x94, 4, 0, 0 }; /* RFC 2113 */
	uint8_t *igmp = ip + IPV4_ALERT_LEN;

	memset(ip, 0, IPV4_ALERT_LEN + IGMP_LEN);
	ip[0] = IPV4_VERSION_IHL;
	ip[1] = IPV4_CONTROL;
	put_be16(ip + 2, IPV4_ALERT_LEN + IGMP_LEN);
	put_be16(ip + 6, IPV4_DONT_FRAGMENT);
	ip[8] = ONE_HOP;
	ip[9] = PROTOCOL_IGMP;
	memcpy(ip + 12, report->src_ip.bytes + 12, 4);
	memcpy(ip + 16, dst->bytes + 12, 4);
	memcpy(ip + IPV4_LEN, router_alert, sizeof(router_alert));
	checksum_store(ip + 10, checksum_add(0, ip, IPV4_ALERT_LEN));

	igmp[0] = report->leave ? IGMPV2_LEAVE : IGMPV2_REPORT;
	memcpy(igmp + 4, report->group.bytes + 12, 4);
	checksum_store(igmp + 2, checksum_add(0, igmp, IGMP_LEN));
	return IPV4_ALERT_LEN + IGMP_LEN;
}

static size_t encode_mld(uint8_t *ip, const struct group_report *report, const struct frl_ip *dst)
{
	/* RFC 2711, followed by PadN. */
	static const uint8_t hop_by_hop[HOP_BY_HOP_LEN] = { PROTOCOL_ICMPV6, 0, OPTION_ROUTER_ALERT,
		2, 0, 0, 1, 0 };
	uint8_t *mld = ip + IPV6_LEN + HOP_BY_HOP_LEN;
	uint64_t sum;

	memset(ip, 0, IPV6_LEN + HOP_BY_HOP_LEN + MLD_LEN);
	ip[0] = 0x60;
	put_be16(ip + 4, HOP_BY_HOP_LEN + MLD_LEN);
	ip[6] = PROTOCOL_HOP_BY_HOP;
	ip[7] = ONE_HOP;
	memcpy(ip + 8, report->src_ip.bytes, 16);
	memcpy(ip + 24, dst->bytes, 16);
	memcpy(ip + IPV6_LEN, hop_by_hop, sizeof(hop_by_hop));

	mld[0] = report->leave ? MLDV1_DONE : MLDV1_REPORT;
	memcpy(mld + 8, report->group.bytes, 16);
	sum = checksum_pseudo(&report->src_ip, dst, PROTOCOL_ICMPV6, MLD_LEN);
	checksum_store(mld + 2, checksum_add(sum, mld, MLD_LEN));
	return IPV6_LEN + HOP_BY_HOP_LEN + MLD_LEN;
}

size_t group_encode_report(uint8_t out[GROUP_MAX_FRAME], const struct group_report *report)
{
	bool v4 = ip_is_v4(&report->group);
	struct frl_ip dst = report->group;
	uint8_t dst_mac[6] = { 0 };
	size_t header_len;

	if (report->leave)
		dst = v4 ? all_routers_v4 : all_routers;
	wire_multicast_mac(&dst, dst_mac);
	header_len = ether_encode(
		out, dst_mac, report->src_mac, report->vlan, v4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	return header_len +
		(v4 ? encode_igmp(out + header_len, report, &dst)
		    : encode_mld(out + header_len, report, &dst));
}

/*
 * Decodes a delay. Codes with the top bit set are floating point: that bit, three bits of
 * exponent, the rest mantissa (RFC 3376, 4.1.1; RFC 3810, 5.1.3).
 */
static uint32_t decode_delay(uint32_t code, unsigned bits)
{
	unsigned mantissa_bits = bits - 4;
	uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
	unsigned exponent = code >> mantissa_bits & 7;

	if (code >> (bits - 1) == 0)
		return code;
	return (mantissa | 1u << mantissa_bits) << (exponent + 3);
}

/* Checks the destination: all hosts for a general query, the group for a specific one (RFC 2236, 9
 * and 10). No host can then be made to report by a frame to it alone. */
static bool finish_query(struct group_query *query, const struct frl_ip *dst)
{
	query->all = ip_equal(&query->group, query->ipv4 ? &no_group_v4 : &no_group);
	if (query->all)
		return ip_equal(dst, query->ipv4 ? &all_systems : &all_nodes);
	return ip_is_multicast(&query->group) && ip_equal(dst, &query->group);
}

static bool decode_igmp(struct group_query *query, const uint8_t *igmp, size_t len)
{
	if (len < IGMP_LEN || igmp[0] != IGMP_QUERY)
		return false;
	/* The length determines the version (RFC 3376, 7.1). */
	if (len != IGMP_LEN && len < IGMPV3_QUERY_LEN)
		return false;
	if (checksum_fold(checksum_add(0, igmp, len)) != 0xffff)
		return false;
	if (len == IGMP_LEN) {
		query->max_delay_ms = igmp[1] ? igmp[1] * 100u : IGMPV1_DELAY_MS;
	} else {
		if (get_be16(igmp + 10) * (size_t)4 > len - IGMPV3_QUERY_LEN)
			return false;
		query->max_delay_ms = decode_delay(igmp[1], 8) * 100;
	}
	query->ipv4 = true;
	query->group = ip_from_v4(igmp + 4);
	return true;
}

static bool decode_igmp_query(struct group_query *query, const uint8_t *ip, size_t len)
{
	struct frl_ip dst;
	size_t header_len, total;

	if (len < IPV4_LEN || ip[0] >> 4 != 4 || ip[9] != PROTOCOL_IGMP || ip[8] != ONE_HOP)
		return false;
	header_len = (ip[0] & 15u) * 4;
	total = get_be16(ip + 2);
	if (header_len < IPV4_LEN || total > len || total < header_len)
		return false;
	if (get_be16(ip + 6) & ~(unsigned)IPV4_DONT_FRAGMENT)
		return false;
	if (checksum_fold(checksum_add(0, ip, header_len)) != 0xffff)
		return false;
	dst = ip_from_v4(ip + 16);
	return decode_igmp(query, ip + header_len, total - header_len) && finish_query(query, &dst);
}

/* Returns true if the hop-by-hop options have a router alert, as MLD requires, and no option that
 * must not be skipped. */
static bool has_router_alert(const uint8_t *option, size_t len)
{
	bool found = false;

	while (len > 0) {
		size_t option_len = 1;

		if (option[0] != OPTION_PAD1) {
			if (len < 2)
				return false;
			option_len = 2 + (size_t)option[1];
		}
		if (option_len > len)
			return false;
		if (option[0] == OPTION_ROUTER_ALERT)
			found = option_len == 4 && get_be16(option + 2) == 0;
		else if (option[0] & OPTION_UNKNOWN_DROP)
			return false;
		option += option_len;
		len -= option_len;
	}
	return found;
}

static bool decode_mld(struct group_query *query, const uint8_t *mld, size_t len)
{
	if (len < MLD_LEN || mld[0] != MLD_QUERY || mld[1] != 0)
		return false;
	/* The length determines the version (RFC 3810, 8.1). */
	if (len != MLD_LEN && len < MLDV2_QUERY_LEN)
		return false;
	query->max_delay_ms = get_be16(mld + 4);
	if (len != MLD_LEN) {
		if (get_be16(mld + 26) * (size_t)16 > len - MLDV2_QUERY_LEN)
			return false;
		query->max_delay_ms = decode_delay(query->max_delay_ms, 16);
	}
	query->ipv4 = false;
	memcpy(query->group.bytes, mld + 8, 16);
	return true;
}

/* A valid query has a link-local source, hop limit 1 and a router alert (RFC 2710, 4; RFC 3810,
 * 6.2). */
static bool decode_mld_query(struct group_query *query, const uint8_t *ip, size_t len)
{
	const uint8_t *options = ip + IPV6_LEN;
	struct frl_ip src, dst;
	size_t payload, options_len;
	uint64_t sum;

	if (len < IPV6_LEN || ip[0] >> 4 != 6 || ip[6] != PROTOCOL_HOP_BY_HOP || ip[7] != ONE_HOP)
		return false;
	payload = get_be16(ip + 4);
	if (payload > len - IPV6_LEN || payload < HOP_BY_HOP_LEN)
		return false;
	options_len = (options[1] + (size_t)1) * 8;
	if (options[0] != PROTOCOL_ICMPV6 || options_len > payload ||
		!has_router_alert(options + 2, options_len - 2))
		return false;
	payload -= options_len;
	memcpy(src.bytes, ip + 8, 16);
	memcpy(dst.bytes, ip + 24, 16);
	if (!ip_is_link_local(&src) || ip_is_v4(&dst))
		return false;
	sum = checksum_pseudo(&src, &dst, PROTOCOL_ICMPV6, (uint16_t)payload);
	if (checksum_fold(checksum_add(sum, options + options_len, payload)) != 0xffff)
		return false;
	return decode_mld(query, options + options_len, payload) && finish_query(query, &dst);
}

bool group_decode_query(struct group_query *query, const uint8_t *frame, size_t len)
{
	struct ether ether;

	if (!ether_decode(&ether, frame, len))
		return false;
	query->vlan = ether.vlan;
	if (ether.ethertype == ETHERTYPE_IPV4)
		return decode_igmp_query(query, ether.l3, ether.l3_len);
	if (ether.ethertype == ETHERTYPE_IPV6)
		return decode_mld_query(query, ether.l3, ether.l3_len);
	return false;
}

bool group_is_queried(const struct group_query *query, const struct frl_ip *group, uint16_t vlan)
{
	if (query->vlan != vlan || query->ipv4 != ip_is_v4(group))
		return false;
	return group_is_reported(group) && (query->all || ip_equal(&query->group, group));
}
