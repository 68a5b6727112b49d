/* SPDX-License-Identifier: BSD-3-Clause */
/* The pieces of one launch (gpudirect/kernels/launch.h): pieces that go together, against a map of
 * bytes, and the distribution of blocks. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/kernels/launch.h"
#include "lib/base/random.h"
#include "tests/fixtures/program.h"

enum { ROUNDS = 100, BASE = 4096 };

static struct launch launch;

/* The effect of pieces on a byte. */
enum { READ = 1, WRITTEN = 2 };

static uint8_t map[1 << 20];

static bool has(uint64_t at, uint64_t n, uint8_t use)
{
	for (uint64_t i = 0; i < n; i++)
		if (map[at - BASE + i] & use)
			return true;
	return false;
}

static void mark(uint64_t at, uint64_t n, uint8_t use)
{
	for (uint64_t i = 0; i < n; i++)
		map[at - BASE + i] |= use;
}

static bool takes(const struct gpu_work *work, uint64_t bytes)
{
	return !has(work->dst, bytes, READ | WRITTEN) && !has(work->src, bytes, WRITTEN) &&
		(work->action == GPU_COPY || !has(work->operand, bytes, WRITTEN)) &&
		(!work->also || !has(work->also, bytes, READ | WRITTEN));
}

/* A place of `bytes`, often close behind the last one. */
static uint64_t place(struct random_state *random, uint64_t room, uint64_t bytes, uint64_t *last)
{
	uint64_t at = BASE + random_below(random, room - bytes + 1);

	if (random_below(random, 2) && *last + bytes <= BASE + room)
		at = *last + random_below(random, 2);
	if (at + bytes > BASE + room)
		at = BASE;
	*last = at + bytes;
	return at;
}

static bool overlap(uint64_t a, uint64_t b, uint64_t bytes)
{
	return a < b + bytes && b < a + bytes;
}

static struct gpu_work some_work(struct random_state *random, uint64_t room, uint64_t last[4])
{
	uint64_t bytes = random_below(random, 40);
	struct gpu_work work = { .action = GPU_COPY, .count = bytes };

	if (random_below(random, 3) == 0) {
		work.action = GPU_REDUCE;
		work.dtype = FRL_UINT8;
	}
	work.dst = place(random, room, bytes, &last[0]);
	do
		work.src = place(random, room, bytes, &last[1]);
	while (overlap(work.src, work.dst, bytes));
	do
		work.operand = place(random, room, bytes, &last[2]);
	while (work.operand != work.dst && overlap(work.operand, work.dst, bytes));
	if (random_below(random, 4) == 0)
		do
			work.also = place(random, room, bytes, &last[3]);
		while (overlap(work.also, work.dst, bytes) || overlap(work.also, work.src, bytes) ||
			overlap(work.also, work.operand, bytes));
	return work;
}

/* In little room most pieces are refused. */
START_LOOP_TEST(pieces_beside_each_other, 4)
{
	static const uint64_t rooms[] = { 512, 8192, 65536, sizeof(map) };
	const uint64_t room = rooms[_i];
	struct random_state random;
	uint32_t most = 0;

	random_seed(&random, (uint64_t)_i + 1);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t last[4] = { BASE, BASE, BASE, BASE };

		launch.max_pieces = round % 2 ? GPU_BATCH_MANY : GPU_BATCH_PIECES;
		launch_clear(&launch);
		memset(map, 0, room);
		for (int i = 0; i < 2 * GPU_BATCH_MANY; i++) {
			struct gpu_work work = some_work(&random, room, last);
			uint32_t n = launch.batch.n_pieces;
			bool wanted = n < launch.max_pieces && takes(&work, work.count);
			bool is_taken = launch_takes(&launch, &work);

			/* Beyond so many it may begin a new launch for what would fit. */
			ck_assert(is_taken == wanted || (wanted && n > GPU_BATCH_PIECES));
			if (!is_taken)
				continue;
			launch_add(&launch, &work);
			mark(work.dst, work.count, WRITTEN);
			mark(work.src, work.count, READ);
			if (work.action == GPU_REDUCE && work.operand != work.dst)
				mark(work.operand, work.count, READ);
			if (work.also)
				mark(work.also, work.count, WRITTEN);
		}
		if (launch.batch.n_pieces > most)
			most = launch.batch.n_pieces;
	}
	ck_assert_uint_ge(most, room < 1024 ? 5 : GPU_BATCH_PIECES + 1);
}
END_TEST

/* The contents of a burst, and whether it is one launch: packets of that many messages in turns,
 * which lie anywhere in host memory. */
static const struct {
	int messages;
	bool is_mixed; /* every second packet leaves */
	uint32_t least;
} bursts[] = {
	{ 1, false, GPU_BATCH_MANY },
	{ 4, false, GPU_BATCH_MANY },
	{ 16, false, GPU_BATCH_MANY },
	{ 64, false, 2 * GPU_BATCH_PIECES },
	{ 1, true, GPU_BATCH_PIECES },
	{ 64, true, GPU_BATCH_PIECES },
};

START_LOOP_TEST(bursts_go_together, ROWS(bursts))
{
	enum { PACKET = 1024, PACKETS = 509 };
	const uint64_t tensor = UINT64_C(1) << 40, other = UINT64_C(1) << 41;
	int n_messages = bursts[_i].messages;

	launch.max_pieces = GPU_BATCH_MANY;
	launch_clear(&launch);
	for (int i = 0;; i++) {
		uint64_t message = (uint64_t)(i % n_messages) << 24;
		uint64_t offset = message + (uint64_t)(i / n_messages) * PACKET;
		uint64_t packet = BASE + (uint64_t)(i * 100 % PACKETS) * 2 * PACKET;
		bool leaves = bursts[_i].is_mixed && i % 2;
		struct gpu_work work = { .action = GPU_COPY,
			.dst = leaves ? packet : tensor + offset,
			.src = leaves ? other + offset : packet,
			.count = PACKET };

		if (!launch_takes(&launch, &work))
			break;
		launch_add(&launch, &work);
	}
	ck_assert_uint_ge(launch.batch.n_pieces, bursts[_i].least);
}
END_TEST

/* A full launch: each piece has a block at least, and no more in all than there are. */
START_LOOP_TEST(blocks, 4)
{
	static const uint32_t max_blocks[] = { 1, 264, 600, 4096 };
	struct gpu_batch_many *batch = &launch.batch;

	launch.max_pieces = GPU_BATCH_MANY;
	launch_clear(&launch);
	for (uint64_t i = 0; i < GPU_BATCH_MANY; i++)
		launch_add(&launch,
			&(struct gpu_work){ .action = GPU_COPY,
				.dst = (2 * i + 1) << 32,
				.src = (2 * i + 2) << 32,
				.count = 1 + i * 500 });
	launch_deal(&launch, max_blocks[_i]);
	ck_assert_uint_eq(batch->first_block[0], 0);
	for (uint32_t i = 0; i < GPU_BATCH_MANY; i++)
		ck_assert_uint_lt(batch->first_block[i], batch->first_block[i + 1]);
	ck_assert_uint_eq(batch->first_block[GPU_BATCH_MANY], batch->n_blocks);
	ck_assert_uint_le(
		batch->n_blocks, max_blocks[_i] > GPU_BATCH_MANY ? max_blocks[_i] : GPU_BATCH_MANY);
}
END_TEST

TEST_FILE(gpu_batch)
