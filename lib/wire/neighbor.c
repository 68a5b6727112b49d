/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/neighbor.h"

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/packet.h"

enum {
	ARP_LEN = 28,
	ARP_REQUEST = 1,
	ARP_REPLY = 2,

	PROTOCOL_ICMPV6 = 58,
	ND_HOP_LIMIT = 255,
	ND_LEN = 24, /* without options */
	ND_SOLICITATION = 135,
	ND_ADVERTISEMENT = 136,
	ND_SOLICITED = 0x40, /* flags of an advertisement */
	ND_OVERRIDE = 0x20,
	OPTION_SOURCE_MAC = 1,
	OPTION_TARGET_MAC = 2,
	OPTION_MAC_LEN = 8,
};

static const uint8_t arp_ethernet_ipv4[6] = { 0, 1, 0x08, 0x00, 6, 4 };
static const struct frl_ip all_nodes = { { 0xff, 0x02, [15] = 1 } };
static const struct frl_ip unspecified;

static bool is_multicast(const struct frl_ip *ip)
{
	return ip->bytes[0] == 0xff;
}

/* An Ethernet address that a single station can have. */
static bool is_station(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return !(mac[0] & 1) && !mac_equal(mac, zero);
}

static struct frl_ip solicited_node(const struct frl_ip *ip)
{
	struct frl_ip group = { { 0xff, 0x02, [11] = 1, [12] = 0xff } };

	memcpy(group.bytes + 13, ip->bytes + 13, 3);
	return group;
}

static void multicast_mac(uint8_t mac[6], const struct frl_ip *group)
{
	mac[0] = 0x33;
	mac[1] = 0x33;
	memcpy(mac + 2, group->bytes + 12, 4);
}

static bool decode_arp(struct neighbor_message *message, const uint8_t *arp, size_t len)
{
	uint16_t operation;

	if (len < ARP_LEN || memcmp(arp, arp_ethernet_ipv4, sizeof(arp_ethernet_ipv4)) != 0)
		return false;
	operation = get_be16(arp + 6);
	if (operation != ARP_REQUEST && operation != ARP_REPLY)
		return false;
	message->request = operation == ARP_REQUEST;
	memcpy(message->sender_mac, arp + 8, 6);
	message->sender_ip = ip_from_v4(arp + 14);
	message->target_ip = ip_from_v4(arp + 24);
	return is_station(message->sender_mac);
}

/*
 * Looks for the MAC address in options; *ret_mac is NULL when there is none. False when an option
 * has length 0 or runs past the end (RFC 4861, 7.1).
 */
static bool find_mac(const uint8_t *option, size_t len, uint8_t type, const uint8_t **ret_mac)
{
	*ret_mac = NULL;
	while (len > 0) {
		size_t option_len;

		if (len < 2)
			return false;
		option_len = (size_t)option[1] * 8;
		if (option_len == 0 || option_len > len)
			return false;
		if (option[0] == type && option_len == OPTION_MAC_LEN && !*ret_mac)
			*ret_mac = option + 2;
		option += option_len;
		len -= option_len;
	}
	return true;
}

/* RFC 4861, 7.1.1. A probe for a duplicate address has no sender and thus no option. */
static bool decode_solicitation(struct neighbor_message *message, const struct frl_ip *dst,
	const uint8_t *frame_src, const uint8_t *option_mac)
{
	if (ip_equal(&message->sender_ip, &unspecified)) {
		const struct frl_ip group = solicited_node(&message->target_ip);

		if (option_mac || !ip_equal(dst, &group))
			return false;
	}
	message->request = true;
	memcpy(message->sender_mac, option_mac ? option_mac : frame_src, 6);
	return is_station(message->sender_mac);
}

/* RFC 4861, 7.1.2. One without the option tells nothing that we want to know. */
static bool decode_advertisement(struct neighbor_message *message, const struct frl_ip *dst,
	uint8_t flags, const uint8_t *option_mac)
{
	if (!option_mac || (is_multicast(dst) && flags & ND_SOLICITED))
		return false;
	message->request = false;
	message->sender_ip = message->target_ip;
	message->target_ip = *dst;
	memcpy(message->sender_mac, option_mac, 6);
	return is_station(message->sender_mac);
}

static bool decode_nd(
	struct neighbor_message *message, const uint8_t *ip, size_t len, const uint8_t *frame_src)
{
	const uint8_t *icmp = ip + IPV6_LEN;
	const uint8_t *mac;
	struct frl_ip dst;
	uint64_t sum;
	uint16_t icmp_len;
	uint8_t option;

	if (len < IPV6_LEN || ip[0] >> 4 != 6 || ip[6] != PROTOCOL_ICMPV6 || ip[7] != ND_HOP_LIMIT)
		return false;
	icmp_len = get_be16(ip + 4);
	if (icmp_len > len - IPV6_LEN || icmp_len < ND_LEN)
		return false;
	if ((icmp[0] != ND_SOLICITATION && icmp[0] != ND_ADVERTISEMENT) || icmp[1] != 0)
		return false;
	memcpy(message->sender_ip.bytes, ip + 8, 16);
	memcpy(dst.bytes, ip + 24, 16);
	memcpy(message->target_ip.bytes, icmp + 8, 16);
	sum = checksum_pseudo(&message->sender_ip, &dst, PROTOCOL_ICMPV6, icmp_len);
	if (checksum_fold(checksum_add(sum, icmp, icmp_len)) != 0xffff)
		return false;
	if (is_multicast(&message->target_ip) || is_multicast(&message->sender_ip))
		return false;
	option = icmp[0] == ND_SOLICITATION ? OPTION_SOURCE_MAC : OPTION_TARGET_MAC;
	if (!find_mac(icmp + ND_LEN, icmp_len - (size_t)ND_LEN, option, &mac))
		return false;
	if (icmp[0] == ND_SOLICITATION)
		return decode_solicitation(message, &dst, frame_src, mac);
	return decode_advertisement(message, &dst, icmp[4], mac);
}

bool neighbor_decode(struct neighbor_message *message, const uint8_t *frame, size_t len)
{
	size_t l3 = ETH_LEN;
	uint16_t ethertype;

	if (len < l3)
		return false;
	ethertype = get_be16(frame + l3 - 2);
	if (ethertype == ETHERTYPE_VLAN) {
		l3 += VLAN_LEN;
		if (len < l3)
			return false;
		ethertype = get_be16(frame + l3 - 2);
	}
	memcpy(message->dst_mac, frame, 6);
	if (ethertype == ETHERTYPE_ARP)
		return decode_arp(message, frame + l3, len - l3);
	if (ethertype == ETHERTYPE_IPV6)
		return decode_nd(message, frame + l3, len - l3, frame + 6);
	return false;
}

static size_t encode_arp(uint8_t *out, const struct neighbor_message *message)
{
	uint8_t *arp = out + ETH_LEN;

	memset(out, 0xff, 6);
	if (!message->request)
		memcpy(out, message->dst_mac, 6);
	memcpy(out + 6, message->sender_mac, 6);
	put_be16(out + 12, ETHERTYPE_ARP);
	memcpy(arp, arp_ethernet_ipv4, sizeof(arp_ethernet_ipv4));
	put_be16(arp + 6, message->request ? ARP_REQUEST : ARP_REPLY);
	memcpy(arp + 8, message->sender_mac, 6);
	memcpy(arp + 14, message->sender_ip.bytes + 12, 4);
	memset(arp + 18, 0, 6);
	if (!message->request)
		memcpy(arp + 18, message->dst_mac, 6);
	memcpy(arp + 24, message->target_ip.bytes + 12, 4);
	return ETH_LEN + ARP_LEN;
}

static size_t encode_nd(uint8_t *out, const struct neighbor_message *message)
{
	enum { ICMP_LEN = ND_LEN + OPTION_MAC_LEN };
	uint8_t *ip = out + ETH_LEN;
	uint8_t *icmp = ip + IPV6_LEN;
	struct frl_ip dst = message->target_ip;
	uint64_t sum;
	uint16_t checksum;

	/* Who has no address yet cannot be answered alone (RFC 4861, 7.2.4). */
	if (message->request)
		dst = solicited_node(&message->target_ip);
	else if (ip_equal(&dst, &unspecified))
		dst = all_nodes;

	memset(out, 0, NEIGHBOR_MAX_FRAME);
	memcpy(out, message->dst_mac, 6);
	if (is_multicast(&dst))
		multicast_mac(out, &dst);
	memcpy(out + 6, message->sender_mac, 6);
	put_be16(out + 12, ETHERTYPE_IPV6);

	ip[0] = 0x60;
	put_be16(ip + 4, ICMP_LEN);
	ip[6] = PROTOCOL_ICMPV6;
	ip[7] = ND_HOP_LIMIT;
	memcpy(ip + 8, message->sender_ip.bytes, 16);
	memcpy(ip + 24, dst.bytes, 16);

	if (message->request) {
		icmp[0] = ND_SOLICITATION;
		memcpy(icmp + 8, message->target_ip.bytes, 16);
		icmp[ND_LEN] = OPTION_SOURCE_MAC;
	} else {
		icmp[0] = ND_ADVERTISEMENT;
		icmp[4] = ND_OVERRIDE | (is_multicast(&dst) ? 0 : ND_SOLICITED);
		memcpy(icmp + 8, message->sender_ip.bytes, 16);
		icmp[ND_LEN] = OPTION_TARGET_MAC;
	}
	icmp[ND_LEN + 1] = OPTION_MAC_LEN / 8;
	memcpy(icmp + ND_LEN + 2, message->sender_mac, 6);

	sum = checksum_pseudo(&message->sender_ip, &dst, PROTOCOL_ICMPV6, ICMP_LEN);
	checksum = (uint16_t)~checksum_fold(checksum_add(sum, icmp, ICMP_LEN));
	memcpy(icmp + 2, &checksum, sizeof(checksum));
	return ETH_LEN + IPV6_LEN + ICMP_LEN;
}

size_t neighbor_encode(uint8_t out[NEIGHBOR_MAX_FRAME], const struct neighbor_message *message)
{
	return ip_is_v4(&message->sender_ip) ? encode_arp(out, message) : encode_nd(out, message);
}
