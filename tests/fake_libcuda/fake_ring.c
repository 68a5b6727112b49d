/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The double of libcuda: the kernel ferrule_ring. Its blocks take turns by chance, a step at a
 * time: what one has seen may be old when it acts on it, and so old that all has gone on, since
 * some sleep for long between two steps. Others begin only when all the rest have ended, as where a
 * GPU has no room for them. It stays as long as the kernel does, by the same rules
 * (gpudirect/ring_body.h), and nothing else runs meanwhile.
 */
#include <string.h>
#include <time.h>

#include "gpudirect/ring_body.h"
#include "gpudirect/work_body.h"
#include "tests/fake_libcuda/fake_internal.h"

enum step { LATE, BEGIN, LOOK, FETCH, TAKE, WORK, FINISH, ENDED };

enum { SLEEPS_IN = 32, SLEEP_STEPS = 4096 }; /* one in so many times, for less than so many steps */

struct block {
	enum step step;
	bool is_first;
	uint64_t asleep_until;            /* run.n_steps */
	uint64_t begun_ns, since_ns, was; /* as ring_wait() of kernels.cu has them */
	uint64_t next;
	struct gpu_batch batch; /* the head, and one piece, at place 0 */
};

struct run {
	const struct fake_context *context;
	const struct gpu_ring_call *call;
	unsigned n;
	uint64_t random, n_steps;
	struct block blocks[GPU_RING_BLOCKS];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t draw(struct run *run)
{
	run->random = run->random * 6364136223846793005ull + 1442695040888963407ull;
	return run->random >> 33;
}

/* Its next step is this one, but others may do many before. */
static void go_on(struct run *run, struct block *block, enum step step)
{
	block->step = step;
	if (draw(run) % SLEEPS_IN == 0)
		block->asleep_until = run->n_steps + draw(run) % SLEEP_STEPS;
}

static void leave(struct run *run, struct block *block)
{
	ring_leave(run->call, run->n);
	block->step = ENDED;
}

/* Nothing to take: for how long? */
static void idle(struct run *run, struct block *block)
{
	uint64_t next = ring_load(&ring_state(run->call)->next), now = now_ns();

	if (next != block->was || ring_is_busy(run->call)) {
		block->was = next;
		block->since_ns = now;
	}
	if (run->call->last != 0 || now - block->since_ns >= run->call->idle_ns)
		leave(run, block);
}

static void look(struct run *run, struct block *block)
{
	if (ring_is_over(run->call, block->begun_ns, now_ns())) {
		leave(run, block);
		return;
	}
	block->next = ring_look(run->call, block->is_first);
	if (block->next == 0)
		idle(run, block);
	else
		go_on(run, block, FETCH);
}

static struct gpu_batch *slot_of(const struct run *run, const struct block *block)
{
	uint64_t number = block->next >> GPU_RING_UNIT_BITS;

	return &ring_of(run->call)->slots[number % GPU_RING_SLOTS];
}

static void fetch(struct run *run, struct block *block)
{
	const uint64_t *slot = (const uint64_t *)(const void *)slot_of(run, block);
	uint64_t *head = (uint64_t *)(void *)&block->batch;

	for (size_t i = 0; i < offsetof(struct gpu_batch, pieces) / sizeof(*head); i++)
		head[i] = ring_load(slot + i);
	go_on(run, block, TAKE);
}

static void take(struct run *run, struct block *block)
{
	bool is_mine = ring_take(run->call, block->next, block->batch.n_blocks);

	block->since_ns = now_ns();
	go_on(run, block, is_mine ? WORK : LOOK);
}

/* The one piece that this block has a part of, and where its bytes are. */
static bool find_piece(struct run *run, struct block *block, uint32_t unit, uint32_t *ret_piece)
{
	const struct gpu_batch *slot = slot_of(run, block);
	struct gpu_batch *batch = &block->batch;
	uint32_t piece = 0;
	bool is_there;

	while (unit >= batch->first_block[piece + 1])
		piece++;
	batch->pieces[0] = slot->pieces[piece];
	pthread_mutex_lock(&fake.lock);
	is_there = fake_pieces_translate(run->context, batch->pieces, 1) &&
		fake_done_translate(run->context, &batch->done);
	if (unit == 0)
		fake.stats.pieces += batch->n_pieces;
	pthread_mutex_unlock(&fake.lock);
	*ret_piece = piece;
	return is_there;
}

static bool work(struct run *run, struct block *block)
{
	const struct gpu_batch *batch = &block->batch;
	uint32_t unit = (uint32_t)(block->next & ((1U << GPU_RING_UNIT_BITS) - 1)), piece;
	uint64_t first, n, turn = draw(run);

	if (!find_piece(run, block, unit, &piece))
		return false;
	first = (uint64_t)(unit - batch->first_block[piece]) * GPU_BLOCK_THREADS;
	n = (uint64_t)(batch->first_block[piece + 1] - batch->first_block[piece]) *
		GPU_BLOCK_THREADS;
	/* An odd step goes through all of a power of two. */
	for (uint64_t i = 0; i < GPU_BLOCK_THREADS; i++)
		gpu_work_share(
			&batch->pieces[0], first + (turn + i * (turn | 1)) % GPU_BLOCK_THREADS, n);
	go_on(run, block, FINISH);
	return true;
}

static void finish(struct run *run, struct block *block)
{
	const struct gpu_batch *batch = &block->batch;

	ring_finish(run->call, block->next, batch->n_blocks, batch->done, batch->sequence);
	block->since_ns = now_ns();
	go_on(run, block, LOOK);
}

/* False: it has touched what it must not. */
static bool step(struct run *run, struct block *block)
{
	switch (block->step) {
	case BEGIN:
		block->since_ns = now_ns();
		block->is_first = ring_enter(run->call, block->since_ns, &block->begun_ns);
		block->was = ring_load(&ring_state(run->call)->next);
		block->step = LOOK;
		break;
	case LOOK: look(run, block); break;
	case FETCH: fetch(run, block); break;
	case TAKE: take(run, block); break;
	case WORK: return work(run, block);
	case FINISH: finish(run, block); break;
	default: break;
	}
	return true;
}

/* Those that sleep, and whether there were any. */
static bool wake(struct run *run)
{
	bool is_any = false;

	for (unsigned i = 0; i < run->n; i++) {
		is_any |= run->blocks[i].step != ENDED &&
			run->blocks[i].asleep_until > run->n_steps;
		run->blocks[i].asleep_until = 0;
	}
	return is_any;
}

/* One that may do a step; NULL: all have ended. */
static struct block *pick(struct run *run)
{
	unsigned from = (unsigned)(draw(run) % run->n), n_late;

	do {
		n_late = 0;
		for (unsigned i = 0; i < run->n; i++) {
			struct block *block = &run->blocks[(from + i) % run->n];

			n_late += block->step == LATE;
			if (block->step != ENDED && block->step != LATE &&
				block->asleep_until <= run->n_steps)
				return block;
		}
	} while (wake(run));
	for (unsigned i = 0; n_late && i < run->n; i++) {
		if (run->blocks[i].step != LATE)
			continue;
		run->blocks[i].step = BEGIN;
		return &run->blocks[i];
	}
	return NULL;
}

cu_result fake_ring_run(const struct fake_context *context, const struct gpu_ring_call *call,
	unsigned grid, uint64_t seed)
{
	struct run run = { .context = context, .call = call, .n = grid, .random = seed };
	struct block *block;
	unsigned n_idle = 0;

	for (unsigned i = 0; i < grid; i++)
		run.blocks[i].step = i > 0 && draw(&run) % 4 == 0 ? LATE : BEGIN;
	while ((block = pick(&run))) {
		if (!step(&run, block))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		run.n_steps++;
		n_idle = block->step == LOOK && block->next == 0 ? n_idle + 1 : 0;
		if (n_idle > grid && !wake(&run))
			nanosleep(&(struct timespec){ .tv_nsec = 2000 }, NULL);
	}
	return CUDA_SUCCESS;
}

bool fake_ring_translate(const struct fake_context *context, struct gpu_ring_call *call)
{
	uint8_t *ring = fake_reach(
		context, call->ring, sizeof(struct gpu_ring), true, "the ring of ferrule_ring");
	uint8_t *state = fake_reach(context, call->state, sizeof(struct gpu_ring_state), true,
		"the state of ferrule_ring");

	call->ring = (uint64_t)(uintptr_t)ring;
	call->state = (uint64_t)(uintptr_t)state;
	return ring && state;
}
