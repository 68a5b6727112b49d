/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ARP (RFC 826) and the part of neighbour discovery (RFC 4861, 7.2) that finds and answers for MAC
 * addresses. Encoding and decoding only; any thread.
 */
#ifndef FERRULE_WIRE_NEIGHBOR_H
#define FERRULE_WIRE_NEIGHBOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/addr.h"

enum {
	NEIGHBOR_MAX_FRAME = 90, /* Eth, VLAN tag, IPv6, solicitation with one option */
};

/*
 * What both protocols say: who asks for, or tells, the MAC of which IP address. A sender_ip of
 * 0.0.0.0 or :: probes whether somebody has the target already: answer, but learn nothing from it.
 */
struct neighbor_message {
	bool request;  /* ARP request or neighbour solicitation; else reply or advertisement */
	bool unicast;  /* request: to dst_mac alone, to confirm it; replies: not encoded */
	bool mac_told; /* false: sender_mac is just the source of the frame, which may confirm a
			* known MAC but tells none; not encoded, as ours always tell it */
	bool override; /* may replace another MAC that is known; not encoded, as ours always may */
	uint16_t vlan; /* 0: untagged, or decoded from a priority tag */
	struct frl_ip sender_ip; /* reply: the address that is told */
	uint8_t sender_mac[6];   /* never a group address after neighbor_decode() */
	struct frl_ip target_ip; /* request: whose MAC is wanted; reply: who asked */
	uint8_t dst_mac[6]; /* of the frame; ignored when a request that is not unicast is encoded:
			     * that is broadcast, or goes to the solicited-node group */
};

/* Decodes an ARP or ICMPv6 frame with or without a VLAN tag; false when it is malformed, has a
 * wrong checksum or hop limit, or is another message; *message is undefined then. */
bool neighbor_decode(struct neighbor_message *message, const uint8_t *frame, size_t len);

/* Encodes a message by the family of its addresses; returns the frame's bytes. */
size_t neighbor_encode(uint8_t out[NEIGHBOR_MAX_FRAME], const struct neighbor_message *message);

/* The group in which an IPv6 address is asked for (RFC 4291, 2.7.1). */
struct frl_ip neighbor_solicited_node(const struct frl_ip *ip);

#endif
