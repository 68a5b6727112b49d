/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Check writes a record to a file for each assertion that holds, to be able to say after which one
 * a test crashed. In tests that compare bytes that is millions of records, and most of their time.
 * Linked in the place of Check's function (--wrap), this one lets a line's first record pass: where
 * a crash is reported, the line is the last that was reached for the first time.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <check.h>

enum { PLACES = 1 << 14 };

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

/* By file and line; two places in one slot cost the second its record, no more. */
static atomic_bool seen[PLACES];

void __wrap__mark_point(const char *file, int line)
{
	atomic_bool *place = &seen[((uintptr_t)file * 31 + (unsigned int)line) % PLACES];

	if (atomic_load_explicit(place, memory_order_relaxed))
		return;
	atomic_store_explicit(place, true, memory_order_relaxed);
	__real__mark_point(file, line);
}
