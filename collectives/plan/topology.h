/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The locations of all ranks: exchanged when a communicator is created, identical on all ranks, and
 * constant afterwards.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_TOPOLOGY_H
#define FERRULE_COLLECTIVES_PLAN_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

enum { TOPOLOGY_HOST_ID = 16 };

struct topology_location {
	uint32_t host; /* numbered from 0 in the order of their lowest ranks */
	uint32_t numa; /* on the host; 0 if there is only one or it is unknown */
	uint32_t rails;
};

struct topology {
	uint32_t ranks;
	uint32_t hosts;
	struct topology_location *locations; /* by rank */
	/* Ranks in ring order: by host, then by NUMA node, then by number. */
	uint32_t *order;
};

/* A rank, and the ID of its host. */
struct topology_host {
	uint8_t id[TOPOLOGY_HOST_ID];
	uint32_t rank;
};

/* Numbers the hosts in the order of their lowest ranks, and returns the number for each rank.
 * Sorts `hosts`. */
void topology_number_hosts(struct topology_host hosts[], uint32_t ranks, uint32_t ret_numbers[]);

/* Copies the locations of all ranks. Fails with -ENOMEM. */
int topology_init(
	struct topology *topology, const struct topology_location *locations, uint32_t ranks);
void topology_fini(struct topology *topology);

#endif
