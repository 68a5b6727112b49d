/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of a communicator.
 *
 *	request.c    operations that the caller started, their arguments and their end
 *	schedule.c   plans, kept and made ready to run
 *	run.c        one plan at work: what is complete, what may go on
 *	bulk.c, eager.c, local.c, self.c
 *	             the ways in which steps are done
 *	transfer.c   do both ends of a SEND and RECV mean the same?
 *	shm*.c       operations of ranks of one machine, in memory that they share
 *	staging.c    where chunks are that the device does not reduce
 *	where.c      which memory buffers are: the processor's or a GPU's
 *	compute.c, shadow.c, gate.c, block.c
 *	             what is different for a GPU's
 *	rail.c       devices, what is registered with them, and those that fail
 *	channel*.c   connections between two ranks, made when they are first needed
 *	runner.c     makes progress: completions, then lanes, then news for the peers
 *	family.c     what communicators made out of one another do together
 *	board.c      mail between the ranks, and which communicator it is for
 *	failure.c, stall.c
 *	             how all of that ends before its time, and what is said then
 *
 * Threads: one at a time, which has entered (family.h). What other threads may touch at any time
 * is in struct post, and in comm->board.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>
#include <ferrule/memory.h>

#include "collectives/board.h"
#include "collectives/channel.h"
#include "collectives/config.h"
#include "collectives/family.h"
#include "collectives/run.h"
#include "collectives/schedule.h"
#include "collectives/shm.h"
#include "collectives/staging.h"
#include "collectives/topology.h"
#include "collectives/tuner.h"

enum {
	POLL_BATCH = 16,
	BUSY_MS = 100, /* a NIC may need a registration so much longer; then it is left to it */
	ERROR_TEXT = 1024,
	HISTORY = 64, /* collectives whose signatures are remembered */
	NS_PER_MS = 1000000,
};

struct request_list {
	struct frl_request *first;
	struct frl_request *last;
};

struct frl_request {
	struct frl_comm *comm;
	struct request_list *list; /* the one that it is in */
	struct frl_request *previous, *next;
	struct run *runs;
	uint32_t left;  /* runs that are not complete */
	uint32_t moves; /* counts what has moved, for stall.c */
	uint32_t seen_moves;
	uint64_t since_ns;   /* nothing has moved; 0: not looked at yet */
	uint64_t busy_by_ns; /* its registrations end, or it does without that; 0: not tried yet */
	bool done;
};

/* One device, and what the communicator has of it. */
struct rail {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_device_attr attr;
	struct frl_mr_cache *cache; /* of callers' buffers; NULL: registering takes no time */
	bool has_posted;            /* since the device was driven last */
	bool is_down;               /* its port has no link */
	bool is_lost;               /* the device has failed, for good: nothing goes over it */
	uint32_t suspicions;        /* of the family: so many have been looked into */
};

/* A completion queue; there are several when one cannot be deep enough for all channels. */
struct poller {
	struct frl_cq *cq;
	unsigned rail;
	uint32_t room;    /* for so many completions more */
	uint32_t emptied; /* how often it has been found empty */
	bool is_over;     /* no completion comes any more: the device has failed */
};

struct frl_comm {
	struct frl_bootstrap *bootstrap;
	struct collective_config config;
	struct topology topology;
	struct tuner tuner;
	int rank;
	int ranks;
	int *members;    /* by rank: that of the bootstrap; NULL: the same */
	int *rank_order; /* the ranks, in the order of their members */
	bool is_child;
	int measured_by;      /* the rank that has measured with this one and has all answers */
	struct member member; /* of its family */
	struct board *board;
	struct post post;

	struct rail rails[RAILS_MAX];
	unsigned n_rails;
	struct poller *pollers;
	unsigned n_pollers;

	struct peer **peers; /* by rank; NULL: not needed yet */
	struct peer *first_peer;
	struct channel *connecting; /* those that are not up */
	struct channel *news;
	struct lane *ready;
	struct lane **ready_end;

	struct shm *shm; /* NULL: the ranks share no memory */
	struct staging staging;
	struct schedule_cache schedules;
	size_t idle_scratch;        /* bytes that idle runs keep */
	struct compute *computes;   /* GPUs that have been used */
	struct run *gated, *moving; /* that wait for a stream, or for room to copy */
	uint64_t gate_eager_ns;     /* until then streams are asked in each round, */
	uint64_t gate_look_ns;      /* and after that not before this */
	uint64_t still_by_ns;       /* after a failure: so long GPUs may take; 0: not looked yet */
	uint32_t started;           /* collectives */
	struct signature history[HISTORY];
	bool has_selves; /* one of those below is not blocked any more */
	struct self_list {
		struct run *first, *last;
		uint32_t started;    /* also those of no elements */
	} self_sends, self_receives; /* to this rank itself, oldest first */

	struct request_list active;    /* in the order of starting */
	struct request_list finishing; /* all is done but the registrations */
	struct request_list done;      /* waiting to be tested */
	struct request_list stale;     /* gone for the caller, but a registration is still busy */
	struct request_list idle;      /* to be used again */

	struct stall {
		uint32_t polls, idle_polls; /* since the last look at the clock */
		uint64_t checked_ns;
		uint64_t probed_ns;
		uint32_t probes;
		uint64_t asked_ns; /* 0: nobody is being asked */
		uint32_t question;
		struct report *reports; /* by rank, while they are asked */
	} stall;

	bool draining; /* frl_comm_destroy(): the others are not to be disturbed by failures */
	int error;     /* 0: works */
	char error_text[ERROR_TEXT];
};

/* Frees all that was made, as far as it got. */
void comm_free(struct frl_comm *comm);

/* communicator.c: an empty one with the rails of `config`. */
int comm_new(const struct frl_comm_config *config, int rank, int ranks, struct frl_comm **ret_comm);

/* rail.c: also where that has failed, rails are closed. */
int rails_open(struct frl_comm *comm, const struct frl_comm_config *config);
void rails_close(struct frl_comm *comm);
/*
 * A region for a buffer of a run. Of a rail that has failed there is none: 0, and *ret_mr stays as
 * it is. Errors as frl_reg_mr(), or the communicator's.
 */
int rail_register(struct frl_comm *comm, unsigned rail, enum plan_buffer buffer, void *addr,
	size_t bytes, struct frl_mr **ret_mr);
/* It is not needed any more. As frl_dereg_mr(). */
int rail_deregister(
	struct frl_comm *comm, unsigned rail, enum plan_buffer buffer, struct frl_mr *mr);
/* Ends a registration that is not in use any more. -EBUSY: after BUSY_MS a NIC still needs it. */
int rail_end_registration(const struct frl_comm *comm, unsigned rail, struct frl_mr *mr);
/*
 * What a call of the rail's device has returned, with the thread's last error. If it says that the
 * device has failed all goes on over other rails: 0, or the communicator's error if that cannot be.
 * Other errors are returned as they are.
 */
int rail_check(struct frl_comm *comm, unsigned rail, int err);

/* agree.c: what the ranks must know of each other before anything else. */
int comm_agree(struct frl_comm *comm);

static inline int comm_member(const struct frl_comm *comm, int rank)
{
	return comm->members ? comm->members[rank] : rank;
}

/* The rank that the bootstrap calls so; -1: it is none of this communicator. */
int comm_rank_of_member(const struct frl_comm *comm, int member);

/* runner.c: makes progress once. Returns how much happened, or the communicator's error. */
int comm_progress(struct frl_comm *comm);
/* Something was started: lets all lanes go on that can; 0 or the communicator's error. */
int comm_advance(struct frl_comm *comm);
/* What was posted is on its way when this returns. */
void comm_flush(struct frl_comm *comm);
/* What other ranks and other threads have to say. */
int comm_take_post(struct frl_comm *comm);
/* A lane may be able to go on. */
void lane_wake(struct frl_comm *comm, struct lane *lane);

/* request.c. The inside of frl_start_group(), without sending what was posted. */
int request_start(struct frl_comm *comm, const struct frl_collective collectives[], int n,
	struct frl_request **ret_request);
/* Done, failed or neither, without making progress; frees the request unless neither. */
int request_conclude(struct frl_request *request, bool *ret_done);
/* Requests that are complete are gone, and the caller's buffers with them. */
void requests_settle(struct frl_comm *comm);
void request_unlink(struct frl_request *request);
void request_append(struct request_list *list, struct frl_request *request);
void request_run_done(struct frl_request *request);
/* Lets requests complete whose work is done. */
void comm_finish_requests(struct frl_comm *comm);
void requests_free(struct frl_comm *comm);

/* operation.c: may this be asked for? Fills in what follows from it. */
struct operation {
	struct schedule_key key;
	struct plan_job job;
	struct signature signature;
	size_t bytes[PLAN_BUFFERS];
	enum frl_op op; /* of the reductions */
	bool to_self;
	bool is_empty;
};
/* Inputs are scaled before they are summed, which needs a place. */
bool operation_scales_first(enum frl_op op, enum frl_dtype dtype);
int operation_init(struct operation *operation, const struct frl_comm *comm,
	const struct frl_collective *collective);

/* where.c: which memory the buffers of an operation are, and the stream that fills them. */
struct where {
	struct compute *compute; /* of the GPU; NULL: all of it is host memory */
	bool on_gpu[2];          /* by buffer */
	struct gate *gate; /* for which the operation waits; or NULL. Who takes it sets NULL */
};
/* Whether cuda_is_loaded(), which several operations that start together are told. -EINVAL: of
 * several GPUs, or no memory; -ENOTSUP: managed memory, a captured stream, no kernels for this GPU;
 * and as gpu_memory_of(), gpu_hold(), gpu_queue_new(). */
int where_find(struct where *ret_where, struct frl_comm *comm, const struct operation *operation,
	const struct frl_collective *collective, bool has_cuda);

/* choose.c: by which algorithm, and in which segments: job->segment_bytes. */
int comm_choose(const struct frl_comm *comm, struct plan_job *job, enum frl_algo *ret_algo);

/* self.c: what this rank sends to itself. */
int self_get(struct frl_comm *comm, struct run **ret_run);
int self_enqueue(struct run *run);
/* Some were blocked until now. 0 or the communicator's error. */
int self_go_on(struct frl_comm *comm);

/* failure.c: the first failure stops everything; later ones change nothing. Returns the error. */
int comm_fail(struct frl_comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same, of which the others hear, or know, without this rank. */
int comm_fail_quietly(struct frl_comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* frl_comm_abort() has told the others. */
int comm_fail_aborted(struct frl_comm *comm, const char *reason);
/* Any thread: mails to all other ranks that this one's communicator fails. */
void comm_tell_failure(const struct frl_comm *comm, int err, const char *text);
/* Any thread: gives up the whole job, unless the communicator is part of another one. Mail may be
 * lost; this is not. */
void comm_give_up_job(const struct frl_comm *comm, const char *why);
/* The error of a communicator that failed, with its text. */
int comm_error(const struct frl_comm *comm);
/* A completion with an error, on the connection to rank `peer`. */
int comm_fail_completion(struct frl_comm *comm, int peer, enum frl_wc_status status);
/* Does it say that the connection, or what is at its other end, is gone? */
bool comm_is_broken(enum frl_wc_status status);
/* A connection to `peer` broke: waits a moment for somebody to be known as gone, or to have said
 * why; that is the error of the communicator then. 0: nobody is. */
int comm_find_reason(struct frl_comm *comm, int peer, enum frl_wc_status status);
/* Connecting to rank `peer` has failed with the thread's last error. */
int comm_fail_connecting(struct frl_comm *comm, int peer, int err);
/* What came from rank `peer` is of another operation than this rank's. */
int comm_fail_mismatch(struct frl_comm *comm, int peer, const struct signature *theirs,
	const struct signature *mine);
/* What rank `peer` says of a transfer is not what this rank sends to or receives from it. */
int comm_fail_transfer(struct frl_comm *comm, int peer, enum transfer_way way,
	const struct transfer *theirs, const struct transfer *mine);
/* Rank `peer` says that it has memory which this one cannot read, with the thread's last error. */
int comm_fail_reading(struct frl_comm *comm, int peer, int err);
/* Rank `peer` has failed, and so what was just read of its memory may be anything. */
int comm_fail_taken_back(struct frl_comm *comm, int peer);
/* Asks the bootstrap who is gone; 0 or the communicator's error. */
int comm_check_ranks(struct frl_comm *comm);
/* Another rank says that it failed. */
int comm_take_failure(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size);

/* stall.c: nothing happens; is somebody gone, in another operation, or too late? */
int comm_look_at_clock(struct frl_comm *comm);
/* Another rank says what it waits for. */
void comm_take_report(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size);
/* It says which operation it is in: 0, or the error when this rank was in another one. */
int comm_compare(struct frl_comm *comm, int peer, const struct signature *theirs);
/* Writes down, for others to be told, which operation this rank is in. */
void comm_note_operation(struct frl_comm *comm);

#endif
