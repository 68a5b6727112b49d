/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two binary trees, each for half of the data, so that all links are used: a rank that is an inner
 * node of one tree is a leaf of the other. log2 n rounds; every rank sends about as much as it
 * receives.
 *
 * The first tree numbers its nodes 1 ... m from left to right: odd nodes are leaves, and the level
 * of a node is that of its lowest bit. The numbers in the second tree are mirrored, or shifted by
 * one if m is odd, so that odd and even are swapped.
 *
 *      m = 6:        4                      3
 *                  /   \                  /   \
 *                 2     6                5     1     ... numbers of the second tree's nodes
 *                / \   /                / \     \        in the first: 7 - i
 *               1   3 5                6   4     2
 *
 * Allreduce: all ranks are nodes. Broadcast and reduce: all except the root, which is above both
 * trees.
 */
#include "collectives/plan/algos.h"

#include "collectives/plan/binomial.h"

enum {
	TREES = 2,
	NOBODY = -1,
};

/* The neighbours of this rank in one tree, by rank. */
struct node {
	int parent;
	int child[2];
};

static uint32_t lowest_bit(uint32_t i)
{
	return i & -i;
}

/* Return a neighbour in the tree of nodes 1 ... m; 0: none. */
static uint32_t parent_of(uint32_t i, uint32_t m)
{
	if (plan_is_power_of_two(i) && i > m / 2)
		return 0;
	do
		i = (i - lowest_bit(i)) | lowest_bit(i) << 1;
	while (i > m);
	return i;
}

static uint32_t left_of(uint32_t i)
{
	return lowest_bit(i) == 1 ? 0 : i - lowest_bit(i) / 2;
}

static uint32_t right_of(uint32_t i, uint32_t m)
{
	if (lowest_bit(i) == 1)
		return 0;
	i += lowest_bit(i) / 2;
	while (i > m && i > 0)
		i = left_of(i);
	return i;
}

/* Convert between the number of a rank and its number in a tree. */
static uint32_t into_tree(uint32_t i, uint32_t m, int tree)
{
	if (tree == 0)
		return i;
	return m % 2 == 0 ? m + 1 - i : i % m + 1;
}

static uint32_t out_of_tree(uint32_t i, uint32_t m, int tree)
{
	if (tree == 0 || i == 0)
		return i;
	if (m % 2 == 0)
		return m + 1 - i;
	return i == 1 ? m : i - 1;
}

/* Returns the rank with a number. Numbers begin with 1 at position `start`; the root of
 * broadcast and reduce has number 0. */
static int rank_of(const struct plan_job *job, uint32_t number, uint32_t start)
{
	return (int)plan_rank_at(job, (number + start) % (uint32_t)job->ranks);
}

static struct node find_node(const struct plan_job *job, int tree)
{
	/* The root is above both trees. */
	bool has_root = shape_root_one_block(job->coll);
	uint32_t n = (uint32_t)job->ranks;
	uint32_t m = has_root ? n - 1 : n;
	uint32_t start = has_root ? plan_position(job, (uint32_t)job->root) : n - 1;
	uint32_t number = (plan_position(job, (uint32_t)job->rank) + n - start) % n;
	struct node node = { NOBODY, { NOBODY, NOBODY } };
	uint32_t i, next[3];

	if (has_root && number == 0) {
		for (i = 1; 2 * i <= m;)
			i *= 2;
		node.child[0] = rank_of(job, out_of_tree(i, m, tree), start);
		return node;
	}
	i = into_tree(number > 0 ? number : n, m, tree);
	next[0] = out_of_tree(parent_of(i, m), m, tree);
	next[1] = out_of_tree(left_of(i), m, tree);
	next[2] = out_of_tree(right_of(i, m), m, tree);
	if (next[0] > 0 || has_root)
		node.parent = rank_of(job, next[0], start);
	for (int c = 0; c < 2; c++)
		if (next[1 + c] > 0)
			node.child[c] = rank_of(job, next[1 + c], start);
	return node;
}

static const char *why_not(const struct plan_job *job)
{
	if (shape_root_all_blocks(job->coll))
		return NULL;
	if (!shape_reduces_to_all(job->coll) && !shape_root_one_block(job->coll))
		return "does not do this collective";
	if (plan_is_encoded(job))
		return "does not support a wire type";
	return NULL;
}

/* Reduces up a tree: adds the children's data to this rank's, in order. Covers the elements
 * `first` to `first + count`; the sum goes to `target` once `is_free` is complete. */
static uint32_t reduce_up(struct plan_builder *b, const struct node *node, size_t first,
	size_t count, struct plan_range target, uint32_t is_free)
{
	struct plan_range own = plan_input(b, first);
	uint32_t made = PLAN_NOTHING, step;

	for (int c = 0; c < 2; c++) {
		if (node->child[c] == NOBODY)
			continue;
		step = plan_add_receive_reduce(b, (uint32_t)node->child[c], target, own, count);
		plan_wait_input(b, step, first);
		plan_wait(b, step, made, 0);
		plan_wait(b, step, is_free, 0);
		made = step;
		own = target;
	}
	if (node->parent == NOBODY)
		return plan_finish(b, target, count, made);
	step = plan_add_send(b, (uint32_t)node->parent, own, count);
	if (made != PLAN_NOTHING)
		plan_wait(b, step, made, 0);
	else
		plan_wait_input(b, step, first);
	return step;
}

/* Copies down a tree; at the top `source` is sent when `made` is complete. */
static void copy_down(struct plan_builder *b, const struct node *node, size_t first, size_t count,
	struct plan_range source, uint32_t made)
{
	if (node->parent != NOBODY) {
		source = plan_at(b, PLAN_RECV, first);
		made = plan_add_receive(b, (uint32_t)node->parent, source, count);
	}
	for (int c = 0; c < 2; c++) {
		uint32_t step;

		if (node->child[c] == NOBODY)
			continue;
		step = plan_add_send(b, (uint32_t)node->child[c], source, count);
		plan_wait(b, step, made, 0);
	}
}

static void allreduce(struct plan_builder *b, const struct node nodes[])
{
	size_t count = b->job->count;
	uint32_t made[TREES];

	plan_take_input(b, count, PLAN_RECV);
	for (uint32_t t = 0; t < TREES; t++) {
		size_t first = plan_chunk(count, TREES, t);

		made[t] = reduce_up(b, &nodes[t], first, plan_chunk(count, TREES, t + 1) - first,
			plan_at(b, PLAN_RECV, first), PLAN_NOTHING);
	}
	for (uint32_t t = 0; t < TREES; t++) {
		size_t first = plan_chunk(count, TREES, t);

		copy_down(b, &nodes[t], first, plan_chunk(count, TREES, t + 1) - first,
			plan_at(b, PLAN_RECV, first), made[t]);
	}
}

static void broadcast(struct plan_builder *b, const struct node nodes[])
{
	const struct plan_job *job = b->job;
	enum plan_buffer from = job->in_place ? PLAN_RECV : PLAN_SEND;

	if (job->rank == job->root && !job->in_place)
		plan_add_local(b, PLAN_COPY, plan_at(b, PLAN_RECV, 0), plan_at(b, PLAN_SEND, 0),
			job->count);
	for (uint32_t t = 0; t < TREES; t++) {
		size_t first = plan_chunk(job->count, TREES, t);

		copy_down(b, &nodes[t], first, plan_chunk(job->count, TREES, t + 1) - first,
			plan_at(b, from, first), PLAN_NOTHING);
	}
}

/* Partial sums are in scratch; every second piece reuses it after it was sent. */
static void reduce(struct plan_builder *b, const struct node nodes[])
{
	const struct plan_job *job = b->job;
	bool is_root = job->rank == job->root;
	size_t half = plan_chunk(job->count, TREES, 1);
	size_t piece = b->plan->segment * PLAN_PIECE_SEGMENTS;
	uint32_t used[TREES][2] = { { PLAN_NOTHING, PLAN_NOTHING },
		{ PLAN_NOTHING, PLAN_NOTHING } };
	struct plan_range slot[TREES][2];

	if (piece > half)
		piece = half;
	plan_take_input(b, job->count, is_root ? PLAN_RECV : PLAN_BUFFERS);
	for (int t = 0; t < TREES; t++)
		for (int i = 0; i < 2; i++)
			slot[t][i] = plan_scratch(
				b, is_root || nodes[t].child[0] == NOBODY ? 0 : piece);
	for (size_t done = 0, i = 0; done < half; done += piece, i++)
		for (uint32_t t = 0; t < TREES; t++) {
			size_t first = plan_chunk(job->count, TREES, t) + done;
			size_t end = plan_chunk(job->count, TREES, t + 1);
			size_t count = first < end ? end - first : 0;

			if (count > piece)
				count = piece;
			used[t][i % 2] = reduce_up(b, &nodes[t], first, count,
				is_root ? plan_at(b, PLAN_RECV, first) : slot[t][i % 2],
				is_root ? PLAN_NOTHING : used[t][i % 2]);
		}
}

static void make(struct plan_builder *b)
{
	const struct plan_job *job = b->job;
	struct node nodes[TREES];

	if (shape_root_all_blocks(job->coll)) {
		plan_binomial_make(b);
		return;
	}
	b->plan->segment = plan_segment(job, job->count / TREES);
	for (int t = 0; t < TREES; t++)
		nodes[t] = find_node(job, t);
	if (job->coll == FRL_ALLREDUCE)
		allreduce(b, nodes);
	else if (job->coll == FRL_BROADCAST)
		broadcast(b, nodes);
	else
		reduce(b, nodes);
}

const struct plan_algo plan_tree_algo = { why_not, make };
