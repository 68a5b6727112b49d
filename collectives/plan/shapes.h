/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shape of each collective: which ranks send and receive, and how many elements. The table is
 * used by argument checks, plans, the cost model and operations in shared memory.
 *
 * Pure. Any thread.
 */
#ifndef FERRULE_COLLECTIVES_PLAN_SHAPES_H
#define FERRULE_COLLECTIVES_PLAN_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

/* Ranks that use a buffer. */
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
	SHAPE_PIECES,     /* as given by the caller's counts and displacements */
};

struct shape_buffer {
	enum shape_ranks ranks;
	enum shape_size size;
};

/* Lengths that operations in shared memory support. */
enum shape_shm {
	SHAPE_SHM_NEVER,
	SHAPE_SHM_SHORT,
	SHAPE_SHM_ANY,
};

struct shape {
	const char *name;
	struct shape_buffer send, recv;
	bool reduces; /* each received block is the reduction of all ranks' blocks */
	bool is_pair; /* between this rank and a peer, `root` */
	enum shape_shm shm;
};

/* Indexed by enum frl_coll. */
extern const struct shape coll_shapes[FRL_COLLS];

/* These functions require a valid collective; values from a peer are checked before. */
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

/* Returns whether the operation has a `root`; for SEND and RECV that is the peer. */
static inline bool shape_has_root(enum frl_coll coll)
{
	return shape_is_pair(coll) || shape_is_rooted(coll);
}

/* Returns whether one block goes from the root to all ranks, or from all to the root: broadcast,
 * reduce. */
static inline bool shape_root_one_block(enum frl_coll coll)
{
	return shape_is_rooted(coll) && coll_shapes[coll].send.size == coll_shapes[coll].recv.size;
}

/* The same with one block for each rank: scatter, gather. */
static inline bool shape_root_all_blocks(enum frl_coll coll)
{
	return shape_is_rooted(coll) && coll_shapes[coll].send.size != coll_shapes[coll].recv.size;
}

/* Returns whether all ranks get the sum of one block, whose chunks may be computed by different
 * ranks: allreduce. */
static inline bool shape_reduces_to_all(enum frl_coll coll)
{
	return coll_shapes[coll].reduces && !shape_is_rooted(coll) &&
		coll_shapes[coll].send.size == SHAPE_ONE_BLOCK;
}

/* Returns whether lengths differ by peer and are known only to the two ends: alltoallv. */
static inline bool shape_has_pieces(enum frl_coll coll)
{
	return coll_shapes[coll].send.size == SHAPE_PIECES;
}

static inline bool shape_is_empty(enum frl_coll coll)
{
	return coll_shapes[coll].send.size == SHAPE_EMPTY &&
		coll_shapes[coll].recv.size == SHAPE_EMPTY;
}

/* Returns whether lengths depend on `count`: such an operation with count 0 sends nothing. */
static inline bool shape_is_counted(enum frl_coll coll)
{
	return !shape_has_pieces(coll) && !shape_is_empty(coll);
}

static inline bool shape_uses(const struct shape_buffer *buffer, bool is_root)
{
	return buffer->ranks == SHAPE_ALL_RANKS || (buffer->ranks == SHAPE_ROOT && is_root);
}

/* Returns the number of blocks of `count` elements in a used buffer; not for SHAPE_PIECES. */
static inline size_t shape_blocks(const struct shape_buffer *buffer, size_t ranks)
{
	return buffer->size == SHAPE_ALL_BLOCKS ? ranks : buffer->size == SHAPE_ONE_BLOCK;
}

/* Returns the index of the block in the buffer that goes to `rank` or comes from it. */
static inline size_t shape_block_of(const struct shape_buffer *buffer, size_t rank)
{
	return buffer->size == SHAPE_ALL_BLOCKS ? rank : 0;
}

/*
 * Returns whether the two buffers of this rank make the operation in place: the block of `rank` for
 * itself is at its destination. A block has `bytes`.
 */
static inline bool shape_is_in_place(
	enum frl_coll coll, uintptr_t send, uintptr_t recv, size_t rank, size_t bytes)
{
	return shape_is_counted(coll) &&
		send + shape_block_of(&coll_shapes[coll].send, rank) * bytes ==
		recv + shape_block_of(&coll_shapes[coll].recv, rank) * bytes;
}

#endif
