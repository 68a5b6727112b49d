/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuner: which protocols NCCL's collectives must not use between hosts over Ferrule's ports,
 * and how much longer a step takes there than NCCL assumes. NCCL loads it from the plugin's own
 * file, one context for each communicator, after it has opened the network.
 *
 * NCCL compares nothing of it between ranks: ranks that exclude different protocols wait for each
 * other for ever. So what is excluded depends on settings, which are those of the whole job, and on
 * whether ports are NICs, never on what one process finds. Any thread.
 */
#ifndef FERRULE_NCCL_TUNER_H
#define FERRULE_NCCL_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/abi_tuner.h"

struct net_tuner;

/* `comm_id`: the communicator, as table v11 names it; NULL: the version does not say. `for_unpack`:
 * NCCL takes table v9, with which UNPACK can rest on a tuner. NULL is returned without memory. */
struct net_tuner *net_tuner_open(const uint64_t *comm_id, bool for_unpack, size_t n_nodes);
void net_tuner_close(struct net_tuner *tuner);
/* The network's context of this communicator is gone. Until then the tuner counts as used after its
 * close, too: a communicator that was split off goes on by its parent's context. NULL: all
 * contexts are gone. */
void net_tuner_forget(const uint64_t *comm_id);

/* Changes the costs of a collective: `costs` has n_algorithms rows of n_protocols. Something always
 * remains that NCCL can use. */
void net_tuner_advise(const struct net_tuner *tuner, enum nccl_collective collective, float *costs,
	int n_algorithms, int n_protocols);

/* NCCL asks a tuner of this plugin about the communicator, which spans hosts: within a host it
 * excludes nothing. `comm_id` NULL: about any. */
bool net_tuner_is_used(const uint64_t *comm_id);

#endif
