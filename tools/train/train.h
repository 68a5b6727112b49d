/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: what its files share. The order of a run: main (train.c) reads the images
 * (data.c) and starts the ranks (launch.c), unless a launcher has; each joins the others
 * (session.c) and trains (rank.c) its copy of the network (net.c), whose gradients are
 * summed over the ranks (sync.c); rank 0 tells how it went (print.c). One thread in
 * each process.
 */
#ifndef FERRULE_TOOLS_TRAIN_TRAIN_H
#define FERRULE_TOOLS_TRAIN_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/common/common.h"
#include "tools/train/data.h"
#include "tools/train/net.h"
#include "tools/train/sync.h"

struct train_options {
	uint64_t ranks, rank;
	const char *job;          /* or NULL: ranks are started here, or by a launcher */
	struct frl_launch launch; /* that launcher, where is_launched; ranks and rank are its */
	bool is_launched;
	const char *data;
	struct net_shape shape;
	uint64_t epochs;
	uint64_t batch; /* images of all ranks between two steps */
	uint64_t seed;
	uint64_t bucket_bytes;
	double rate;
	bool overlap, json, quiet;
	struct device_options device;
};

/* After an epoch: over all ranks, the same on each of them. */
struct train_epoch {
	double loss;      /* mean over the training images, each when its batch came */
	uint64_t correct; /* test images */
};

/* What a rank tells about its work. Sent between processes as it is. */
struct train_report {
	uint64_t digest; /* of the parameters: equal on all ranks */
	uint64_t total_ns;
	struct train_times times;
};

/* A training and its results. */
struct training {
	const struct train_options *options;
	const struct dataset *data;
	size_t n_parameters;
	struct train_epoch *epochs;
	struct train_report reports[MAX_RANKS];
};

/*
 * Joins `job`, or what the launcher says where that is NULL, as rank `rank` and trains; says what
 * is wrong itself. 0 or a negative errno.
 */
int train_rank(struct training *training, int rank, const char *job);

/* Do all ranks have the same parameters, bit by bit? */
bool train_ranks_agree(const struct training *training);

/* Rank 0's output; the first two are nothing where --quiet or --json ask for nothing. */
void train_print_heading(const struct training *training);
void train_print_epoch(const struct training *training, uint64_t epoch);
/* 0 or -ENOMEM. */
int train_print_result(const struct training *training);

#endif
