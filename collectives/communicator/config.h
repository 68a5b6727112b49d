/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings of collectives. They are read once, when a communicator is created; only config.c knows
 * their origin.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_CONFIG_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct collective_config {
	uint32_t segment_bytes;   /* longest message; the same on all ranks */
	bool uses_shm;            /* if all ranks can */
	bool writes_shared;       /* FRL_SHM_WRITE: results into buffers of other ranks */
	const char *algos;        /* FRL_ALGO; the same on all ranks */
	const char *tuner_costs;  /* FRL_TUNER_COSTS, or "" */
	const char *tuner_folder; /* where measured costs are stored; "": nowhere */
	int timeout_ms;           /* of an operation that makes no progress; 0: none */
	int connect_timeout_ms;   /* from the time when both ends take part */
	int drain_timeout_ms;     /* how long frl_comm_destroy() waits for the other ranks */
};

void collective_config_init(struct collective_config *config);

#endif
