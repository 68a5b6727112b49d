/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups and rings of the hierarchical algorithm. Pure, as plan.h. */
#ifndef FERRULE_COLLECTIVES_PLAN_HIERARCHICAL_RINGS_H
#define FERRULE_COLLECTIVES_PLAN_HIERARCHICAL_RINGS_H

#include "collectives/plan/build.h"

struct plan_hosts {
	uint32_t *room; /* memory of the groups */
	uint32_t size;  /* ranks of each host; 0: they differ */
	bool is_even;   /* all ranks take part between the hosts, otherwise only the leaders */
	bool is_leader;
	struct plan_group within;  /* ranks of this host; the leader is the first */
	struct plan_group between; /* ranks with this index on all hosts, or the leaders */
};

/* Makes allreduce, reduce_scatter and allgather. */
void plan_hosts_rings(struct plan_builder *b, const struct plan_hosts *h);

/* Returns the number of ranks of each host, or 0 if they differ. *ret_largest is the largest
 * number. */
uint32_t plan_hosts_common(const struct plan_job *job, uint32_t *ret_largest);

#endif
