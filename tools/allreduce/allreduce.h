/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-allreduce: declarations that its files share.
 *
 * The order of a run: main (allreduce.c, job.c) starts the ranks (launch.c), or gets its own rank.
 * Each rank joins the others (session.c), then reduces files (reduce_files.c, agree.c, verify.c).
 * table.c prints the numbers. One thread per process.
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

/* The results of a rank. Sent between processes unchanged. */
struct report {
	bool ok;
	bool checked;
	enum frl_dtype dtype;
	uint64_t tensors, elements, buckets, bytes;
	double seconds;
	uint64_t packets, retransmits, timeouts;
	uint64_t digest;     /* of the result, which must be equal on all ranks */
	double max_error;    /* absolute */
	double max_relative; /* relative to the sum of the absolute inputs */
	double bound;        /* for max_relative */
	char port[64];
	uint32_t path_mtu;
	bool local_fabric;
};

/* All functions that return int print what failed and return 0 or a negative errno. */

/* Opens an input. All its tensors must have one type, and Ferrule must support it. */
int input_open(const char *path, struct safetensors **ret_file);

/* Returns the type of the tensors of an input_open() file. */
enum frl_dtype input_dtype(const struct safetensors *input);

/* Returns whether sums of this type have an error bound. Prints a message if not. */
bool can_verify(const char *path, enum frl_dtype dtype);

/* Checks that all ranks have tensors of the same names and shapes. */
int agree_on_tensors(struct session *session, const struct safetensors *input);

/* Compares this rank's result with the reference file. */
int verify_result(const struct options *options, const struct safetensors *input,
	const void *result, struct report *report);

/* Runs the job. `ret_reports` receives the report of each rank. */
int reduce_files(
	const struct options *options, struct session *session, struct report ret_reports[]);

/* Returns whether all ranks found their results right, and all results are bitwise the same. */
bool all_well(const struct options *options, const struct report reports[]);

/* Prints the reports as a table. */
void print_table(const struct options *options, const struct report reports[]);

#endif
