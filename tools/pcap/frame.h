/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the RoCEv2 packet in a recorded frame of whatever link layer. Lenient where a receiver is
 * strict: damaged packets are what one looks for in a capture. No I/O; any thread.
 */
#ifndef FERRULE_TOOLS_PCAP_FRAME_H
#define FERRULE_TOOLS_PCAP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PCAP_MAX_TAGS = 4 }; /* that are kept; more are skipped */

/* A packet, from its IP header to the ICRC. All offsets count from l3. */
struct pcap_packet {
	const uint8_t *l3;
	bool ipv4;
	unsigned n_tags;
	uint16_t tags[PCAP_MAX_TAGS]; /* TCI, outer one first */
	size_t udp;
	size_t bth;
	size_t end;      /* behind the ICRC: at least BTH_LEN + ICRC_LEN behind bth */
	size_t captured; /* what there is to look at; below `end` when the capture cut it off */
};

/* True where the link type (DLT_* of libpcap) is one of those that pcap_find() knows. */
bool pcap_knows_link(int link_type);

/*
 * Looks into a frame of `len` bytes, of which `captured` were recorded. False: no UDP packet to the
 * RoCE port that has room for a BTH and an ICRC.
 */
bool pcap_find(struct pcap_packet *packet, int link_type, const uint8_t *frame, size_t captured,
	size_t len);

/* Whether the ICRC is right, of a packet that was captured whole. */
bool pcap_icrc_ok(const struct pcap_packet *packet);

#endif
