/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Membership in multicast groups, for routers and for switches that listen in: reports of IGMPv2
 * (RFC 2236) and MLDv1 (RFC 2710) are encoded, which newer ones understand too; queries of all
 * versions are decoded. When to send is the caller's business: on joining, again some time later,
 * at a random time within max_delay_ms after a query, and on leaving. Reports of others are not
 * looked at: a switch that listens in wants to hear every member. No state; any thread.
 */
#ifndef FERRULE_WIRE_GROUP_H
#define FERRULE_WIRE_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/addr.h"

enum {
	GROUP_MAX_FRAME = 90, /* Eth, VLAN tag, IPv6, router alert option, MLD */
};

struct group_report {
	bool leave; /* else: we are a member */
	struct frl_ip group;
	struct frl_ip src_ip; /* own, of the group's family; IPv6: link-local (RFC 2710, 3) */
	uint8_t src_mac[6];
	uint16_t vlan; /* 0: untagged */
};

struct group_query {
	bool all; /* which groups are joined; else who is in `group` */
	bool ipv4;
	struct frl_ip group;
	uint16_t vlan; /* 0: untagged, or priority only */
	uint32_t max_delay_ms;
};

/* Whether an address is a group whose members report. Those that everybody is in, and those of one
 * machine, are not (RFC 2236, 6; RFC 2710, 5). */
bool group_is_reported(const struct frl_ip *ip);

/* Encodes a report for a group; returns the frame's bytes. */
size_t group_encode_report(uint8_t out[GROUP_MAX_FRAME], const struct group_report *report);

/* Decodes a frame; false when it is no IGMP or MLD query, is malformed or has a wrong checksum, or
 * could come from beyond this link; *query is undefined then. */
bool group_decode_query(struct group_query *query, const uint8_t *frame, size_t len);

/* Whether a query wants a report from the members of a group on a VLAN. */
bool group_is_asked(const struct group_query *query, const struct frl_ip *group, uint16_t vlan);

#endif
