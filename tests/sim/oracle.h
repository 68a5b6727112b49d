/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must hold, checked after every event on a node. The oracle knows the scripts; from the
 * responder's expected PSN it computes every byte of the target memory and every completion.
 */
#ifndef FERRULE_SIM_ORACLE_H
#define FERRULE_SIM_ORACLE_H

#include "tests/sim/world.h"

/* Everything on the node; only bytes that should have changed are looked at. */
void oracle_check_node(struct node *node);

/* Every byte of the endpoint's memory, and so that nothing else has changed. */
void oracle_check_memory(struct endpoint *endpoint);

/* completions.c: takes note of the completions that are new on a queue, and checks each. */
void oracle_scan_cq(struct world *world, struct sim_cq *cq);

/* The requests before `k` have no completion of their own: checks that they were unsignaled and
 * have been executed, which means that their bytes are at the peer. */
void oracle_skip_unsignaled(struct endpoint *endpoint, uint32_t k);

#endif
