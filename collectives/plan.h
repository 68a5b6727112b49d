/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: what one rank does for a collective, as a list of steps. Pure: no I/O, no clock, no state
 * that changes; a plan is made once and then only read. Any thread.
 *
 * A step sends a range to a peer, receives a range from a peer (copied into place, or reduced into
 * it), or computes something locally. Whoever runs a plan cuts long steps into segments, which go
 * one after the other, so a step is complete up to some element at any time. A step may go on to an
 * element as soon as the steps that it comes `after` are complete up to that element's place:
 * chunks that pass through a rank are sent on while they still arrive.
 *
 * What a plan may rely on, and must keep to:
 *
 *  - Messages from one rank to another arrive in the order of the sender's steps, and the
 *    receiver's steps from that rank are in the same order, with the same counts and formats. Short
 *    steps may overtake long ones, so plans rely on this order for steps of one length only.
 *  - Steps to and from different ranks do not wait for each other but by `after`; local steps are
 *    run in the order of the list.
 *  - Payload is read from its place when it is delivered, not when the step begins: a range that is
 *    sent may be written again only when the step that writes it comes `after` the send (which is
 *    complete up to where the peer has received), or receives what the peer can only have
 *    made out of the payload sent.
 *  - Receives into one place are ordered by `after`: the order of reductions is part of the plan,
 *    so results are the same from run to run.
 *  - A rank's result of a reduction is made on one rank and copied to the others, or made by all in
 *    the same order: all ranks have bitwise the same.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_H
#define FERRULE_COLLECTIVES_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

#include "collectives/topology.h"

enum plan_buffer {
	PLAN_SEND, /* the caller's */
	PLAN_RECV,
	PLAN_SCRATCH, /* plan.scratch_bytes of the runner's */
	PLAN_BUFFERS,
};

enum plan_kind {
	PLAN_SENDS,
	PLAN_RECEIVES,
	PLAN_LOCAL,
};

/* Of receives and local steps: what becomes of the source, which is the payload or `source`. */
enum plan_action {
	PLAN_COPY,
	PLAN_REDUCE,        /* target = operand op source */
	PLAN_SCALE,         /* local: target = source, times the scalar of FRL_PREMUL_SUM or
			     * divided by the number of ranks (FRL_AVG) */
	PLAN_ENCODE,        /* local: target = source in the wire's format */
	PLAN_DECODE,        /* local: the other way round */
	PLAN_DECODE_REDUCE, /* local: target = operand op decoded source */
};

/* Where elements lie. In the wire's format they take frl_wire_size() of their number; segments of
 * such steps begin at multiples of PLAN_WIRE_BLOCK elements. */
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
 * The step can be complete up to its element j (exclusive) only when step number `step` of the list
 * (a lower number) is complete up to its element min(j + shift, all). PLAN_WHOLE: only when that is
 * complete altogether. A send is complete as far as the peer has it.
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
	enum frl_algo algo; /* that it came from */
	struct plan_step *steps;
	uint32_t n_steps;
	size_t scratch_bytes;
	size_t segment; /* elements: longest message; a multiple of PLAN_WIRE_BLOCK if encoded */
};

/* What a plan is for. All ranks give the same but for `rank`. */
struct plan_job {
	enum frl_coll coll;
	int rank;
	int ranks;
	int root;     /* the peer of FRL_SEND and FRL_RECV */
	size_t count; /* as the collective counts, see <ferrule/collective.h> */
	size_t elem_size;
	enum frl_op op;
	enum frl_wire wire;
	bool is_float_narrow; /* 16 and 8-bit floats: FRL_AVG scales before it sums */
	bool in_place;        /* as the collective defines it */
	/* FRL_ALLTOALLV: elements to and from each rank, and where they begin. */
	const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
	const struct topology *topology;
	size_t segment_bytes; /* the longest message that is wished */
};

/*
 * Makes the plan of `algo` (not FRL_ALGO_AUTO). -ENOTSUP: the algorithm does not do this (another
 * collective, wire format or number of ranks): nothing was made. -ENOMEM.
 */
int plan_make(struct plan *plan, enum frl_algo algo, const struct plan_job *job);

/* Can it? As plan_make(), without making it. */
bool plan_can(enum frl_algo algo, const struct plan_job *job);

/* NULL if it can. Otherwise why not: the end of a sentence that begins with the name of the
 * algorithm. */
const char *plan_why_not(enum frl_algo algo, const struct plan_job *job);

void plan_free(struct plan *plan);

/*
 * What a plan costs, for the model that chooses (tuner.h); the same on all ranks. Of the longest
 * chain of messages, apart for those between ranks of one host and of several:
 */
struct plan_path {
	double rounds; /* messages that follow each other */
	double large;  /* of these, longer than what goes as one */
	double waits;  /* of these, such that the receiver must first say that they may come */
	double more;   /* messages that a rank sends or gets beyond one in each round */
	double bytes;  /* that a rank sends, one after the other */
};

struct plan_cost {
	struct plan_path path[2]; /* within a host; between hosts */
	double overlap;           /* of the rounds' latency, so much passes while bytes are sent */
	double reduced;  /* bytes that are reduced or copied locally, one after the other */
	double staged;   /* of these, those that large messages bring: they may go through a ring */
	double peers;    /* connections that a rank uses, the most of all */
	double messages; /* that a rank sends on the mean */
	double volume;   /* bytes of these */
};

/* Of an algorithm that can do the job; nothing of another one. */
void plan_cost(enum frl_algo algo, const struct plan_job *job, struct plan_cost *ret_cost);

#endif
