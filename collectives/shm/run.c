/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs operations in shared memory in order: see shm.h. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "collectives/shm/internal.h"
#include "lib/base/clock.h"
#include "lib/base/process/backoff.h"
#include "lib/base/memory/copy.h"
#include "lib/base/memory/share.h"
#include "lib/base/error.h"

enum {
	MISSED_MOST = 8, /* waits in a row in which nothing arrived */
	WORK_DUE = 16,   /* short operations between two polls of other transports */
	STEPS = 8,       /* per call */
	WRITERS_MS = 100,
	LINE = 64,
	LINES_AHEAD = 8, /* of the next slot */
};

/* ---- publishing */

/* Returns whether all other ranks have finished reading this operation. */
static bool is_read_by_all(struct shm *shm, uint64_t number)
{
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		if (rank != shm->me && shm_finished(&shm->peers[rank], number + 1) <= number)
			return false;
	return true;
}

/* Returns whether the next operation's slot is free: its previous operation is complete on all
 * ranks. */
static bool has_slot(struct shm *shm)
{
	uint64_t last = shm->published - SHM_SLOTS;

	return shm->published < SHM_SLOTS || (shm->complete > last && is_read_by_all(shm, last));
}

/* Returns the bytes of its slot that an operation has filled. */
static size_t filled_bytes(const struct shm *shm, const struct shm_operation *operation)
{
	if (operation->is_long)
		return offsetof(struct shm_slot, passes_cache) + sizeof(uint32_t);
	if (operation->peer[shm->me].send)
		return SHM_HEADER + sizeof(struct shm_location);
	return SHM_HEADER + operation->run->bytes[PLAN_SEND];
}

/*
 * Writes one byte to each line of the next slot that an operation like this one will fill, if the
 * slot is free. The stores invalidate the readers' copies of the lines while this rank waits
 * anyway; its next input is then written without waiting. `prefetchw` had no effect.
 */
static void touch_next_slot(struct shm *shm, const struct shm_operation *operation)
{
	uint8_t *data = shm->page->slots[shm->published % SHM_SLOTS].data;
	size_t lines = (filled_bytes(shm, operation) + LINE - 1) / LINE;

	if (!has_slot(shm))
		return;
	for (size_t i = 0; i < lines && i < LINES_AHEAD; i++)
		*(volatile uint8_t *)(data + i * LINE) = 0;
}

/* FNV-1a over words. */
static uint64_t add_to_history(uint64_t history, const struct signature *signature)
{
	uint64_t words[sizeof(*signature) / sizeof(uint64_t)];

	memcpy(words, signature, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		history = (history ^ words[i]) * UINT64_C(0x100000001b3);
	return history;
}

void shm_stop_holding(struct shm_operation *operation)
{
	if (operation->is_holding)
		share_release();
	operation->is_holding = false;
}

static void publish(struct shm *shm, struct run *run)
{
	uint64_t number = shm->published++;
	struct shm_operation *operation = &shm->operations[number % SHM_SLOTS];
	struct shm_slot *slot = &shm->page->slots[number % SHM_SLOTS];
	uint32_t elem_size = shape_is_empty(run->coll) ? 1 : (uint32_t)frl_dtype_size(run->dtype);

	shm_stop_holding(operation);
	share_hold();
	*operation = (struct shm_operation){
		.run = run,
		.number = number,
		.elem_size = elem_size,
		.is_long = run->is_long,
		.is_holding = true,
		.ring_position = shm_ring_reserve(shm, run, elem_size),
	};
	shm_publish_freed(shm->page);
	slot->signature = run->signature;
	slot->history = shm->history;
	shm->history = add_to_history(shm->history, &run->signature);
	if (run->is_long)
		shm_long_begin(shm, operation, slot);
	else
		shm_short_begin(shm, operation, slot);
	if (operation->is_read)
		copy_settle();
	else
		shm_stop_holding(operation);
	atomic_store_explicit(&slot->sequence, number + 1, memory_order_release);
	touch_next_slot(shm, operation);
}

static int publish_all(struct shm *shm)
{
	int n = 0;

	while (shm->waiting && !shm->waiting->is_blocked && has_slot(shm)) {
		struct run *run = shm->waiting;

		shm->waiting = run->next_self;
		if (!shm->waiting)
			shm->waiting_end = &shm->waiting;
		publish(shm, run);
		n++;
	}
	return n;
}

/* ---- matching */

/* A rank that leaves runs a barrier, and other ranks may notice it as a different operation. */
static int fail_different(struct shm *shm, uint32_t rank, const struct shm_operation *operation,
	const struct signature *theirs)
{
	const struct signature *mine = &operation->run->signature;
	int err = comm_check_ranks(shm->comm);

	if (err)
		return err;
	if (memcmp(theirs, mine, sizeof(*mine)) != 0)
		return comm_fail_mismatch(shm->comm, (int)rank, theirs, mine);
	return comm_fail(shm->comm, -EPROTO,
		"ranks %u and %u have started different operations before %s #%" PRIu32
		": all ranks must start the same operations in the same order",
		shm->me, rank, frl_coll_name((enum frl_coll)mine->coll), mine->number);
}

/* Checks whether the rank has published this operation. Returns as match(). */
static int match_one(struct shm *shm, struct shm_operation *operation, uint32_t rank)
{
	const struct shm_slot *slot = shm_slot_of(shm, rank, operation->number);
	const struct shm_slot *own = shm_slot_of(shm, shm->me, operation->number);
	struct signature theirs;

	if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != operation->number + 1)
		return 0;
	theirs = slot->signature;
	if (memcmp(&theirs, &operation->run->signature, sizeof(theirs)) != 0 ||
		slot->history != own->history)
		return fail_different(shm, rank, operation, &theirs);
	shm_drop_freed(&shm->peers[rank]);
	if (!operation->is_long)
		return shm_short_match(shm, operation, rank);
	operation->awaited &= ~shm_bit(rank);
	return shm_long_match(shm, operation, rank);
}

/* Returns 1 when all awaited ranks have published this operation, 0 before that, or the
 * communicator's error. */
static int match(struct shm *shm, struct shm_operation *operation)
{
	for (uint32_t left = operation->awaited; left; left &= left - 1) {
		int err = match_one(shm, operation, (uint32_t)__builtin_ctz(left));

		if (err)
			return err;
	}
	return !operation->awaited;
}

static void complete(struct shm_operation *operation)
{
	struct run *run = operation->run;

	operation->run = NULL;
	shm_stop_holding(operation);
	run->left = 0;
	run->request->moves++;
	run_complete(run);
}

static void done_reading(struct shm *shm)
{
	atomic_store_explicit(&shm->page->finished, ++shm->reading, memory_order_release);
}

/* Waits until no other rank writes to this rank's results. A block takes microseconds, unless the
 * writer does not run. */
static void wait_for_writers(const struct shm *shm)
{
	uint64_t end_ns = clock_now_ns() + WRITERS_MS * NS_PER_MS;

	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		while (rank != shm->me &&
			atomic_load_explicit(
				&shm->peers[rank].page->is_writing, memory_order_acquire) &&
			clock_now_ns() < end_ns)
			sched_yield();
}

void shm_give_up(struct shm *shm)
{
	atomic_store_explicit(&shm->page->failed, true, memory_order_relaxed);
	/* The flag is visible before anything that the caller writes to the buffers. */
	atomic_thread_fence(memory_order_seq_cst);
	wait_for_writers(shm);
}

/* Checks that no owner of memory that was read has failed meanwhile. Returns 0 or the
 * communicator's error. */
static int check_owners(struct shm *shm, const struct shm_operation *operation)
{
	atomic_thread_fence(memory_order_acquire);
	for (uint32_t left = operation->elsewhere; left; left &= left - 1) {
		uint32_t rank = (uint32_t)__builtin_ctz(left);

		if (atomic_load_explicit(&shm->peers[rank].page->failed, memory_order_relaxed))
			return comm_fail_taken_back(shm->comm, (int)rank);
	}
	return 0;
}

/* Advances the oldest operation that still reads. Returns the number of steps, or the
 * communicator's error. */
static int step(struct shm *shm)
{
	struct shm_operation *operation = &shm->operations[shm->reading % SHM_SLOTS];
	int n = match(shm, operation), err;

	if (n <= 0)
		return n;
	if (operation->is_long) {
		n = shm_long_step(shm, operation);
		shm->work += WORK_DUE;
		if (n < 0 || !shm_long_is_done(operation))
			return n;
		n++;
	} else {
		shm_short_take(shm, operation);
		shm->work++;
	}
	err = check_owners(shm, operation);
	if (err)
		return err;
	done_reading(shm);
	if (!operation->is_read)
		complete(operation);
	return n;
}

/* Completes operations in order. Others may still read this rank's buffers after it has finished
 * reading. */
static int complete_in_order(struct shm *shm)
{
	int n = 0;

	while (shm->complete < shm->reading) {
		struct shm_operation *operation = &shm->operations[shm->complete % SHM_SLOTS];

		if (operation->is_read && !is_read_by_all(shm, shm->complete))
			break;
		if (operation->is_read)
			complete(operation);
		shm->complete++;
		n++;
	}
	return n;
}

/* Copies requested input, also before this rank has its own result: both ranks may have
 * requested a copy. */
static void help(struct shm *shm)
{
	const struct shm_operation *operation = &shm->operations[shm->complete % SHM_SLOTS];

	if (shm->complete < shm->published && operation->is_read && !operation->is_long)
		shm_short_help(shm, operation);
}

/* Returns whether an awaited rank has arrived, or has finished reading this rank's buffers.
 * Returns true if nothing is awaited. */
static bool has_arrived(void *arg)
{
	struct shm *shm = arg;
	const struct shm_operation *operation = &shm->operations[shm->reading % SHM_SLOTS];
	const struct shm_slot *slot;

	if (shm->reading < shm->published && operation->awaited) {
		slot = shm_slot_of(shm, (uint32_t)__builtin_ctz(operation->awaited), shm->reading);
		return atomic_load_explicit(&slot->sequence, memory_order_relaxed) ==
			shm->reading + 1;
	}
	return shm->complete == shm->reading || is_read_by_all(shm, shm->complete);
}

/* Waits for an event that is likely within a microsecond, before other transports are polled.
 * Skipped if there are other operations or if nothing arrived in recent waits. */
static void wait_a_moment(struct shm *shm)
{
	const struct frl_comm *comm = shm->comm;

	if (comm->tuner.oversubscription > 1 || comm->active.first != comm->active.last ||
		shm->missed_waits >= MISSED_MOST)
		return;
	if (!backoff_spin(has_arrived, shm))
		shm->missed_waits++;
}

int shm_advance(struct shm *shm, bool spins)
{
	int n = publish_all(shm), moved = 1;
	bool was_long = false;

	if (spins && n == 0)
		wait_a_moment(shm);
	for (int i = 0; i < STEPS && moved > 0 && !was_long && shm->reading < shm->published; i++) {
		was_long = shm->operations[shm->reading % SHM_SLOTS].is_long;
		moved = step(shm);
		if (moved < 0)
			return moved;
		n += moved;
	}
	n += complete_in_order(shm);
	help(shm);
	if (n > 0)
		shm->missed_waits = 0;
	return n;
}

bool shm_is_due(struct shm *shm)
{
	if (shm->work < WORK_DUE)
		return false;
	shm->work = 0;
	return true;
}

/* ---- awaited ranks */

static bool has_finished(const struct shm *shm, uint32_t rank, uint64_t number)
{
	return atomic_load_explicit(&shm->peers[rank].page->finished, memory_order_relaxed) >
		number;
}

bool shm_waits_for(const struct shm *shm, int peer)
{
	uint32_t rank = (uint32_t)peer;
	const struct shm_operation *operation = &shm->operations[shm->complete % SHM_SLOTS];

	if (rank == shm->me)
		return false;
	if (shm->complete < shm->published && operation->run)
		return operation->awaited ? operation->awaited >> rank & 1
					  : !has_finished(shm, rank, shm->complete);
	return shm->waiting && !shm->waiting->is_blocked && shm->published >= SHM_SLOTS &&
		!has_finished(shm, rank, shm->published - SHM_SLOTS);
}

/* Returns a rank's progress towards an operation. Only the order of the values has a meaning: a
 * rank in that operation is ahead of all ranks in earlier ones, and UINT64_MAX has finished it. */
static uint64_t progress_of(const struct shm *shm, uint32_t rank, uint64_t number)
{
	const struct shm_page *page = shm->peers[rank].page;
	const struct shm_progress *progress = &page->progress[number % SHM_SLOTS];
	uint64_t finished = atomic_load_explicit(&page->finished, memory_order_relaxed);

	if (finished > number)
		return UINT64_MAX;
	if (finished < number)
		return finished;
	return finished + shm_rounds(&progress->made, number) +
		shm_rounds(&progress->taken, number);
}

/* Returns the rank with the least progress of those that have not finished an operation; -1:
 * none. */
static int slowest(const struct shm *shm, uint64_t number)
{
	uint64_t least = UINT64_MAX;
	int slowest = -1;

	for (uint32_t rank = 0; rank < shm->ranks; rank++) {
		uint64_t progress;

		if (rank == shm->me)
			continue;
		progress = progress_of(shm, rank, number);
		if (progress < least) {
			least = progress;
			slowest = (int)rank;
		}
	}
	return slowest;
}

int shm_awaited(const struct shm *shm, const struct run *run)
{
	for (uint64_t number = shm->complete; number < shm->published; number++) {
		const struct shm_operation *operation = &shm->operations[number % SHM_SLOTS];

		if (operation->run != run)
			continue;
		return operation->awaited ? __builtin_ctz(operation->awaited)
					  : slowest(shm, number);
	}
	return shm->published < SHM_SLOTS ? -1 : slowest(shm, shm->published - SHM_SLOTS);
}

void shm_enqueue(struct run *run)
{
	struct shm *shm = run->comm->shm;

	run->next_self = NULL;
	*shm->waiting_end = run;
	shm->waiting_end = &run->next_self;
}
