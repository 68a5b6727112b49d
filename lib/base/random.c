/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/random.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

void random_seed(struct random_state *state, uint64_t seed)
{
	state->counter = seed;
}

uint64_t random_u64(struct random_state *state)
{
	uint64_t x = state->counter += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t random_below(struct random_state *state, uint64_t n)
{
	uint64_t excess;
	uint64_t x;

	assert(n > 0);
	/* Reject the lowest 2^64 mod n numbers: they would make small results likelier. */
	excess = -n % n;
	do {
		x = random_u64(state);
	} while (x < excess);
	return x % n;
}

/* Used if getrandom() is forbidden: the random bytes that the kernel gave the process, changed for
 * each call. */
static uint64_t entropy_without_getrandom(void)
{
	const void *from_kernel = (const void *)getauxval(AT_RANDOM);
	struct random_state state = { 0 };
	struct timespec now = { 0 };

	if (from_kernel)
		memcpy(&state.counter, from_kernel, sizeof(state.counter));
	clock_gettime(CLOCK_MONOTONIC, &now);
	state.counter ^= (uint64_t)getpid() << 48 ^ (uint64_t)now.tv_sec << 30;
	state.counter ^= (uint64_t)now.tv_nsec;
	return random_u64(&state);
}

uint64_t random_entropy(void)
{
	uint64_t value;
	ssize_t got;

	do {
		got = getrandom(&value, sizeof(value), 0);
	} while (got < 0 && errno == EINTR);
	return got == (ssize_t)sizeof(value) ? value : entropy_without_getrandom();
}
