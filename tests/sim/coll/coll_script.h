/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of ranks in a run: collectives of all kinds, from a seed that all ranks share, and
 * their results. Inputs are such that results are exact in any order and known without reducing
 * anything.
 */
#ifndef FERRULE_SIM_COLL_SCRIPT_H
#define FERRULE_SIM_COLL_SCRIPT_H

#include <ferrule/collective.h>

#include <stdint.h>

#include "lib/base/random.h"

enum { SCRIPT_RANKS_MAX = 32 };

struct script_tally {
	uint64_t collectives[FRL_COLLS], dtypes[FRL_DTYPES], ops[FRL_OPS], wires[FRL_WIRES];
	uint64_t algos[FRL_ALGOS]; /* asked for */
	uint64_t splits, in_place, at_once;
	uint64_t rings; /* that ranks made whose devices do not reduce */
};

struct coll_script {
	uint64_t seed;
	bool stays_outside; /* ranks do something else between batches, at times */
	int rails;
	int batches;
	uint64_t bytes_max; /* about, of what one rank gives to one collective */
	struct script_tally tally;
};

/* One operation, the same on all ranks. */
struct coll_op {
	enum frl_coll coll;
	enum frl_dtype dtype;
	enum frl_op op;
	enum frl_wire wire;
	size_t count;
	int root; /* SEND and RECV: how many ranks further */
	bool in_place;
	uint64_t salt; /* of the values */
};

/* coll_values.c */

/* Element `i` of the input of rank `rank` of `ranks`: a small whole number, NaN or infinity. */
double coll_value(const struct coll_op *op, int rank, size_t i);
/* The expected element `i` of ALLREDUCE. */
double coll_reduced(const struct coll_op *op, int ranks, size_t i);
/* Writes a number that is exact in the type. */
void coll_put(void *element, enum frl_dtype dtype, double value);
/* Elements from one rank to another one in ALLTOALLV. */
size_t coll_piece(const struct coll_op *op, int from, int to);
/* The next operation for `ranks` ranks. */
void coll_draw(struct random_state *random, int ranks, uint64_t bytes_max, struct coll_op *ret_op);

/* For a rank: runs the script, as config.run of a world; `arg` is the struct. */
void coll_script_run(
	struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg);

#endif
