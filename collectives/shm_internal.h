/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations in shared memory: what a communicator has of them, and their two kinds.
 *
 * Private to shm*.c.
 */
#ifndef FERRULE_COLLECTIVES_SHM_INTERNAL_H
#define FERRULE_COLLECTIVES_SHM_INTERNAL_H

#include "collectives/communicator.h"
#include "collectives/shapes.h"
#include "collectives/shm.h"
#include "collectives/shm_page.h"

/* An operation under way. */
struct shm_operation {
	struct run *run; /* NULL: complete, or forgotten */
	uint64_t number;
	uint32_t elem_size;
	bool is_long;
	bool is_read;       /* others read this rank's buffers: they are complete when it is */
	uint32_t awaited;   /* ranks whose slots have to be seen yet: a bit each */
	uint32_t sources;   /* whose elements this rank takes; also its own */
	uint32_t elsewhere; /* whose memory it reads where they have it */
	struct {
		const uint8_t *send, *out; /* NULL: in its rings, or in its slot */
		uint32_t taken;
	} peer[SHM_RANKS_MAX];
	/* Of a long one. */
	bool reduces;             /* this rank's part is made of what others send */
	bool takes_parts;         /* of what others send, instead of what they have made */
	bool rings_in, rings_out; /* others read this rank's buffers out of its rings */
	bool is_flat;             /* each rank reduces all of the vector: shm_flat.c */
	uint32_t keeping; /* ranks of which all of what they send can be read until it is over */
	uint32_t passing; /* ranks that can write results of the kind past their caches */
	bool overwrites;  /* what it takes goes where others' parts lie until they are staged */
	uint32_t rounds;
	uint32_t staged, made;
};

/* What has been found out about a buffer that short operations have sent from. */
struct shm_seen {
	const uint8_t *send; /* NULL: none */
	size_t bytes;
	uint64_t frees;     /* share_frees() then */
	uint32_t uses;      /* since then, in which it was not known where it is */
	bool is_shared;     /* it lies where `place` says */
	unsigned export_at; /* as long as page->exports has that one there */
	struct shm_place place;
};

enum { SHM_SEEN = 64 };

struct shm {
	struct frl_comm *comm;
	uint32_t me, ranks;
	struct shm_page *page;
	size_t page_size;
	/* Numbers of operations: the next one to be told of, the first for which this rank still
	 * reads others' memory, the first that is not complete. */
	uint64_t published, reading, complete;
	struct run *waiting, **waiting_end; /* not told of yet */
	struct run *idle;
	uint32_t n_idle;
	uint64_t history; /* of all operations, in a number */
	uint32_t work;    /* since everything else was looked at */
	uint32_t in_vain; /* moments waited for what did not come */
	struct shm_operation operations[SHM_SLOTS];
	struct shm_seen seen[SHM_SEEN];
	struct shm_peer peers[];
};

static inline const struct shm_slot *shm_slot_of(
	const struct shm *shm, uint32_t rank, uint64_t number)
{
	const struct shm_page *page = rank == shm->me ? shm->page : shm->peers[rank].page;

	return &page->slots[number % SHM_SLOTS];
}

static inline uint32_t shm_bit(uint32_t rank)
{
	return UINT32_C(1) << rank;
}

/* A bit for each rank. */
static inline uint32_t shm_all(const struct shm *shm)
{
	return (uint32_t)((UINT64_C(1) << shm->ranks) - 1);
}

/* Ranks that send in the operation. */
static inline uint32_t shm_senders(const struct shm *shm, const struct run *run)
{
	bool all = shape_of(run->coll)->send.ranks == SHAPE_ALL_RANKS;

	return all ? shm_all(shm) : shm_bit(run->signature.root);
}

/* All inputs are scaled before, or the result is after. */
static inline bool shm_scales_first(const struct run *run)
{
	return operation_scales_first(run->scaled, run->dtype);
}

/* shm_short.c. Fills in what this rank brings, and which ranks it awaits. */
void shm_short_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot);
/* Rank `rank` is there, and is awaited no longer, unless it has to copy what this rank cannot map.
 * 0 or the communicator's error. */
int shm_short_meet(struct shm *shm, struct shm_operation *operation, uint32_t rank);
/* The oldest one, which others still read: copies what somebody cannot map. */
void shm_short_help(struct shm *shm, const struct shm_operation *operation);
/* They are all there. */
void shm_short_take(struct shm *shm, const struct shm_operation *operation);

/* ---- long ones */

/* Elements of one part, or of a block of it. */
struct shm_span {
	size_t first, count;
};

static inline struct shm_span shm_block_of(
	const struct shm_operation *operation, struct shm_span part, uint32_t round)
{
	size_t most = SHM_BLOCK / operation->elem_size, done = round * most;

	if (done >= part.count)
		return (struct shm_span){ part.first + part.count, 0 };
	return (struct shm_span){ part.first + done,
		part.count - done < most ? part.count - done : most };
}

static inline uint8_t *shm_at(
	const struct shm_operation *operation, enum plan_buffer buffer, size_t element)
{
	return operation->run->base[buffer] + element * operation->elem_size;
}

static inline const uint8_t *shm_ring_of(
	const struct shm *shm, uint32_t rank, uint32_t ring, uint32_t round)
{
	const struct shm_page *page = rank == shm->me ? shm->page : shm->peers[rank].page;

	return page->rings + shm_ring_at(ring, round);
}

static inline struct shm_progress *shm_progress_of(
	struct shm *shm, const struct shm_operation *operation)
{
	return &shm->page->progress[operation->number % SHM_SLOTS];
}

static inline void shm_tell(
	_Atomic uint64_t *counter, const struct shm_operation *operation, uint32_t rounds)
{
	atomic_store_explicit(counter, SHM_AT(operation->number, rounds), memory_order_release);
}

static inline void shm_tell_staged(
	struct shm *shm, struct shm_operation *operation, uint32_t rounds)
{
	operation->staged = rounds;
	shm_tell(&shm_progress_of(shm, operation)->staged, operation, rounds);
}

static inline void shm_tell_made(struct shm *shm, struct shm_operation *operation, uint32_t rounds)
{
	operation->made = rounds;
	shm_tell(&shm_progress_of(shm, operation)->made, operation, rounds);
}

/* How far another rank is, by the counter at that offset in its struct shm_progress. */
static inline uint32_t shm_rounds_of(
	const struct shm *shm, const struct shm_operation *operation, uint32_t rank, size_t counter)
{
	const struct shm_progress *progress =
		&shm->peers[rank].page->progress[operation->number % SHM_SLOTS];
	const uint8_t *at_counter = (const uint8_t *)progress + counter;

	return shm_rounds((const _Atomic uint64_t *)(const void *)at_counter, operation->number);
}

#define SHM_ROUNDS_OF(shm, operation, rank, counter) \
	shm_rounds_of(shm, operation, rank, offsetof(struct shm_progress, counter))

/* Have all others come so far? */
static inline bool shm_have_come(const struct shm *shm, const struct shm_operation *operation,
	size_t counter, uint32_t rounds)
{
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		if (rank != shm->me && shm_rounds_of(shm, operation, rank, counter) < rounds)
			return false;
	return true;
}

/* shm_flat.c. When all are there: whether each rank reduces all of it, not a part for all. */
bool shm_flat_suits(const struct shm *shm, const struct shm_operation *operation);
/* It does. */
void shm_flat_begin(struct shm_operation *operation);
/* Reduces a block, if there is one left. */
bool shm_flat_make(struct shm *shm, struct shm_operation *operation);

/* shm_long.c */
void shm_long_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot);
/* Rank `rank` is there. 0 or the communicator's error. */
int shm_long_meet(struct shm *shm, struct shm_operation *operation, uint32_t rank);
/* Some rounds of it, when all are there. How many. */
int shm_long_step(struct shm *shm, struct shm_operation *operation);
/* Nothing is read any more, and nothing written to the rings. */
bool shm_long_is_done(const struct shm_operation *operation);

#endif
