/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes plans: calls the algorithm, and handles jobs that need none. */
#include "collectives/plan/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "collectives/plan/algos.h"

static const struct plan_algo *find_algo(enum frl_algo algo)
{
	switch (algo) {
	case FRL_ALGO_RING: return &plan_ring_algo;
	case FRL_ALGO_HALVING_DOUBLING: return &plan_halving_algo;
	case FRL_ALGO_TREE: return &plan_tree_algo;
	case FRL_ALGO_DIRECT: return &plan_direct_algo;
	case FRL_ALGO_PAIRWISE: return &plan_pairwise_algo;
	case FRL_ALGO_BRUCK: return &plan_bruck_algo;
	case FRL_ALGO_HIERARCHICAL: return &plan_hosts_algo;
	case FRL_ALGO_AUTO:
	case FRL_ALGOS: break;
	}
	return NULL;
}

static bool has_nothing_to_do(const struct plan_job *job)
{
	return job->count == 0 && shape_is_counted(job->coll);
}

/* Makes the plan of a single rank: the input is the result, rounded if the wire type rounds
 * copies. */
static void make_alone(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	bool scales = shape_reduces(job->coll) && job->op == FRL_PREMUL_SUM;

	if (shape_is_empty(job->coll) || shape_is_pair(job->coll))
		return;
	b->plan->segment = plan_segment(
		job, shape_has_pieces(job->coll) ? job->segment_bytes : job->count);
	if (scales)
		plan_add_local(b, PLAN_SCALE, plan_at(b, PLAN_RECV, 0),
			plan_at(b, job->in_place ? PLAN_RECV : PLAN_SEND, 0), job->count);
	else
		plan_copy_own_block(b);
}

const char *plan_why_not(enum frl_algo algo, const struct plan_job *job)
{
	const struct plan_algo *found = find_algo(algo);

	assert(job->ranks >= 1 && job->rank >= 0 && job->rank < job->ranks);
	if (!found || job->ranks > PLAN_RANKS_MAX)
		return "is none that a plan can be made of";
	if (job->ranks == 1)
		return NULL;
	return found->why_not(job);
}

bool plan_can(enum frl_algo algo, const struct plan_job *job)
{
	return !plan_why_not(algo, job);
}

int plan_make(struct plan *plan, enum frl_algo algo, const struct plan_job *job)
{
	struct plan_builder b = { .plan = plan, .job = job, .input_step = PLAN_NOTHING };

	if (!plan_can(algo, job))
		return -ENOTSUP;
	*plan = (struct plan){ .algo = algo, .segment = 1 };
	if (has_nothing_to_do(job))
		return 0;
	if (job->ranks == 1)
		make_alone(&b);
	else
		find_algo(algo)->make(&b);
	if (b.failed) {
		plan_free(plan);
		return -ENOMEM;
	}
	return 0;
}

void plan_free(struct plan *plan)
{
	free(plan->steps);
	*plan = (struct plan){ .steps = NULL };
}
