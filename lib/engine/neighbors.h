/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbor table. Resolves IP addresses in the port's subnets to MAC addresses by ARP or neighbor
 * discovery. Answers for the port's own addresses. Keeps entries in use current. No I/O: frames
 * are arguments and results.
 *
 * An entry lives while it has users. A resolved entry is confirmed every NEIGHBOR_REACHABLE_MS:
 * first by unicast, then by broadcast. The last known MAC address stays in use until there is an
 * answer. A neighbor that is gone shows in the retries of its queue pairs.
 */
#ifndef FERRULE_ENGINE_NEIGHBORS_H
#define FERRULE_ENGINE_NEIGHBORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/net/gids.h"
#include "lib/wire/neighbor.h"

enum {
	NEIGHBORS_MAX = 1024,
	NEIGHBOR_REQUEST_INTERVAL_MS = 200, /* while it is unresolved */
	NEIGHBOR_REACHABLE_MS = 30000,      /* validity of a confirmation */
	NEIGHBOR_PROBE_INTERVAL_MS = 1000,  /* between probes after that */
	NEIGHBOR_UNICAST_PROBES = 3,
};

struct neighbor_entry {
	struct frl_ip ip;
	uint32_t users; /* 0: the entry is free */
	uint16_t vlan;
	uint8_t sgid_index; /* source of the requests */
	uint8_t mac[6];
	bool resolved;
	uint8_t probes; /* unanswered requests since the last confirmation */
	uint64_t request_at_ns;
};

struct neighbors_config {
	const struct gid_table *gids; /* outlives the table */
	uint8_t mac[6];
	bool has_gateway[2]; /* IPv4, IPv6 */
	struct frl_ip gateway[2];
};

struct neighbors {
	struct neighbors_config own;
	uint64_t next_request_ns; /* no request is due before */
	uint32_t generation; /* counts changes of any entry's MAC address, including the first */
	uint32_t n_end;      /* entries at or above this are unused */
	uint32_t request_cursor; /* where the search for the next request starts */
	struct neighbor_entry entries[NEIGHBORS_MAX];
};

void neighbors_init(struct neighbors *neighbors, const struct neighbors_config *config);

/*
 * Finds the next hop from a GID to `ip`: `ip` itself if it is in the subnet of a GID of the same
 * VLAN and family, otherwise the gateway of the family if that is in such a subnet. Link-local
 * addresses never go through a gateway. Returns false if there is no route.
 */
bool neighbors_next_hop(const struct neighbors *neighbors, uint8_t sgid_index,
	const struct frl_ip *ip, struct frl_ip *ret_hop);

/*
 * Finds or adds the entry of the address, and adds a user. A new entry is requested; an address of
 * the port itself is resolved at once. Returns -1 if the table is full or there is no such GID.
 */
int neighbors_get(
	struct neighbors *neighbors, const struct frl_ip *hop, uint8_t sgid_index, uint64_t now_ns);
/* Removes a user; ignores -1. */
void neighbors_put(struct neighbors *neighbors, int index);

/* Returns true, with the MAC address, once it is known. */
bool neighbors_mac(const struct neighbors *neighbors, int index, uint8_t ret_mac[6]);

/*
 * Handles an ARP or ICMPv6 frame. Returns the length of the answer to send, or 0. Learns only
 * addresses in the table, on their VLAN. Ignores frames for other stations, which a port may see.
 */
size_t neighbors_input(struct neighbors *neighbors, const uint8_t *frame, size_t len,
	uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns);

/* Encodes the next request that is due; returns 0 if there is none. */
size_t neighbors_output(
	struct neighbors *neighbors, uint8_t frame[NEIGHBOR_MAX_FRAME], uint64_t now_ns);

/* Returns when neighbors_output() has a request next, or UINT64_MAX. */
static inline uint64_t neighbors_next_deadline(const struct neighbors *neighbors)
{
	return neighbors->next_request_ns;
}

#endif
