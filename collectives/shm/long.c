/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long operations in shared memory, in rounds of one block of each part. In a round a rank
 *
 *	stages   a block of its input for each other rank in its rings, if they cannot read it in
 *	         place;
 *	makes    a block of its part: reduces it from all inputs, or copies it to its ring if others
 *	         cannot read it in place;
 *	takes    a block of the result or of the input of each other rank.
 *
 * A rank proceeds as far as it can, without waiting for the end of a round. A block of a ring is
 * reused when all readers have finished with its previous content. Allreduce works differently
 * where flat.c suits.
 */
#include <string.h>

#include "collectives/plan/build.h"
#include "collectives/shm/internal.h"
#include "lib/base/memory/copy.h"
#include "lib/reduce/nontemporal.h"

enum {
	ROUNDS_ONCE = 8,
	PIECE = 8 << 10, /* bytes: fits the first-level cache while several inputs are added */
};

/* ---- buffers */

static bool is_in_chunks(const struct run *run)
{
	return shape_reduces_to_all(run->coll);
}

/* Returns the block of `rank` in a buffer. */
static struct shm_span block_of(
	const struct run *run, const struct shape_buffer *buffer, uint32_t rank)
{
	return (struct shm_span){ shape_block_of(buffer, rank) * run->count, run->count };
}

/* Returns part `part` of a send buffer. */
static struct shm_span sent_part(const struct shm *shm, const struct run *run, uint32_t part)
{
	size_t count = run->count, first;

	if (is_in_chunks(run)) {
		first = plan_chunk(count, shm->ranks, part);
		return (struct shm_span){ first, plan_chunk(count, shm->ranks, part + 1) - first };
	}
	return block_of(run, &shape_of(run->coll)->send, part);
}

/* Returns the part that rank `rank` makes, in its output buffer. */
static struct shm_span made_part(const struct shm *shm, const struct run *run, uint32_t rank)
{
	if (is_in_chunks(run))
		return sent_part(shm, run, rank);
	return (struct shm_span){ 0, run->count };
}

/* Returns where that part goes in a receive buffer. */
static struct shm_span taken_part(const struct shm *shm, const struct run *run, uint32_t rank)
{
	if (is_in_chunks(run))
		return sent_part(shm, run, rank);
	return block_of(run, &shape_of(run->coll)->recv, rank);
}

/* Returns the buffer from which others take this rank's part. */
static enum plan_buffer out_buffer(const struct run *run)
{
	return is_in_chunks(run) ? PLAN_RECV : PLAN_SEND;
}

/* ---- beginning */

/* Returns the rounds of the longest part. */
static uint32_t count_rounds(const struct shm *shm, const struct shm_operation *operation)
{
	size_t most = SHM_BLOCK / operation->elem_size, longest = operation->run->count;

	if (is_in_chunks(operation->run))
		longest = (longest + shm->ranks - 1) / shm->ranks;
	return (uint32_t)((longest + most - 1) / most);
}

/* Counters start at the end for inputs and outputs that are read in place. */
static void begin_progress(struct shm *shm, struct shm_operation *operation)
{
	shm_publish_staged(shm, operation, operation->rings_in ? 0 : operation->rounds);
	shm_publish(&shm_progress_of(shm, operation)->taken, operation, 0);
	shm_publish(&shm_progress_of(shm, operation)->delivered, operation, 0);
	shm_publish_made(
		shm, operation, operation->reduces || operation->rings_out ? 0 : operation->rounds);
}

/* Returns whether all others take something from this rank. */
static bool has_out(const struct shm *shm, const struct run *run)
{
	const struct shape *shape = shape_of(run->coll);

	return shape->send.size == SHAPE_ONE_BLOCK &&
		shape_uses(&shape->send, run->signature.root == shm->me);
}

/* Returns whether this rank's block for itself is at its destination. */
static bool is_at_destination(const struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;

	return run->bytes[PLAN_SEND] > 0 && run->bytes[PLAN_RECV] > 0 &&
		shm_at(operation, PLAN_SEND, sent_part(shm, run, shm->me).first) ==
		shm_at(operation, PLAN_RECV, taken_part(shm, run, shm->me).first);
}

void shm_long_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot)
{
	const struct run *run = operation->run;
	const struct shape *shape = shape_of(run->coll);
	uint32_t mine = shm_bit(shm->me);
	enum plan_buffer out = out_buffer(run);
	bool is_in_place = is_at_destination(shm, operation);

	operation->rounds = count_rounds(shm, operation);
	operation->reduces = shape->reduces;
	operation->takes_parts = !shape->reduces && shape->send.size == SHAPE_ALL_BLOCKS;
	operation->sources = shm_senders(shm, run);
	operation->awaited = operation->sources & ~mine;
	/* The reduced part is this rank's result; it takes no parts of others. */
	if (operation->reduces && !is_in_chunks(run))
		operation->sources = 0;
	if (operation->reduces || is_in_place)
		operation->sources &= ~mine;
	slot->keeps_send = false;
	slot->passes_cache = reduce_has_nontemporal(run->dtype, run->op);
	if (slot->passes_cache)
		operation->nontemporal = mine;
	memset(&slot->send, 0, sizeof(slot->send) + sizeof(slot->out));
	operation->overwrites = operation->takes_parts && is_in_place;
	if (operation->overwrites)
		operation->rings_in = true;
	else if (operation->reduces || operation->takes_parts)
		operation->rings_in = !shm_locate(
			shm, run->base[PLAN_SEND], run->bytes[PLAN_SEND], &slot->send);
	if (operation->rings_in)
		operation->staging = mine;
	if (has_out(shm, run))
		operation->rings_out = !shm_locate(
			shm, run->base[out], run->bytes[out], &slot->out);
	if (!operation->rings_in && run->base[PLAN_SEND] != run->base[PLAN_RECV]) {
		slot->keeps_send = true;
		operation->keeping = mine;
	}
	operation->is_read = has_out(shm, run) || operation->reduces || operation->takes_parts;
	begin_progress(shm, operation);
}

/* Returns whether this rank writes its part to the results of all others, which then need not take
 * it. Each rank decides this for itself. */
static bool can_deliver(const struct shm *shm, const struct shm_operation *operation)
{
	if (!is_in_chunks(operation->run))
		return false;
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		if (rank != shm->me && !operation->peer[rank].result)
			return false;
	return true;
}

int shm_long_match(struct shm *shm, struct shm_operation *operation, uint32_t rank)
{
	const struct shm_slot *slot = shm_slot_of(shm, rank, operation->number);
	const struct run *run = operation->run;
	struct shm_peer *peer = &shm->peers[rank];
	size_t out_bytes = run->count * operation->elem_size;
	int err = 0;

	if (slot->send.export.id)
		err = shm_find(
			peer, &slot->send, run->bytes[PLAN_SEND], &operation->peer[rank].send);
	if (!err && slot->out.export.id)
		err = shm_find(peer, &slot->out, out_bytes, &operation->peer[rank].out);
	if (err)
		return comm_fail_reading(shm->comm, (int)rank, err);
	if (operation->peer[rank].send || operation->peer[rank].out)
		operation->elsewhere |= shm_bit(rank);
	if (slot->keeps_send && operation->peer[rank].send)
		operation->keeping |= shm_bit(rank);
	if (!operation->peer[rank].send)
		operation->staging |= shm_bit(rank);
	if (slot->passes_cache)
		operation->nontemporal |= shm_bit(rank);
	if (operation->peer[rank].out)
		operation->peer[rank].result = shm_writable(peer, operation->peer[rank].out);
	if (operation->awaited)
		return 0;
	/* All ranks decide the same: they have seen the same slots. */
	if (shm_flat_suits(shm, operation))
		shm_flat_begin(operation);
	else
		operation->delivers = can_deliver(shm, operation);
	return 0;
}

/* ---- progress of the others */

/* Returns whether a block of the rings is free. Readers are done with it when they have taken it,
 * or reduced it into their part. */
static bool has_room(
	struct shm *shm, const struct shm_operation *operation, bool is_out, uint32_t round)
{
	bool is_taken = is_out || operation->takes_parts;

	return shm_ring_has_room(shm, operation, round,
		is_taken ? offsetof(struct shm_progress, taken)
			 : offsetof(struct shm_progress, made));
}

/* ---- stage, make, take */

static bool stage(struct shm *shm, struct shm_operation *operation)
{
	uint32_t round = operation->staged;

	if (round == operation->rounds || !has_room(shm, operation, false, round))
		return false;
	for (uint32_t part = 0; part < shm->ranks; part++) {
		struct shm_span block = shm_block_of(
			operation, sent_part(shm, operation->run, part), round);

		if (part != shm->me)
			shm_ring_write(shm, operation, part, round,
				shm_at(operation, PLAN_SEND, block.first),
				block.count * operation->elem_size);
	}
	shm_publish_staged(shm, operation, round + 1);
	return true;
}

static bool has_inputs(const struct shm *shm, const struct shm_operation *operation)
{
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		if (rank != shm->me && !operation->peer[rank].send &&
			SHM_ROUNDS_OF(shm, operation, rank, staged) <= operation->made)
			return false;
	return true;
}

/* Returns where `rank` provides a block of this rank's part. */
static const uint8_t *sent_by(const struct shm *shm, const struct shm_operation *operation,
	uint32_t rank, size_t first, uint32_t round)
{
	const uint8_t *send = operation->peer[rank].send;

	return send ? send + first * operation->elem_size
		    : shm_ring_of(shm, operation, rank, shm->me, round);
}

/* Begins with this rank's own input, which may be overwritten by the result. */
static void reduce_block(
	struct shm *shm, struct shm_operation *operation, struct shm_span from, uint8_t *target)
{
	const struct run *run = operation->run;
	uint32_t size = operation->elem_size;
	size_t piece = shm->ranks == 2 ? from.count : PIECE / size;

	for (size_t done = 0; done < from.count; done += piece) {
		size_t count = from.count - done < piece ? from.count - done : piece;
		const uint8_t *sum = shm_at(operation, PLAN_SEND, from.first + done);
		uint8_t *to = target + done * size;

		for (uint32_t i = 1; i < shm->ranks; i++) {
			uint32_t rank = (shm->me + i) % shm->ranks;
			const uint8_t *in = sent_by(
				shm, operation, rank, from.first, operation->made);

			frl_reduce_local(to, sum, in + done * size, count, run->dtype, run->op);
			sum = to;
		}
		if (run->scaled == FRL_AVG)
			run_scale(run, to, to, count);
	}
}

static void copy_result(
	const struct shm_operation *operation, uint8_t *to, const uint8_t *from, size_t bytes)
{
	if (operation->run->bytes[PLAN_RECV] < SHM_STREAM_BYTES)
		copy_bulk(to, from, bytes);
	else
		copy_nontemporal(to, from, bytes);
}

/* Writes a block of this rank's part to the results of all others. No rank but this one needs their
 * inputs there. Returns 0 or the communicator's error. */
static int deliver(struct shm *shm, const struct shm_operation *operation, struct shm_span block)
{
	const uint8_t *from = shm_at(operation, PLAN_RECV, block.first);
	size_t size = operation->elem_size;
	int failed = -1;

	/* Either a rank that fails sees this, and waits, or this rank sees that it has failed. */
	atomic_store_explicit(&shm->page->is_writing, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	for (uint32_t i = 1; i < shm->ranks && failed < 0; i++) {
		uint32_t rank = (shm->me + i) % shm->ranks;

		/* A rank that has failed gave its buffers back to the caller. */
		if (atomic_load_explicit(&shm->peers[rank].page->failed, memory_order_acquire))
			failed = (int)rank;
		else
			copy_bulk(operation->peer[rank].result + block.first * size, from,
				block.count * size);
	}
	atomic_store_explicit(&shm->page->is_writing, false, memory_order_release);
	return failed < 0 ? 0 : comm_fail_taken_back(shm->comm, failed);
}

/* Makes a block of this rank's part, and writes it to the results of others or, if they cannot read
 * it in place, to the ring. Returns 1, 0 if the block cannot be made yet, or the communicator's
 * error. */
static int make(struct shm *shm, struct shm_operation *operation)
{
	const struct run *run = operation->run;
	uint32_t round = operation->made;
	struct shm_span to = shm_block_of(operation, made_part(shm, run, shm->me), round);

	if (round == operation->rounds || (operation->reduces && !has_inputs(shm, operation)) ||
		(operation->rings_out && !has_room(shm, operation, true, round)))
		return 0;
	if (operation->reduces)
		reduce_block(shm, operation,
			shm_block_of(operation, sent_part(shm, run, shm->me), round),
			shm_at(operation, PLAN_RECV, to.first));
	if (operation->delivers) {
		int err = deliver(shm, operation, to);

		if (err)
			return err;
		shm_publish(&shm_progress_of(shm, operation)->delivered, operation, round + 1);
	}
	if (operation->rings_out)
		shm_ring_write(shm, operation, shm->ranks, round,
			shm_at(operation, out_buffer(run), to.first),
			to.count * operation->elem_size);
	shm_publish_made(shm, operation, round + 1);
	return 1;
}

/* Returns the next block to take from `rank`, or NULL if it is not ready. */
static const uint8_t *offered_by(
	const struct shm *shm, const struct shm_operation *operation, uint32_t rank, uint32_t round)
{
	const struct run *run = operation->run;
	bool takes_parts = operation->takes_parts;
	struct shm_span part = takes_parts ? sent_part(shm, run, shm->me)
					   : made_part(shm, run, rank);
	size_t first = shm_block_of(operation, part, round).first;
	const uint8_t *there = takes_parts ? operation->peer[rank].send : operation->peer[rank].out;

	if (rank == shm->me)
		return shm_at(operation, PLAN_SEND, first);
	if (takes_parts && there)
		return there + first * operation->elem_size;
	if (takes_parts)
		return SHM_ROUNDS_OF(shm, operation, rank, staged) > round
			? shm_ring_of(shm, operation, rank, shm->me, round)
			: NULL;
	if (SHM_ROUNDS_OF(shm, operation, rank, made) <= round)
		return NULL;
	return there ? there + first * operation->elem_size
		     : shm_ring_of(shm, operation, rank, shm->ranks, round);
}

static bool take_from(struct shm *shm, struct shm_operation *operation, uint32_t rank)
{
	uint32_t round = operation->peer[rank].taken;
	struct shm_span to = shm_block_of(operation, taken_part(shm, operation->run, rank), round);
	const uint8_t *from;

	if (round == operation->rounds || (operation->overwrites && operation->staged <= round))
		return false;
	from = offered_by(shm, operation, rank, round);
	if (!from)
		return false;
	/* A rank that delivers does so before it publishes the block as made. */
	if (rank == shm->me || SHM_ROUNDS_OF(shm, operation, rank, delivered) <= round)
		copy_result(operation, shm_at(operation, PLAN_RECV, to.first), from,
			to.count * operation->elem_size);
	operation->peer[rank].taken++;
	return true;
}

/* Ranks start with the next rank, so that not all read from the same one. */
static bool take(struct shm *shm, struct shm_operation *operation)
{
	uint32_t least = operation->rounds;
	bool has_moved = false;

	for (uint32_t i = 1; i <= shm->ranks; i++) {
		uint32_t rank = (shm->me + i) % shm->ranks;

		if (!(operation->sources & shm_bit(rank)))
			continue;
		has_moved = take_from(shm, operation, rank) || has_moved;
		if (operation->peer[rank].taken < least)
			least = operation->peer[rank].taken;
	}
	if (has_moved)
		shm_publish(&shm_progress_of(shm, operation)->taken, operation, least);
	return has_moved;
}

bool shm_long_is_done(const struct shm_operation *operation)
{
	if (operation->staged < operation->rounds || operation->made < operation->rounds)
		return false;
	for (uint32_t left = operation->sources; left; left &= left - 1)
		if (operation->peer[__builtin_ctz(left)].taken < operation->rounds)
			return false;
	return true;
}

/* Does at most one block of each kind. Returns 1, 0 if nothing is possible, or the communicator's
 * error. */
static int do_some(struct shm *shm, struct shm_operation *operation)
{
	bool has_moved;
	int made;

	if (operation->is_flat) {
		has_moved = shm_flat_stage(shm, operation);
		return shm_flat_make(shm, operation) || has_moved;
	}
	has_moved = stage(shm, operation);
	made = make(shm, operation);
	if (made < 0)
		return made;
	return take(shm, operation) || made || has_moved;
}

int shm_long_step(struct shm *shm, struct shm_operation *operation)
{
	int n = 0, moved;

	while (n < ROUNDS_ONCE && (moved = do_some(shm, operation)) != 0) {
		if (moved < 0)
			return moved;
		n++;
	}
	operation->run->request->moves += (uint32_t)n;
	return n;
}
