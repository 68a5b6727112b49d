/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-allreduce: what its files share. The order of a run: main (allreduce.c, job.c) starts the
 * ranks (launch.c), or finds out which one it is; each joins the others (session.c), then reduces
 * files (reduce_files.c: agree.c, verify.c); the numbers come out in table.c. One thread in each
 * process.
 */
#ifndef FERRULE_TOOLS_ALLREDUCE_ALLREDUCE_H
#define FERRULE_TOOLS_ALLREDUCE_ALLREDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/ferrule.h>

#include "tools/allreduce/safetensors.h"
#include "tools/common/session.h"

struct options {
	struct job_options job;
	const char *input, *output, *check;
	size_t bucket_bytes;
	enum frl_op op;
};

/* What a rank tells about its work. Sent between processes as it is. */
struct report {
	bool ok;
	bool checked;
	enum frl_dtype dtype;
	uint64_t tensors, elements, buckets, bytes;
	double seconds;
	uint64_t packets, retransmits, timeouts;
	uint64_t digest;     /* of the result: equal on all ranks */
	double max_error;    /* absolute */
	double max_relative; /* to the sum of the absolute inputs */
	double bound;        /* for max_relative */
	char port[64];
	uint32_t path_mtu;
	bool local_fabric;
};

/* All of these say what is wrong themselves and return 0 or a negative errno. */

/* Opens an input and makes sure that all of it can be reduced: all tensors have one type, which
 * Ferrule has as well. */
int input_open(const char *path, struct safetensors **ret_file);

/* The type of what input_open() has opened. */
enum frl_dtype input_dtype(const struct safetensors *input);

/* Is there an error bound for sums of this type? Says so when not. */
bool can_verify(const char *path, enum frl_dtype dtype);

/* Do all ranks hold the same names and shapes? */
int agree_on_tensors(struct session *session, const struct safetensors *input);

/* Compares this rank's result with the reference file. */
int verify_result(const struct options *options, const struct safetensors *input,
	const void *result, struct report *report);

/* The whole job; `ret_reports` gets what each rank reports. */
int reduce_files(
	const struct options *options, struct session *session, struct report ret_reports[]);

/* All ranks found their results right, and all have the same, bit by bit. */
bool all_well(const struct options *options, const struct report reports[]);

/* For people. */
void print_table(const struct options *options, const struct report reports[]);

#endif
