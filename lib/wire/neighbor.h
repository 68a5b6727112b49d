/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ARP (RFC 826) and the address resolution part of neighbor discovery (RFC 4861, 7.2). Encoding
 * and decoding only; any thread.
 */
#ifndef FERRULE_WIRE_NEIGHBOR_H
#define FERRULE_WIRE_NEIGHBOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/net/addr.h"

enum {
	NEIGHBOR_MAX_FRAME = 90, /* Eth, VLAN tag, IPv6, solicitation with one option */
};

/*
 * A message of either protocol. A sender_ip of 0.0.0.0 or :: probes for a duplicate address:
 * answer it, but learn nothing from it.
 */
struct neighbor_message {
	bool request;  /* ARP request or solicitation; otherwise reply or advertisement */
	bool unicast;  /* request: sent to dst_mac alone to confirm it; replies: not encoded */
	bool has_mac;  /* false: sender_mac is only the source of the frame. It may confirm a known
		        * MAC address but does not report one. Not encoded: our messages always
		        * have it. */
	bool override; /* may replace a known MAC address; not encoded: always set */
	uint16_t vlan; /* 0: untagged, or decoded from a priority tag */
	struct frl_ip sender_ip; /* reply: the resolved address */
	uint8_t sender_mac[6];   /* never a group address after neighbor_decode() */
	struct frl_ip target_ip; /* request: address to resolve; reply: the requester's */
	uint8_t dst_mac[6]; /* of the frame; ignored for a request that is not unicast, which is
			     * broadcast or goes to the solicited-node group */
};

/* Decodes an ARP or ICMPv6 frame, with or without a VLAN tag. Returns false if it is malformed,
 * has a wrong checksum or hop limit, or is another message. *message is undefined then. */
bool neighbor_decode(struct neighbor_message *message, const uint8_t *frame, size_t len);

/* Encodes a message by the family of its addresses. Returns the length of the frame. */
size_t neighbor_encode(uint8_t out[NEIGHBOR_MAX_FRAME], const struct neighbor_message *message);

/* Returns the solicited-node group of an IPv6 address (RFC 4291, 2.7.1). */
struct frl_ip neighbor_solicited_node(const struct frl_ip *ip);

#endif
