/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Ethernet header of the protocols that keep a port reachable (neighbor.h, icmp.h, group.h),
 * with at most one VLAN tag. IEEE 802.1Q. Any thread.
 */
#ifndef FERRULE_WIRE_ETHER_H
#define FERRULE_WIRE_ETHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/addr.h"
#include "lib/wire/packet.h"

enum { ETHER_VLAN_MASK = 0x0fff };

struct ether {
	const uint8_t *l3; /* what follows, with padding */
	size_t l3_len;
	uint16_t ethertype;
	uint16_t vlan; /* identifier; 0: untagged, or priority only */
};

/* False when the frame is too short or has the reserved identifier. What is behind a second tag, or
 * one of a provider, is no ethertype that anybody here knows. */
static inline bool ether_decode(struct ether *ether, const uint8_t *frame, size_t len)
{
	size_t header_len = ETH_LEN;

	if (len < ETH_LEN)
		return false;
	ether->vlan = 0;
	ether->ethertype = get_be16(frame + ETH_LEN - 2);
	if (ether->ethertype == ETHERTYPE_VLAN) {
		header_len += VLAN_LEN;
		if (len < header_len)
			return false;
		ether->vlan = get_be16(frame + ETH_LEN) & ETHER_VLAN_MASK;
		ether->ethertype = get_be16(frame + ETH_LEN + 2);
	}
	ether->l3 = frame + header_len;
	ether->l3_len = len - header_len;
	return ether->vlan != ETHER_VLAN_MASK;
}

/* Writes up to ETH_LEN + VLAN_LEN bytes; returns how many. */
static inline size_t ether_encode(uint8_t *out, const uint8_t dst_mac[6], const uint8_t src_mac[6],
	uint16_t vlan, uint16_t ethertype)
{
	size_t at = 12;

	memcpy(out, dst_mac, 6);
	memcpy(out + 6, src_mac, 6);
	if (vlan) {
		put_be16(out + at, ETHERTYPE_VLAN);
		put_be16(out + at + 2, vlan);
		at += VLAN_LEN;
	}
	put_be16(out + at, ethertype);
	return at + 2;
}

/* An Ethernet address that a single station can have. */
static inline bool mac_is_station(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return !(mac[0] & 1) && !mac_equal(mac, zero);
}

#endif
