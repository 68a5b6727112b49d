/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: operations, layout of their buffers, and the definitions of size and bus
 * bandwidth, which are those of nccl-tests (PERFORMANCE.md there). Pure functions.
 */
#ifndef FERRULE_TOOLS_BENCH_LAYOUT_H
#define FERRULE_TOOLS_BENCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

#include "tools/common/common.h"

/*
 * The numbers are those of enum frl_coll. SEND stands for a group of a SEND to the next rank and a
 * RECV from the previous one.
 */
enum {
	BENCH_SENDRECV = FRL_SEND,
	BENCH_OPS,
};

/* The case of one row. */
struct bench_case {
	int op;
	enum frl_dtype dtype;
	enum frl_op redop; /* FRL_OPS: no reduction */
	enum frl_wire wire;
	enum frl_algo algo;
	int root; /* -1: no root */
	size_t count;
};

/* Returns "allreduce", ..., "sendrecv"; NULL for an invalid value. */
const char *bench_op_name(int op);

bool bench_op_reduces(int op);
bool bench_op_has_root(int op);
bool bench_op_has_in_place(int op);

/* Returns whether all ranks receive the same result. */
bool bench_op_is_alike(int op);

/* Returns whether the operation supports this reduction and wire type. `redop` FRL_OPS: none. */
bool bench_combines(int op, enum frl_dtype dtype, enum frl_op redop, enum frl_wire wire);

enum { BENCH_REDUCED = -1 };

/* A range of received elements: the reduction's result, or input of one rank. */
struct bench_segment {
	size_t at, count; /* in the receive buffer */
	int source;       /* a rank, or BENCH_REDUCED */
	size_t from;      /* position in the input of that rank */
};

/*
 * Buffers of one rank, in elements. Out of place there are two buffers. In place there is one: the
 * ranges from send_at and recv_at on are sent and received.
 */
struct bench_layout {
	bool in_place;
	size_t send_count, recv_count; /* 0: no buffer */
	size_t send_at, recv_at;
	struct bench_segment segments[MAX_RANKS];
	int n_segments;
	/* For FRL_ALLTOALLV: counts and offsets for each rank. */
	size_t send_counts[MAX_RANKS], send_displs[MAX_RANKS];
	size_t recv_counts[MAX_RANKS], recv_displs[MAX_RANKS];
};

/* Computes the layout of rank `rank` of `ranks`. */
void bench_lay_out(const struct bench_case *c, int rank, int ranks, bool in_place,
	struct bench_layout *ret_layout);

/*
 * Returns the column "size": bytes of the longer buffer (FRL_ALLTOALLV: bytes that a rank sends on
 * average).
 */
size_t bench_size(const struct bench_case *c, int ranks);

/* Returns the count for a wanted size, rounded down but at least 1. */
size_t bench_count(int op, enum frl_dtype dtype, int ranks, uint64_t size);

/* Returns bus bandwidth divided by algorithm bandwidth. */
double bench_bus_factor(const struct bench_case *c, int ranks);

#endif
