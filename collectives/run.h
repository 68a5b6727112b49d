/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs: one plan at work. How far each step is, where the buffers lie, and what may go on. A run
 * belongs to a request, and its lane works to the lanes that carry its messages.
 */
#ifndef FERRULE_COLLECTIVES_RUN_H
#define FERRULE_COLLECTIVES_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/memory.h>

#include "collectives/schedule.h"
#include "collectives/shapes.h"

struct block;
struct compute;
struct frl_comm;
struct gate;
struct peer;
struct shadow;
struct run;

enum { RAILS_MAX = 4, SCALAR_MAX = 8 };

/*
 * What ranks must agree on when they meet in an operation. SEND and RECV have the number of the
 * next collective, which both ends started equally many of, and are called FRL_SEND at both; their
 * root is which one it is between the two ranks, that way.
 */
struct signature {
	uint32_t number;
	uint8_t coll, dtype, op, wire;
	uint32_t root;
	uint32_t zero;
	uint64_t count;
};

/* The callers at both ends give the length of a message, and may not agree. `coll` is that of a
 * signature, which may be a peer's: any number. */
static inline bool signature_has_two_lengths(uint8_t coll)
{
	return coll == FRL_SEND || (coll < FRL_COLLS && shape_has_pieces(coll));
}

/* The steps of one run in one lane, in order. */
struct lane_work {
	struct lane_work *next; /* of a later run, in the lane */
	struct lane *lane;
	struct run *run;
	uint32_t step; /* the first that is not all under way; PLAN_NOTHING: none is left */
	size_t begun;  /* elements of it that are */
};

/* What is to be done in order: between two ranks, or locally for one run. */
struct lane {
	enum lane_kind kind;
	struct peer *peer; /* NULL: local */
	struct lane_work *first, *last;
	bool is_ready; /* it may be able to go on, and is in the list */
	struct lane *next_ready;
};

struct run {
	struct run *next; /* of the request, or of those that are idle */
	struct run *next_self;
	struct run *next_gated;
	struct frl_request *request;
	struct frl_comm *comm;
	struct schedule *schedule; /* NULL: this rank sends to itself, see self.c */
	struct signature signature;
	enum frl_coll coll; /* the caller's: SEND and RECV have one signature */
	enum frl_dtype dtype;
	enum frl_op op;     /* of reductions, without scaling */
	enum frl_op scaled; /* the caller's */
	uint8_t scalar[SCALAR_MAX];
	uint8_t *base[PLAN_BUFFERS];
	size_t bytes[PLAN_BUFFERS];
	struct frl_mr *mr[RAILS_MAX][PLAN_BUFFERS];
	bool is_lent[PLAN_BUFFERS]; /* the regions are a block's, see compute.h */
	/* Of GPU memory; NULL: of host memory, or copied to it. */
	struct compute *compute; /* does its local steps, and has its scratch: */
	uint64_t token;          /* then: numbers for frl_recv_wr.keep, from here on, one a step */
	struct block *scratch;
	struct shadow *shadow; /* its buffers are copies; or NULL */
	struct gate *gate;     /* for which it waits; or NULL */
	bool is_shm, is_long;  /* see shm.h; then it has no schedule */
	size_t count;          /* of elements, as the operation has it */
	bool is_blocked;       /* it cannot begin yet: by its gate, or its copies */
	uint32_t left;         /* steps that are not complete */
	struct lane local;
	size_t *done; /* by step: elements that are complete */
	struct lane_work works[];
};

/* An idle run of the schedule, or a new one; `compute`: one for GPU memory, always new. -ENOMEM,
 * and as block_get(). */
int run_get(struct frl_comm *comm, struct schedule *schedule, struct compute *compute,
	struct run **ret_run);
/* Back to its schedule. Its buffers are not registered any more, but for its scratch. */
void run_put(struct run *run);
/* What is still registered is left to the domain. */
void run_free(struct run *run);

/* The buffer is registered already, and the regions stay when the run is over. */
void run_lend(struct run *run, enum plan_buffer buffer, struct frl_mr *const mr[]);

/* Registers what is sent from and received into by reference, on all rails. */
int run_register(struct run *run);
/* Ends the registrations of the caller's buffers, and of scratch that nobody will use again; false
 * while one is busy. */
bool run_deregister(struct run *run);

/* Puts the run's steps behind those of earlier runs. */
void run_enqueue(struct run *run);

/* Starts it: puts it into its lanes, blocked if something has to come before. */
void run_begin(struct run *run);

/* It is blocked no more. */
void run_open(struct run *run);

/* All of it is done, on the way to request_run_done(). */
void run_complete(struct run *run);

/* How far the step could be complete now, as far as the plan is concerned. */
size_t run_limit(const struct run *run, uint32_t step);

/* `count` more elements of the step are complete; those that waited for them may go on. */
void run_advance(struct run *run, uint32_t step, size_t count);

/* Where element `first` of a range is. */
static inline uint8_t *run_at(const struct run *run, const struct plan_range *range, size_t first)
{
	return run->base[range->buffer] + range->offset +
		schedule_bytes(run->schedule, range, first);
}

static inline const struct plan_step *run_step(const struct run *run, uint32_t step)
{
	return &run->schedule->plan.steps[step];
}

/* `count` more elements of the first step of the lane are under way. */
void lane_move(struct lane *lane, size_t count);

/* local.c: elements as an average or PREMUL_SUM has them; in place or not. */
void run_scale(const struct run *run, uint8_t *target, const uint8_t *source, size_t count);
/* The next segment of the local steps; false: they have to wait. */
bool lane_compute(struct lane *lane);
/* A message: `payload` becomes `count` elements of a receive step, from `first` on. */
void run_place(struct run *run, uint32_t step, size_t first, size_t count, const uint8_t *payload);

#endif
