/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pseudo-random numbers from a seed (splitmix64 by Vigna). The same seed gives the same numbers
 * everywhere. Not for secrets. A state belongs to one thread.
 */
#ifndef FERRULE_BASE_RANDOM_H
#define FERRULE_BASE_RANDOM_H

#include <stdint.h>

struct random_state {
	uint64_t counter;
};

void random_seed(struct random_state *state, uint64_t seed);
uint64_t random_u64(struct random_state *state);

/* Returns a uniformly distributed number from 0 to n - 1. `n` is at least 1. */
uint64_t random_below(struct random_state *state, uint64_t n);

/* Returns an unpredictable seed from the kernel. Any thread. */
uint64_t random_entropy(void);

#endif
