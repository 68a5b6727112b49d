/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct exchange where ranks reduce, or copy what others have: allreduce, reduce_scatter, reduce
 * and allgather; in the wire's format as well. Pure, as plan.h.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_DIRECT_H
#define FERRULE_COLLECTIVES_PLAN_DIRECT_H

#include "collectives/plan_build.h"

void plan_direct_reduce(struct plan_builder *b);

/* Is it so little that contributions are sent whole and received side by side? */
bool plan_direct_is_small(const struct plan_job *job);

/* The rank so far after this one, and before it. */
uint32_t plan_peer_after(const struct plan_job *job, uint32_t distance);
uint32_t plan_peer_before(const struct plan_job *job, uint32_t distance);

/* What a rank brings to a sum, and the step that puts it there. */
struct plan_addend {
	struct plan_range range;
	uint32_t ready;
};

/*
 * Sums up `n` addends (2 or more) of `count` elements in their order, into `target`. `partial`:
 * scratch for as many elements that are not encoded. No addend but the last may overlap the target,
 * unless it is what begins there. Returns the last step, which divides for FRL_AVG.
 */
uint32_t plan_add_up(struct plan_builder *b, const struct plan_addend addends[], uint32_t n,
	struct plan_range partial, struct plan_range target, size_t count);

#endif
