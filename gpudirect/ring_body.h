/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a block of `ferrule_ring` comes to its work. kernels.cu compiles these lines for GPUs, where
 * a block's first thread runs them; the double of the driver compiles them for the processor.
 *
 * Words that others write are loaded as such each time; a fence stands between what they say and
 * what is read because of it, and before what is said because of what was written. On a GPU the
 * fence also drops what the multiprocessor has cached: payload that has come while the kernel runs
 * is found.
 */
#ifndef FERRULE_GPUDIRECT_RING_BODY_H
#define FERRULE_GPUDIRECT_RING_BODY_H

#include "gpudirect/ring.h"

#ifdef __CUDACC__
#define RING_BODY static __device__ __forceinline__

RING_BODY uint64_t ring_load(const uint64_t *word)
{
	return *(const volatile uint64_t *)word;
}

RING_BODY void ring_store(uint64_t *word, uint64_t value)
{
	*(volatile uint64_t *)word = value;
}

RING_BODY int ring_swap(uint64_t *word, uint64_t from, uint64_t to)
{
	return atomicCAS((unsigned long long *)word, from, to) == from;
}

RING_BODY uint32_t ring_count(uint32_t *word)
{
	return atomicAdd(word, 1);
}

RING_BODY void ring_fence(void)
{
	__threadfence_system();
}
#else
#define RING_BODY static inline __attribute__((unused))

/* Where others may come between, for tests. */
#ifndef RING_PAUSE
#define RING_PAUSE() ((void)0)
#endif

RING_BODY uint64_t ring_load(const uint64_t *word)
{
	RING_PAUSE();
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

RING_BODY void ring_store(uint64_t *word, uint64_t value)
{
	RING_PAUSE();
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	RING_PAUSE();
}

RING_BODY int ring_swap(uint64_t *word, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

RING_BODY uint32_t ring_count(uint32_t *word)
{
	uint32_t before = __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);

	RING_PAUSE();
	return before;
}

/* The loads and stores above are in order as they are. */
RING_BODY void ring_fence(void)
{
}
#endif

RING_BODY struct gpu_ring *ring_of(const struct gpu_ring_call *call)
{
	return (struct gpu_ring *)call->ring;
}

RING_BODY struct gpu_ring_state *ring_state(const struct gpu_ring_call *call)
{
	return (struct gpu_ring_state *)call->state;
}

/* A block begins; `now` is not 0. True: it is the first of its kernel, and looks for new batches
 * for all. *ret_begun: when the kernel has begun, from which its time counts: blocks for which
 * there was no room until others ended add nothing to it. */
RING_BODY int ring_enter(const struct gpu_ring_call *call, uint64_t now, uint64_t *ret_begun)
{
	struct gpu_ring_state *state = ring_state(call);

	*ret_begun = now;
	if (call->last != 0)
		return 0;
	if (!ring_swap(&state->begun, 0, now))
		*ret_begun = ring_load(&state->begun);
	return ring_count(&state->entered) == 0;
}

/* Whether the kernel's time is over. The clock may be a little late where another block reads
 * it. */
RING_BODY int ring_is_over(const struct gpu_ring_call *call, uint64_t begun, uint64_t now)
{
	return call->last == 0 && now > begun && now - begun >= call->total_ns;
}

/* It ends. The last one of `n` tells. */
RING_BODY void ring_leave(const struct gpu_ring_call *call, uint32_t n)
{
	struct gpu_ring_state *state = ring_state(call);

	if (call->last != 0)
		return;
	ring_fence();
	if (ring_count(&state->left) != n - 1)
		return;
	ring_fence();
	state->begun = 0;
	state->entered = 0;
	state->left = 0;
	ring_fence();
	ring_store(&ring_of(call)->ended, call->generation);
}

/* What is to be taken next (gpu_ring_state.next); 0: nothing, for now. */
RING_BODY uint64_t ring_look(const struct gpu_ring_call *call, int is_first)
{
	struct gpu_ring_state *state = ring_state(call);
	uint64_t seen = call->last, next;

	if (is_first) {
		seen = ring_load(&ring_of(call)->head);
		ring_fence();
		ring_store(&state->seen, seen);
	} else if (call->last == 0) {
		seen = ring_load(&state->seen);
	}
	next = ring_load(&state->next);
	if (next >> GPU_RING_UNIT_BITS > seen ||
		ring_load(&state->completed) + 1 != next >> GPU_RING_UNIT_BITS)
		return 0;
	ring_fence();
	return next;
}

/* Whether a block works on something. Whoever finds nothing to do then stays, for the next
 * batch. */
RING_BODY int ring_is_busy(const struct gpu_ring_call *call)
{
	struct gpu_ring_state *state = ring_state(call);
	uint64_t next = ring_load(&state->next);

	return next != (ring_load(&state->completed) + 1) << GPU_RING_UNIT_BITS;
}

/* The batch of which a block has had its part, or that is none, is done as a whole. */
RING_BODY void ring_complete(const struct gpu_ring_call *call, uint64_t number)
{
	ring_fence();
	ring_store(&ring_of(call)->passed, number);
	ring_store(&ring_state(call)->completed, number);
}

/* Takes it; n_blocks is that of its batch. False: another one has, or there is nothing in it. What
 * n_blocks was read from may be another batch's by now: then another one has. */
RING_BODY int ring_take(const struct gpu_ring_call *call, uint64_t next, uint32_t n_blocks)
{
	uint64_t number = next >> GPU_RING_UNIT_BITS;
	uint32_t unit = (uint32_t)(next & ((1U << GPU_RING_UNIT_BITS) - 1));
	uint64_t after = unit + 1 < n_blocks ? next + 1 : (number + 1) << GPU_RING_UNIT_BITS;

	if (!ring_swap(&ring_state(call)->next, next, after))
		return 0;
	if (n_blocks != 0)
		return 1;
	ring_complete(call, number);
	return 0;
}

/* All threads of the block are through with it. `done` and `sequence` are its batch's. */
RING_BODY void ring_finish(const struct gpu_ring_call *call, uint64_t next, uint32_t n_blocks,
	uint64_t done, uint64_t sequence)
{
	struct gpu_ring_state *state = ring_state(call);

	ring_fence();
	if (n_blocks > 1) {
		if (ring_count(&state->finished) != n_blocks - 1)
			return;
		state->finished = 0;
		ring_fence();
	}
	ring_store((uint64_t *)done, sequence);
	ring_complete(call, next >> GPU_RING_UNIT_BITS);
}

#endif
