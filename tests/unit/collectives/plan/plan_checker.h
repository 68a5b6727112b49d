/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proves plans right without a network: makes the plans of all ranks and runs them together, on
 * symbols instead of numbers, in a random order of everything that the plans leave open.
 *
 * An element is known by whose contributions are in it, how often (a sum of random numbers, one for
 * each rank and place), and by a hash of the expression that made it, in which a + b is b + a but
 * (a + b) + c is not a + (b + c). Checks:
 *
 *  - both ends of a connection agree on their messages: number, counts, formats; no plan minds when
 *    short messages overtake long ones
 *  - no step lies outside of its buffer or overlaps itself; the caller's send buffer is not written
 *  - nothing is read before it was made; everything ends (no deadlock), however local steps wait
 *  - two accesses of one place, one of them a write, are ordered by what a plan may rely on, not by
 *    luck: a send reads its source at any time from when it may begin until it is delivered
 *  - the results are right, made in the same order for all ranks, scaled once and where that may be
 *    done
 *  - no rank has more connections than it may
 */
#ifndef FERRULE_TESTS_UNIT_COLLECTIVES_PLAN_PLAN_CHECKER_H
#define FERRULE_TESTS_UNIT_COLLECTIVES_PLAN_PLAN_CHECKER_H

#include "collectives/plan/plan.h"

enum check_in_place {
	CHECK_OUT_OF_PLACE,
	CHECK_IN_PLACE,
	CHECK_MIXED, /* some ranks so, some so */
};

struct check_case {
	enum frl_coll coll;
	enum frl_algo algo;
	uint32_t ranks;
	uint32_t root;
	size_t count;
	size_t elem_size;
	enum frl_op op;
	enum frl_wire wire;
	bool is_float_narrow;
	enum check_in_place in_place;
	const struct topology *topology;
	size_t segment_bytes;
	uint64_t seed;
	/* Changes a plan before it is run, to test that mistakes are found; may be NULL. */
	void (*spoil)(struct plan *plan, uint32_t rank, void *arg);
	void *spoil_arg;
};

struct check_result {
	char error[256];    /* empty: all is right */
	uint64_t sent_most; /* bytes that one rank sends, at most */
	uint64_t sent_least;
	uint64_t one_way;  /* bytes on one connection in one direction, at most */
	uint64_t messages; /* of all ranks, segments */
	uint32_t rounds;   /* messages that follow each other, at most */
	uint32_t peers;    /* of one rank, at most */
	uint64_t scratch;  /* bytes, at most */
	uint64_t queries;  /* pairs of accesses whose order was proven */
};

/* Returns false, with the reason in ret->error, if something is wrong. The algorithm must support
 * the collective (plan_can()). */
bool plan_check(const struct check_case *c, struct check_result *ret);

#endif
