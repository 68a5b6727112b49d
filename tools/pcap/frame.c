/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pcap/frame.h"

#include <pcap/dlt.h>

#include "lib/base/bytes.h"
#include "lib/wire/icrc.h"
#include "lib/wire/packet.h"

enum {
	SLL_LEN = 16,  /* LINKTYPE_LINUX_SLL, of tcpdump -i any */
	SLL2_LEN = 20, /* LINKTYPE_LINUX_SLL2, its newer form */
	LOOPBACK_LEN = 4,
	ETHERTYPE_OLD_QINQ = 0x9100,
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_UDP = 17,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_AH = 51,
	PROTOCOL_DESTINATION = 60,
	PROTOCOL_MOBILITY = 135,
	PROTOCOL_HIP = 139,
	PROTOCOL_SHIM6 = 140,
	MIN_UDP = UDP_LEN + BTH_LEN + ICRC_LEN,
	IPV4_OFFSET_MASK = 0x1fff,
	IPV6_OFFSET_MASK = 0xfff8,
};

/* The rest of a frame. */
struct view {
	const uint8_t *at;
	size_t captured;
	size_t len;
};

/* Skips bytes. Returns false if they were not recorded. */
static bool skip(struct view *view, size_t len)
{
	if (len > view->captured)
		return false;
	view->at += len;
	view->captured -= len;
	view->len -= len;
	return true;
}

static bool is_tag(uint16_t ethertype)
{
	return ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_SERVICE_VLAN ||
		ethertype == ETHERTYPE_OLD_QINQ;
}

/* Skips a header of `len` bytes, with the ethertype at `type_at`, and tags, up to the IP header. */
static bool skip_ether(struct pcap_packet *packet, struct view *view, size_t len, size_t type_at)
{
	const uint8_t *header = view->at;
	uint16_t ethertype;

	if (!skip(view, len))
		return false;
	ethertype = get_be16(header + type_at);
	while (is_tag(ethertype)) {
		header = view->at;
		if (!skip(view, VLAN_LEN))
			return false;
		if (packet->n_tags < PCAP_MAX_TAGS)
			packet->tags[packet->n_tags++] = get_be16(header);
		ethertype = get_be16(header + 2);
	}
	packet->ipv4 = ethertype == ETHERTYPE_IPV4;
	return ethertype == ETHERTYPE_IPV4 || ethertype == ETHERTYPE_IPV6;
}

/*
 * Skips an address family of the system that recorded the frame, in its byte order (DLT_NULL) or in
 * network byte order (DLT_LOOP).
 */
static bool skip_family(struct pcap_packet *packet, struct view *view)
{
	enum { INET = 2, INET6_LINUX = 10, INET6_BSD = 24, INET6_FREEBSD = 28, INET6_DARWIN = 30 };
	const uint8_t *header = view->at;
	uint32_t family;

	if (!skip(view, LOOPBACK_LEN))
		return false;
	family = header[0] ? get_le32(header) : get_be32(header);
	packet->ipv4 = family == INET;
	return family == INET || family == INET6_LINUX || family == INET6_BSD ||
		family == INET6_FREEBSD || family == INET6_DARWIN;
}

/* For link types without a protocol field: uses the IP version. */
static bool by_version(struct pcap_packet *packet, const struct view *view)
{
	if (!view->captured)
		return false;
	packet->ipv4 = view->at[0] >> 4 == 4;
	return packet->ipv4 || view->at[0] >> 4 == 6;
}

bool pcap_knows_link(int link_type)
{
	switch (link_type) {
	case DLT_EN10MB:
	case DLT_LINUX_SLL:
	case DLT_LINUX_SLL2:
	case DLT_RAW:
	case DLT_IPV4:
	case DLT_IPV6:
	case DLT_NULL:
	case DLT_LOOP: return true;
	default: return false;
	}
}

static bool skip_link(struct pcap_packet *packet, struct view *view, int link_type)
{
	switch (link_type) {
	case DLT_EN10MB: return skip_ether(packet, view, ETH_LEN, ETH_LEN - 2);
	case DLT_LINUX_SLL: return skip_ether(packet, view, SLL_LEN, SLL_LEN - 2);
	case DLT_LINUX_SLL2: return skip_ether(packet, view, SLL2_LEN, 0);
	case DLT_NULL:
	case DLT_LOOP: return skip_family(packet, view);
	case DLT_IPV4: packet->ipv4 = true; return true;
	case DLT_IPV6: return true;
	default: return by_version(packet, view);
	}
}

/* Skips to the UDP header. *is_fragment: the packet is a later fragment. */
static bool find_udp_ipv4(struct pcap_packet *packet, const struct view *ip, bool *is_fragment)
{
	if (ip->captured < IPV4_LEN || ip->at[9] != PROTOCOL_UDP)
		return false;
	packet->udp = (size_t)(ip->at[0] & 0x0f) * 4;
	packet->end = get_be16(ip->at + 2);
	*is_fragment = get_be16(ip->at + 6) & IPV4_OFFSET_MASK;
	return packet->udp >= IPV4_LEN;
}

static bool has_next_header(uint8_t protocol)
{
	switch (protocol) {
	case PROTOCOL_HOP_BY_HOP:
	case PROTOCOL_ROUTING:
	case PROTOCOL_FRAGMENT:
	case PROTOCOL_AH:
	case PROTOCOL_DESTINATION:
	case PROTOCOL_MOBILITY:
	case PROTOCOL_HIP:
	case PROTOCOL_SHIM6: return true;
	default: return false;
	}
}

/* RFC 8200, 4; RFC 4302, 2.2 for the length of an authentication header. */
static size_t extension_len(uint8_t protocol, const uint8_t *header)
{
	if (protocol == PROTOCOL_FRAGMENT)
		return 8;
	if (protocol == PROTOCOL_AH)
		return (header[1] + 2u) * 4;
	return (header[1] + 1u) * 8;
}

static bool find_udp_ipv6(struct pcap_packet *packet, const struct view *ip, bool *is_fragment)
{
	size_t at = IPV6_LEN;
	uint8_t protocol;

	if (ip->captured < IPV6_LEN)
		return false;
	protocol = ip->at[6];
	packet->end = IPV6_LEN + (size_t)get_be16(ip->at + 4);
	while (has_next_header(protocol)) {
		const uint8_t *header = ip->at + at;

		if (at + 8 > ip->captured)
			return false;
		if (protocol == PROTOCOL_FRAGMENT && get_be16(header + 2) & IPV6_OFFSET_MASK)
			*is_fragment = true;
		at += extension_len(protocol, header);
		protocol = header[0];
	}
	packet->udp = at;
	return protocol == PROTOCOL_UDP;
}

/*
 * Finds the end of the packet: where IP says, unless UDP has another valid length. A later fragment
 * has no UDP header, but a damaged packet may look like one; its UDP length is still valid.
 */
static bool find_end(struct pcap_packet *packet, const struct view *ip, bool is_fragment)
{
	const uint8_t *udp = ip->at + packet->udp;
	size_t max = packet->end - packet->udp;
	size_t len;

	if (ip->captured < packet->udp + 6)
		return !is_fragment;
	len = get_be16(udp + 4);
	if (is_fragment)
		return len == max;
	if (len >= MIN_UDP && len < max)
		packet->end = packet->udp + len;
	return true;
}

bool pcap_find(struct pcap_packet *packet, int link_type, const uint8_t *frame, size_t captured,
	size_t len)
{
	struct view view = { frame, captured, len < captured ? captured : len };
	bool is_fragment = false;

	*packet = (struct pcap_packet){ 0 };
	if (!skip_link(packet, &view, link_type))
		return false;
	packet->l3 = view.at;
	if (packet->ipv4 ? !find_udp_ipv4(packet, &view, &is_fragment)
			 : !find_udp_ipv6(packet, &view, &is_fragment))
		return false;
	/* A packet that is longer than its frame is garbage. */
	if (packet->end < packet->udp + MIN_UDP || packet->end > view.len)
		return false;
	if (view.captured < packet->udp + 4 || get_be16(view.at + packet->udp + 2) != ROCE_UDP_PORT)
		return false;
	if (!find_end(packet, &view, is_fragment))
		return false;
	packet->bth = packet->udp + UDP_LEN;
	packet->captured = view.captured < packet->end ? view.captured : packet->end;
	return true;
}

bool pcap_icrc_ok(const struct pcap_packet *packet)
{
	size_t len = packet->end - ICRC_LEN;

	return icrc_packet(packet->l3, packet->ipv4, packet->udp, len) ==
		icrc_load(packet->l3 + len);
}
