/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast group membership, for routers and snooping switches. Encodes reports of IGMPv2 (RFC
 * 2236) and MLDv1 (RFC 2710), which newer versions understand. Decodes queries of all versions.
 * The caller decides when to send: on joining, again some time later, at a random time within
 * max_delay_ms after a query, and on leaving. Reports of other hosts are ignored, because snooping
 * switches need a report from each member. No state; any thread.
 */
#ifndef FERRULE_WIRE_GROUP_H
#define FERRULE_WIRE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/net/addr.h"

enum {
	GROUP_MAX_FRAME = 90, /* Eth, VLAN tag, IPv6, router alert option, MLD */
};

struct group_report {
	bool leave; /* otherwise: a member */
	struct frl_ip group;
	struct frl_ip src_ip; /* own address of the group's family; IPv6: link-local (RFC 2710, 3)
			       */
	uint8_t src_mac[6];
	uint16_t vlan; /* 0: untagged */
};

struct group_query {
	bool all; /* queries all groups; otherwise the members of `group` */
	bool ipv4;
	struct frl_ip group;
	uint16_t vlan; /* 0: untagged, or priority only */
	uint32_t max_delay_ms;
};

/* Returns true if members of the group send reports. Members of the all-hosts groups and of groups
 * within one machine do not (RFC 2236, 6; RFC 2710, 5). */
bool group_is_reported(const struct frl_ip *ip);

/* Encodes a report for a group. Returns the length of the frame. */
size_t group_encode_report(uint8_t out[GROUP_MAX_FRAME], const struct group_report *report);

/* Decodes a frame. Returns false if it is no IGMP or MLD query, is malformed, has a wrong
 * checksum, or could come from beyond this link. *query is undefined then. */
bool group_decode_query(struct group_query *query, const uint8_t *frame, size_t len);

/* Returns true if a query asks the members of a group on a VLAN for a report. */
bool group_is_queried(const struct group_query *query, const struct frl_ip *group, uint16_t vlan);

#endif
