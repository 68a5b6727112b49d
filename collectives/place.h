/* SPDX-License-Identifier: BSD-3-Clause */
/* Where this process is: which host, which NUMA node, how crowded. Any thread. */
#ifndef FERRULE_COLLECTIVES_PLACE_H
#define FERRULE_COLLECTIVES_PLACE_H

#include <stdint.h>

enum { HOST_ID_SIZE = 16 };

/* The same in all processes that share a kernel and its network, and in no others. */
void place_host(uint8_t ret_id[HOST_ID_SIZE]);

/* The node that holds all processors this process may run on; 0 where they are of several. */
uint32_t place_numa(void);

/* How many processors this process may use, and the number of the first one. */
uint32_t place_processors(uint32_t *ret_first);

/* How long this thread has waited for a processor in its life, as others were on it. */
uint64_t place_waited_ns(void);

#endif
