/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/device/pace.h"

enum {
	NS_PER_MS = 1000000,
	FIRST_PAUSE_NS = 20000,
	LONGEST_PAUSE_NS = NS_PER_MS,
	PAUSE_GROWTH = 8, /* each pause is longer by this fraction */
	POLL_NS = 10000,  /* an application that drives the device polls as often, on average */
	RARE_NS = 100000, /* polls at longer intervals do not prolong the first pause */
	/* From one yield on a crowded processor to the next. */
	FIRST_PROBE_NS = NS_PER_MS,
	LONGEST_PROBE_NS = 256 * NS_PER_MS,
};

/* ---- pauses while the application polls */

uint32_t longer_pause_ns(uint32_t pause_ns)
{
	pause_ns += pause_ns / PAUSE_GROWTH;
	return pause_ns < LONGEST_PAUSE_NS ? pause_ns : LONGEST_PAUSE_NS;
}

uint32_t next_pause_ns(uint32_t pause_ns, unsigned polls, uint32_t first_ns)
{
	if (pause_ns == 0)
		return polls ? first_ns : 0;
	return polls >= pause_ns / POLL_NS ? longer_pause_ns(pause_ns) : 0;
}

uint32_t first_pause_ns(uint32_t pause_ns, unsigned polls, uint64_t since_ns)
{
	if (pause_ns == 0 || polls < pause_ns / RARE_NS || since_ns >= RARE_NS)
		return FIRST_PAUSE_NS;
	return longer_pause_ns(pause_ns);
}

/* ---- yields on a crowded processor */

bool probe_is_due(const struct probe *probe, uint64_t now_ns)
{
	return now_ns >= probe->next_ns;
}

void probe_note(struct probe *probe, bool is_crowded, uint64_t now_ns)
{
	if (!is_crowded) {
		probe->gap_ns /= 2;
		return;
	}
	if (probe->gap_ns < FIRST_PROBE_NS || now_ns >= probe->next_ns + LONGEST_PROBE_NS)
		probe->gap_ns = FIRST_PROBE_NS;
	else if (probe->gap_ns < LONGEST_PROBE_NS)
		probe->gap_ns *= 2;
	probe->next_ns = now_ns + probe->gap_ns;
}
