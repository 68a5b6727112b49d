/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct exchange for allreduce, reduce_scatter, reduce and allgather, with and without a wire
 * type. Pure, as plan.h.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_DIRECT_REDUCE_H
#define FERRULE_COLLECTIVES_PLAN_DIRECT_REDUCE_H

#include "collectives/plan/build.h"

void plan_direct_reduce(struct plan_builder *b);

/* Returns whether contributions are so small that they are sent whole and received side by side. */
bool plan_direct_is_small(const struct plan_job *job);

/* Return the rank `distance` after this one, or before it. */
uint32_t plan_peer_after(const struct plan_job *job, uint32_t distance);
uint32_t plan_peer_before(const struct plan_job *job, uint32_t distance);

/* A contribution to a sum, and the step that provides it. */
struct plan_addend {
	struct plan_range range;
	uint32_t ready;
};

/*
 * Adds `n` addends (2 or more) of `count` elements in order, into `target`. `partial`: scratch for
 * as many plain elements. Only the last addend may overlap the target, unless an addend begins
 * exactly there. Returns the last step, which divides for FRL_AVG.
 */
uint32_t plan_add_up(struct plan_builder *b, const struct plan_addend addends[], uint32_t n,
	struct plan_range partial, struct plan_range target, size_t count);

#endif
