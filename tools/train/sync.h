/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: sums the gradients of all ranks, bucket by bucket, while later ones are still
 * being computed, and measures what that hides. A bucket is a range of the gradient vector, so
 * nothing is packed. All ranks start the same buckets in the same order, whenever each of them gets
 * there. One thread: communication advances only in the calls below, unless the device has a thread
 * for that.
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

/* Where the time of training goes; the first, the third and the fourth make up all of it. */
struct train_times {
	uint64_t compute_ns;
	uint64_t hidden_ns; /* the part of it with communication in flight */
	uint64_t drive_ns;  /* starting and testing requests meanwhile */
	uint64_t wait_ns;   /* with nothing left to compute */
};

struct train_sync {
	struct frl_comm *comm;
	float *gradients;
	size_t count;  /* of gradients */
	size_t bucket; /* of gradients in a bucket */
	bool overlap;  /* false: buckets are started when all gradients are there */

	struct frl_request *requests[TRAIN_MAX_IN_FLIGHT]; /* of bucket i in i % the size */
	size_t started, done;                              /* buckets of this step */
	int error;
	uint64_t lap_ns; /* since when time is not accounted for */
	struct train_times times;
};

/* Training begins to compute, or goes on after something that is not to be measured. */
void train_sync_resume(struct train_sync *sync);
void train_sync_pause(struct train_sync *sync);

/* For struct net_watcher; `arg` is the struct train_sync. */
void train_sync_gradients_final(void *arg, size_t final);

/*
 * All gradients have been computed: waits until all are sums over all ranks. 0 or the library's
 * error, which may be an earlier call's.
 */
int train_sync_finish(struct train_sync *sync);

#endif
