/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of shapes: it matches <ferrule/collective.h>, its columns fit each other, and the plans
 * of all algorithms follow it.
 */
#include "collectives/plan/shapes.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/plan/plan.h"
#include "tests/fixtures/program.h"

enum {
	RANKS_MAX = 9,
	COUNT = 5,
	SIZE = 4,
	SEGMENT = 128 * 1024,
	N = 7, /* ranks of the rows */
};

/* Blocks of `count` elements in the buffers of the root and of the other ranks; N is one for each
 * rank. */
static const struct row {
	enum frl_coll coll;
	const char *name;
	unsigned root_sends, others_send, root_receives, others_receive;
} rows[] = {
	{ FRL_ALLREDUCE, "allreduce", 1, 1, 1, 1 },
	{ FRL_REDUCE_SCATTER, "reduce_scatter", N, N, 1, 1 },
	{ FRL_ALLGATHER, "allgather", 1, 1, N, N },
	{ FRL_BROADCAST, "broadcast", 1, 0, 1, 1 },
	{ FRL_REDUCE, "reduce", 1, 1, 1, 0 },
	{ FRL_ALLTOALL, "alltoall", N, N, N, N },
	{ FRL_ALLTOALLV, "alltoallv", 0, 0, 0, 0 },
	{ FRL_GATHER, "gather", 1, 1, N, 0 },
	{ FRL_SCATTER, "scatter", N, 0, 1, 1 },
	{ FRL_BARRIER, "barrier", 0, 0, 0, 0 },
	{ FRL_SEND, "send", 1, 1, 0, 0 },
	{ FRL_RECV, "recv", 0, 0, 1, 1 },
};

static size_t blocks_of(const struct shape_buffer *buffer, bool is_root)
{
	return shape_uses(buffer, is_root) ? shape_blocks(buffer, N) : 0;
}

START_LOOP_TEST(is_as_the_header_says, ROWS(rows))
{
	const struct row *row = &rows[_i];
	const struct shape *shape = shape_of(row->coll);

	ck_assert_int_eq(ROWS(rows), FRL_COLLS);
	ck_assert_int_eq(row->coll, _i);
	ck_assert_str_eq(shape->name, row->name);
	ck_assert_str_eq(frl_coll_name(row->coll), row->name);
	ck_assert_uint_eq(blocks_of(&shape->send, true), row->root_sends);
	ck_assert_uint_eq(blocks_of(&shape->send, false), row->others_send);
	ck_assert_uint_eq(blocks_of(&shape->recv, true), row->root_receives);
	ck_assert_uint_eq(blocks_of(&shape->recv, false), row->others_receive);
}
END_TEST

START_TEST(others_have_no_name)
{
	ck_assert_ptr_null(frl_coll_name(FRL_COLLS));
	ck_assert_ptr_null(frl_coll_name((enum frl_coll) - 1));
}
END_TEST

/* All data sent equals all data received: a sum counts for as many blocks as are in it. */
START_LOOP_TEST(nothing_is_lost, ROWS(rows))
{
	const struct shape *shape = shape_of(rows[_i].coll);
	size_t sent = 0, received = 0, readers = 0;

	if (shape->is_pair || !shape_is_counted(rows[_i].coll))
		return;
	for (int rank = 0; rank < N; rank++) {
		sent += blocks_of(&shape->send, rank == 0);
		received += blocks_of(&shape->recv, rank == 0) * (shape->reduces ? N : 1);
		readers += shape_uses(&shape->recv, rank == 0);
	}
	/* A buffer of one block goes to all receivers. */
	if (shape->send.size == SHAPE_ONE_BLOCK)
		sent *= readers;
	ck_assert_uint_eq(sent, received);
}
END_TEST

/* Each predicate is true for exactly these. */
static const struct {
	const char *name;
	bool (*is)(enum frl_coll coll);
	uint32_t colls;
} predicates[] = {
	{ "reduces", shape_reduces,
		1 << FRL_ALLREDUCE | 1 << FRL_REDUCE_SCATTER | 1 << FRL_REDUCE },
	{ "is_pair", shape_is_pair, 1 << FRL_SEND | 1 << FRL_RECV },
	{ "has_root", shape_has_root,
		1 << FRL_BROADCAST | 1 << FRL_REDUCE | 1 << FRL_GATHER | 1 << FRL_SCATTER |
			1 << FRL_SEND | 1 << FRL_RECV },
	{ "root_one_block", shape_root_one_block, 1 << FRL_BROADCAST | 1 << FRL_REDUCE },
	{ "root_all_blocks", shape_root_all_blocks, 1 << FRL_GATHER | 1 << FRL_SCATTER },
	{ "reduces_to_all", shape_reduces_to_all, 1 << FRL_ALLREDUCE },
	{ "has_pieces", shape_has_pieces, 1 << FRL_ALLTOALLV },
	{ "is_empty", shape_is_empty, 1 << FRL_BARRIER },
};

START_LOOP_TEST(predicates_select, ROWS(predicates))
{
	for (enum frl_coll coll = 0; coll < FRL_COLLS; coll++)
		ck_assert_msg(predicates[_i].is(coll) == (predicates[_i].colls >> coll & 1),
			"%s(%s)", predicates[_i].name, frl_coll_name(coll));
}
END_TEST

/* As in the header: the places of the buffers, in blocks, with the send buffer at block 100. */
static const struct {
	enum frl_coll coll;
	int recv_at; /* for rank 3 */
} in_place[] = {
	{ FRL_ALLREDUCE, 100 },
	{ FRL_REDUCE_SCATTER, 103 },
	{ FRL_ALLGATHER, 97 },
	{ FRL_BROADCAST, 100 },
	{ FRL_REDUCE, 100 },
	{ FRL_ALLTOALL, 100 },
	{ FRL_GATHER, 97 },
	{ FRL_SCATTER, 103 },
	{ FRL_ALLTOALLV, -1 },
	{ FRL_BARRIER, -1 },
};

START_LOOP_TEST(in_place_where_own_blocks_meet, ROWS(in_place))
{
	for (int at = 90; at < 110; at++)
		ck_assert_int_eq(shape_is_in_place(in_place[_i].coll, 100 * SIZE,
					 (uintptr_t)at * SIZE, 3, SIZE),
			at == in_place[_i].recv_at);
}
END_TEST

/* Shared memory has a slot for the data that a rank sends, so all ranks must know lengths. */
START_TEST(shared_memory_knows_lengths)
{
	for (enum frl_coll coll = 0; coll < FRL_COLLS; coll++) {
		const struct shape *shape = shape_of(coll);

		ck_assert_int_eq(shape->shm == SHAPE_SHM_NEVER,
			shape_is_pair(coll) || shape_has_pieces(coll));
		/* Long operations have no place for sums that only the root gets, nor for blocks
		 * that only the root has. */
		ck_assert_int_eq(shape->shm == SHAPE_SHM_ANY,
			shape->recv.ranks == SHAPE_ALL_RANKS && shape_is_counted(coll) &&
				!shape_is_pair(coll) && !shape_root_all_blocks(coll));
	}
}
END_TEST

/* ---- plans */

static size_t end_of(const struct plan_range *range, enum plan_buffer buffer, size_t count)
{
	return range->buffer == buffer ? range->offset + count * SIZE : 0;
}

/* The end of the part of a buffer that the steps read and write. */
static size_t used_bytes(const struct plan *plan, enum plan_buffer buffer)
{
	size_t most = 0;

	for (uint32_t i = 0; i < plan->n_steps; i++) {
		const struct plan_step *step = &plan->steps[i];
		size_t ends[] = {
			step->kind == PLAN_RECEIVES ? 0
						    : end_of(&step->source, buffer, step->count),
			step->kind == PLAN_SENDS ? 0 : end_of(&step->target, buffer, step->count),
			step->action == PLAN_REDUCE ? end_of(&step->operand, buffer, step->count)
						    : 0,
		};

		for (int e = 0; e < ROWS(ends); e++)
			most = ends[e] > most ? ends[e] : most;
	}
	return most;
}

static void check_plan(const struct plan_job *job, enum frl_algo algo)
{
	const struct shape *shape = shape_of(job->coll);
	const struct shape_buffer *buffers[] = {
		[PLAN_SEND] = &shape->send, [PLAN_RECV] = &shape->recv
	};
	struct plan plan;

	ck_assert_int_eq(plan_make(&plan, algo, job), 0);
	for (enum plan_buffer i = PLAN_SEND; i <= PLAN_RECV; i++) {
		bool is_used = shape_uses(buffers[i], job->rank == job->root);
		size_t blocks = is_used ? shape_blocks(buffers[i], (size_t)job->ranks) : 0;

		ck_assert_msg(used_bytes(&plan, i) == blocks * COUNT * SIZE,
			"%s by %s, rank %d of %d: %zu bytes of buffer %d, not %zu", shape->name,
			frl_algo_name(algo), job->rank, job->ranks, used_bytes(&plan, i), (int)i,
			blocks * COUNT * SIZE);
	}
	plan_free(&plan);
}

START_LOOP_TEST(plans_keep_to_shapes, PAIRS(FRL_COLLS, FRL_ALGOS))
{
	enum frl_coll coll = _i / FRL_ALGOS;
	enum frl_algo algo = _i % FRL_ALGOS;
	struct topology_location places[RANKS_MAX] = { { 0 } };

	if (!shape_is_counted(coll) || shape_is_pair(coll))
		return;
	for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
		struct topology topology;

		for (int rank = 0; rank < ranks; rank++)
			places[rank].host = (uint32_t)rank / 2;
		ck_assert_int_eq(topology_init(&topology, places, (uint32_t)ranks), 0);
		for (int rank = 0; rank < ranks; rank++) {
			struct plan_job job = { .coll = coll,
				.rank = rank,
				.ranks = ranks,
				.root = shape_has_root(coll) ? ranks / 2 : 0,
				.count = COUNT,
				.elem_size = SIZE,
				.topology = &topology,
				.segment_bytes = SEGMENT };

			if (plan_can(algo, &job))
				check_plan(&job, algo);
		}
		topology_fini(&topology);
	}
}
END_TEST

TEST_FILE(shapes)
