/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules by which blocks of `ferrule_ring` share batches (gpudirect/ring_body.h), with threads
 * as blocks: each step of one may fall between any two of another. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "tests/unit/gpu_launch.h"

static void pause_sometimes(void);

#define RING_PAUSE pause_sometimes
#include "gpudirect/ring_body.h"

enum {
	BLOCKS = 4,
	BATCHES = 20000,
	UNITS = 5,
	IDLE_NS = 20000,
	TOTAL_NS = 200000,
	SLEEPS_IN = 5000,
	YIELDS_IN = 20,
};

static struct gpu_ring ring;
static struct gpu_ring_state state;
static uint64_t done;
/* Units of batches write here: no atomics, so that a race shows. */
static uint8_t payload[BATCHES + 1][UNITS];
static _Atomic uint64_t launched;
static atomic_bool is_over;
static atomic_uint n_wrong;

/* The dice of a thread that is a block; NULL: of another one. */
static _Thread_local struct random_state *dice;

static void pause_sometimes(void)
{
	if (!dice || random_below(dice, YIELDS_IN))
		return;
	if (random_below(dice, SLEEPS_IN / YIELDS_IN) == 0)
		pause_us((unsigned)random_below(dice, 300));
	else
		sched_yield();
}

/* The units of a batch. */
static uint32_t n_units(uint64_t number)
{
	return (uint32_t)(1 + number * 7 % UNITS);
}

static struct gpu_batch *slot_of(uint64_t number)
{
	return &ring.slots[number % GPU_RING_SLOTS];
}

static void fill(uint64_t number)
{
	struct gpu_batch *slot = slot_of(number);
	uint64_t word = 0;
	uint32_t counts[2] = { 1, n_units(number) };

	memcpy(&word, counts, sizeof(word));
	ring_store(&slot->done, (uint64_t)(uintptr_t)&done);
	ring_store(&slot->sequence, number);
	ring_store((uint64_t *)(void *)&slot->n_pieces, word);
	ring_store(&ring.head, number);
}

/* A head, of which n_blocks, done and sequence are wanted. */
static void fetch(uint64_t number, struct gpu_batch *ret_head)
{
	const struct gpu_batch *slot = slot_of(number);
	uint64_t word = ring_load((const uint64_t *)(const void *)&slot->n_pieces);
	uint32_t counts[2];

	memcpy(counts, &word, sizeof(word));
	ret_head->n_blocks = counts[1];
	ret_head->done = ring_load(&slot->done);
	ret_head->sequence = ring_load(&slot->sequence);
}

static bool is_whole(uint64_t number)
{
	for (uint32_t i = 0; i < n_units(number); i++)
		if (payload[number][i] != 1)
			return false;
	return true;
}

static void reset(void)
{
	memset(&ring, 0, sizeof(ring));
	memset(&state, 0, sizeof(state));
	memset(payload, 0, sizeof(payload));
	state.next = UINT64_C(1) << GPU_RING_UNIT_BITS;
	done = 0;
}

static struct gpu_ring_call call_of(uint64_t generation)
{
	return (struct gpu_ring_call){ .ring = (uint64_t)(uintptr_t)&ring,
		.state = (uint64_t)(uintptr_t)&state,
		.generation = generation,
		.idle_ns = IDLE_NS,
		.total_ns = TOTAL_NS };
}

static void work(uint64_t next, uint32_t n_blocks)
{
	uint64_t number = next >> GPU_RING_UNIT_BITS;
	uint32_t unit = (uint32_t)(next & ((1U << GPU_RING_UNIT_BITS) - 1));

	if (n_blocks != n_units(number) || unit >= n_blocks ||
		(number > 1 && !is_whole(number - 1))) {
		atomic_fetch_add(&n_wrong, 1);
		return;
	}
	payload[number][unit]++;
}

/* ---- one that is late */

/* A block has seen what is next, and its head; all blocks of that batch are taken, and then so many
 * others that the slot has been filled in again, when it goes on. */
START_TEST(block_is_late)
{
	enum { FIRST = 3, LAST = FIRST + 2 * GPU_RING_SLOTS };
	struct gpu_ring_call call = call_of(1);
	struct gpu_batch late[UNITS], head;
	struct gpu_ring_state before;
	uint64_t nexts[UNITS], begun, next;
	unsigned n_late = 0;

	reset();
	ck_assert(ring_enter(&call, 1, &begun));
	for (uint64_t number = 1; number <= LAST; number++) {
		fill(number);
		while ((next = ring_look(&call, 1)) != 0) {
			fetch(number, &head);
			if (number == FIRST) {
				nexts[n_late] = next;
				fetch(number, &late[n_late++]);
			}
			ck_assert(ring_take(&call, next, head.n_blocks));
			ck_assert(ring_is_busy(&call));
			work(next, head.n_blocks);
			ring_finish(&call, next, head.n_blocks, head.done, head.sequence);
		}
		ck_assert_uint_eq(done, number);
		ck_assert(!ring_is_busy(&call));
		ck_assert(is_whole(number));
		before = state;
		for (unsigned i = 0; i < n_late; i++) {
			ck_assert(!ring_take(&call, nexts[i], late[i].n_blocks));
			/* It has read the later batch. */
			ck_assert(!ring_take(&call, nexts[i], n_units(number)));
			ck_assert(!ring_take(&call, nexts[i], 0));
		}
		ck_assert_mem_eq(&state, &before, sizeof(state));
		ck_assert_uint_eq(ring.passed, number);
	}
	ck_assert_uint_eq(n_late, n_units(FIRST));
	ck_assert_uint_eq(atomic_load(&n_wrong), 0);
}
END_TEST

/* One for which there was no room until the kernel's time was over does not stay. */
START_TEST(block_has_no_room)
{
	struct gpu_ring_call call = call_of(1);
	uint64_t begun, late;

	reset();
	ck_assert(ring_enter(&call, 1000, &begun));
	ck_assert(!ring_is_over(&call, begun, 1000 + TOTAL_NS - 1));
	ck_assert(!ring_enter(&call, 1000 + TOTAL_NS, &late));
	ck_assert(ring_is_over(&call, late, 1000 + TOTAL_NS));
	/* A clock that is behind. */
	ck_assert(!ring_is_over(&call, begun, 999));
	ring_leave(&call, 2);
	ck_assert_uint_eq(ring.ended, 0);
	ring_leave(&call, 2);
	ck_assert_uint_eq(ring.ended, 1);
	/* The next kernel's time is its own. */
	ck_assert(ring_enter(&call, 5000, &begun));
	ck_assert_uint_eq(begun, 5000);
}
END_TEST

/* ---- all of them */

/* As ring_wait() of kernels.cu. */
static uint64_t wait_for_work(const struct gpu_ring_call *call, int is_first, uint64_t begun)
{
	uint64_t since = clock_now_ns(), was = ring_load(&state.next);

	for (;;) {
		uint64_t next, now = clock_now_ns();

		if (ring_is_over(call, begun, now))
			return 0;
		next = ring_look(call, is_first);
		if (next != 0)
			return next;
		next = ring_load(&state.next);
		if (next != was || ring_is_busy(call)) {
			was = next;
			since = now;
		}
		if (now - since >= call->idle_ns)
			return 0;
		sched_yield();
	}
}

static void run_kernel(uint64_t generation)
{
	struct gpu_ring_call call = call_of(generation);
	uint64_t begun, next;
	int is_first = ring_enter(&call, clock_now_ns(), &begun);

	while ((next = wait_for_work(&call, is_first, begun)) != 0) {
		struct gpu_batch head;

		fetch(next >> GPU_RING_UNIT_BITS, &head);
		if (!ring_take(&call, next, head.n_blocks))
			continue;
		work(next, head.n_blocks);
		ring_finish(&call, next, head.n_blocks, head.done, head.sequence);
	}
	ring_leave(&call, BLOCKS);
}

static void *block_main(void *seed)
{
	struct random_state random;

	random_seed(&random, (uint64_t)(uintptr_t)seed);
	dice = &random;
	for (uint64_t generation = 1;; generation++) {
		while (atomic_load(&launched) < generation) {
			if (atomic_load(&is_over))
				return NULL;
			sched_yield();
		}
		run_kernel(generation);
	}
}

/* The processor's part: up to the next batch, or the end of all of them. */
static bool go_on(uint64_t *number)
{
	uint64_t passed = ring_load(&ring.passed), last = ring_load(&done);

	if (last > 0 && !is_whole(last))
		atomic_fetch_add(&n_wrong, 1);
	if (*number <= BATCHES && *number - passed < GPU_RING_SLOTS)
		fill((*number)++);
	if (ring_load(&ring.ended) == atomic_load(&launched)) {
		if (last == BATCHES)
			return false;
		atomic_fetch_add(&launched, 1);
	}
	return true;
}

/* However they come between each other: each unit once, batches in order, and what is shared is as
 * it was when a kernel has ended. */
START_TEST(blocks_come_between)
{
	uint64_t number = 1, end_ns = hang_limit_ns();
	pthread_t threads[BLOCKS];

	reset();
	for (uintptr_t i = 0; i < BLOCKS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, block_main, (void *)(i + 1)), 0);
	while (go_on(&number) && clock_now_ns() < end_ns && atomic_load(&n_wrong) == 0)
		sched_yield();
	atomic_store(&is_over, true);
	ck_assert_uint_eq(ring_load(&done), BATCHES);
	for (int i = 0; i < BLOCKS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&n_wrong), 0);
	for (number = 1; number <= BATCHES; number++)
		ck_assert(is_whole(number));
	ck_assert_uint_eq(ring.passed, BATCHES);
	ck_assert_uint_eq(state.completed, BATCHES);
	ck_assert_uint_eq(state.finished, 0);
	ck_assert_uint_eq(state.entered, 0);
	ck_assert_uint_eq(state.left, 0);
	ck_assert_uint_eq(state.begun, 0);
}
END_TEST

void launch_add_ring_tests(Suite *suite)
{
	add_tests(suite, NULL, NULL);
}
