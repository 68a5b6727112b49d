/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather and scatter over a binomial tree. Rank number v, counted from the root, forwards the
 * blocks of the ranks v ... v + 2^k - 1, where 2^k is the lowest bit of v. log2 n rounds over log2
 * n connections; forwarded blocks are in scratch. Part of the tree algorithm.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_BINOMIAL_H
#define FERRULE_COLLECTIVES_PLAN_BINOMIAL_H

#include "collectives/plan/build.h"

void plan_binomial_make(struct plan_builder *b);
#endif
