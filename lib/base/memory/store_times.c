/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/memory/store_times.h"

#include "lib/base/clock.h"
#include "lib/base/memory/copy.h"

enum {
	/* The measured blocks of a period: with non-temporal stores, and the next one. The pages of
	 * the first blocks are new. */
	AT_NONTEMPORAL = 24,
	AT_NORMAL,
	/* Non-temporal stores must be faster by this factor: readers find the block in memory then,
	 * rather than in a cache. */
	FACTOR = 3,
};

void store_times_add(struct store_times *times, bool is_nontemporal, size_t bytes, uint64_t ns)
{
	uint64_t *average = is_nontemporal ? &times->nontemporal : &times->normal;
	uint64_t scaled_ns = ns * STORE_TIMES_UNIT_BYTES / bytes + 1;

	if (*average == 0 || scaled_ns < *average)
		*average = scaled_ns;
	else if (scaled_ns < 2 * *average)
		*average = (*average + scaled_ns + 1) / 2;
	else
		*average += (*average + 1) / 2;
}

bool store_times_prefer_nontemporal(const struct store_times *times)
{
	return times->nontemporal > 0 && times->normal > times->nontemporal * FACTOR;
}

/* Earlier stores must not delay those that are measured. */
static void copy_measured(
	struct store_times *times, bool is_nontemporal, void *to, const void *from, size_t bytes)
{
	uint64_t start_ns;

	copy_settle();
	start_ns = clock_now_ns();
	if (is_nontemporal) {
		copy_nontemporal(to, from, bytes);
	} else {
		copy_bulk(to, from, bytes);
		copy_settle();
	}
	store_times_add(times, is_nontemporal, bytes, clock_now_ns() - start_ns);
}

void store_times_copy(struct store_times *times, void *to, const void *from, size_t bytes)
{
	uint32_t place;

	if (bytes < STORE_TIMES_LEAST_BYTES) {
		copy_bulk(to, from, bytes);
		return;
	}
	place = times->blocks++ % STORE_TIMES_PERIOD;
	if (place == AT_NONTEMPORAL || place == AT_NORMAL)
		copy_measured(times, place == AT_NONTEMPORAL, to, from, bytes);
	else if (store_times_prefer_nontemporal(times))
		copy_nontemporal(to, from, bytes);
	else
		copy_bulk(to, from, bytes);
}
