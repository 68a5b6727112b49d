/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who is where: learned when a communicator is made, the same on all ranks. Only read afterwards.
 */
#ifndef FERRULE_COLLECTIVES_TOPOLOGY_H
#define FERRULE_COLLECTIVES_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

enum { TOPOLOGY_HOST_ID = 16 };

struct topology_place {
	uint32_t host; /* 0, 1, ... in the order of the lowest ranks */
	uint32_t numa; /* of the host; 0 where it has one or none is known */
	uint32_t rails;
};

struct topology {
	uint32_t ranks;
	uint32_t hosts;
	struct topology_place *places; /* by rank */
	/* Ranks, host by host, within a host by NUMA node, then by number: ring order. */
	uint32_t *order;
};

/* A rank, and what names its host. */
struct topology_host {
	uint8_t id[TOPOLOGY_HOST_ID];
	uint32_t rank;
};

/* Numbers the hosts of all ranks, in the order of their lowest ranks; by rank. Sorts `hosts`. */
void topology_number_hosts(struct topology_host hosts[], uint32_t ranks, uint32_t ret_numbers[]);

/* From the places of all ranks; copies them. -ENOMEM. */
int topology_init(struct topology *topology, const struct topology_place *places, uint32_t ranks);
void topology_fini(struct topology *topology);

#endif
