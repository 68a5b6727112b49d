/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which MAC address leads to an IP address of the port's subnet: asks with ARP or neighbour
 * solicitations, and answers for the port's own address. No I/O: frames are returned and taken.
 */
#ifndef FERRULE_ENGINE_NEIGHBORS_H
#define FERRULE_ENGINE_NEIGHBORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/wire/neighbor.h"

enum {
	NEIGHBORS_MAX = 256,
	NEIGHBOR_ASK_INTERVAL_MS = 200,
};

struct neighbor_entry {
	struct frl_ip ip;
	uint8_t mac[6];
	bool used;
	bool resolved;
	uint64_t ask_at_ns; /* unresolved: when to ask (again) */
};

struct neighbors_config {
	struct frl_ip ip; /* the port's own addresses */
	uint8_t mac[6];
	uint8_t prefix_len; /* of its subnet, in bits of the address's family */
	bool has_gateway;
	struct frl_ip gateway;
};

struct neighbors {
	struct neighbors_config own;
	uint64_t next_ask_ns; /* no unresolved entry is to be asked for earlier */
	struct neighbor_entry entries[NEIGHBORS_MAX];
};

void neighbors_init(struct neighbors *neighbors, const struct neighbors_config *config);

/* The address to resolve for reaching `ip`: itself, or the gateway. False: no way there. */
bool neighbors_next_hop(
	const struct neighbors *neighbors, const struct frl_ip *ip, struct frl_ip *ret_hop);

/*
 * Looks an address up; what is not known is asked for from now on. True with the MAC when known.
 * When the table is full an entry makes room.
 */
bool neighbors_lookup(
	struct neighbors *neighbors, const struct frl_ip *ip, uint8_t ret_mac[6], uint64_t now_ns);

/* No longer wanted: stops asking, and asks anew the next time. */
void neighbors_forget(struct neighbors *neighbors, const struct frl_ip *ip);

/*
 * Takes an ARP or ICMPv6 frame. Returns the bytes of the answer to send, 0 for none. Learns only
 * what was asked for or what is already in the table.
 */
size_t neighbors_input(struct neighbors *neighbors, const uint8_t *frame, size_t len,
	uint8_t answer[NEIGHBOR_MAX_FRAME]);

/* The next question that is due, 0 for none. */
size_t neighbors_output(
	struct neighbors *neighbors, uint8_t frame[NEIGHBOR_MAX_FRAME], uint64_t now_ns);

/* When neighbors_output() may have something, or UINT64_MAX. */
static inline uint64_t neighbors_next_deadline(const struct neighbors *neighbors)
{
	return neighbors->next_ask_ns;
}

#endif
