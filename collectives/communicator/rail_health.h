/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rail health: the rails on which connections broke lately. Sibling communicators share it: after a
 * connection broke, all of them check theirs over the rail, and new connections avoid it.
 *
 * Any thread, without a lock: concurrent updates may lose at most one suspicion.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_RAIL_HEALTH_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_RAIL_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

struct frl_comm;
struct rail_health;

/* Returns the health of all rails to `members` ranks of the bootstrap, or NULL without memory. */
struct rail_health *rail_health_new(int members);
void rail_health_free(struct rail_health *health);

/* Notes that the connection to rank `rank` over the rail broke. */
void rail_suspect(struct frl_comm *comm, unsigned rail, int rank);
/* Notes that a connection to the rank over the rail works. */
void rail_clear_peer(struct frl_comm *comm, unsigned rail, int rank);
/* Clears all suspicions of a rail: its port has its link again. */
void rail_clear(struct frl_comm *comm, unsigned rail);
/* Returns whether a new connection to the rank should use another rail. */
bool rail_is_suspected(const struct frl_comm *comm, unsigned rail, int rank);
/* Returns how often the rail has been suspected. */
uint32_t rail_suspicions(const struct frl_comm *comm, unsigned rail);

#endif
