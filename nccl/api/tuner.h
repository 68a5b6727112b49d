/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuner excludes protocols that NCCL's collectives must not use between hosts over Ferrule's
 * ports, and adds the latency per step that NCCL does not assume. NCCL loads it from the plugin's
 * file after it has opened the network, with one context for each communicator.
 *
 * NCCL does not compare tuner results between ranks. Ranks that exclude different protocols would
 * wait for each other for ever. So exclusions depend only on settings, which are the same for the
 * whole job, and on whether ports are NICs. They never depend on the findings of one process.
 * Callable from any thread.
 */
#ifndef FERRULE_NCCL_TUNER_H
#define FERRULE_NCCL_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/api/abi_tuner.h"

struct net_tuner;

/* Creates a tuner. `comm_id`: the communicator's ID in table v11, or NULL if the version has none.
 * `for_unpack`: NCCL uses table v9, with which UNPACK may rely on a tuner. Returns NULL if memory
 * is short. */
struct net_tuner *net_tuner_open(const uint64_t *comm_id, bool for_unpack, size_t n_nodes);
void net_tuner_close(struct net_tuner *tuner);
/* Marks the network context of this communicator as gone; NULL: of all communicators. Until then a
 * closed tuner still counts as used, because a communicator split from this one keeps using its
 * parent's context. */
void net_tuner_context_ended(const uint64_t *comm_id);

/* Adjusts the costs of a collective. `costs` has n_algorithms rows of n_protocols. At least one
 * usable entry always remains. */
void net_tuner_advise(const struct net_tuner *tuner, enum nccl_collective collective, float *costs,
	int n_algorithms, int n_protocols);

/* Returns whether NCCL uses this plugin's tuner for the communicator and it spans hosts. Within a
 * host the tuner excludes nothing. `comm_id` NULL: any communicator. */
bool net_tuner_is_used(const uint64_t *comm_id);

#endif
