/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who works with whom in the hierarchical algorithm, and its rings. Pure, as plan.h.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_HOSTS_H
#define FERRULE_COLLECTIVES_PLAN_HOSTS_H

#include "collectives/plan_build.h"

struct plan_hosts {
	uint32_t *room; /* of the groups */
	uint32_t size;  /* ranks that every host has; 0: they differ */
	bool is_even;   /* all ranks work between the hosts, otherwise the leaders */
	bool is_leader;
	struct plan_group within;  /* the ranks of this host; the leader is the first */
	struct plan_group between; /* the ranks at this place in all hosts, or the leaders */
};

/* Allreduce, reduce_scatter, allgather. */
void plan_hosts_rings(struct plan_builder *b, const struct plan_hosts *h);

/* The number of ranks that all hosts have; 0: they differ. And of the host that has most. */
uint32_t plan_hosts_common(const struct plan_job *job, uint32_t *ret_largest);

#endif
