/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of ranks on one machine in shared memory, without packets, queue pairs or plans. Each
 * rank has a page (page.h) that it writes and all others read.
 *
 * All ranks run these operations in the same order, so an operation has the same number on all
 * ranks. A short operation is one exchange: each rank writes its input, or the location of its
 * input, to a slot of its page, and reads the input of all others. In a long operation the slot
 * gives the location of the rank's buffers. Each rank reduces its part of the vector from all
 * buffers into its own, and the others copy it from there; or two to four ranks each reduce the
 * whole vector, see flat.c. Buffers from frl_mem_alloc() are read in place, others through rings in
 * the page.
 *
 * A slot is reused when all ranks have finished reading it. An operation whose input others read in
 * the caller's memory is complete when all of them have read it. A rank that fails sets a flag in
 * its page before its buffers return to the caller; readers check the flag after reading.
 *
 * Threads: the communicator's, entered.
 */
#ifndef FERRULE_COLLECTIVES_SHM_SHM_H
#define FERRULE_COLLECTIVES_SHM_SHM_H

#include <stdbool.h>
#include <stddef.h>

struct frl_comm;
struct operation;
struct run;
struct shm;

/* An exchange between ranks during the creation of a communicator. */
struct shm_gather {
	/* Gathers `bytes` of every rank of the new communicator; `ret_all` is NULL for a rank
	 * that is in none. */
	int (*all)(void *ctx, const void *mine, size_t bytes, void *ret_all);
	void *ctx;
	bool is_for_others; /* ranks of other communicators take part, too */
};

/*
 * Collective: sets up shared memory. comm->shm stays NULL on all ranks if one of them cannot or may
 * not. `comm` is NULL on ranks that only take part in the exchanges. Fails as `gather`, or with
 * -ENOMEM.
 */
int shm_create(struct frl_comm *comm, const struct shm_gather *gather);
void shm_destroy(struct shm *shm);

/* Returns whether an operation uses shared memory. All ranks get the same result. */
bool shm_can(const struct frl_comm *comm, const struct operation *operation);

/* Returns whether such an operation goes block by block, rather than in one exchange. */
bool shm_is_long(const struct frl_comm *comm, const struct operation *operation);

/* Returns whether each rank reduces the whole vector of such a long operation, if all buffers
 * allow it. */
bool shm_may_be_flat(const struct frl_comm *comm, const struct operation *operation);

/* Returns a run for such an operation; -ENOMEM. run_put() frees it. */
int shm_get_run(struct frl_comm *comm, bool is_long, struct run **ret_run);
/* Also for a run that failed in the middle. */
void shm_put_run(struct run *run);
/* Runs execute in the order of these calls. */
void shm_enqueue(struct run *run);

/* Returns the rank that the run waits for, if known; -1: none. */
int shm_awaited(const struct shm *shm, const struct run *run);
/* Returns whether this rank waits for `rank`. */
bool shm_waits_for(const struct shm *shm, int rank);

/* Returns true once when other transports are due a poll. */
bool shm_is_due(struct shm *shm);

/* Marks this rank as failed: its buffers return to the caller, and readers must discard what
 * they read. */
void shm_give_up(struct shm *shm);

/* Does what can be done now. Returns the number of steps, or the communicator's error. `spins`:
 * waits a moment for something that is about to arrive. */
int shm_advance(struct shm *shm, bool spins);

#endif
