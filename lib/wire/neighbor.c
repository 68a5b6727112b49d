/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/neighbor.h"

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/ether.h"
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
static const uint8_t broadcast_mac[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
static const struct frl_ip all_nodes = { { 0xff, 0x02, [15] = 1 } };
static const struct frl_ip unspecified;
static const struct frl_ip unspecified_v4 = { { [10] = 0xff, 0xff } };

struct frl_ip neighbor_solicited_node(const struct frl_ip *ip)
{
	struct frl_ip group = { { 0xff, 0x02, [11] = 1, [12] = 0xff } };

	memcpy(group.bytes + 13, ip->bytes + 13, 3);
	return group;
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
	message->has_mac = !ip_equal(&message->sender_ip, &unspecified_v4);
	message->override = true;
	message->target_ip = ip_from_v4(arp + 24);
	return mac_is_station(message->sender_mac) && !ip_is_multicast(&message->sender_ip);
}

/*
 * Finds the MAC address in options; *ret_mac is NULL if there is none. Returns false if an option
 * has length 0 or exceeds the message (RFC 4861, 7.1).
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

/* RFC 4861, 7.1.1. A duplicate address probe has no source address and no option. */
static bool check_solicitation(const struct neighbor_message *message, const struct frl_ip *dst)
{
	const struct frl_ip group = neighbor_solicited_node(&message->target_ip);

	if (!ip_equal(&message->sender_ip, &unspecified))
		return true;
	return !message->has_mac && ip_equal(dst, &group);
}

/* RFC 4861, 7.1.2. The answer to a unicast solicitation may omit the option. */
static bool check_advertisement(
	struct neighbor_message *message, const struct frl_ip *dst, uint8_t flags)
{
	if (flags & ND_SOLICITED ? ip_is_multicast(dst) : !message->has_mac)
		return false;
	message->override = flags & ND_OVERRIDE;
	message->sender_ip = message->target_ip;
	message->target_ip = *dst;
	return true;
}

/* Decodes the addresses of a solicitation or advertisement. Returns false if the checksum is
 * wrong. */
static bool decode_nd_addresses(
	struct neighbor_message *message, struct frl_ip *dst, const uint8_t *ip, uint16_t icmp_len)
{
	const uint8_t *icmp = ip + IPV6_LEN;
	uint64_t sum;

	memcpy(message->sender_ip.bytes, ip + 8, 16);
	memcpy(dst->bytes, ip + 24, 16);
	memcpy(message->target_ip.bytes, icmp + 8, 16);
	/* IPv4-mapped addresses must not occur on the wire (RFC 4291, 2.5.5.2), and would be
	 * mistaken for addresses of ARP. */
	if (ip_is_v4(&message->sender_ip) || ip_is_v4(dst) || ip_is_v4(&message->target_ip))
		return false;
	if (ip_is_multicast(&message->target_ip) || ip_is_multicast(&message->sender_ip))
		return false;
	sum = checksum_pseudo(&message->sender_ip, dst, PROTOCOL_ICMPV6, icmp_len);
	return checksum_fold(checksum_add(sum, icmp, icmp_len)) == 0xffff;
}

static bool decode_nd(
	struct neighbor_message *message, const uint8_t *ip, size_t len, const uint8_t *frame_src)
{
	const uint8_t *icmp = ip + IPV6_LEN;
	const uint8_t *mac;
	struct frl_ip dst;
	uint16_t icmp_len;
	uint8_t option;

	if (len < IPV6_LEN || ip[0] >> 4 != 6 || ip[6] != PROTOCOL_ICMPV6 || ip[7] != ND_HOP_LIMIT)
		return false;
	icmp_len = get_be16(ip + 4);
	if (icmp_len > len - IPV6_LEN || icmp_len < ND_LEN)
		return false;
	if ((icmp[0] != ND_SOLICITATION && icmp[0] != ND_ADVERTISEMENT) || icmp[1] != 0)
		return false;
	if (!decode_nd_addresses(message, &dst, ip, icmp_len))
		return false;
	message->request = icmp[0] == ND_SOLICITATION;
	option = message->request ? OPTION_SOURCE_MAC : OPTION_TARGET_MAC;
	if (!find_mac(icmp + ND_LEN, icmp_len - (size_t)ND_LEN, option, &mac))
		return false;
	message->has_mac = mac != NULL;
	message->override = true;
	memcpy(message->sender_mac, mac ? mac : frame_src, 6);
	if (!mac_is_station(message->sender_mac))
		return false;
	return message->request ? check_solicitation(message, &dst)
				: check_advertisement(message, &dst, icmp[4]);
}

bool neighbor_decode(struct neighbor_message *message, const uint8_t *frame, size_t len)
{
	struct ether ether;

	if (!ether_decode(&ether, frame, len))
		return false;
	message->vlan = ether.vlan;
	message->unicast = !(frame[0] & 1);
	memcpy(message->dst_mac, frame, 6);
	if (ether.ethertype == ETHERTYPE_ARP)
		return decode_arp(message, ether.l3, ether.l3_len);
	if (ether.ethertype == ETHERTYPE_IPV6)
		return decode_nd(message, ether.l3, ether.l3_len, frame + 6);
	return false;
}

static size_t encode_arp(uint8_t *out, const struct neighbor_message *message)
{
	bool to_all = message->request && !message->unicast;
	size_t header_len = ether_encode(out, to_all ? broadcast_mac : message->dst_mac,
		message->sender_mac, message->vlan, ETHERTYPE_ARP);
	uint8_t *arp = out + header_len;

	memcpy(arp, arp_ethernet_ipv4, sizeof(arp_ethernet_ipv4));
	put_be16(arp + 6, message->request ? ARP_REQUEST : ARP_REPLY);
	memcpy(arp + 8, message->sender_mac, 6);
	memcpy(arp + 14, message->sender_ip.bytes + 12, 4);
	memset(arp + 18, 0, 6);
	if (!message->request)
		memcpy(arp + 18, message->dst_mac, 6);
	memcpy(arp + 24, message->target_ip.bytes + 12, 4);
	return header_len + ARP_LEN;
}

/* Returns the destination of a solicitation or advertisement. */
static struct frl_ip nd_destination(const struct neighbor_message *message)
{
	if (message->request)
		return message->unicast ? message->target_ip
					: neighbor_solicited_node(&message->target_ip);
	/* A station without an address cannot be answered by unicast (RFC 4861, 7.2.4). */
	return ip_equal(&message->target_ip, &unspecified) ? all_nodes : message->target_ip;
}

static void encode_nd_message(uint8_t *icmp, const struct neighbor_message *message, bool to_group)
{
	memset(icmp, 0, ND_LEN);
	if (message->request) {
		icmp[0] = ND_SOLICITATION;
		memcpy(icmp + 8, message->target_ip.bytes, 16);
		icmp[ND_LEN] = OPTION_SOURCE_MAC;
	} else {
		icmp[0] = ND_ADVERTISEMENT;
		icmp[4] = ND_OVERRIDE | (to_group ? 0 : ND_SOLICITED);
		memcpy(icmp + 8, message->sender_ip.bytes, 16);
		icmp[ND_LEN] = OPTION_TARGET_MAC;
	}
	icmp[ND_LEN + 1] = OPTION_MAC_LEN / 8;
	memcpy(icmp + ND_LEN + 2, message->sender_mac, 6);
}

static size_t encode_nd(uint8_t *out, const struct neighbor_message *message)
{
	enum { ICMP_LEN = ND_LEN + OPTION_MAC_LEN };
	const struct frl_ip dst = nd_destination(message);
	uint8_t dst_mac[6], *ip;
	size_t header_len;
	uint64_t sum;

	if (!wire_multicast_mac(&dst, dst_mac))
		memcpy(dst_mac, message->dst_mac, 6);
	header_len = ether_encode(out, dst_mac, message->sender_mac, message->vlan, ETHERTYPE_IPV6);
	ip = out + header_len;
	memset(ip, 0, 4);
	ip[0] = 0x60;
	put_be16(ip + 4, ICMP_LEN);
	ip[6] = PROTOCOL_ICMPV6;
	ip[7] = ND_HOP_LIMIT;
	memcpy(ip + 8, message->sender_ip.bytes, 16);
	memcpy(ip + 24, dst.bytes, 16);
	encode_nd_message(ip + IPV6_LEN, message, ip_is_multicast(&dst));
	sum = checksum_pseudo(&message->sender_ip, &dst, PROTOCOL_ICMPV6, ICMP_LEN);
	checksum_store(ip + IPV6_LEN + 2, checksum_add(sum, ip + IPV6_LEN, ICMP_LEN));
	return header_len + IPV6_LEN + ICMP_LEN;
}

size_t neighbor_encode(uint8_t out[NEIGHBOR_MAX_FRAME], const struct neighbor_message *message)
{
	return ip_is_v4(&message->sender_ip) ? encode_arp(out, message) : encode_nd(out, message);
}
