/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: random numbers that every rank and every machine draws alike, and digests made of
 * the same mixing function. Whole numbers and exactly rounded operations only.
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

/* Streams of one seed have nothing to do with each other. */
static inline struct train_random train_random_init(uint64_t seed, uint64_t stream)
{
	return (struct train_random){ .state = train_mix(seed) + train_mix(~stream) };
}

static inline uint64_t train_random_next(struct train_random *random)
{
	random->state += 0x9e3779b97f4a7c15u;
	return train_mix(random->state);
}

/* Within [0, bound). The bias is below bound / 2^32: none that a shuffle could show. */
static inline uint32_t train_random_below(struct train_random *random, uint32_t bound)
{
	return (uint32_t)((train_random_next(random) >> 32) * bound >> 32);
}

/* Uniform within [-1, 1): the 24 bits of a float32, without rounding. */
static inline float train_random_uniform(struct train_random *random)
{
	return (float)(train_random_next(random) >> 40) * 0x1p-23f - 1;
}

/* Equal bytes have equal digests; differences by accident are noticed, nobody attacks it. */
static inline uint64_t train_digest(uint64_t digest, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ at[i]) * 0x9e3779b97f4a7c15u + 1;
	return train_mix(digest);
}

#endif
