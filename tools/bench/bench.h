/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: what its files share. The order of a run: main (bench.c) takes the options
 * (options.c) and starts the ranks (launch.c), or finds out which one it is; each joins the
 * others (session.c) and goes through the same cases (sweep.c). A case says what lies where
 * (layout.c) and what is in there (values.c, bound.c, number.c); it is
 * checked (check.c) and timed (measure.c); the numbers come out on rank 0
 * (print.c, save.c, plot.c,
 * compare.c, load.c). One thread in each process.
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
	BENCH_COMPARED = 4, /* files with earlier results */
	BENCH_SCHEMA = 1,   /* of --json */
};

struct bench_options {
	struct job_options job; /* of which ranks, launcher and device are used */
	uint32_t ops, dtypes, redops, wires, algos; /* sets: bit i for value i */
	int root;
	bool places[2]; /* out of place, in place */
	uint64_t min, max, factor;
	size_t counts[BENCH_COUNTS]; /* elements; instead of sizes */
	size_t n_counts;
	uint64_t iters; /* timed; 0 and not auto: none */
	bool auto_iters;
	uint64_t warmup;
	uint64_t repeat; /* how often all cases are gone through */
	uint64_t in_flight;
	uint64_t offset; /* bytes, of the buffers */
	uint64_t seed, sample;
	struct mem_option mem;
	const char *json, *csv, *plot; /* or NULL; "-": standard output, not for the plot */
	const char *compared[BENCH_COMPARED];
	int n_compared;
	bool sets_algo; /* else FRL_ALGO stays as it is */
	bool check, random, explain, quiet, use_malloc;
};

/* Where numbers take the place of the table. */
bool bench_prints_table(const struct bench_options *options);

/* Nobody said how many ranks: there is nothing to measure, only files to draw. */
bool bench_only_draws(const struct bench_options *options);

/* 0, EXIT_USAGE, or -1 when there is nothing left to do. */
int bench_parse_options(int argc, char **argv, struct bench_options *options);

/* One of the two blocks of columns of a row. */
struct bench_block {
	bool measured;
	uint64_t iters;
	double us, algbw, busbw; /* where iters is not 0 */
	uint64_t wrong;          /* elements, all ranks */
};

struct bench_row {
	struct bench_case c;
	size_t size;
	struct bench_block blocks[2];
};

/* Buffers of one request. With --mem cuda `memory` is a copy of what is on the GPU. */
struct bench_slot {
	uint8_t *memory; /* NULL: none yet */
	uint8_t *send, *recv;
	struct gpu_memory gpu;
};

/* A rank's state. */
struct bench {
	const struct bench_options *options;
	struct session *session;
	size_t longest_send, longest_recv; /* bytes */
	size_t slot_size;                  /* bytes of a slot's memory */
	size_t recv_place;                 /* from there on it is the receive buffer's */
	struct bench_slot slots[BENCH_IN_FLIGHT];
	struct bench_values values;
	bool has_values;
	uint8_t scalar[8]; /* this rank's, of FRL_PREMUL_SUM */
	/* What is measured now. */
	struct bench_case c;
	struct bench_layout layout;
	/* Rank 0's. */
	struct bench_row *rows;
	size_t n_rows, rows_room;
	/* The same on all ranks. */
	uint64_t measured; /* blocks */
	uint64_t checked;
	uint64_t refused;   /* that the library does not do */
	uint64_t unable;    /* that the algorithm that was asked for does not do */
	uint64_t unsampled; /* cases that --sample has left out */
	uint64_t wrong;
	uint64_t different; /* blocks: not the same on all ranks, or not every time */
	int complaints;
};

/* All of these say what is wrong themselves and return 0 or a negative errno. */

/* Joins the job (NULL: as the launcher says) and does everything. */
int bench_rank(const struct bench_options *options, int rank, const char *job);

/* Goes through all cases. */
int bench_sweep(struct bench *b);

/* Before the sweep: refuses buffers that are larger than the memory of this machine. */
int bench_memory_check(const struct bench_options *options);

/* Computes the size of a slot, whose buffers are as long as the longest that are needed. */
void bench_check_size(struct bench *b);

/* Allocates the buffers of all slots, as long as the longest that are needed. */
int bench_check_allocate(struct bench *b);
void bench_check_release(struct bench *b);

/* Lets slots point into their memory, as the layout says. */
void bench_check_place(struct bench *b);

/* Fills buffers: inputs in, and nothing that could pass for a result. */
int bench_check_fill(struct bench *b, struct bench_slot *slot);

/* Adds to *wrong how many elements of the result, the inputs and the memory around them are not
 * what they must be; the first one is told. *digest goes on with the result. */
int bench_check_count_wrong(
	struct bench *b, struct bench_slot *slot, uint64_t *wrong, uint64_t *digest);

/* What is to be started for b->c with the buffers of a slot. */
void bench_fill_collective(const struct bench *b, const struct bench_slot *slot,
	struct frl_collective *ret_collective);

/* Checks and times b->c; -ENOTSUP without a word: the library does not do that. */
int bench_measure(struct bench *b, struct bench_block *ret_block);

/* What all ranks say, `size` bytes each. */
int bench_share(struct bench *b, const void *mine, size_t size, void *all);

/* "float32 sum, wire int8, algorithm ring": the last part of it is left out for the default. */
const char *bench_dtype_name(const struct bench_case *c); /* "none" of a barrier */
void bench_describe(const struct bench_case *c, char *text, size_t size);

void bench_print_heading(const struct bench *b);
void bench_print_group(const struct bench_case *c);
void bench_print_row(const struct bench_row *row);
/* What each rail of rank 0 has carried, where there are several. */
void bench_print_rails(const struct bench *b);
void bench_print_verdict(const struct bench *b);
/* Why no block was measured: for standard error. */
void bench_say_nothing(const struct bench *b);

/* Before the sweep, whose numbers would be lost: can files be written, is there gnuplot? */
int bench_save_check(const struct bench_options *options);
int bench_save(const struct bench *b);

/* Rows, and where they come from. */
struct bench_results {
	const char *name;
	struct bench_row *rows;
	size_t n_rows;
	int ranks;
};

/* What --json has written earlier; the rows are to be freed. */
int bench_load(const char *path, struct bench_results *ret_results);

/* Draws `n` results in one picture; `where` ends its title. */
bool bench_plot_is_possible(void);
int bench_plot(const struct bench_results sets[], int n, const char *where, const char *path);

/* Before the sweep: can the files to compare with be read? */
int bench_compare_check(const struct bench_options *options);

/* The rows of this run, and those of the files to compare with, as --plot says. */
int bench_compare(const struct bench_options *options, const struct bench *b);

#endif
