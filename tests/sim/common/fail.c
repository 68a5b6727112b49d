/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/common/fail.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct sim_position sim_position;

void sim_fail(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "sim: seed %" PRIu64 ": invariant does not hold: %s\n", sim_position.seed,
		condition);
	fprintf(stderr, "  at %s:%d", file, line);
	if (sim_position.now_ns)
		fprintf(stderr, ", %" PRIu64 " ns: ", *sim_position.now_ns);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nrepeat with FRL_SEED=%" PRIu64 "\n", sim_position.seed);
	exit(1);
}

void *sim_alloc(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	SIM_CHECK(memory != NULL, "out of memory");
	return memory;
}
