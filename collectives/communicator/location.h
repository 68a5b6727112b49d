/* SPDX-License-Identifier: BSD-3-Clause */
/* The location of this process: host, NUMA node, processors, oversubscription. Any thread may
 * call these functions. */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_LOCATION_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_LOCATION_H

#include <stdint.h>

#include "lib/base/process/host.h"

/* As host_id(). */
void location_host(uint8_t ret_id[HOST_ID_SIZE]);

/* Returns the NUMA node of all processors in the affinity mask, or 0 if they are on several
 * nodes. */
uint32_t location_numa(void);

/* Returns the number of processors in the affinity mask, and the first one. */
uint32_t location_processors(uint32_t *ret_first);

/* The processors of a rank, and the number of its host. */
struct location_share {
	uint32_t host, first_processor, processors;
};

/*
 * Returns the ranks per processor on the host where it is highest, at least 1. Ranks with the same
 * first processor share their processors; all others have their own. Reorders the list.
 */
double location_oversubscription(struct location_share list[], uint32_t n);

/* Returns the nanoseconds that this thread has waited for a processor since its start. */
uint64_t location_waited_ns(void);

#endif
