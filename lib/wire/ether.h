/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ethernet header of ARP, ICMP and group membership frames (neighbor.h, icmp.h, group.h), with at
 * most one VLAN tag. IEEE 802.1Q. Any thread.
 */
#ifndef FERRULE_WIRE_ETHER_H
#define FERRULE_WIRE_ETHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/net/addr.h"
#include "lib/wire/packet.h"

enum { ETHER_VLAN_MASK = 0x0fff };

struct ether {
	const uint8_t *l3; /* payload, including padding */
	size_t l3_len;
	uint16_t ethertype;
	uint16_t vlan; /* identifier; 0: untagged, or priority only */
};

/* Returns false if the frame is too short or has the reserved VLAN identifier. After a second tag,
 * or a provider tag, the ethertype is one that no caller handles. */
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

/* Writes up to ETH_LEN + VLAN_LEN bytes. Returns how many. */
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

/* Returns true for the address of a single station. */
static inline bool mac_is_station(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return !(mac[0] & 1) && !mac_equal(mac, zero);
}

#endif
