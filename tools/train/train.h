/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: declarations that its files share.
 *
 * The order of a run: main (train.c) reads the images (data.c) and starts the ranks (launch.c),
 * unless a launcher has. Each rank joins the others (session.c) and trains (rank.c) its copy of the
 * network (net.c). The gradients are summed over the ranks (sync.c). Rank 0 prints the results
 * (print.c). One thread per process.
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
	const char *job;          /* NULL: this process or a launcher starts the ranks */
	struct frl_launch launch; /* if is_launched; has `rank` and `ranks` */
	bool is_launched;
	const char *data;
	struct net_shape shape;
	uint64_t epochs;
	uint64_t batch; /* images of all ranks per step */
	uint64_t seed;
	uint64_t bucket_bytes;
	double rate;
	bool overlap, json, quiet;
	struct device_options device;
};

/* Results of an epoch over all ranks, the same on each rank. */
struct train_epoch {
	double loss;      /* mean over the training images, each at the time of its batch */
	uint64_t correct; /* correct test images */
};

/* The results of a rank. Sent between processes unchanged. */
struct train_report {
	uint64_t digest; /* of the parameters, which must be equal on all ranks */
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
 * Joins `job` (NULL: that of the launcher) as rank `rank`, and trains. Prints what failed. Returns
 * 0 or a negative errno.
 */
int train_rank(struct training *training, int rank, const char *job);

/* Returns whether all ranks have bitwise the same parameters. */
bool train_ranks_agree(const struct training *training);

/* Print the output of rank 0. The first two print nothing with --quiet or --json. */
void train_print_heading(const struct training *training);
void train_print_epoch(const struct training *training, uint64_t epoch);
/* Prints the results. Returns 0 or -ENOMEM. */
int train_print_result(const struct training *training);

#endif
