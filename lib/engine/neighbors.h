/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which MAC address leads to an IP address of the port's subnets: asks with ARP or neighbour
 * solicitations, answers for the port's own addresses, and keeps what is in use current. No I/O:
 * frames are returned and taken.
 *
 * An entry lives while it has users. Once resolved it is confirmed again every
 * NEIGHBOR_REACHABLE_MS: first the known MAC alone is asked, then everybody. Until somebody answers
 * the last known MAC stays: a neighbour that is gone shows in the queue pair's retries.
 */
#ifndef FERRULE_ENGINE_NEIGHBORS_H
#define FERRULE_ENGINE_NEIGHBORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/gids.h"
#include "lib/wire/neighbor.h"

enum {
	NEIGHBORS_MAX = 1024,
	NEIGHBOR_ASK_INTERVAL_MS = 200,    /* while it is unknown */
	NEIGHBOR_REACHABLE_MS = 30000,     /* a confirmation lasts so long */
	NEIGHBOR_PROBE_INTERVAL_MS = 1000, /* between questions after that */
	NEIGHBOR_UNICAST_PROBES = 3,
};

struct neighbor_entry {
	struct frl_ip ip;
	uint32_t users; /* 0: the entry is free */
	uint16_t vlan;
	uint8_t sgid_index; /* in whose name it is asked for */
	uint8_t mac[6];
	bool resolved;
	uint8_t probes; /* asked without an answer since it was confirmed last */
	uint64_t ask_at_ns;
};

struct neighbors_config {
	const struct gid_table *gids; /* outlives the neighbours */
	uint8_t mac[6];
	bool has_gateway[2]; /* IPv4, IPv6 */
	struct frl_ip gateway[2];
};

struct neighbors {
	struct neighbors_config own;
	uint64_t next_ask_ns; /* no entry is to be asked for earlier */
	uint32_t generation;  /* counts changes of any entry's MAC, the first one included */
	uint32_t n_end;       /* no entry in use is at this index or above */
	uint32_t ask_cursor;  /* where the search for who is to be asked for goes on */
	struct neighbor_entry entries[NEIGHBORS_MAX];
};

void neighbors_init(struct neighbors *neighbors, const struct neighbors_config *config);

/*
 * The address to resolve for reaching `ip` from a GID: `ip` itself where a GID of the same VLAN and
 * family has it in its subnet, else the family's gateway if that is in such a subnet. Link-local
 * addresses have no way through a gateway. False: no way there.
 */
bool neighbors_next_hop(const struct neighbors *neighbors, uint8_t sgid_index,
	const struct frl_ip *ip, struct frl_ip *ret_hop);

/*
 * An entry for the address, with one user more; it is asked for when it is new. An address of the
 * port itself is known at once and never asked for. -1: the table is full, or there is no such GID.
 */
int neighbors_get(
	struct neighbors *neighbors, const struct frl_ip *hop, uint8_t sgid_index, uint64_t now_ns);
/* One user less; -1 is fine. */
void neighbors_put(struct neighbors *neighbors, int index);

/* True with the MAC once it is known. */
bool neighbors_mac(const struct neighbors *neighbors, int index, uint8_t ret_mac[6]);

/*
 * Takes an ARP or ICMPv6 frame. Returns the bytes of the answer to send, 0 for none. Learns only
 * what is in the table, on the VLAN where it is wanted. Frames for other stations, which a port
 * may see, are left alone.
 */
size_t neighbors_input(struct neighbors *neighbors, const uint8_t *frame, size_t len,
	uint8_t answer[NEIGHBOR_MAX_FRAME], uint64_t now_ns);

/* The next question that is due, 0 for none. */
size_t neighbors_output(
	struct neighbors *neighbors, uint8_t frame[NEIGHBOR_MAX_FRAME], uint64_t now_ns);

/* When neighbors_output() may have something, or UINT64_MAX. */
static inline uint64_t neighbors_next_deadline(const struct neighbors *neighbors)
{
	return neighbors->next_ask_ns;
}

#endif
