/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/rail_health.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "collectives/communicator/communicator.h"
#include "lib/base/clock.h"

enum { AVOID_MS = 60 * 1000 }; /* time to avoid a suspected rail; its recovery may go unreported */

struct rail_health {
	_Atomic uint32_t suspicions[RAILS_MAX];
	/* The suspicions below expire AVOID_MS after this time. 0: expired. */
	_Atomic uint64_t suspected_ns[RAILS_MAX];
	_Atomic uint32_t lost[RAILS_MAX]; /* ranks to which a connection over the rail broke */
	int members;
	_Atomic uint8_t broken[]; /* the same by rank of the bootstrap: bit i for rail i */
};

struct rail_health *rail_health_new(int members)
{
	struct rail_health *health = calloc(1, sizeof(*health) + (size_t)members);

	if (health)
		health->members = members;
	return health;
}

void rail_health_free(struct rail_health *health)
{
	free(health);
}

static bool is_out_of_date(const struct rail_health *health, unsigned rail)
{
	uint64_t since_ns = atomic_load_explicit(&health->suspected_ns[rail], memory_order_relaxed);

	return since_ns == 0 || clock_now_ns() - since_ns > (uint64_t)AVOID_MS * NS_PER_MS;
}

static void clear_member(struct rail_health *health, unsigned rail, int member)
{
	uint8_t bit = (uint8_t)(1 << rail);

	if (atomic_fetch_and_explicit(
		    &health->broken[member], (uint8_t)~bit, memory_order_relaxed) &
		bit)
		atomic_fetch_sub_explicit(&health->lost[rail], 1, memory_order_relaxed);
}

void rail_suspect(struct frl_comm *comm, unsigned rail, int rank)
{
	struct rail_health *health = comm->rail_health;
	_Atomic uint8_t *broken = &health->broken[comm_member(comm, rank)];
	uint8_t bit = (uint8_t)(1 << rail);

	for (int member = 0; is_out_of_date(health, rail) && member < health->members; member++)
		clear_member(health, rail, member);
	atomic_store_explicit(&health->suspected_ns[rail], clock_now_ns(), memory_order_relaxed);
	if (!(atomic_fetch_or_explicit(broken, bit, memory_order_relaxed) & bit))
		atomic_fetch_add_explicit(&health->lost[rail], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&health->suspicions[rail], 1, memory_order_relaxed);
}

void rail_clear_peer(struct frl_comm *comm, unsigned rail, int rank)
{
	clear_member(comm->rail_health, rail, comm_member(comm, rank));
}

void rail_clear(struct frl_comm *comm, unsigned rail)
{
	atomic_store_explicit(&comm->rail_health->suspected_ns[rail], 0, memory_order_relaxed);
}

/* If connections to two ranks broke, this rank's end of the rail is broken. */
bool rail_is_suspected(const struct frl_comm *comm, unsigned rail, int rank)
{
	struct rail_health *health = comm->rail_health;
	int member = comm_member(comm, rank);

	if (is_out_of_date(health, rail))
		return false;
	return atomic_load_explicit(&health->lost[rail], memory_order_relaxed) > 1 ||
		(atomic_load_explicit(&health->broken[member], memory_order_relaxed) >> rail & 1);
}

uint32_t rail_suspicions(const struct frl_comm *comm, unsigned rail)
{
	return atomic_load_explicit(&comm->rail_health->suspicions[rail], memory_order_relaxed);
}
