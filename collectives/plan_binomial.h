/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather and scatter over a binomial tree: rank number v, counted from the root, passes on what the
 * ranks v ... v + 2^k - 1 have or get, 2^k being the lowest bit of v. log2 n rounds over log2 n
 * connections; what passes through a rank lies in scratch. Part of the tree algorithm.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_BINOMIAL_H
#define FERRULE_COLLECTIVES_PLAN_BINOMIAL_H

#include "collectives/plan_build.h"

void plan_binomial_make(struct plan_builder *b);
#endif
