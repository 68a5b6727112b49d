/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: sums the gradients of all ranks in buckets while later gradients are computed, and
 * measures how much communication that hides. A bucket is a range of the gradient vector, so
 * nothing is packed. All ranks start the same buckets in the same order, at different times. For
 * one thread: communication advances only in the calls below, unless the device has a progress
 * thread.
 *
 * Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training",
 * 2020.
 */
#ifndef FERRULE_TOOLS_TRAIN_SYNC_H
#define FERRULE_TOOLS_TRAIN_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/ferrule.h>

enum { TRAIN_MAX_IN_FLIGHT = 32 };

/* Time of training. compute, drive and wait add up to all of it. */
struct train_times {
	uint64_t compute_ns;
	uint64_t hidden_ns; /* part of compute_ns with communication in flight */
	uint64_t drive_ns;  /* starting and testing requests during computation */
	uint64_t wait_ns;   /* waiting after the computation */
};

struct train_sync {
	struct frl_comm *comm;
	float *gradients;
	size_t count;  /* number of gradients */
	size_t bucket; /* gradients per bucket */
	bool overlap;  /* false: start buckets once all gradients are final */

	struct frl_request *requests[TRAIN_MAX_IN_FLIGHT]; /* bucket i is in i % the size */
	size_t started, done;                              /* buckets of this step */
	int error;
	uint64_t lap_ns; /* start of the time that is not accounted for yet */
	struct train_times times;
};

/* Starts the accounting of time, or continues it after work that is not measured. */
void train_sync_resume(struct train_sync *sync);
void train_sync_pause(struct train_sync *sync);

/* For struct net_watcher: `arg` is the struct train_sync. */
void train_sync_gradients_final(void *arg, size_t final);

/*
 * Called after all gradients have been computed. Waits until they are sums over all ranks. Returns
 * 0 or the library's error, which may be that of an earlier call.
 */
int train_sync_finish(struct train_sync *sync);

#endif
