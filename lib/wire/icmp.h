/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ICMP echo over IPv4 (RFC 792) and IPv6 (RFC 4443, 4): requests and replies, decoded and encoded.
 * No state; any thread.
 */
#ifndef FERRULE_WIRE_ICMP_H
#define FERRULE_WIRE_ICMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/net/addr.h"

/* An echo request. Points into the frame, which must outlive it. */
struct icmp_echo {
	struct frl_ip src_ip; /* of a single station, as is src_mac */
	struct frl_ip
		dst_ip; /* not a group or broadcast, as dst_mac; the caller checks that it is its
			 * own */
	uint8_t src_mac[6];
	uint8_t dst_mac[6];
	uint16_t vlan; /* 0: untagged, or priority only */
	uint8_t traffic_class;
	const uint8_t *message; /* starts with the type */
	size_t message_len;
};

/*
 * Decodes a frame of any length. Returns false if it is not an echo request, is malformed, a
 * fragment, has IP options, extension headers or a wrong checksum, or has a source that cannot be
 * answered. *echo is undefined then.
 */
bool icmp_echo_decode(struct icmp_echo *echo, const uint8_t *frame, size_t len);

/*
 * Encodes the reply, with source and destination swapped. The caller has checked that dst_mac, and
 * dst_ip on that VLAN, are its own. Returns the length of the frame, or 0 if it exceeds `room`.
 * `out` must not overlap the request.
 */
size_t icmp_echo_reply(uint8_t *out, size_t room, const struct icmp_echo *echo);

/* Identifies an echo request and its reply. */
struct icmp_label {
	uint16_t id, sequence;
	uint32_t ip_len; /* of the packet, with its IP header */
};

/* Decodes a reply, as icmp_echo_decode() decodes a request. */
bool icmp_reply_decode(
	struct icmp_echo *reply, struct icmp_label *ret_label, const uint8_t *frame, size_t len);

/* Encodes a request with a payload of zeros, with the addresses of an answer to `peer`: from its
 * destination to its source. Over IPv4 the request has the Don't Fragment bit. label->ip_len is at
 * least the length of the headers of IP and ICMP. Returns the same as icmp_echo_reply(). */
size_t icmp_echo_request(
	uint8_t *out, size_t room, const struct icmp_echo *peer, const struct icmp_label *label);

#endif
