/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Thresholds of collectives: lengths and numbers of ranks at which the method changes. Plans, the
 * tuner, operations in shared memory and frl_comm_explain() share this table.
 *
 * Pure. Any thread.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_THRESHOLDS_H
#define FERRULE_COLLECTIVES_PLAN_THRESHOLDS_H

#include <stddef.h>

/* X(constant, value, name, unit): `ferrule-bench --explain` prints names, values and units, and
 * docs/design/algorithm-choice.md explains them. */
#define THRESHOLDS_OF_PACKETS(X)                              \
	X(EAGER_BYTES, 4064, "eager", " bytes")               \
	X(SEGMENT_LEAST, 16 << 10, "segment", " bytes")       \
	X(SEGMENTS_OF_STEP, 4, "pipeline", " segments")       \
	X(DIRECT_PERCENT, 50, "direct-whole", "% of segment") \
	X(RINGS_BOTH_WAYS, 8, "both-ways", " segments")       \
	X(HOSTS_PIECES_FROM, 32, "pieces", " segments")       \
	X(ALIKE_PERCENT, 5, "alike", "%")

/*
 * Measured: docs/design/performance-trials.md, What was tried. With three or more ranks, reducing
 * parts means that each rank reads fewer bytes, which pays once reading takes longer than waiting.
 * With two ranks it means less memory traffic, which pays once vectors exceed the caches.
 */
#define THRESHOLDS_OF_SHM(X)                                       \
	X(SHM_RANKS_MAX, 16, "ranks", "")                          \
	X(SHM_INLINE, (32 << 10) - 48, "short", " bytes")          \
	X(SHM_SHORT_OF_TWO, 2 << 10, "short-of-2", " bytes")       \
	X(SHM_IN_PLACE_FROM, 1 << 10, "in-place", " bytes")        \
	X(SHM_BLOCK, 64 << 10, "block", " bytes")                  \
	X(SHM_WHOLE_RANKS, 4, "whole-ranks", "")                   \
	X(SHM_WHOLE_BYTES, 64 << 10, "whole", " bytes")            \
	X(SHM_WHOLE_BYTES_OF_TWO, 8 << 20, "whole-of-2", " bytes") \
	X(SHM_STREAM_BYTES, 4 << 20, "non-temporal", " bytes")

#define THRESHOLD_CONSTANT(constant, value, name, unit) constant = (value),

enum {
	THRESHOLDS_OF_PACKETS(THRESHOLD_CONSTANT) /* of messages */
	THRESHOLDS_OF_SHM(THRESHOLD_CONSTANT)     /* of shared memory */
};

/* Write "thresholds: NAME VALUE, ..." and a newline, as snprintf() does. */
int thresholds_of_packets(char *text, size_t size);
int thresholds_of_shm(char *text, size_t size);

#endif
