/* SPDX-License-Identifier: BSD-3-Clause */
/* The pieces of one launch, while the queue collects them. Protected by the queue's own locking. */
#ifndef FERRULE_GPUDIRECT_LAUNCH_H
#define FERRULE_GPUDIRECT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/kernels/batch.h"

/* Address ranges. A range that continues one of the most recent ranges is merged with it, as for
 * packets of one message. */
struct launch_ranges {
	uint64_t low, high; /* the bounds of all ranges */
	uint32_t n;
	uint64_t begin[2 * GPU_BATCH_MANY], end[2 * GPU_BATCH_MANY];
};

struct launch {
	uint32_t max_pieces; /* set once: GPU_BATCH_MANY or less */
	struct gpu_batch_many batch;
	struct launch_ranges writes, reads;
	struct launch_ranges also; /* the ranges that are written at `also` addresses */
};

/* Removes all pieces. */
void launch_clear(struct launch *launch);

/* Returns whether the launch has room for the piece, and the piece is independent of the others:
 * the piece touches no bytes that they write, and writes no bytes that they read. Also returns
 * false if the launch has more than GPU_BATCH_PIECES pieces and the check would take long. */
bool launch_takes(const struct launch *launch, const struct gpu_work *work);

/* Adds a piece. launch_takes() must have returned true for the piece. */
void launch_add(struct launch *launch, const struct gpu_work *work);

/* Assigns blocks to pieces in proportion to their lengths: at most max_blocks in total, but at
 * least one for each piece. */
void launch_deal(struct launch *launch, uint32_t max_blocks);

#endif
