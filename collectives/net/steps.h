/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of runs: which of them may proceed, and the lanes in which they wait. Used by the
 * thread of the communicator.
 */
#ifndef FERRULE_COLLECTIVES_NET_STEPS_H
#define FERRULE_COLLECTIVES_NET_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/communicator/run.h"

struct frl_comm;

/* Puts a run into its lanes, behind earlier runs. Completes it if it has no steps and is not
 * blocked. */
void run_begin(struct run *run);

/* Unblocks a run. */
void run_open(struct run *run);

/* Returns up to which element the step may be complete now, by the plan. */
size_t run_limit(const struct run *run, uint32_t step);

/* Completes `count` more elements of a step, and wakes lanes that wait for them. */
void run_advance(struct run *run, uint32_t step, size_t count);

/* Notes that `count` more elements of the lane's first step are under way. */
void lane_move(struct lane *lane, size_t count);

/* Marks a lane as ready to advance. */
void lane_wake(struct frl_comm *comm, struct lane *lane);

/* Advances all ready lanes, and reports credits to peers. `share`: the most segments of local work,
 * decremented. Returns 0 or the communicator's error. */
int lanes_advance(struct frl_comm *comm, int *share);

/* local.c: computes the next segment of the local steps. Returns false if they must wait. */
bool lane_compute(struct lane *lane);
/* Stores the payload of a message: `count` elements of a receive step, from `first` on. */
void run_place(struct run *run, uint32_t step, size_t first, size_t count, const uint8_t *payload);

/* self.c: SEND and RECV from this rank to itself. */
int self_get(struct frl_comm *comm, struct run **ret_run);
int self_enqueue(struct run *run);
/* Continues runs that were unblocked. Returns 0 or the communicator's error. */
int self_advance(struct frl_comm *comm);

#endif
