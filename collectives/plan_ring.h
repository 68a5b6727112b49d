/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings and chains over a group of ranks: what the ring algorithm is made of, and the hierarchical
 * one uses within and between hosts. Pure, as plan.h.
 *
 * A ring works on n parts, one for each place in the group. Reducing, part c goes once around from
 * place c+1 to place c and collects a contribution at each; gathering, it goes once around from
 * place c. So at step t place p
 *
 *     reducing:   sends part p-t-1, receives part p-t-2      (t = 0 ... n-2)
 *     gathering:  sends part p-t,   receives part p-t-1
 *
 * and what is received at one step is sent at the next.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_RING_H
#define FERRULE_COLLECTIVES_PLAN_RING_H

#include "collectives/plan_build.h"

enum {
	PLAN_PIECES_MAX = 4,
};

struct plan_part {
	size_t count;
	struct plan_range input;  /* what this rank brings; gathering: of its own part only */
	struct plan_range output; /* where the result goes */
	uint32_t ready;           /* the step that makes the input, and where in it that begins */
	int64_t ready_shift;
	uint32_t made; /* out: the step that completes the output, after gathering as it is */
};

/* One way around. Encoded parts are cut into pieces that follow each other, because the steps that
 * encode and decode are run one after the other. */
struct plan_ring {
	struct plan_builder *b;
	const struct plan_group *group;
	struct plan_part *parts; /* by place */
	bool is_backward;
	bool has_slots;  /* partial sums go into scratch, not where the results go */
	bool is_partial; /* the sum is not final: nothing is divided yet */
	bool is_in_turn; /* gathering: each receive waits for the one before, which it stands for */
	uint32_t also;   /* gathering: complete before this rank's part is sent */
	uint32_t pieces;
	size_t piece; /* elements */
	struct plan_range slot[2];
	struct plan_range out[2]; /* encoded, by the parity of the step */
	struct plan_range in[2];
	struct plan_range own;
	uint32_t sent[2][PLAN_PIECES_MAX]; /* the last steps that used them */
	uint32_t decoded[2][PLAN_PIECES_MAX];
	uint32_t made[PLAN_PIECES_MAX]; /* the steps that complete this rank's own part */
	uint32_t received;              /* the last of the steps that receive */
};

/* Fills in what comes after `also`. */
void plan_ring_start(struct plan_ring *ring, size_t segment);

/* The rings of one operation go step by step together, so that none waits for the other. */
void plan_rings_reduce(struct plan_ring rings[], uint32_t n_rings);
void plan_rings_gather(struct plan_ring rings[], uint32_t n_rings);

/* From the last of the group through all to the first, or the other way. */
struct plan_chain {
	struct plan_builder *b;
	const struct plan_group *group;
	size_t count;
	size_t piece; /* elements of what is reduced or encoded at a time; 0: all */
	struct plan_range input;
	uint32_t ready; /* the step that makes it */
	int64_t ready_shift;
	uint32_t also; /* broadcast: complete before the first one sends */
	/* Where the result goes. Reducing: of the first; the others may have a place of `count`
	 * elements for partial sums, or `has_slots`. */
	struct plan_range output;
	bool has_slots;
	bool is_partial; /* the sum is not final: nothing is divided yet */
};

/* Returns the step that completes the result at the first. */
uint32_t plan_chain_reduce(const struct plan_chain *chain);
/* The input is the first one's. Returns the step that completes the output of the others. */
uint32_t plan_chain_broadcast(const struct plan_chain *chain);

/* How many rings a job takes: one, or two of opposite directions. */
uint32_t plan_ring_count(const struct plan_job *job);

#endif
