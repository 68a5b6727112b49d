/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithms behind plan_make(), one row each. They are called only for jobs with two or more
 * ranks and something to do.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_ALGOS_H
#define FERRULE_COLLECTIVES_PLAN_ALGOS_H

#include "collectives/plan/build.h"

struct plan_algo {
	/* Returns NULL, or the reason: the end of a sentence that begins with the algorithm's
	 * name. */
	const char *(*why_not)(const struct plan_job *job);
	void (*make)(struct plan_builder *b);
};

extern const struct plan_algo plan_ring_algo;
extern const struct plan_algo plan_halving_algo;
extern const struct plan_algo plan_tree_algo;
extern const struct plan_algo plan_direct_algo;
extern const struct plan_algo plan_pairwise_algo;
extern const struct plan_algo plan_bruck_algo;
extern const struct plan_algo plan_hosts_algo;

#endif
