/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings and chains over a group of ranks, used by the ring algorithm and within and between hosts
 * by the hierarchical one. Pure, as plan.h.
 *
 * A ring works on n parts, one for each index in the group. In a reduction, part c goes once around
 * from index c+1 to index c and collects a contribution at each rank. In a gathering, it goes once
 * around from index c. So at step t index p
 *
 *     reducing:   sends part p-t-1, receives part p-t-2      (t = 0 ... n-2)
 *     gathering:  sends part p-t,   receives part p-t-1
 *
 * and sends at each step what it received at the previous one.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_RINGS_H
#define FERRULE_COLLECTIVES_PLAN_RINGS_H

#include "collectives/plan/build.h"

enum {
	PLAN_PIECES_MAX = 4,
};

struct plan_part {
	size_t count;
	/* this rank's contribution; in a gathering only for its own part */
	struct plan_range input;
	struct plan_range output; /* destination of the result */
	/* step that makes the input, and the input's first element in it */
	uint32_t ready;
	int64_t ready_shift;
	uint32_t made; /* out: the step that completes the output, after a plain gathering */
};

/* One direction. Encoded parts are cut into pieces that overlap, since local steps that encode
 * and decode run one after the other. */
struct plan_ring {
	struct plan_builder *b;
	const struct plan_group *group;
	struct plan_part *parts; /* by index in the group */
	bool is_backward;
	bool has_slots;  /* partial sums are in scratch, not at the results' destination */
	bool is_partial; /* the sum is not final: nothing is divided yet */
	/* gathering: each receive waits for the previous one, so the last one implies all */
	bool is_in_turn;
	uint32_t also; /* gathering: step to complete before this rank's part is sent */
	uint32_t pieces;
	size_t piece; /* elements */
	struct plan_range slot[2];
	struct plan_range out[2]; /* encoded, by the parity of the step */
	struct plan_range in[2];
	struct plan_range own;
	uint32_t sent[2][PLAN_PIECES_MAX]; /* last steps that used the scratch above */
	uint32_t decoded[2][PLAN_PIECES_MAX];
	uint32_t made[PLAN_PIECES_MAX]; /* steps that complete this rank's own part */
	uint32_t received;              /* last receive */
};

/* Initializes the fields after `also`. */
void plan_ring_start(struct plan_ring *ring, size_t segment);

/* The rings of one operation advance together step by step, so that neither waits for the other. */
void plan_rings_reduce(struct plan_ring rings[], uint32_t n_rings);
void plan_rings_gather(struct plan_ring rings[], uint32_t n_rings);

/* From the last rank of the group through all to the first, or the other way. */
struct plan_chain {
	struct plan_builder *b;
	const struct plan_group *group;
	size_t count;
	size_t piece; /* elements that are reduced or encoded at a time; 0: all */
	struct plan_range input;
	uint32_t ready; /* step that makes the input */
	int64_t ready_shift;
	uint32_t also; /* broadcast: step to complete before the first rank sends */
	/* Destination of the result. In a reduction only for the first rank; the others have a
	 * range of `count` elements for partial sums, or `has_slots`. */
	struct plan_range output;
	bool has_slots;
	bool is_partial; /* the sum is not final: nothing is divided yet */
};

/* Returns the step that completes the result at the first rank. */
uint32_t plan_chain_reduce(const struct plan_chain *chain);
/* Broadcasts the input of the first rank. Returns the step that completes the output of the
 * others. */
uint32_t plan_chain_broadcast(const struct plan_chain *chain);

/* Returns the number of rings of a job: one, or two of opposite directions. */
uint32_t plan_ring_count(const struct plan_job *job);

#endif
