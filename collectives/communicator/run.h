/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs: the execution of a plan. A run knows the progress of each step, the addresses of the
 * buffers, and what may proceed. It belongs to a request, and its lane works belong to the lanes
 * that carry its messages.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_RUN_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/memory.h>

#include "collectives/communicator/schedule.h"
#include "collectives/plan/shapes.h"

struct block;
struct compute;
struct frl_comm;
struct stream_wait;
struct peer;
struct bounce;
struct run;

enum { RAILS_MAX = 4, SCALAR_MAX = 8 };

/*
 * The arguments of an operation on which ranks must agree. SEND and RECV have the number of the
 * next collective, since both ends have started equally many, and are called FRL_SEND at both ends.
 * Their root is their index between the two ranks, in that direction.
 */
struct signature {
	uint32_t number;
	uint8_t coll, dtype, op, wire;
	uint32_t root;
	uint32_t zero;
	uint64_t count;
};

/* Root of the barrier by which ranks leave the communicator. */
#define SIGNATURE_LEAVES UINT32_MAX

static inline bool signature_leaves(const struct signature *signature)
{
	return signature->coll == FRL_BARRIER && signature->root == SIGNATURE_LEAVES;
}

/* Returns whether each end gives the length of a message, so that the two may differ. `coll` is
 * from a signature, perhaps a peer's: it may have any value. */
static inline bool signature_has_two_lengths(uint8_t coll)
{
	return coll == FRL_SEND || (coll < FRL_COLLS && shape_has_pieces(coll));
}

/* Direction of a transfer, as seen from this rank. */
enum transfer_way {
	TRANSFER_SENT,
	TRANSFER_RECEIVED,
	TRANSFER_WAYS,
};

/* A transfer between two ranks for which each end gives the length: SEND and RECV, and the
 * pieces of ALLTOALLV. See transfer.c. */
struct transfer {
	uint32_t number; /* of the operation */
	uint32_t index;  /* index of the SEND and RECV between the two ranks in that direction */
	uint8_t coll, dtype, wire;
	uint64_t count; /* elements; TRANSFER_UNKNOWN: only the bytes are known */
	uint64_t bytes; /* 0: only the elements are known */
};

#define TRANSFER_UNKNOWN UINT64_MAX

/* The steps of one run in one lane, in order. */
struct lane_work {
	struct lane_work *next; /* of a later run in the same lane */
	struct lane *lane;
	struct run *run;
	uint32_t step; /* first step that is not entirely under way; PLAN_NOTHING: none */
	size_t begun;  /* elements of that step under way */
};

/* A queue of steps that run in order: between two ranks, or local to one run. */
struct lane {
	enum lane_kind kind;
	struct peer *peer; /* NULL: local */
	struct lane_work *first, *last;
	bool is_ready; /* it may be able to advance, and is in the ready list */
	struct lane *next_ready;
};

struct run {
	struct run *next; /* in the request, or in the list of idle runs */
	struct run *next_self;
	struct run *next_stream_waiting;
	struct frl_request *request;
	struct frl_comm *comm;
	/* NULL: this rank sends to itself (net/self.c), or shared memory (shm/shm.h) */
	struct schedule *schedule;
	struct signature signature;
	enum frl_coll coll; /* the caller's; SEND and RECV have the same signature */
	enum frl_dtype dtype;
	enum frl_op op;     /* of the reductions, without scaling */
	enum frl_op scaled; /* the caller's operation */
	uint8_t scalar[SCALAR_MAX];
	uint8_t *base[PLAN_BUFFERS];
	size_t bytes[PLAN_BUFFERS];
	struct frl_mr *mr[RAILS_MAX][PLAN_BUFFERS];
	bool is_borrowed[PLAN_BUFFERS]; /* the registrations belong to a block, see gpu/compute.h */
	/* Only for runs on GPU memory, else NULL and 0: */
	struct compute *compute; /* does the local steps and owns the scratch */
	uint64_t token;          /* first number for frl_recv_wr.keep; one number per step */
	struct block *scratch;
	struct bounce *bounce;           /* its bounce buffers, or NULL */
	struct stream_wait *stream_wait; /* the event it waits for, or NULL */
	bool is_shm, is_long;            /* see shm/shm.h; such a run has no schedule */
	size_t count;                    /* elements, as given by the caller */
	bool is_blocked;                 /* it waits for its event or its copies */
	uint32_t left;                   /* steps that are not complete */
	struct lane local;
	size_t *done; /* by step: complete elements */
	struct lane_work works[];
};

/* Returns an idle run of the schedule, or a new one. Runs with `compute`, on GPU memory, are
 * always new, and have no scratch yet. Fails with -ENOMEM. */
int run_get(struct frl_comm *comm, struct schedule *schedule, struct compute *compute,
	struct run **ret_run);
/* Returns a run to its schedule. Only its scratch may still be registered. */
void run_put(struct run *run);
/* Frees a run. Registrations that are still in use stay in their protection domain. */
void run_free(struct run *run);

/* Uses registrations of the caller for a buffer; they outlive the run. */
void run_borrow(struct run *run, enum plan_buffer buffer, struct frl_mr *const mr[]);
/* Stops using borrowed registrations. */
void run_return_borrowed(struct run *run);

/* Registers the buffers of large messages on all rails. */
int run_register(struct run *run);
/* Ends the registrations of the caller's buffers, and of scratch that will not be reused.
 * Returns false while one is in use. */
bool run_deregister(struct run *run);

/* Completes a run whose steps are done, by request_run_done(), after copies if it has bounce
 * buffers. */
void run_complete(struct run *run);

/* Returns the address of element `first` of a range. */
static inline uint8_t *run_at(const struct run *run, const struct plan_range *range, size_t first)
{
	return run->base[range->buffer] + range->offset +
		schedule_bytes(run->schedule, range, first);
}

static inline const struct plan_step *run_step(const struct run *run, uint32_t step)
{
	return &run->schedule->plan.steps[step];
}

/* Scales elements for an average or PREMUL_SUM; source and target may be equal. */
void run_scale(const struct run *run, uint8_t *target, const uint8_t *source, size_t count);

#endif
