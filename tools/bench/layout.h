/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: the operations, what lies where in their buffers, and the definitions of size and
 * bus bandwidth, which are those of nccl-tests (its PERFORMANCE.md). Pure.
 */
#ifndef FERRULE_TOOLS_BENCH_LAYOUT_H
#define FERRULE_TOOLS_BENCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

#include "tools/common/common.h"

/* Numbered as enum frl_coll; SEND stands for a SEND to the next rank and a RECV from the previous
 * one, as a group. */
enum {
	BENCH_SENDRECV = FRL_SEND,
	BENCH_OPS,
};

/* What is measured in one row. */
struct bench_case {
	int op;
	enum frl_dtype dtype;
	enum frl_op redop; /* FRL_OPS: the operation reduces nothing */
	enum frl_wire wire;
	enum frl_algo algo;
	int root; /* -1: it has none */
	size_t count;
};

/* "allreduce", ..., "sendrecv"; NULL for a value that is none. */
const char *bench_op_name(int op);

bool bench_op_reduces(int op);
bool bench_op_has_root(int op);
bool bench_op_has_in_place(int op);

/* Is the result on all ranks the same? */
bool bench_op_is_alike(int op);

/* May it be measured with this reduction and this wire type? `redop` FRL_OPS: no reduction. */
bool bench_combines(int op, enum frl_dtype dtype, enum frl_op redop, enum frl_wire wire);

enum { BENCH_REDUCED = -1 };

/* Elements that a rank receives: the reduction's result, or those of a rank's input. */
struct bench_segment {
	size_t at, count; /* in the receive buffer */
	int source;       /* a rank, or BENCH_REDUCED */
	size_t from;      /* where they were in the input */
};

/*
 * One rank's buffers, in elements. Out of place they are two; in place one, of which the ranges
 * that begin at send_at and recv_at are sent and received.
 */
struct bench_layout {
	bool in_place;
	size_t send_count, recv_count; /* 0: this rank has none */
	size_t send_at, recv_at;
	struct bench_segment segments[MAX_RANKS];
	int n_segments;
	/* FRL_ALLTOALLV's, for each rank. */
	size_t send_counts[MAX_RANKS], send_displs[MAX_RANKS];
	size_t recv_counts[MAX_RANKS], recv_displs[MAX_RANKS];
};

/* As rank `rank` of `ranks` sees it. */
void bench_lay_out(const struct bench_case *c, int rank, int ranks, bool in_place,
	struct bench_layout *ret_layout);

/* Bytes of the longer buffer (FRL_ALLTOALLV: that a rank sends, on average): the column "size". */
size_t bench_size(const struct bench_case *c, int ranks);

/* The count for a wanted size, rounded down, but not to 0. */
size_t bench_count(int op, enum frl_dtype dtype, int ranks, uint64_t size);

/* Bus bandwidth / algorithm bandwidth. */
double bench_bus_factor(const struct bench_case *c, int ranks);

#endif
