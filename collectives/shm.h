/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of ranks that are all on one machine, in memory that they share: no packets, no queue
 * pairs, no plan. Each rank has a page (shm_page.h) that only it writes and all others read.
 *
 * Every rank does its share-operations in the same order, and so they have one number on all ranks.
 * Short ones are one exchange: a rank writes what it brings into a slot of its page, or says there
 * where others can read it, and reads what all others bring. In long ones a slot says where the
 * rank's buffers are; each rank reduces its part of the vector out of the buffers of all and into
 * its own, and then the others copy it from there; or few ranks each reduce all of it, see
 * shm_flat.c. Buffers that frl_mem_alloc() gave are read where they are, others by way of rings in
 * the page.
 *
 * A slot is written again when all have told that they are done with what it said. An operation of
 * which others read the caller's memory, be it long or short, is complete when all of them have.
 * Who fails says so in its page before its buffers go back: others see that when they have read.
 *
 * Threads: the communicator's, entered.
 */
#ifndef FERRULE_COLLECTIVES_SHM_H
#define FERRULE_COLLECTIVES_SHM_H

#include <stdbool.h>
#include <stddef.h>

struct frl_comm;
struct operation;
struct run;
struct shm;

/* How ranks tell each other something when the communicator is made. */
struct shm_gather {
	/* Gives all `bytes` of every rank of the new communicator; `ret_all` is NULL for who is in
	 * none. */
	int (*all)(void *ctx, const void *mine, size_t bytes, void *ret_all);
	void *ctx;
	bool is_for_others; /* also for those of other communicators, which may do otherwise */
};

/*
 * Collective: all ranks tell each other where their pages are. comm->shm stays NULL on all ranks
 * where one of them cannot or may not. `comm` is NULL for who only helps others to be told. Errors
 * are those of `gather`, or -ENOMEM.
 */
int shm_create(struct frl_comm *comm, const struct shm_gather *gather);
void shm_destroy(struct shm *shm);

/* Whether such operations are done here. All ranks come to the same. */
bool shm_can(const struct frl_comm *comm, const struct operation *operation);

/* Such a one: whether it goes block by block, or is one exchange. */
bool shm_is_long(const struct frl_comm *comm, const struct operation *operation);

/* A long one: each rank reduces all of it, where the buffers of all ranks allow that. */
bool shm_may_be_flat(const struct frl_comm *comm, const struct operation *operation);

/* A run for one; -ENOMEM. run_put() gives it back. */
int shm_get_run(struct frl_comm *comm, bool is_long, struct run **ret_run);
/* Also of one that failed in the middle. */
void shm_put_run(struct run *run);
/* In the order of starting. */
void shm_enqueue(struct run *run);

/* For which rank such a run waits, as far as can be told; -1: none. */
int shm_awaited(const struct shm *shm, const struct run *run);
/* Whether something of that rank is needed to go on. */
bool shm_waits_for(const struct shm *shm, int rank);

/* So much has been done here that everything else should be looked at, too. Tells so once. */
bool shm_is_due(struct shm *shm);

/* This rank has failed: its buffers are the caller's again, whoever reads them. */
void shm_give_up(struct shm *shm);

/* Does what can be done now. How much that was, or the communicator's error. `spins`: waits a
 * moment for what is about to come. */
int shm_go_on(struct shm *shm, bool spins);

#endif
