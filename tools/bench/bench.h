/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: declarations that its files share.
 *
 * The order of a run: main (bench.c) parses the options (options.c). It starts the ranks
 * (launch.c), or gets its own rank. Each rank joins the others (session.c) and goes through the
 * same cases (sweep.c). The layout of a case's buffers is in layout.c, and their contents in
 * values.c, bound.c and number.c. A case is checked (check.c) and timed (measure.c). Rank 0 prints
 * or saves the numbers (print.c, save.c, plot.c, compare.c, load.c). One thread per process.
 */
#ifndef FERRULE_TOOLS_BENCH_BENCH_H
#define FERRULE_TOOLS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/bench/layout.h"
#include "tools/bench/values.h"
#include "tools/common/gpu.h"
#include "tools/common/session.h"

enum {
	BENCH_COUNTS = 64,
	BENCH_IN_FLIGHT = 64,
	BENCH_ALL_ROOTS = -1,
	BENCH_COMPARED = 4, /* files of earlier results */
	BENCH_SCHEMA = 1,   /* format version of --json */
};

struct bench_options {
	struct job_options job;                     /* ranks, launcher and device */
	uint32_t ops, dtypes, redops, wires, algos; /* sets: bit i for value i */
	int root;
	bool places[2]; /* out of place, in place */
	uint64_t min, max, factor;
	size_t counts[BENCH_COUNTS]; /* elements; replace the sizes */
	size_t n_counts;
	uint64_t iters; /* timed iterations; 0 and not auto: none */
	bool auto_iters;
	uint64_t warmup;
	uint64_t repeat; /* number of passes through all cases */
	uint64_t in_flight;
	uint64_t offset; /* bytes, offset of the buffers */
	uint64_t seed, sample;
	struct mem_option mem;
	const char *json, *csv, *plot; /* or NULL; "-": standard output, not for the plot */
	const char *compared[BENCH_COMPARED];
	int n_compared;
	bool sets_algo; /* false: FRL_ALGO is used */
	bool check, random, explain, quiet, use_malloc;
};

/* Returns whether the table is printed: not if JSON or CSV goes to standard output. */
bool bench_prints_table(const struct bench_options *options);

/* Returns whether no ranks are given, and files are only drawn. */
bool bench_only_draws(const struct bench_options *options);

/* Parses the command line. Returns 0, EXIT_USAGE, or -1 if there is nothing else to do. */
int bench_parse_options(int argc, char **argv, struct bench_options *options);

/* One of the two column blocks of a row. */
struct bench_block {
	bool measured;
	uint64_t iters;
	double us, algbw, busbw; /* if iters is not 0 */
	uint64_t wrong;          /* elements of all ranks */
};

struct bench_row {
	struct bench_case c;
	size_t size;
	struct bench_block blocks[2];
};

/* Buffers of one request. With --mem cuda `memory` is the host copy of the GPU memory. */
struct bench_slot {
	uint8_t *memory; /* NULL: not allocated yet */
	uint8_t *send, *recv;
	struct gpu_memory gpu;
};

/* State of a rank. */
struct bench {
	const struct bench_options *options;
	struct session *session;
	size_t longest_send, longest_recv; /* bytes */
	size_t slot_size;                  /* bytes of the memory of a slot */
	size_t recv_place;                 /* offset of the receive buffer in a slot */
	struct bench_slot slots[BENCH_IN_FLIGHT];
	struct bench_values values;
	bool has_values;
	uint8_t scalar[8]; /* for FRL_PREMUL_SUM, of this rank */
	/* The case that is measured now. */
	struct bench_case c;
	struct bench_layout layout;
	/* On rank 0 only. */
	struct bench_row *rows;
	size_t n_rows, rows_room;
	/* Counters, equal on all ranks. */
	uint64_t measured; /* blocks */
	uint64_t checked;
	uint64_t refused;   /* cases that the library does not support */
	uint64_t unable;    /* cases that the requested algorithm does not support */
	uint64_t unsampled; /* cases left out by --sample */
	uint64_t wrong;
	uint64_t different; /* blocks whose results differ between ranks or runs */
	int errors_found;
};

/* The following functions print what failed and return 0 or a negative errno. */

/* Joins the job (NULL: that of the launcher) and runs the benchmark. */
int bench_rank(const struct bench_options *options, int rank, const char *job);

/* Runs all cases. */
int bench_sweep(struct bench *b);

/* Called before the sweep. Refuses buffers that are larger than the memory of this machine. */
int bench_memory_check(const struct bench_options *options);

/* Computes the size of a slot, from the longest buffers of all cases. */
void bench_check_size(struct bench *b);

/* Allocates the buffers of all slots. */
int bench_check_allocate(struct bench *b);
void bench_check_release(struct bench *b);

/* Sets the buffers of all slots, according to the layout. */
void bench_check_place(struct bench *b);

/* Fills the buffers of a slot: inputs, and in place of results values that are wrong. */
int bench_check_fill(struct bench *b, struct bench_slot *slot);

/*
 * Adds the number of wrong elements to *wrong, and prints the first one. Results must be right;
 * inputs and the memory around the buffers must be unchanged. Extends *digest by the result.
 */
int bench_check_count_wrong(
	struct bench *b, struct bench_slot *slot, uint64_t *wrong, uint64_t *digest);

/* Sets the arguments of frl_start() for b->c with the buffers of a slot. */
void bench_fill_collective(const struct bench *b, const struct bench_slot *slot,
	struct frl_collective *ret_collective);

/* Checks and times b->c. Returns -ENOTSUP without a message if the library does not support it. */
int bench_measure(struct bench *b, struct bench_block *ret_block);

/* Gathers `size` bytes of each rank. */
int bench_share(struct bench *b, const void *mine, size_t size, void *all);

/* Describes a case: "float32 sum, wire int8, algorithm ring". The default algorithm is omitted. */
const char *bench_dtype_name(const struct bench_case *c); /* "none" of a barrier */
void bench_describe(const struct bench_case *c, char *text, size_t size);

void bench_print_heading(const struct bench *b);
void bench_print_group(const struct bench_case *c);
void bench_print_row(const struct bench_row *row);
/* Prints the traffic of each rail of rank 0, if there are several. */
void bench_print_rails(const struct bench *b);
void bench_print_verdict(const struct bench *b);
/* Prints on standard error why no block was measured. */
void bench_say_nothing(const struct bench *b);

/*
 * Called before the sweep, so that its numbers are not lost. Checks that the files can be written
 * and that gnuplot is there.
 */
int bench_save_check(const struct bench_options *options);
int bench_save(const struct bench *b);

/* Rows and their source. */
struct bench_results {
	const char *name;
	struct bench_row *rows;
	size_t n_rows;
	int ranks;
};

/* Reads a file of --json. The caller frees the rows. */
int bench_load(const char *path, struct bench_results *ret_results);

/* Draws `n` results in one picture. The title ends with `where`. */
bool bench_plot_is_possible(void);
int bench_plot(const struct bench_results sets[], int n, const char *where, const char *path);

/* Called before the sweep. Checks that the files of --compare can be read. */
int bench_compare_check(const struct bench_options *options);

/* Draws the rows of this run and of the files of --compare, as --plot requests. */
int bench_compare(const struct bench_options *options, const struct bench *b);

#endif
