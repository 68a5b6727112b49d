/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans. A plan lists the steps of one rank in a collective. Pure: no I/O, no clock, no mutable
 * state. A plan is made once and then only read, by any thread.
 *
 * A step sends a range to a peer, receives a range from a peer (and copies or reduces it), or
 * computes locally. The runner cuts long steps into segments that are processed in order, so a step
 * is complete up to some element at any time. A step may proceed to an element as soon as the steps
 * in its `after` are complete up to the matching element: a rank forwards chunks while they are
 * still arriving.
 *
 * Guarantees for plans, and obligations of plans:
 *
 *  - Messages from one rank to another arrive in the order of the sender's steps. The receiver's
 *    steps from that rank have the same order, counts and formats. Short steps may overtake long
 *    ones, so plans rely on this order only among steps of equal length.
 *  - Steps with different peers are ordered only by `after`; local steps run in the order of the
 *    list.
 *  - Payload is read when it is delivered, not when the step begins. A range that is sent may be
 *    overwritten only by a step that comes `after` the send (a send is complete up to where the
 *    peer has received), or by a receive of data that the peer can only have computed from the
 *    payload sent.
 *  - Receives into the same range are ordered by `after`. The order of reductions is part of the
 *    plan, so results do not vary from run to run.
 *  - Each result of a reduction is computed on one rank and copied to the others, or computed by
 *    all in the same order: results are bitwise identical on all ranks.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_PLAN_H
#define FERRULE_COLLECTIVES_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

#include "collectives/plan/topology.h"

enum plan_buffer {
	PLAN_SEND, /* the caller's send buffer */
	PLAN_RECV,
	PLAN_SCRATCH, /* plan.scratch_bytes, owned by the runner */
	PLAN_BUFFERS,
};

enum plan_kind {
	PLAN_SENDS,
	PLAN_RECEIVES,
	PLAN_LOCAL,
};

/* The action of a receive or local step on its source: the payload, or `source`. */
enum plan_action {
	PLAN_COPY,
	PLAN_REDUCE, /* target = operand op source */
	/* local: target = source, times the scalar of FRL_PREMUL_SUM or divided by the number of
	 * ranks (FRL_AVG) */
	PLAN_SCALE,
	PLAN_ENCODE,        /* local: target = source, encoded as on the wire */
	PLAN_DECODE,        /* local: target = decoded source */
	PLAN_DECODE_REDUCE, /* local: target = operand op decoded source */
};

/* The position of elements. Encoded elements take frl_wire_size() bytes; segments of encoded
 * steps begin at multiples of PLAN_WIRE_BLOCK elements. */
struct plan_range {
	enum plan_buffer buffer;
	bool encoded;
	size_t offset; /* bytes, from the start of the buffer */
};

enum {
	PLAN_AFTER = 3,
	PLAN_WIRE_BLOCK = 128,
	PLAN_RANKS_MAX = 32768,
};

#define PLAN_NOTHING UINT32_MAX

/*
 * A step can be complete up to its element j (exclusive) only when step number `step` (a lower
 * number) is complete up to its element min(j + shift, all). PLAN_WHOLE: only when that step is
 * complete. A send is complete as far as the peer has received it.
 */
struct plan_after {
	uint32_t step; /* PLAN_NOTHING: none */
	int64_t shift;
};

#define PLAN_WHOLE INT64_MAX

struct plan_step {
	enum plan_kind kind;
	enum plan_action action;
	uint32_t peer;             /* a rank, not this one */
	size_t count;              /* elements, not 0 */
	struct plan_range source;  /* sends and local steps */
	struct plan_range target;  /* receives and local steps */
	struct plan_range operand; /* REDUCE, DECODE_REDUCE: may be the target */
	struct plan_after after[PLAN_AFTER];
};

struct plan {
	enum frl_algo algo; /* that made it */
	struct plan_step *steps;
	uint32_t n_steps;
	size_t scratch_bytes;
	size_t segment; /* elements: longest message; a multiple of PLAN_WIRE_BLOCK if encoded */
};

/* The job of a plan. All ranks give the same, except for `rank` and, of ALLTOALLV, the counts. */
struct plan_job {
	enum frl_coll coll;
	int rank;
	int ranks;
	int root;     /* the peer of FRL_SEND and FRL_RECV */
	size_t count; /* as in <ferrule/collective.h> */
	size_t elem_size;
	enum frl_op op;
	enum frl_wire wire;
	bool is_float_narrow; /* 16-bit and 8-bit floats: FRL_AVG scales before it sums */
	bool in_place;        /* as the collective defines it */
	/* FRL_ALLTOALLV: elements to and from each rank, and their displacements. */
	const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
	const struct topology *topology;
	size_t segment_bytes; /* longest message wanted */
};

/*
 * Makes the plan of `algo` (not FRL_ALGO_AUTO). Fails with -ENOTSUP if the algorithm does not
 * support the collective, wire type or number of ranks, and with -ENOMEM. There is nothing to free
 * after a failure.
 */
int plan_make(struct plan *plan, enum frl_algo algo, const struct plan_job *job);

/* Returns whether plan_make() supports the job. */
bool plan_can(enum frl_algo algo, const struct plan_job *job);

/* Returns NULL if plan_make() supports the job, else the reason: the end of a sentence that
 * begins with the name of the algorithm. */
const char *plan_why_not(enum frl_algo algo, const struct plan_job *job);

void plan_free(struct plan *plan);

/*
 * The cost of a plan, for the tuner's model; the same on all ranks. A path is the longest chain of
 * messages, counted separately within hosts and between hosts:
 */
struct plan_path {
	double rounds; /* messages one after the other */
	double large;  /* of these, longer than one eager message */
	double waits;  /* of these, messages that must wait for a credit */
	double more;   /* messages that a rank sends or receives beyond one per round */
	double bytes;  /* that a rank sends, one after the other */
};

struct plan_cost {
	struct plan_path path[2]; /* within a host; between hosts */
	/* part of the rounds' latency that overlaps with the transfer of bytes */
	double overlap;
	double reduced;  /* bytes that are reduced or copied locally, one after the other */
	double staged;   /* of these, bytes of large messages, which may need a staging ring */
	double peers;    /* connections that a rank uses, the most of all ranks */
	double messages; /* that a rank sends on average */
	double volume;   /* bytes of these messages */
};

/* Computes the cost of an algorithm that supports the job, otherwise zeros. */
void plan_cost(enum frl_algo algo, const struct plan_job *job, struct plan_cost *ret_cost);

#endif
