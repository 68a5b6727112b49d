/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of Bruck's algorithms share. Pure, as plan.h. */
#ifndef FERRULE_COLLECTIVES_PLAN_BRUCK_H
#define FERRULE_COLLECTIVES_PLAN_BRUCK_H

#include "collectives/plan_build.h"

/* Places in the order of the topology, counted from this rank's own. */
struct plan_bruck {
	struct plan_builder *b;
	uint32_t n;
	uint32_t position;
	bool is_around; /* the ring's plan: only neighbours are connected */
};

struct plan_bruck plan_bruck_of(struct plan_builder *b);

/* The rank so many places after this one, and before it; at most n. */
uint32_t plan_bruck_after(const struct plan_bruck *k, uint32_t places);
uint32_t plan_bruck_before(const struct plan_bruck *k, uint32_t places);

/* To how many others a rank of n is connected: at distances of powers of two, both ways. */
uint32_t plan_bruck_peers(uint32_t n);

/* Not even to these may ranks be connected; then all goes around the ring, or over trees of which
 * each rank has but one place. */
bool plan_is_scarce(const struct plan_job *job);

/* FRL_ALLTOALLV, where job->pair_counts are known. */
void plan_bruck_alltoallv(struct plan_builder *b);

/* All of Bruck's, and by the ring what takes his blocks around it. */
void plan_bruck_make(struct plan_builder *b);

/*
 * plan_around.c. All-to-all of blocks of `count` elements in scratch, complete when `made` is:
 * block i is for the rank i places on, and afterwards from the rank i places before. Returns the
 * last step. Where elements are encoded the blocks are, and `count` is of whole wire blocks.
 */
uint32_t plan_around_exchange(
	const struct plan_bruck *k, struct plan_range blocks, size_t count, uint32_t made);
/* As plan_bruck_alltoallv(). */
void plan_around_alltoallv(struct plan_builder *b);
/* All-gather of blocks in the order of the ranks; this rank's is complete when `ready` is. Returns
 * the last receive, which waits for those before it. */
uint32_t plan_around_gather(
	const struct plan_bruck *k, struct plan_range blocks, size_t count, uint32_t ready);

#endif
