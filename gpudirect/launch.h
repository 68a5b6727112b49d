/* SPDX-License-Identifier: BSD-3-Clause */
/* The pieces of one launch, while they are collected. A queue's, under whatever protects that. */
#ifndef FERRULE_GPUDIRECT_LAUNCH_H
#define FERRULE_GPUDIRECT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/batch.h"

/* Ranges of addresses; those that follow one of the last ones are one with it, as those of packets
 * in a row are. */
struct launch_ranges {
	uint64_t low, high; /* all of them lie in between */
	uint32_t n;
	uint64_t begin[2 * GPU_BATCH_MANY], end[2 * GPU_BATCH_MANY];
};

struct launch {
	uint32_t max_pieces; /* set once: GPU_BATCH_MANY, or less */
	struct gpu_batch_many batch;
	struct launch_ranges writes, reads;
	struct launch_ranges also; /* what is written besides, which lies elsewhere */
};

/* No pieces. */
void launch_clear(struct launch *launch);

/* Whether it has room for the piece, and whether that may run beside those that are there: it
 * touches nothing that they write, and writes nothing that they read. False as well where there are
 * more than GPU_BATCH_PIECES and it would take long to find out. */
bool launch_takes(const struct launch *launch, const struct gpu_work *work);

/* Only what launch_takes(). */
void launch_add(struct launch *launch, const struct gpu_work *work);

/* Deals out blocks: as many as the pieces are long, max_blocks at most, but one for each. */
void launch_deal(struct launch *launch, uint32_t max_blocks);

#endif
