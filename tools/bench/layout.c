/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/bench/layout.h"

#include <string.h>

static const struct {
	const char *name;
	bool reduces, has_root, has_in_place;
	bool is_alike;    /* all ranks receive the same result */
	bool is_per_rank; /* the longer buffer has `count` elements per rank */
} ops[BENCH_OPS] = {
	[FRL_ALLREDUCE] = { "allreduce", true, false, true, true, false },
	[FRL_REDUCE_SCATTER] = { "reduce_scatter", true, false, true, false, true },
	[FRL_ALLGATHER] = { "allgather", false, false, true, true, true },
	[FRL_BROADCAST] = { "broadcast", false, true, true, true, false },
	[FRL_REDUCE] = { "reduce", true, true, true, false, false },
	[FRL_ALLTOALL] = { "alltoall", false, false, true, false, true },
	[FRL_ALLTOALLV] = { "alltoallv", false, false, false, false, true },
	[FRL_GATHER] = { "gather", false, true, true, false, true },
	[FRL_SCATTER] = { "scatter", false, true, true, false, true },
	[FRL_BARRIER] = { "barrier", false, false, false, false, false },
	[BENCH_SENDRECV] = { "sendrecv", false, false, false, false, false },
};

const char *bench_op_name(int op)
{
	return op >= 0 && op < BENCH_OPS ? ops[op].name : NULL;
}

bool bench_op_reduces(int op)
{
	return ops[op].reduces;
}

bool bench_op_has_root(int op)
{
	return ops[op].has_root;
}

bool bench_op_has_in_place(int op)
{
	return ops[op].has_in_place;
}

bool bench_op_is_alike(int op)
{
	return ops[op].is_alike;
}

bool bench_combines(int op, enum frl_dtype dtype, enum frl_op redop, enum frl_wire wire)
{
	if (op == FRL_BARRIER)
		return redop == FRL_OPS && wire == FRL_WIRE_SAME;
	if (ops[op].reduces == (redop == FRL_OPS))
		return false;
	return wire == FRL_WIRE_SAME || dtype == FRL_FLOAT32;
}

/* FRL_ALLTOALLV: returns 0, the mean count, or twice the mean. */
static size_t pair_count(size_t count, int from, int to)
{
	static const size_t weights[] = { 1, 2, 0 };

	return count * weights[(from + 2 * to) % 3];
}

static size_t pair_displ(size_t count, int from, int to)
{
	size_t displ = 0;

	for (int i = 0; i < to; i++)
		displ += pair_count(count, from, i);
	return displ;
}

/* Received blocks are in reverse order, with an unused element between them. */
static void lay_out_pairs(const struct bench_case *c, int rank, int ranks, struct bench_layout *l)
{
	for (int i = ranks - 1; i >= 0; i--) {
		l->recv_counts[i] = pair_count(c->count, i, rank);
		l->recv_displs[i] = l->recv_count;
		l->segments[l->n_segments++] = (struct bench_segment){ l->recv_count,
			l->recv_counts[i], i, pair_displ(c->count, i, rank) };
		l->recv_count += l->recv_counts[i] + 1;
	}
	for (int i = 0; i < ranks; i++) {
		l->send_counts[i] = pair_count(c->count, rank, i);
		l->send_displs[i] = l->send_count;
		l->send_count += l->send_counts[i];
	}
}

static void receive(struct bench_layout *l, size_t count, int source, size_t from)
{
	l->segments[l->n_segments++] = (struct bench_segment){ l->recv_count, count, source, from };
	l->recv_count += count;
}

void bench_lay_out(const struct bench_case *c, int rank, int ranks, bool in_place,
	struct bench_layout *ret_layout)
{
	struct bench_layout *l = ret_layout;
	size_t count = c->count, all = count * (size_t)ranks, mine = count * (size_t)rank;
	bool is_root = rank == c->root;

	memset(l, 0, sizeof(*l));
	l->in_place = in_place;
	switch (c->op) {
	case FRL_ALLREDUCE:
		l->send_count = count;
		receive(l, count, BENCH_REDUCED, 0);
		break;
	case FRL_REDUCE_SCATTER:
		l->send_count = all;
		l->recv_at = mine;
		receive(l, count, BENCH_REDUCED, mine);
		break;
	case FRL_ALLGATHER:
		l->send_count = count;
		l->send_at = mine;
		for (int i = 0; i < ranks; i++)
			receive(l, count, i, 0);
		break;
	case FRL_BROADCAST:
		l->send_count = is_root ? count : 0;
		receive(l, count, c->root, 0);
		break;
	case FRL_REDUCE:
		l->send_count = count;
		if (is_root)
			receive(l, count, BENCH_REDUCED, 0);
		break;
	case FRL_ALLTOALL:
		l->send_count = all;
		for (int i = 0; i < ranks; i++)
			receive(l, count, i, mine);
		break;
	case FRL_ALLTOALLV: lay_out_pairs(c, rank, ranks, l); break;
	case FRL_GATHER:
		l->send_count = count;
		l->send_at = is_root ? mine : 0;
		for (int i = 0; is_root && i < ranks; i++)
			receive(l, count, i, 0);
		break;
	case FRL_SCATTER:
		l->send_count = is_root ? all : 0;
		l->recv_at = is_root ? mine : 0;
		receive(l, count, c->root, mine);
		break;
	case BENCH_SENDRECV:
		l->send_count = count;
		receive(l, count, (rank + ranks - 1) % ranks, 0);
		break;
	}
}

static size_t total_of_pairs(size_t count, int ranks, bool with_own)
{
	size_t total = 0;

	for (int i = 0; i < ranks; i++)
		for (int k = 0; k < ranks; k++)
			total += with_own || i != k ? pair_count(count, i, k) : 0;
	return total;
}

size_t bench_size(const struct bench_case *c, int ranks)
{
	size_t bytes = frl_dtype_size(c->dtype), n = (size_t)ranks;

	if (c->op == FRL_BARRIER)
		return 0;
	if (c->op == FRL_ALLTOALLV)
		return total_of_pairs(c->count, ranks, true) * bytes / n;
	return c->count * (ops[c->op].is_per_rank ? n : 1) * bytes;
}

size_t bench_count(int op, enum frl_dtype dtype, int ranks, uint64_t size)
{
	size_t count = (size_t)size / frl_dtype_size(dtype);

	if (ops[op].is_per_rank)
		count /= (size_t)ranks;
	return count ? count : 1;
}

double bench_bus_factor(const struct bench_case *c, int ranks)
{
	double n = ranks;

	switch (c->op) {
	case FRL_ALLREDUCE: return 2 * (n - 1) / n;
	case FRL_BROADCAST:
	case FRL_REDUCE:
	case BENCH_SENDRECV: return 1;
	case FRL_ALLTOALLV:
		return (double)total_of_pairs(1, ranks, false) /
			(double)total_of_pairs(1, ranks, true);
	}
	return (n - 1) / n;
}
