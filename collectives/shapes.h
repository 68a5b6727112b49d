/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shape of each collective: which ranks send, which receive, and how many elements. Checks of
 * arguments, plans, the model of their costs and operations in shared memory all use this table.
 *
 * Pure. Any thread.
 */
#ifndef FERRULE_COLLECTIVES_SHAPES_H
#define FERRULE_COLLECTIVES_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

/* Ranks whose buffer is used. */
enum shape_ranks {
	SHAPE_NO_RANK,
	SHAPE_ROOT,
	SHAPE_ALL_RANKS,
};

/* Elements in a buffer. */
enum shape_size {
	SHAPE_EMPTY,
	SHAPE_ONE_BLOCK,  /* `count` */
	SHAPE_ALL_BLOCKS, /* `count` for each rank, in the order of the ranks */
	SHAPE_PIECES,     /* as the caller's counts and displacements say */
};

struct shape_buffer {
	enum shape_ranks ranks;
	enum shape_size size;
};

/* Lengths that shared memory has a way for. */
enum shape_shm {
	SHAPE_SHM_NEVER,
	SHAPE_SHM_SHORT,
	SHAPE_SHM_ANY,
};

struct shape {
	const char *name;
	struct shape_buffer send, recv;
	bool reduces; /* each block received is the reduction of all ranks' blocks */
	bool is_pair; /* between this rank and another one, `root` */
	enum shape_shm shm;
};

/* By enum frl_coll. */
extern const struct shape coll_shapes[FRL_COLLS];

/* All functions here take a collective that exists. What a peer names is checked before. */
static inline const struct shape *shape_of(enum frl_coll coll)
{
	return &coll_shapes[coll];
}

static inline bool shape_reduces(enum frl_coll coll)
{
	return coll_shapes[coll].reduces;
}

static inline bool shape_is_pair(enum frl_coll coll)
{
	return coll_shapes[coll].is_pair;
}

static inline bool shape_is_rooted(enum frl_coll coll)
{
	return coll_shapes[coll].send.ranks == SHAPE_ROOT ||
		coll_shapes[coll].recv.ranks == SHAPE_ROOT;
}

/* The operation has a `root`, or a peer that is named so. */
static inline bool shape_has_root(enum frl_coll coll)
{
	return shape_is_pair(coll) || shape_is_rooted(coll);
}

/* One block goes from the root to all ranks, or from all ranks to the root: broadcast, reduce. */
static inline bool shape_root_one_block(enum frl_coll coll)
{
	return shape_is_rooted(coll) && coll_shapes[coll].send.size == coll_shapes[coll].recv.size;
}

/* The same with a block for each rank: scatter, gather. */
static inline bool shape_root_all_blocks(enum frl_coll coll)
{
	return shape_is_rooted(coll) && coll_shapes[coll].send.size != coll_shapes[coll].recv.size;
}

/* All ranks get the sum of one block, of which each may make a chunk: allreduce. */
static inline bool shape_reduces_to_all(enum frl_coll coll)
{
	return coll_shapes[coll].reduces && !shape_is_rooted(coll) &&
		coll_shapes[coll].send.size == SHAPE_ONE_BLOCK;
}

/* Lengths differ by peer, and only the two ends know them: alltoallv. */
static inline bool shape_has_pieces(enum frl_coll coll)
{
	return coll_shapes[coll].send.size == SHAPE_PIECES;
}

static inline bool shape_is_empty(enum frl_coll coll)
{
	return coll_shapes[coll].send.size == SHAPE_EMPTY &&
		coll_shapes[coll].recv.size == SHAPE_EMPTY;
}

/* Lengths follow from `count`: an operation with count 0 sends nothing. */
static inline bool shape_is_counted(enum frl_coll coll)
{
	return !shape_has_pieces(coll) && !shape_is_empty(coll);
}

static inline bool shape_uses(const struct shape_buffer *buffer, bool is_root)
{
	return buffer->ranks == SHAPE_ALL_RANKS || (buffer->ranks == SHAPE_ROOT && is_root);
}

/* Blocks of `count` elements in the buffer of a rank that uses it; not of SHAPE_PIECES. */
static inline size_t shape_blocks(const struct shape_buffer *buffer, size_t ranks)
{
	return buffer->size == SHAPE_ALL_BLOCKS ? ranks : buffer->size == SHAPE_ONE_BLOCK;
}

/* The number of the block in the buffer that goes to, or comes from, `rank`. */
static inline size_t shape_block_of(const struct shape_buffer *buffer, size_t rank)
{
	return buffer->size == SHAPE_ALL_BLOCKS ? rank : 0;
}

/*
 * The addresses of the two buffers of this rank make the operation one in place: the block that
 * `rank` has for itself lies where it belongs. A block has `bytes`.
 */
static inline bool shape_is_in_place(
	enum frl_coll coll, uintptr_t send, uintptr_t recv, size_t rank, size_t bytes)
{
	return shape_is_counted(coll) &&
		send + shape_block_of(&coll_shapes[coll].send, rank) * bytes ==
		recv + shape_block_of(&coll_shapes[coll].recv, rank) * bytes;
}

#endif
