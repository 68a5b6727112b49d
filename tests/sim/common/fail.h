/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports an invariant that does not hold: prints the seed and ends the program. */
#ifndef FERRULE_SIM_FAIL_H
#define FERRULE_SIM_FAIL_H

#include <stddef.h>
#include <stdint.h>

/* The position of the run; sim_fail() prints it. */
struct sim_position {
	uint64_t seed;
	const uint64_t *now_ns;
};

extern struct sim_position sim_position;

__attribute__((noreturn, format(printf, 4, 5))) void sim_fail(
	const char *file, int line, const char *condition, const char *format, ...);

/* Checks an invariant; the other arguments are printf-like and name the object and the reason. */
#define SIM_CHECK(condition, ...)                                              \
	do {                                                                   \
		if (!(condition))                                              \
			sim_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); \
	} while (0)

/* Zeroed memory; never NULL. */
void *sim_alloc(size_t count, size_t size);

#endif
