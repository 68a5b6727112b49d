/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the RoCEv2 packet in a recorded frame of any link layer. More tolerant than a receiver,
 * because users look for damaged packets in captures. No I/O; any thread.
 */
#ifndef FERRULE_TOOLS_PCAP_FRAME_H
#define FERRULE_TOOLS_PCAP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PCAP_MAX_TAGS = 4 }; /* tags that are kept; further ones are skipped */

/* A packet, from its IP header to its ICRC. All offsets count from l3. */
struct pcap_packet {
	const uint8_t *l3;
	bool ipv4;
	unsigned n_tags;
	uint16_t tags[PCAP_MAX_TAGS]; /* TCI, outer one first */
	size_t udp;
	size_t bth;
	size_t end;      /* end of the ICRC: at least BTH_LEN + ICRC_LEN after bth */
	size_t captured; /* recorded bytes; below `end` if the capture truncated the packet */
};

/* Returns whether pcap_find() supports the link type (DLT_* of libpcap). */
bool pcap_knows_link(int link_type);

/*
 * Looks into a frame of `len` bytes, of which `captured` were recorded. Returns false if it has no
 * UDP packet to the RoCE port with room for a BTH and an ICRC.
 */
bool pcap_find(struct pcap_packet *packet, int link_type, const uint8_t *frame, size_t captured,
	size_t len);

/* Returns whether the ICRC of a completely captured packet is right. */
bool pcap_icrc_ok(const struct pcap_packet *packet);

#endif
