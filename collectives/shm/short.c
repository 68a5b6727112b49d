/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short operations in shared memory: each rank puts its input into its slot, and reads the slots of
 * others. Input of more than SHM_IN_PLACE_FROM bytes stays in place, if others can read it there: a
 * cache line then crosses between processors once, not twice. Each rank decides that for itself,
 * for buffers that are used repeatedly: locating and mapping a buffer takes longer than copying it.
 */
#include <errno.h>
#include <string.h>

#include "collectives/plan/shapes.h"
#include "collectives/shm/internal.h"
#include "lib/base/error.h"
#include "lib/base/memory/copy.h"

_Static_assert(SHM_INLINE <= SHM_BLOCK, "an input in place fits into a block of a ring");

bool shm_short_may_be_in_place(const struct run *run, uint32_t elem_size)
{
	return shape_reduces_to_all(run->coll) && run->count * elem_size > SHM_IN_PLACE_FROM &&
		!shm_scales_first(run);
}

/* Returns whether this rank's input stays in place until all have read it, and describes its
 * location then. It does not if ranks share processors: waiting for readers takes long then. */
static bool keep_in_place(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot)
{
	const struct run *run = operation->run;
	const uint8_t *send = run->base[PLAN_SEND];
	size_t bytes = run->bytes[PLAN_SEND];
	const struct shm_location *location;

	if (!shm_short_may_be_in_place(run, operation->elem_size) || send == run->base[PLAN_RECV] ||
		shm->comm->tuner.oversubscription > 1)
		return false;
	location = shm_locate_again(shm, send, bytes);
	if (!location)
		return false;
	slot->send = *location;
	operation->peer[shm->me].send = send;
	operation->is_read = true;
	return true;
}

void shm_short_begin(struct shm *shm, struct shm_operation *operation, struct shm_slot *slot)
{
	const struct run *run = operation->run;
	const struct shape *shape = shape_of(run->coll);
	uint32_t root = run->signature.root;
	size_t bytes = run->bytes[PLAN_SEND];
	bool is_in_place = keep_in_place(shm, operation, slot);

	atomic_store_explicit(
		&slot->input_kind, is_in_place ? SHM_IN_PLACE : SHM_IN_SLOT, memory_order_relaxed);
	if (is_in_place)
		bytes = 0;
	if (bytes > 0 && shm_scales_first(run))
		run_scale(run, slot->data, run->base[PLAN_SEND], bytes / operation->elem_size);
	else if (bytes > 0)
		copy_bulk(slot->data, run->base[PLAN_SEND], bytes);
	if (shape_uses(&shape->recv, root == shm->me))
		operation->sources = shm_senders(shm, run);
	operation->awaited = operation->sources & ~shm_bit(shm->me);
}

/* Returns whether a failed mapping allows a copy request: if descriptors or rights are missing,
 * but not if the memory is not as described. */
static bool may_request_copy(int err)
{
	return err && err != -ESTALE && err != -EPROTO;
}

/* As shm_find(). Keeps the earlier error text if a copy can be requested. */
static int find_in_place(struct shm_peer *peer, const struct shm_location *location, size_t bytes,
	const uint8_t **ret_addr)
{
	char before[ERROR_TEXT_MAX];
	int err = shm_find_mapped(peer, location, bytes, ret_addr);

	if (err != -ENOENT)
		return err;
	error_save(before);
	err = shm_find(peer, location, bytes, ret_addr);
	if (may_request_copy(err))
		error_restore(before);
	return err;
}

/* Returns whether this rank has requested copies. All inputs in place are then awaited in the
 * ring. */
static bool has_requested_copy(const struct shm *shm, const struct shm_operation *operation)
{
	return atomic_load_explicit(&shm->page->copy_requested, memory_order_relaxed) ==
		operation->number + 1;
}

int shm_short_match(struct shm *shm, struct shm_operation *operation, uint32_t rank)
{
	const struct shm_slot *slot = shm_slot_of(shm, rank, operation->number);
	const struct run *run = operation->run;
	uint64_t input_kind = atomic_load_explicit(&slot->input_kind, memory_order_acquire);
	struct shm_peer *peer = &shm->peers[rank];
	int err = 0;

	if (shape_reduces_to_all(run->coll) && input_kind == SHM_IN_RING) {
		operation->peer[rank].send = shm_ring_of(shm, operation, rank, shm->ranks, 0);
	} else if (shape_reduces_to_all(run->coll) && input_kind == SHM_IN_PLACE) {
		/* A failed rank does not copy. */
		if (atomic_load_explicit(&peer->page->failed, memory_order_relaxed))
			return comm_fail_taken_back(shm->comm, (int)rank);
		if (has_requested_copy(shm, operation))
			return 0;
		err = find_in_place(
			peer, &slot->send, run->bytes[PLAN_SEND], &operation->peer[rank].send);
		if (may_request_copy(err)) {
			atomic_store_explicit(&shm->page->copy_requested, operation->number + 1,
				memory_order_release);
			return 0;
		}
		operation->elsewhere |= shm_bit(rank);
	}
	operation->awaited &= ~shm_bit(rank);
	return err ? comm_fail_reading(shm->comm, (int)rank, err) : 0;
}

void shm_short_help(struct shm *shm, const struct shm_operation *operation)
{
	struct shm_slot *slot = &shm->page->slots[operation->number % SHM_SLOTS];
	const struct run *run = operation->run;
	bool is_requested = false;

	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		is_requested = is_requested ||
			(rank != shm->me &&
				atomic_load_explicit(&shm->peers[rank].page->copy_requested,
					memory_order_relaxed) == operation->number + 1);
	if (!is_requested || !run ||
		atomic_load_explicit(&slot->input_kind, memory_order_relaxed) != SHM_IN_PLACE ||
		!shm_ring_has_room(shm, operation, 0, offsetof(struct shm_progress, made)))
		return;
	shm_ring_write(shm, operation, shm->ranks, 0, run->base[PLAN_SEND], run->bytes[PLAN_SEND]);
	atomic_store_explicit(&slot->input_kind, SHM_IN_RING, memory_order_release);
}

static const uint8_t *brought_by(
	const struct shm *shm, const struct shm_operation *operation, uint32_t rank)
{
	const uint8_t *elsewhere = operation->peer[rank].send;

	return elsewhere ? elsewhere : shm_slot_of(shm, rank, operation->number)->data;
}

/* Reduces in rank order on all ranks, so results are bitwise identical. */
static void reduce(struct shm *shm, const struct shm_operation *operation, size_t from)
{
	const struct run *run = operation->run;
	uint8_t *target = run->base[PLAN_RECV];
	const uint8_t *sum = brought_by(shm, operation, 0) + from;
	size_t count = run->count;

	for (uint32_t rank = 1; rank < shm->ranks; rank++) {
		frl_reduce_local(target, sum, brought_by(shm, operation, rank) + from, count,
			run->dtype, run->op);
		sum = target;
	}
	if (run->scaled == FRL_AVG && !shm_scales_first(run))
		run_scale(run, target, target, count);
}

void shm_short_take(struct shm *shm, const struct shm_operation *operation)
{
	const struct run *run = operation->run;
	const struct shape *shape = shape_of(run->coll);
	size_t bytes = run->count * operation->elem_size;
	size_t from = shape_block_of(&shape->send, shm->me) * bytes;
	uint8_t *target = run->base[PLAN_RECV];

	if (run->bytes[PLAN_RECV] == 0)
		return;
	if (shape->reduces) {
		reduce(shm, operation, from);
		return;
	}
	for (uint32_t left = operation->sources; left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctz(left);

		copy_bulk(target, shm_slot_of(shm, rank, operation->number)->data + from, bytes);
		target += bytes;
	}
}
