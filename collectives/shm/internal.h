/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations in shared memory: state of a communicator, short and long operations.
 *
 * Private to this folder.
 */
#ifndef FERRULE_COLLECTIVES_SHM_INTERNAL_H
#define FERRULE_COLLECTIVES_SHM_INTERNAL_H

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/operation.h"
#include "collectives/plan/shapes.h"
#include "collectives/shm/page.h"
#include "collectives/shm/shm.h"
#include "lib/base/memory/store_times.h"

/* An operation under way. */
struct shm_operation {
	struct run *run; /* NULL: complete or abandoned */
	uint64_t number;
	uint32_t elem_size;
	bool is_long;
	bool is_holding; /* share_hold() is in effect: others may read this rank's buffers */
	/* others read this rank's buffers: it is complete when they have finished */
	bool is_read;
	uint32_t awaited;   /* ranks whose slots have not been seen yet, as bits */
	uint32_t sources;   /* ranks whose elements this rank takes, including its own */
	uint32_t elsewhere; /* ranks whose memory it reads in place */
	struct {
		const uint8_t *send, *out; /* NULL: in its rings, or in its slot */
		uint8_t *result;           /* its result, if this rank may write there */
		uint32_t taken;
	} peer[SHM_RANKS_MAX];
	/* Only for long operations. */
	bool reduces;             /* this rank's part is reduced from the inputs of all */
	bool takes_parts;         /* takes parts of the others' inputs, instead of their results */
	bool rings_in, rings_out; /* others read this rank's buffers through its rings */
	bool delivers;            /* this rank writes its part to the results of all others */
	bool is_flat;             /* each rank reduces the whole vector: flat.c */
	uint32_t keeping;         /* ranks whose whole input can be read until the end */
	uint32_t staging;         /* ranks whose input comes through their rings */
	uint32_t nontemporal;     /* ranks that support non-temporal stores for this operation */
	bool overwrites;          /* results overwrite inputs for others until these are staged */
	uint32_t rounds;
	uint32_t staged, made;
	uint64_t ring_position; /* of its space in each ring: page.h, shm_ring_offset() */
};

/* Cached location of a buffer. */
struct shm_seen {
	const uint8_t *addr; /* NULL: none */
	size_t bytes;
	uint64_t frees;     /* share_frees() at that time */
	uint32_t uses;      /* by short operations, without a known location */
	bool is_shared;     /* `location` is valid */
	unsigned export_at; /* valid while page->exports has its ID at this index */
	struct shm_location location;
};

enum { SHM_SEEN = 64 };

struct shm {
	struct frl_comm *comm;
	uint32_t me, ranks;
	struct shm_page *page;
	size_t page_size;
	/* Numbers of operations: the next to publish, the first for which this rank still reads
	 * others' memory, and the first that is not complete. */
	uint64_t published, reading, complete;
	uint64_t ring_next; /* position after the space of the last operation */
	struct store_times store_times[SHM_RANKS_MAX + 1];
	struct run *waiting, **waiting_end; /* not published yet */
	struct run *idle;
	uint32_t n_idle;
	uint64_t history;      /* hash of all operations */
	uint32_t work;         /* done since other transports were polled */
	uint32_t missed_waits; /* consecutive waits in which nothing arrived */
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

/* Returns the bits of all ranks. */
static inline uint32_t shm_all(const struct shm *shm)
{
	return (uint32_t)((UINT64_C(1) << shm->ranks) - 1);
}

/* Returns the ranks that send in the operation. */
static inline uint32_t shm_senders(const struct shm *shm, const struct run *run)
{
	bool all = shape_of(run->coll)->send.ranks == SHAPE_ALL_RANKS;

	return all ? shm_all(shm) : shm_bit(run->signature.root);
}

/* Returns whether inputs are scaled before the reduction, rather than the result after it. */
static inline bool shm_scales_first(const struct run *run)
{
	return operation_scales_first(run->scaled, run->dtype);
}

/* Returns how many operations a rank has finished reading. Reads its counter again if the last
 * value is below `number`. Ignores a value that decreases, which a faulty rank may publish: the
 * slots of those operations may hold later ones already. */
static inline uint64_t shm_finished(struct shm_peer *peer, uint64_t number)
{
	uint64_t finished;

	if (peer->finished >= number)
		return peer->finished;
	finished = atomic_load_explicit(&peer->page->finished, memory_order_acquire);
	if (finished > peer->finished)
		peer->finished = finished;
	return peer->finished;
}

/* run.c: others have finished reading this rank's buffers, or never began. */
void shm_stop_holding(struct shm_operation *operation);

/* seen.c: exports a buffer for a long operation, even if another export has to go. Returns false if
 * the buffer is private. */
bool shm_locate(
	struct shm *shm, const uint8_t *addr, size_t bytes, struct shm_location *ret_location);
/* Returns the location of a buffer that a short operation has used before, or NULL. Exports it only
 * if no other export has to go. */
const struct shm_location *shm_locate_again(struct shm *shm, const uint8_t *addr, size_t bytes);

/* short.c: returns whether inputs of a short operation may stay in place. All ranks get the same
 * result. If a rank requests a copy of such an input, its owner writes it to the ring. */
bool shm_short_may_be_in_place(const struct run *run, uint32_t elem_size);
/* Fills in this rank's input and the ranks that it waits for. */
void shm_short_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot);
/* Handles the slot of rank `rank`, which is then no longer awaited, unless this rank has
 * requested a copy. Returns 0 or the communicator's error. */
int shm_short_match(struct shm *shm, struct shm_operation *operation, uint32_t rank);
/* Copies this rank's input of the oldest operation to the ring, if a rank has requested that. */
void shm_short_help(struct shm *shm, const struct shm_operation *operation);
/* Computes the result, when all awaited slots have been seen. */
void shm_short_take(struct shm *shm, const struct shm_operation *operation);

/* ---- long operations */

/* Elements of a part, or of a block of it. */
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

/* Returns the block of a round in a ring of another rank. */
static inline const uint8_t *shm_ring_of(const struct shm *shm,
	const struct shm_operation *operation, uint32_t rank, uint32_t ring, uint32_t round)
{
	return shm->peers[rank].page->rings +
		shm_ring_offset(shm->ranks, ring, operation->ring_position, round);
}

static inline struct shm_progress *shm_progress_of(
	struct shm *shm, const struct shm_operation *operation)
{
	return &shm->page->progress[operation->number % SHM_SLOTS];
}

static inline void shm_publish(
	_Atomic uint64_t *counter, const struct shm_operation *operation, uint32_t rounds)
{
	atomic_store_explicit(counter, SHM_AT(operation->number, rounds), memory_order_release);
}

static inline void shm_publish_staged(
	struct shm *shm, struct shm_operation *operation, uint32_t rounds)
{
	operation->staged = rounds;
	shm_publish(&shm_progress_of(shm, operation)->staged, operation, rounds);
}

static inline void shm_publish_made(
	struct shm *shm, struct shm_operation *operation, uint32_t rounds)
{
	operation->made = rounds;
	shm_publish(&shm_progress_of(shm, operation)->made, operation, rounds);
}

/* Returns the progress of another rank, from the counter at an offset in its struct
 * shm_progress. */
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

/* Returns whether all other ranks have reached a round. */
static inline bool shm_have_reached(const struct shm *shm, const struct shm_operation *operation,
	size_t counter, uint32_t rounds)
{
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		if (rank != shm->me && shm_rounds_of(shm, operation, rank, counter) < rounds)
			return false;
	return true;
}

/* rings.c */

/* Reserves space in each ring for the next operation, and returns its position. No block crosses
 * the end of the ring, if that of the last round has no more than what is left of the space.
 * Successive operations use successive space, so that memory is written again as late as
 * possible. */
uint64_t shm_ring_reserve(struct shm *shm, const struct run *run, uint32_t elem_size);
/* Returns whether a round's block may be written in all rings of this rank: all readers have
 * finished with its previous content. For content of this operation, that is when `counter` of all
 * readers (an offset in struct shm_progress) has passed its round. */
bool shm_ring_has_room(
	struct shm *shm, const struct shm_operation *operation, uint32_t round, size_t counter);
/* Copies a block of a round to a ring, with the kind of stores that store_times.h chooses. */
void shm_ring_write(struct shm *shm, const struct shm_operation *operation, uint32_t ring,
	uint32_t round, const uint8_t *from, size_t bytes);

/* flat.c: returns whether each rank reduces the whole vector, rather than one part. All
 * slots must have been seen. */
bool shm_flat_suits(const struct shm *shm, const struct shm_operation *operation);
/* Switches the operation to that mode. */
void shm_flat_begin(struct shm_operation *operation);
/* Copies a block of the input to this rank's ring. Returns false if none is left, or the ring is
 * full. */
bool shm_flat_stage(struct shm *shm, struct shm_operation *operation);
/* Reduces a block. Returns false if none is left, or an input is not there yet. */
bool shm_flat_make(struct shm *shm, struct shm_operation *operation);

/* long.c */
void shm_long_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot);
/* Handles the slot of rank `rank`. Returns 0 or the communicator's error. */
int shm_long_match(struct shm *shm, struct shm_operation *operation, uint32_t rank);
/* Does some rounds, when all slots have been seen. Returns their number, or the communicator's
 * error. */
int shm_long_step(struct shm *shm, struct shm_operation *operation);
/* Returns whether this rank has finished reading, and writing to its rings. */
bool shm_long_is_done(const struct shm_operation *operation);

#endif
