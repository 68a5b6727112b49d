/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans against theory: the bytes that a rank sends, the messages that follow each other, the
 * connections that it uses. And deliberate mistakes in plans, to test that the checker finds them.
 */
#include "tests/unit/collectives/plan/plan_checker.h"
#include "tests/fixtures/program.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void make_topology(struct topology *topology, uint32_t ranks, uint32_t on_host)
{
	struct topology_location *locations = calloc(ranks, sizeof(locations[0]));

	ck_assert_ptr_nonnull(locations);
	for (uint32_t rank = 0; rank < ranks; rank++)
		locations[rank].host = rank / on_host;
	ck_assert_int_eq(topology_init(topology, locations, ranks), 0);
	free(locations);
}

/* With n ranks on hosts of 4 and blocks or vectors of `count` bytes; -1: not checked. */
static const struct traffic {
	enum frl_coll coll;
	enum frl_algo algo;
	uint32_t ranks;
	size_t count;
	int64_t sent_most;
	int64_t rounds;
	int64_t peers;
} traffic[] = {
	/* 2(n-1)/n of the data, in 2(n-1) rounds, over two links. */
	{ FRL_ALLREDUCE, FRL_ALGO_RING, 8, 800, 1400, 14, 2 },
	{ FRL_ALLREDUCE, FRL_ALGO_RING, 13, 1300, 2400, 24, 2 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_RING, 8, 100, 700, 7, 2 },
	{ FRL_ALLGATHER, FRL_ALGO_RING, 8, 100, 700, 7, 2 },
	{ FRL_BROADCAST, FRL_ALGO_RING, 8, 100, 100, 7, 2 },
	{ FRL_REDUCE, FRL_ALGO_RING, 8, 100, 100, 7, 2 },
	/* The same in 2 log2 n rounds; two more, and twice the data, to fold. */
	{ FRL_ALLREDUCE, FRL_ALGO_HALVING_DOUBLING, 16, 1600, 3000, 8, 4 },
	{ FRL_ALLREDUCE, FRL_ALGO_HALVING_DOUBLING, 13, 800, 2200, 8, 4 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_HALVING_DOUBLING, 16, 100, 1500, 4, 4 },
	{ FRL_ALLGATHER, FRL_ALGO_HALVING_DOUBLING, 16, 100, 1500, 4, 4 },
	/* A node of one tree has two children, for half of the data, and is a leaf of the other. */
	{ FRL_ALLREDUCE, FRL_ALGO_TREE, 15, 1000, 2000, 6, 4 },
	{ FRL_BROADCAST, FRL_ALGO_TREE, 16, 1000, 1000, 4, -1 },
	{ FRL_REDUCE, FRL_ALGO_TREE, 16, 1000, 1000, 4, -1 },
	/* Small: whole vectors, one round. */
	{ FRL_ALLREDUCE, FRL_ALGO_DIRECT, 8, 100, 700, 1, 7 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_DIRECT, 8, 100, 700, 1, 7 },
	{ FRL_ALLGATHER, FRL_ALGO_DIRECT, 8, 100, 700, 1, 7 },
	{ FRL_ALLTOALL, FRL_ALGO_DIRECT, 8, 100, 700, 1, 7 },
	{ FRL_GATHER, FRL_ALGO_DIRECT, 8, 100, 100, 1, 7 },
	{ FRL_SCATTER, FRL_ALGO_DIRECT, 8, 100, 700, 1, 7 },
	{ FRL_BROADCAST, FRL_ALGO_DIRECT, 8, 100, 700, 1, 7 },
	{ FRL_BARRIER, FRL_ALGO_DIRECT, 8, 0, 7, 1, 7 },
	/* Two at a time. */
	{ FRL_ALLTOALL, FRL_ALGO_PAIRWISE, 8, 100, 700, 4, 7 },
	{ FRL_ALLGATHER, FRL_ALGO_PAIRWISE, 8, 100, 700, 4, 7 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_PAIRWISE, 8, 100, 700, 4, 7 },
	/* log2 n rounds; all-to-all moves half of all blocks in each. */
	{ FRL_ALLGATHER, FRL_ALGO_BRUCK, 16, 100, 1500, 4, 7 },
	{ FRL_ALLGATHER, FRL_ALGO_BRUCK, 11, 100, 1000, 4, 8 },
	{ FRL_ALLTOALL, FRL_ALGO_BRUCK, 16, 100, 3200, 4, 7 },
	{ FRL_BARRIER, FRL_ALGO_BRUCK, 16, 0, 4, 4, 7 },
	{ FRL_GATHER, FRL_ALGO_TREE, 16, 100, 800, 4, 4 },
	{ FRL_SCATTER, FRL_ALGO_TREE, 16, 100, 1500, 4, 4 },
	/* 4 on each of 4 hosts: 3/4 within, 3/4 of a quarter between, twice. */
	{ FRL_ALLREDUCE, FRL_ALGO_HIERARCHICAL, 16, 1600, 3000, 12, 4 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_HIERARCHICAL, 16, 100, 1500, 6, 4 },
	{ FRL_ALLGATHER, FRL_ALGO_HIERARCHICAL, 16, 100, 1500, 6, 4 },
	/* Leaders send to the next leader and to the next rank of their host. */
	{ FRL_BROADCAST, FRL_ALGO_HIERARCHICAL, 16, 1600, 3200, 6, -1 },
	{ FRL_REDUCE, FRL_ALGO_HIERARCHICAL, 16, 1600, 1600, 6, -1 },
	{ FRL_BARRIER, FRL_ALGO_HIERARCHICAL, 16, 0, 5, 4, 6 },
};

START_LOOP_TEST(test_traffic, ROWS(traffic))
{
	const struct traffic *t = &traffic[_i];
	struct topology topology;
	struct check_result r;
	struct check_case c = { .coll = t->coll,
		.algo = t->algo,
		.ranks = t->ranks,
		.root = 1,
		.count = t->count,
		.elem_size = 1,
		.topology = &topology,
		.segment_bytes = 1 << 20,
		.seed = 1 };

	make_topology(&topology, t->ranks, 4);
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	if (t->sent_most >= 0)
		ck_assert_int_eq((int64_t)r.sent_most, t->sent_most);
	if (t->rounds >= 0)
		ck_assert_int_eq(r.rounds, t->rounds);
	if (t->peers >= 0)
		ck_assert_int_eq(r.peers, t->peers);
	topology_fini(&topology);
}
END_TEST

/* Large rings go both ways: half of the data over each link in each direction. */
START_TEST(test_two_rings)
{
	struct topology topology;
	struct check_result r;
	struct check_case c = { .coll = FRL_ALLREDUCE,
		.algo = FRL_ALGO_RING,
		.ranks = 8,
		.count = 1600,
		.elem_size = 1,
		.topology = &topology,
		.segment_bytes = 100,
		.seed = 1 };

	make_topology(&topology, 8, 4);
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	ck_assert_uint_eq(r.sent_most, 2 * 7 * 1600 / 8);
	ck_assert_uint_eq(r.sent_least, r.sent_most);
	ck_assert_uint_eq(r.one_way, r.sent_most / 2);
	topology_fini(&topology);
}
END_TEST

/* Encoded, an element takes 2 bytes, or 130 for 128, of 4. */
START_TEST(test_wire_traffic)
{
	struct topology topology;
	struct check_result r;
	struct check_case c = { .coll = FRL_ALLREDUCE,
		.algo = FRL_ALGO_RING,
		.ranks = 4,
		.count = 4 * 256,
		.elem_size = 4,
		.wire = FRL_WIRE_FLOAT16,
		.topology = &topology,
		.segment_bytes = 1 << 20,
		.seed = 1 };

	make_topology(&topology, 4, 4);
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	ck_assert_uint_eq(r.sent_most, 2 * 3 * 256 * 2);
	c.wire = FRL_WIRE_INT8;
	c.algo = FRL_ALGO_DIRECT;
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	ck_assert_uint_eq(r.sent_most, 2 * 3 * 260);
	ck_assert_uint_eq(r.rounds, 2);
	c.coll = FRL_ALLTOALL;
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	ck_assert_uint_eq(r.sent_most, 3 * 8 * 130);
	ck_assert_uint_eq(r.rounds, 1);
	/* Half of 4 blocks in each of 2 rounds, encoded once. */
	c.algo = FRL_ALGO_BRUCK;
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	ck_assert_uint_eq(r.sent_most, 2 * 2 * 8 * 130);
	/* The root's children forward the blocks of the ranks below them: 2 + 1 and 1 blocks. */
	c.coll = FRL_SCATTER;
	c.algo = FRL_ALGO_TREE;
	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	ck_assert_uint_eq(r.sent_most, 3 * 8 * 130);
	ck_assert_uint_eq(r.rounds, 2);
	topology_fini(&topology);
}
END_TEST

/*
 * The formulas of plan_cost() match the plans: messages that follow each other, bytes that a rank
 * sends, and connections. Formulas do not know how full the last level of a tree is. The path over
 * a root counts the data of several ranks, and waiting costs a bit more.
 */
static void check_cost(enum frl_algo algo, const struct plan_job *job)
{
	struct check_case c = { .coll = job->coll,
		.algo = algo,
		.ranks = (uint32_t)job->ranks,
		.count = job->count,
		.elem_size = job->elem_size,
		.wire = job->wire,
		.topology = job->topology,
		.segment_bytes = job->segment_bytes,
		.seed = 1 };
	bool is_full = (job->ranks & (job->ranks - 1)) == 0;
	bool is_even = job->coll == FRL_ALLREDUCE || job->coll == FRL_REDUCE_SCATTER ||
		job->coll == FRL_ALLGATHER || job->coll == FRL_ALLTOALL;
	struct check_result r;
	struct plan_cost cost;
	double rounds, bytes;

	ck_assert_msg(plan_check(&c, &r), "%s", r.error);
	plan_cost(algo, job, &cost);
	rounds = cost.path[0].rounds + cost.path[1].rounds;
	bytes = cost.path[0].bytes + cost.path[1].bytes;
	ck_assert_msg(r.rounds <= rounds + 0.5 && rounds <= r.rounds + (is_full ? 0 : 2),
		"%d by %s has %u rounds, and costs %g", job->coll, frl_algo_name(algo), r.rounds,
		rounds);
	ck_assert_msg(
		r.peers <= cost.peers && cost.peers <= r.peers + (algo == FRL_ALGO_HIERARCHICAL),
		"%d by %s has %u connections, and costs %g", job->coll, frl_algo_name(algo),
		r.peers, cost.peers);
	if (is_even && algo != FRL_ALGO_TREE)
		ck_assert_msg((double)r.sent_most * 0.98 <= bytes &&
				bytes <= (double)r.sent_most * (is_full ? 1.2 : 1.4),
			"%d by %s sends %ju bytes, and costs %g", job->coll, frl_algo_name(algo),
			(uintmax_t)r.sent_most, bytes);
}

START_LOOP_TEST(test_costs, 4)
{
	static const struct {
		uint32_t ranks, on_host;
	} locations[] = { { 16, 16 }, { 13, 13 }, { 16, 4 }, { 17, 17 } };
	uint32_t ranks = locations[_i].ranks;
	struct topology topology;

	make_topology(&topology, ranks, locations[_i].on_host);
	for (enum frl_algo algo = 1; algo < FRL_ALGOS; algo++)
		for (enum frl_coll coll = 0; coll < FRL_SEND; coll++)
			for (enum frl_wire wire = 0; wire < FRL_WIRES; wire += FRL_WIRE_INT8) {
				bool has_blocks = coll != FRL_ALLREDUCE && coll != FRL_REDUCE &&
					coll != FRL_BROADCAST;
				struct plan_job job = { .coll = coll,
					.ranks = (int)ranks,
					.count = coll == FRL_BARRIER
						? 0
						: (has_blocks ? 1 : ranks) * PLAN_WIRE_BLOCK,
					.elem_size = 4,
					.wire = wire,
					.topology = &topology,
					.segment_bytes = 1 << 22 };

				if (coll != FRL_ALLTOALLV && (!wire || coll != FRL_BARRIER) &&
					plan_can(algo, &job))
					check_cost(algo, &job);
			}
	topology_fini(&topology);
}
END_TEST

START_TEST(test_why_not)
{
	struct topology topology;
	struct plan_job job = { .coll = FRL_ALLTOALLV,
		.ranks = 64,
		.elem_size = 4,
		.topology = &topology,
		.segment_bytes = 1 << 17 };
	struct plan plan;

	make_topology(&topology, 64, 8);
	ck_assert_ptr_null(plan_why_not(FRL_ALGO_DIRECT, &job));
	ck_assert_ptr_nonnull(strstr(plan_why_not(FRL_ALGO_BRUCK, &job), "this collective"));
	ck_assert_int_eq(plan_make(&plan, FRL_ALGO_BRUCK, &job), -ENOTSUP);
	ck_assert_int_eq(plan_make(&plan, FRL_ALGO_AUTO, &job), -ENOTSUP);
	job.coll = FRL_ALLREDUCE;
	job.count = 1;
	ck_assert_ptr_null(plan_why_not(FRL_ALGO_RING, &job));
	ck_assert_ptr_nonnull(plan_why_not(FRL_ALGO_BRUCK, &job));
	job.wire = FRL_WIRE_FLOAT16;
	ck_assert_ptr_null(plan_why_not(FRL_ALGO_RING, &job));
	job.op = FRL_MAX;
	ck_assert_ptr_null(plan_why_not(FRL_ALGO_RING, &job));
	job.wire = FRL_WIRE_INT8;
	ck_assert_ptr_nonnull(plan_why_not(FRL_ALGO_RING, &job));
	ck_assert_ptr_null(plan_why_not(FRL_ALGO_BRUCK, &job));
	topology_fini(&topology);
}
END_TEST

START_TEST(test_order)
{
	/* Ranks on two hosts by turns; on each, every second pair is on the other node. */
	struct topology_location locations[8];
	static const uint32_t order[] = { 0, 4, 2, 6, 1, 5, 3, 7 };
	struct topology topology;

	memset(locations, 0, sizeof(locations));
	for (uint32_t rank = 0; rank < 8; rank++) {
		locations[rank].host = rank % 2;
		locations[rank].numa = rank / 2 % 2;
	}
	ck_assert_int_eq(topology_init(&topology, locations, 8), 0);
	ck_assert_uint_eq(topology.hosts, 2);
	ck_assert_mem_eq(topology.order, order, sizeof(order));
	topology_fini(&topology);
	topology_fini(&topology);
}
END_TEST

/* Mistakes. Each is made at every step of rank 1 that it fits, one after the other; all of them, or
 * at least that many of 100, must be found. The others have no effect: a step may wait without
 * need. */
enum mistake {
	NO_AFTER,
	OTHER_PLACE,
	OTHER_PEER,
	COPY_NOT_REDUCE,
	LOST_STEP,
	SHORT_STEP,
	TWICE,
	MISTAKES
};

static const char *const mistake_names[MISTAKES] = { "waits for nothing", "other place",
	"other peer", "copies, does not reduce", "step lost", "one element less", "step twice" };

struct spoiling {
	enum mistake mistake;
	uint32_t step;
	bool done;
	bool is_behind; /* there is no such step */
};

static bool spoil_step(struct plan_step *s, const struct spoiling *x, uint32_t ranks)
{
	bool waits = false;

	switch (x->mistake) {
	case NO_AFTER:
		for (int i = 0; i < PLAN_AFTER; i++) {
			waits = waits || s->after[i].step != PLAN_NOTHING;
			s->after[i].step = PLAN_NOTHING;
		}
		return waits;
	case OTHER_PLACE:
		if (s->kind == PLAN_SENDS)
			s->source.offset += 2;
		else
			s->target.offset += 2;
		return true;
	case OTHER_PEER:
		if (s->kind == PLAN_LOCAL)
			return false;
		s->peer = (s->peer + 1) % ranks == 1 ? (s->peer + 2) % ranks
						     : (s->peer + 1) % ranks;
		return true;
	case COPY_NOT_REDUCE:
		if (s->action != PLAN_REDUCE)
			return false;
		s->action = PLAN_COPY;
		return true;
	case SHORT_STEP: s->count--; return true;
	case LOST_STEP:
	case TWICE:
	case MISTAKES: break;
	}
	return false;
}

static void lose_step(struct plan *plan, uint32_t step)
{
	memmove(plan->steps + step, plan->steps + step + 1,
		(plan->n_steps - step - 1) * sizeof(plan->steps[0]));
	plan->n_steps--;
	for (uint32_t i = 0; i < plan->n_steps; i++)
		for (int k = 0; k < PLAN_AFTER; k++) {
			struct plan_after *after = &plan->steps[i].after[k];

			if (after->step == step)
				after->step = PLAN_NOTHING;
			else if (after->step != PLAN_NOTHING && after->step > step)
				after->step--;
		}
}

static void spoil(struct plan *plan, uint32_t rank, void *arg)
{
	struct spoiling *x = arg;
	struct plan_step *steps;

	if (rank != 1)
		return;
	x->is_behind = x->step >= plan->n_steps;
	if (x->is_behind)
		return;
	if (x->mistake == LOST_STEP) {
		lose_step(plan, x->step);
		x->done = true;
	} else if (x->mistake == TWICE && plan->steps[x->step].kind != PLAN_LOCAL) {
		steps = reallocarray(plan->steps, plan->n_steps + 1, sizeof(steps[0]));
		ck_assert_ptr_nonnull(steps);
		steps[plan->n_steps++] = steps[x->step];
		plan->steps = steps;
		x->done = true;
	} else {
		x->done = spoil_step(&plan->steps[x->step], x, 6);
	}
}

static const struct {
	enum frl_coll coll;
	enum frl_algo algo;
	int found_after; /* of 100 that wait for nothing */
} spoiled[] = {
	{ FRL_ALLREDUCE, FRL_ALGO_RING, 100 },
	{ FRL_ALLREDUCE, FRL_ALGO_HALVING_DOUBLING, 70 },
	{ FRL_ALLREDUCE, FRL_ALGO_TREE, 100 },
	{ FRL_ALLREDUCE, FRL_ALGO_DIRECT, 70 },
	{ FRL_ALLREDUCE, FRL_ALGO_HIERARCHICAL, 60 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_RING, 100 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_HIERARCHICAL, 70 },
	{ FRL_REDUCE_SCATTER, FRL_ALGO_DIRECT, 70 },
	{ FRL_ALLGATHER, FRL_ALGO_BRUCK, 40 },
	{ FRL_ALLTOALL, FRL_ALGO_BRUCK, 70 },
	{ FRL_ALLTOALL, FRL_ALGO_PAIRWISE, 0 },
	{ FRL_BROADCAST, FRL_ALGO_RING, 100 },
	{ FRL_REDUCE, FRL_ALGO_RING, 100 },
	{ FRL_REDUCE, FRL_ALGO_TREE, 100 },
	{ FRL_SCATTER, FRL_ALGO_TREE, 100 },
	{ FRL_BARRIER, FRL_ALGO_BRUCK, 60 },
};

START_LOOP_TEST(test_mistakes, ROWS(spoiled))
{
	struct topology topology;
	struct check_result r;
	struct spoiling x = { .step = 0 };
	struct check_case c = { .coll = spoiled[_i].coll,
		.algo = spoiled[_i].algo,
		.ranks = 6,
		.root = 5,
		.count = 60,
		.elem_size = 2,
		.in_place = CHECK_OUT_OF_PLACE,
		.topology = &topology,
		.segment_bytes = 8,
		.seed = 3,
		.spoil = spoil,
		.spoil_arg = &x };

	make_topology(&topology, c.ranks, 2);
	for (int i = 0; i < MISTAKES; i++) {
		int made = 0, found = 0, expected = 100;

		for (x.step = 0, x.is_behind = false; !x.is_behind; x.step++) {
			x.mistake = (enum mistake)i;
			x.done = false;
			if (plan_check(&c, &r) && x.done && i != NO_AFTER && c.coll != FRL_BARRIER)
				ck_abort_msg(
					"%s in step %u is not found", mistake_names[i], x.step);
			made += x.done;
			found += x.done && r.error[0] != '\0';
		}
		if (i == NO_AFTER)
			expected = spoiled[_i].found_after;
		if (c.coll == FRL_BARRIER && i != NO_AFTER)
			expected = 0;
		ck_assert_msg(made == 0 || found * 100 >= made * expected,
			"row %d, %s: %d of %d found", _i, mistake_names[i], found, made);
	}
	topology_fini(&topology);
}
END_TEST

TEST_FILE(plans_theory)
