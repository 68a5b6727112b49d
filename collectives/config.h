/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What can be set for collectives, read once when a communicator is made. Nothing else in this
 * folder knows where a value comes from.
 */
#ifndef FERRULE_COLLECTIVES_CONFIG_H
#define FERRULE_COLLECTIVES_CONFIG_H

#include <stddef.h>
#include <stdint.h>

struct collective_config {
	uint32_t segment_bytes; /* longest message; the same on all ranks */
	size_t two_rings_bytes; /* vectors of this size and more use both directions (n > 2) */
	int connect_timeout_ms; /* for frl_comm_create() */
	int drain_timeout_ms;   /* how long frl_comm_destroy() waits for the other ranks */
};

void collective_config_init(struct collective_config *config);

#endif
