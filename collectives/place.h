/* SPDX-License-Identifier: BSD-3-Clause */
/* Where this process is: which host, which NUMA node, how crowded. Any thread. */
#ifndef FERRULE_COLLECTIVES_PLACE_H
#define FERRULE_COLLECTIVES_PLACE_H

#include <stdint.h>

#include "lib/base/host.h"

/* As host_id(). */
void place_host(uint8_t ret_id[HOST_ID_SIZE]);

/* The node that holds all processors this process may run on; 0 where they are of several. */
uint32_t place_numa(void);

/* How many processors this process may use, and the number of the first one. */
uint32_t place_processors(uint32_t *ret_first);

/* What a rank may use, and the number of its host. */
struct place_share {
	uint32_t host, first_processor, processors;
};

/*
 * Ranks for a processor, on the host where they are most; at least 1. Those with the same first
 * processor share theirs, all others have their own. Puts the list in another order.
 */
double place_crowd(struct place_share list[], uint32_t n);

/* How long this thread has waited for a processor in its life, as others were on it. */
uint64_t place_waited_ns(void);

#endif
