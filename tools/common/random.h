/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random numbers that are the same on every rank and machine, and digests from the same mixing
 * function. Uses only integers and exactly rounded operations.
 *
 * Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014
 * (SplitMix64).
 */
#ifndef FERRULE_TOOLS_COMMON_RANDOM_H
#define FERRULE_TOOLS_COMMON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct train_random {
	uint64_t state;
};

static inline uint64_t train_mix(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

/* Streams of one seed are independent of each other. */
static inline struct train_random train_random_init(uint64_t seed, uint64_t stream)
{
	return (struct train_random){ .state = train_mix(seed) + train_mix(~stream) };
}

static inline uint64_t train_random_next(struct train_random *random)
{
	random->state += 0x9e3779b97f4a7c15u;
	return train_mix(random->state);
}

/*
 * Returns a number in [0, bound). The bias is below bound / 2^32, too small to matter for a
 * shuffle.
 */
static inline uint32_t train_random_below(struct train_random *random, uint32_t bound)
{
	return (uint32_t)((train_random_next(random) >> 32) * bound >> 32);
}

/* Returns a number in [-1, 1), uniform: the 24 bits of a float32, without rounding. */
static inline float train_random_uniform(struct train_random *random)
{
	return (float)(train_random_next(random) >> 40) * 0x1p-23f - 1;
}

/* Extends a digest by some bytes. It detects accidental differences, not attacks. */
static inline uint64_t train_digest(uint64_t digest, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ at[i]) * 0x9e3779b97f4a7c15u + 1;
	return train_mix(digest);
}

#endif
