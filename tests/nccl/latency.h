/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a small message takes, for nccl-bench: ping-pong over two connections, one a direction.
 * The other parameter beside the size is when the receive was posted:
 *
 *	ahead     long before the message: as NCCL does it
 *	together  when the side starts to wait, which is when the other one sends
 *	late      LATE_NS after the message could have come: what is left to wait for then. A plugin
 *		  that sends without being asked has the bytes there by that time
 */
#ifndef TESTS_NCCL_LATENCY_H
#define TESTS_NCCL_LATENCY_H

#include "tests/nccl/caller/row.h"

enum { LATENCY_SIZES = 6 };

enum latency_posted {
	POSTED_AHEAD,
	POSTED_TOGETHER,
	POSTED_LATE,
	LATENCY_POSTED,
};

/* Medians, in microseconds: half a round trip, or the wait with POSTED_LATE. */
struct latency {
	double us[LATENCY_SIZES][LATENCY_POSTED];
};

/* Once, before processes are started. */
void latency_init(void);
/* A side's process. */
void latency_side(struct side *side);
/* The results of the last two sides. */
void latency_take(struct latency *ret);
/* Prints the medians of `n` runs of each of two plugins, and their ratio. */
void latency_print(const struct latency *const runs[2], unsigned int n, char names[2][64]);

#endif
