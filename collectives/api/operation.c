/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the arguments of operations, and derives sizes, buffers and the plan's key. */
#include "collectives/api/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/plan/shapes.h"
#include "lib/base/error.h"

static int check_kind(const struct frl_comm *comm, const struct frl_collective *c)
{
	const struct shape *shape;

	if ((unsigned)c->coll >= FRL_COLLS)
		return frl_fail(-EINVAL, "%u is not a collective", (unsigned)c->coll);
	shape = shape_of(c->coll);
	if (c->coll == FRL_BARRIER)
		return 0;
	if ((unsigned)c->dtype >= FRL_DTYPES)
		return frl_fail(
			-EINVAL, "%s: %u is not an element type", shape->name, (unsigned)c->dtype);
	if (shape_has_root(c->coll) && (c->root < 0 || c->root >= comm->ranks))
		return frl_fail(-EINVAL, "%s: there is no rank %d, ranks are 0 to %d", shape->name,
			c->root, comm->ranks - 1);
	if ((unsigned)c->wire >= FRL_WIRES)
		return frl_fail(
			-EINVAL, "%s: %u is not a wire type", shape->name, (unsigned)c->wire);
	if (c->wire != FRL_WIRE_SAME && c->dtype != FRL_FLOAT32)
		return frl_fail(-EINVAL, "%s: wire types are for float32, not for %s", shape->name,
			frl_dtype_name(c->dtype));
	if (!shape->reduces)
		return 0;
	if ((unsigned)c->op >= FRL_OPS)
		return frl_fail(-EINVAL, "%s: %u is not a reduction operation", shape->name,
			(unsigned)c->op);
	if (c->op == FRL_PREMUL_SUM && !c->scalar)
		return frl_fail(-EINVAL, "%s: %s needs a scalar", shape->name, frl_op_name(c->op));
	return 0;
}

/* Computes the end of the furthest piece, in elements. Returns false on overflow. */
static bool extent(const size_t counts[], const size_t displs[], int ranks, size_t *ret_extent)
{
	*ret_extent = 0;
	for (int rank = 0; rank < ranks; rank++) {
		size_t end;

		if (__builtin_add_overflow(counts[rank], displs[rank], &end))
			return false;
		if (counts[rank] > 0 && end > *ret_extent)
			*ret_extent = end;
	}
	return true;
}

/* A received piece, in elements. */
struct piece {
	size_t start, count;
};

static int compare_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/*
 * Received pieces must not overlap, since they arrive in any order. Pieces in the order of the
 * ranks need no sorting. All ends fit the address space.
 */
static int check_apart(const size_t counts[], const size_t displs[], int ranks)
{
	struct piece *pieces = NULL;
	bool in_order = true;
	size_t end = 0, n = 0;

	for (int rank = 0; rank < ranks && in_order; rank++) {
		if (counts[rank] == 0)
			continue;
		in_order = displs[rank] >= end;
		end = displs[rank] + counts[rank];
	}
	if (in_order)
		return 0;
	pieces = calloc((size_t)ranks, sizeof(*pieces));
	if (!pieces)
		return frl_fail(-ENOMEM, "no memory for the pieces of %d ranks", ranks);
	for (int rank = 0; rank < ranks; rank++) {
		if (counts[rank] > 0)
			pieces[n++] = (struct piece){ displs[rank], counts[rank] };
	}
	qsort(pieces, n, sizeof(*pieces), compare_pieces);
	for (size_t i = 1; i < n; i++) {
		const struct piece *last = &pieces[i - 1];

		if (last->start + last->count > pieces[i].start) {
			frl_fail(-EINVAL,
				"alltoallv: received pieces overlap: %zu elements from %zu on, and "
				"%zu from %zu on",
				last->count, last->start, pieces[i].count, pieces[i].start);
			free(pieces);
			return -EINVAL;
		}
	}
	free(pieces);
	return 0;
}

static int count_pieces(
	const struct frl_comm *comm, const struct frl_collective *c, size_t ret_elements[2])
{
	int rank = comm->rank;

	if (!c->send_counts || !c->send_displs || !c->recv_counts || !c->recv_displs)
		return frl_fail(-EINVAL, "alltoallv needs all counts and displacements");
	if (!extent(c->send_counts, c->send_displs, comm->ranks, &ret_elements[0]) ||
		!extent(c->recv_counts, c->recv_displs, comm->ranks, &ret_elements[1]))
		return frl_fail(-EINVAL, "alltoallv: a piece does not fit the address space");
	if (c->send_counts[rank] != c->recv_counts[rank])
		return frl_fail(-EINVAL,
			"alltoallv: rank %d sends %zu elements to itself and receives %zu", rank,
			c->send_counts[rank], c->recv_counts[rank]);
	return check_apart(c->recv_counts, c->recv_displs, comm->ranks);
}

/* Counts the elements of the two buffers on this rank. */
static int count_elements(
	const struct frl_comm *comm, const struct frl_collective *c, size_t ret_elements[2])
{
	const struct shape *shape = shape_of(c->coll);
	const struct shape_buffer *buffers[] = { &shape->send, &shape->recv };
	size_t ranks = (size_t)comm->ranks, most;

	if (!shape_is_counted(c->coll))
		return count_pieces(comm, c, ret_elements);
	if (__builtin_mul_overflow(c->count, ranks, &most))
		return frl_fail(-EINVAL, "%s: %zu elements do not fit the address space",
			shape->name, c->count);
	for (int i = 0; i < 2; i++) {
		bool is_used = shape_uses(buffers[i], c->root == comm->rank);

		ret_elements[i] = is_used ? shape_blocks(buffers[i], ranks) * c->count : 0;
	}
	return 0;
}

static int check_buffers(struct operation *o, const struct frl_comm *comm,
	const struct frl_collective *c, size_t elem_size)
{
	const char *name = frl_coll_name(c->coll);
	uintptr_t send = (uintptr_t)c->send, recv = (uintptr_t)c->recv;
	size_t elements[2] = { 0 };
	int err = count_elements(comm, c, elements);

	if (err)
		return err;
	if (__builtin_mul_overflow(elements[0], elem_size, &o->bytes[PLAN_SEND]) ||
		__builtin_mul_overflow(elements[1], elem_size, &o->bytes[PLAN_RECV]) ||
		o->bytes[PLAN_SEND] > UINTPTR_MAX - send ||
		o->bytes[PLAN_RECV] > UINTPTR_MAX - recv)
		return frl_fail(-EINVAL, "%s: the elements do not fit the address space", name);
	if ((elements[0] > 0 && !c->send) || (elements[1] > 0 && !c->recv))
		return frl_fail(-EINVAL, "%s: the %s buffer is NULL", name,
			elements[0] > 0 && !c->send ? "send" : "receive");
	o->key.in_place = elements[0] > 0 && elements[1] > 0 &&
		shape_is_in_place(c->coll, send, recv, (size_t)comm->rank, c->count * elem_size);
	if (!o->key.in_place && send < recv + o->bytes[PLAN_RECV] &&
		recv < send + o->bytes[PLAN_SEND] && elements[0] > 0 && elements[1] > 0)
		return frl_fail(-EINVAL,
			"%s: the buffers overlap, but not as required for an operation in place",
			name);
	o->is_empty = shape_is_counted(c->coll) && c->count == 0;
	return 0;
}

static void set_job(struct operation *o, const struct frl_comm *comm,
	const struct frl_collective *c, size_t elem_size)
{
	const struct schedule_key *key = &o->key;

	o->job = (struct plan_job){
		.coll = key->coll,
		.rank = comm->rank,
		.ranks = comm->ranks,
		.root = key->root,
		.count = key->count,
		.elem_size = elem_size,
		.op = key->op,
		.wire = key->wire,
		.is_float_narrow = dtype_is_float_narrow(key->dtype),
		.in_place = key->in_place,
		.send_counts = c->send_counts,
		.send_displs = c->send_displs,
		.recv_counts = c->recv_counts,
		.recv_displs = c->recv_displs,
		.topology = &comm->topology,
		.segment_bytes = comm->config.segment_bytes,
	};
}

/* The number is assigned at the start. Arguments on which ranks need not agree are zero. */
static void set_signature(struct operation *o)
{
	const struct schedule_key *key = &o->key;
	bool is_pair = shape_is_pair(key->coll);

	o->signature = (struct signature){
		.coll = (uint8_t)(is_pair ? FRL_SEND : key->coll),
		.dtype = (uint8_t)key->dtype,
		.op = (uint8_t)key->op,
		.wire = (uint8_t)key->wire,
		.root = is_pair ? 0 : (uint32_t)key->root,
		.count = key->count,
	};
}

int operation_init(struct operation *o, const struct frl_comm *comm, const struct frl_collective *c)
{
	int err = check_kind(comm, c);
	bool is_barrier;
	size_t elem_size;

	if (err)
		return err;
	is_barrier = c->coll == FRL_BARRIER;
	elem_size = is_barrier ? 1 : frl_dtype_size(c->dtype);
	memset(o, 0, sizeof(*o)); /* clears padding in the key */
	if (!is_barrier)
		err = check_buffers(o, comm, c, elem_size);
	if (err)
		return err;
	o->key.coll = c->coll;
	if (!is_barrier) {
		o->key.count = shape_is_counted(c->coll) ? c->count : 0;
		o->key.dtype = c->dtype;
		o->key.wire = c->wire;
	}
	if (shape_reduces(c->coll))
		o->key.op = c->op;
	if (shape_has_root(c->coll))
		o->key.root = c->root;
	o->op = o->key.op == FRL_AVG || o->key.op == FRL_PREMUL_SUM ? FRL_SUM : o->key.op;
	o->to_self = shape_is_pair(c->coll) && c->root == comm->rank;
	set_job(o, comm, c, elem_size);
	set_signature(o);
	if (is_barrier && comm->draining)
		o->signature.root = SIGNATURE_LEAVES;
	return 0;
}

const char *frl_algo_name(enum frl_algo algo)
{
	static const char *const names[FRL_ALGOS] = {
		[FRL_ALGO_AUTO] = "auto",
		[FRL_ALGO_RING] = "ring",
		[FRL_ALGO_HALVING_DOUBLING] = "halving-doubling",
		[FRL_ALGO_TREE] = "tree",
		[FRL_ALGO_DIRECT] = "direct",
		[FRL_ALGO_PAIRWISE] = "pairwise",
		[FRL_ALGO_BRUCK] = "bruck",
		[FRL_ALGO_HIERARCHICAL] = "hierarchical",
	};

	return (unsigned)algo < FRL_ALGOS ? names[algo] : NULL;
}
