/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues of work for a GPU, on the double of the driver: pieces against a model that does them one
 * by one, at every possible progress of the GPU; pieces that go together; pieces without room. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpudirect/kernels/batch.h"
#include "gpudirect/kernels/image.h"
#include "lib/base/random.h"
#include "tests/unit/gpudirect/gpu_queue_fixture.h"
#include "tests/fixtures/patience.h"
#include "tests/fixtures/program.h"

enum {
	MAX_PIECES = 150,
	SEEDS = 1000,
	SEEDS_EACH = 50, /* in one process */
};

/* ---- against a model */

/* Both arenas after each ticket. */
static uint8_t states[MAX_PIECES + 1][2 * ARENA];

/* The place in a state of an address of the GPU's. */
static uint8_t *place(uint8_t *state, uint64_t address)
{
	if (address >= arena && address < arena + ARENA)
		return state + (address - arena);
	return state + ARENA + (address - host);
}

static void model(uint8_t *state, const struct gpu_work *work)
{
	uint64_t bytes = gpu_work_dst_bytes(work);
	uint8_t result[ARENA];

	if (work->action == GPU_COPY)
		memcpy(result, place(state, work->src), bytes);
	else
		frl_reduce_local_plain(result, place(state, work->operand), place(state, work->src),
			work->count, (enum frl_dtype)work->dtype, (enum frl_op)work->op);
	memcpy(place(state, work->dst), result, bytes);
	if (work->also)
		memcpy(place(state, work->also), result, bytes);
}

static uint64_t somewhere(struct random_state *random, uint64_t bytes)
{
	uint64_t offset = random_below(random, ARENA - bytes + 1);

	return (random_below(random, 2) ? arena : host) + offset;
}

static bool overlap(uint64_t a, uint64_t b, uint64_t bytes)
{
	return a < b + bytes && b < a + bytes;
}

/* A piece whose own ranges do not overlap, but as the contract allows it. */
static struct gpu_work some_work(struct random_state *random)
{
	static const uint8_t dtypes[] = { FRL_UINT8, FRL_INT32, FRL_FLOAT16, FRL_UINT64 };
	struct gpu_work work = { .action = GPU_COPY };
	uint64_t bytes;

	work.count = random_below(random, random_below(random, 4) ? 16 : ARENA / 64);
	if (random_below(random, 2)) {
		work.action = GPU_REDUCE;
		work.dtype = dtypes[random_below(random, 4)];
		work.op = (uint8_t)random_below(random, FRL_MIN + 1);
	}
	bytes = gpu_work_dst_bytes(&work);
	work.src = somewhere(random, bytes);
	do
		work.dst = somewhere(random, bytes);
	while (overlap(work.dst, work.src, bytes));
	work.operand = work.dst;
	if (random_below(random, 2))
		do
			work.operand = somewhere(random, bytes);
		while (overlap(work.dst, work.operand, bytes));
	if (random_below(random, 4) == 0)
		do
			work.also = somewhere(random, bytes);
		while (overlap(work.also, work.dst, bytes) || overlap(work.also, work.src, bytes) ||
			overlap(work.also, work.operand, bytes));
	return work;
}

static bool is_as_after(uint64_t ticket)
{
	uint8_t state[2 * ARENA];

	ck_assert(fake->read(state, arena, ARENA));
	memcpy(state + ARENA, memory, ARENA);
	return memcmp(state, states[ticket], sizeof(state)) == 0;
}

/* Memory is exactly as after the ticket that is done last: the GPU is held between the launches. */
static void compare(uint64_t seed)
{
	uint64_t done = gpu_queue_done(queue);

	ck_assert_msg(is_as_after(done), "seed %llu: not as it was after ticket %llu",
		(unsigned long long)seed, (unsigned long long)done);
}

static void one_seed(uint64_t seed)
{
	struct random_state random;
	uint64_t given = 0, busy = 0;

	random_seed(&random, seed);
	fake->set_seed(seed);
	fake->set_host_apart(seed % 2);
	queue_begin();
	for (int i = 0; i < 2 * ARENA; i++)
		states[0][i] = (uint8_t)random_u64(&random);
	ck_assert(fake->write(arena, states[0], ARENA));
	memcpy(memory, states[0] + ARENA, ARENA);
	fake->hold(true);
	while (given < MAX_PIECES) {
		struct gpu_work work = some_work(&random);
		uint64_t ticket = gpu_queue_add(queue, &work);

		if (ticket) {
			ck_assert_uint_eq(ticket, ++given);
			memcpy(states[given], states[given - 1], sizeof(states[0]));
			model(states[given], &work);
		} else {
			busy++;
		}
		if (random_below(&random, 8) == 0)
			gpu_queue_launch(queue);
		if (!ticket || random_below(&random, 6) == 0) {
			for (uint64_t i = random_below(&random, 3) + 1; i > 0; i--) {
				fake->step(1);
				compare(seed);
			}
		}
		if (ticket && random_below(&random, 40) == 0)
			fake->fail_call("cuLaunchKernel", 1, CUDA_ERROR_OUT_OF_MEMORY,
				1 + (unsigned)random_below(&random, 3));
	}
	ck_assert_msg(busy < 100000, "it has no room for long");
	fake->fail_call(NULL, 0, 0, 0);
	while (gpu_queue_done(queue) < given) {
		gpu_queue_launch(queue);
		fake->step(1);
		compare(seed);
	}
	ck_assert_str_eq(why(queue), "");
	ck_assert_str_eq(fake->fault(), "");
	queue_end();
}

START_LOOP_TEST(random_pieces, SEEDS / SEEDS_EACH)
{
	uint64_t first = 1 + (uint64_t)_i * SEEDS_EACH;

	for (uint64_t seed = first; seed < first + SEEDS_EACH; seed++)
		one_seed(seed);
}
END_TEST

/* ---- launches */

START_TEST(pieces_go_together)
{
	struct gpu_queue_stats stats;
	struct fake_cuda_stats driver;
	uint64_t most;

	queue_begin();
	most = gpu_queue_max_pieces(queue);
	ck_assert_uint_eq(most, image_many.bytes ? GPU_BATCH_MANY : GPU_BATCH_PIECES);
	fake->hold(true);
	for (uint64_t i = 0; i < most; i++)
		ck_assert_uint_eq(add(copy(arena + i * 4, host + i * 4, 4)), i + 1);
	/* It is full, so that it goes by itself; the next two are one more. */
	ck_assert_uint_ne(add(copy(arena + 1936, host, 4)), 0);
	ck_assert_uint_ne(add(copy(arena + 1940, host, 4)), 0);
	gpu_queue_stats(queue, &stats);
	ck_assert_uint_eq(stats.launches, 1);
	gpu_queue_launch(queue);
	gpu_queue_launch(queue);
	fake->hold(false);
	wait_done(queue, most + 2);
	gpu_queue_stats(queue, &stats);
	fake->stats(&driver);
	ck_assert_uint_eq(stats.launches, 2);
	ck_assert_uint_eq(driver.launches, 2);
	ck_assert_uint_eq(driver.large_launches, most == GPU_BATCH_MANY);
	ck_assert_uint_eq(stats.pieces, most + 2);
	ck_assert_uint_eq(stats.bytes, (most + 2) * 4);
	ck_assert_uint_eq(stats.retries, 0);
	queue_end();
}
END_TEST

/* As an nvcc of CUDA 12 makes it. */
static const struct image_data cuda_12 = { .bytes = "for the double of the driver",
	.size = 28,
	.toolkit = 12000,
	.codes = { 75, 80, 90 },
	.ptx = 75 };
static const struct image_data no_image = { .bytes = NULL };

/* The number of pieces of a launch, and so the way they are passed. */
static const struct {
	const struct image_data *many;
	int driver;
	uint64_t pieces, launches, large;
} counts[] = {
	{ &cuda_12, 13000, 1, 1, 0 },
	{ &cuda_12, 13000, 60, 1, 0 },
	{ &cuda_12, 13000, 61, 1, 1 },
	{ &cuda_12, 12010, 480, 1, 1 },
	{ &cuda_12, 12010, 481, 2, 1 },
	{ &cuda_12, 12010, 900, 2, 2 },
	/* The driver takes no such parameter, or nvcc has made no kernel that has one. */
	{ &cuda_12, 12000, 60, 1, 0 },
	{ &cuda_12, 12000, 61, 2, 0 },
	{ &cuda_12, 12000, 480, 8, 0 },
	{ &no_image, 12010, 61, 2, 0 },
	{ &no_image, 13000, 481, 9, 0 },
};

START_LOOP_TEST(pieces_of_a_launch, ROWS(counts))
{
	struct fake_cuda_stats driver;
	uint64_t n = counts[_i].pieces;

	image_use(&cuda_12, counts[_i].many);
	fake->set_version(counts[_i].driver);
	queue_begin();
	for (uint64_t i = 0; i < ARENA; i++)
		memory[i] = (uint8_t)(i * 7 + i / 256);
	fake->hold(true);
	/* Every second byte is written, so that no two ranges are one. */
	for (uint64_t i = 0; i < n; i++)
		ck_assert_uint_eq(add(copy(arena + 2 * i, host + i, 1)), i + 1);
	gpu_queue_launch(queue);
	fake->stats(&driver);
	ck_assert_uint_eq(driver.launches, counts[_i].launches);
	ck_assert_uint_eq(driver.large_launches, counts[_i].large);
	fake->hold(false);
	wait_done(queue, n);
	ck_assert_str_eq(why(queue), "");
	for (uint64_t i = 0; i < n; i++)
		ck_assert_uint_eq(*(uint8_t *)fake->look(arena + 2 * i, 1), memory[i]);
	queue_end();
	image_use(NULL, NULL);
}
END_TEST

/* The effect of the next piece on the first one's bytes, and whether the two go together. */
static const struct {
	const char *name;
	int dst, src; /* of the second; the first copies [256, 320) to [0, 64) and [1024, 1088) */
	bool is_apart;
	int also;
} seconds[] = {
	{ "reads what is read", 512, 256, true, 0 },
	{ "follows closely", 64, 320, true, 0 },
	{ "is close before", 960, 192, true, 0 },
	{ "reads what is written", 512, 0, false, 0 },
	{ "reads the last byte that is written", 512, 63, false, 0 },
	{ "writes what is written", 0, 512, false, 0 },
	{ "writes the last byte that is written", 63, 512, false, 0 },
	{ "writes what is read", 256, 512, false, 0 },
	{ "writes the last byte that is read", 319, 512, false, 0 },
	{ "reads what is written besides", 512, 961, false, 0 },
	{ "writes what is written besides", 1087, 512, false, 0 },
	{ "writes besides what is written", 512, 640, false, 63 },
	{ "writes besides what is written besides", 512, 640, false, 1087 },
	{ "writes besides what is read", 512, 640, false, 319 },
	{ "writes beside all that", 512, 640, true, 1088 },
};

START_LOOP_TEST(conflicts, ROWS(seconds))
{
	uint64_t base = arena;
	struct gpu_queue_stats stats;
	struct gpu_work first, second;

	queue_begin();
	base = arena;
	first = copy(base, base + 256, 64);
	first.also = base + 1024;
	second = copy(base + (uint64_t)seconds[_i].dst, base + (uint64_t)seconds[_i].src, 64);
	second.also = seconds[_i].also ? base + (uint64_t)seconds[_i].also : 0;
	add(first);
	add(second);
	gpu_queue_launch(queue);
	wait_done(queue, 2);
	gpu_queue_stats(queue, &stats);
	ck_assert_msg(stats.launches == (seconds[_i].is_apart ? 1 : 2), "%s: %llu launches",
		seconds[_i].name, (unsigned long long)stats.launches);
	queue_end();
}
END_TEST

/* A long piece has several blocks, a short one beside it keeps its own. */
START_LOOP_TEST(long_and_short, 4)
{
	enum { LONG = 40 * 4096 + 5 };
	cu_deviceptr large;

	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1 + _i * 40);
	queue_begin();
	large = allocate(gpu->context, LONG);
	for (int i = 0; i < LONG; i++)
		memory[i] = (uint8_t)(i * 7 + i / 256);
	add(copy(large, host, LONG));
	for (uint64_t i = 0; i < 20; i++)
		add(copy(arena + i * 8, host + i * 3, i % 8));
	gpu_queue_launch(queue);
	wait_done(queue, 21);
	ck_assert_mem_eq(fake->look(large, LONG), memory, LONG);
	for (uint64_t i = 0; i < 20; i++)
		if (i % 8)
			ck_assert_mem_eq(fake->look(arena + i * 8, i % 8), memory + i * 3, i % 8);
	release(gpu->context, large);
	queue_end();
}
END_TEST

START_TEST(is_full)
{
	uint64_t n = 0, m = 0;

	queue_begin();
	fake->hold(true);
	/* They touch nothing together: only their number counts. */
	while (add(copy(arena, host, 0)))
		n++;
	ck_assert_uint_eq(n, GPU_QUEUE_PIECES);
	ck_assert_uint_eq(gpu_queue_done(queue), 0);
	fake->hold(false);
	gpu_queue_launch(queue);
	wait_done(queue, n);
	/* Each in a launch of its own. */
	fake->hold(true);
	while (add(copy(arena, host, 8)))
		m++;
	ck_assert_uint_ge(m, 100);
	ck_assert_uint_lt(m, 1000);
	fake->hold(false);
	gpu_queue_launch(queue);
	wait_done(queue, n + m - 1);
	ck_assert_uint_eq(add(copy(arena, host, 8)), n + m + 1);
	gpu_queue_launch(queue);
	wait_done(queue, n + m + 1);
	ck_assert_str_eq(why(queue), "");
	queue_end();
}
END_TEST

/* Pieces without room in the stream leave when there is room, requested once more or not. */
START_TEST(waits_for_the_stream)
{
	enum { N = 300 };
	struct gpu_queue_stats stats;
	uint64_t n = 0;

	queue_begin();
	fake->hold(true);
	memset(memory, 7, 8);
	while (n < N && add(copy(arena, host, 8))) {
		n++;
		gpu_queue_launch(queue);
	}
	gpu_queue_stats(queue, &stats);
	ck_assert_uint_lt(n, N);
	ck_assert_uint_eq(stats.launches, n - 1);
	ck_assert_uint_eq(gpu_queue_done(queue), 0);
	fake->hold(false);
	wait_done(queue, n);
	gpu_queue_stats(queue, &stats);
	ck_assert_uint_eq(stats.launches, n);
	ck_assert_uint_eq(stats.retries, 0);
	ck_assert_mem_eq(fake->look(arena, 8), memory, 8);
	queue_end();
}
END_TEST

START_TEST(done_is_never_early)
{
	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	ck_assert_uint_eq(gpu_queue_done(queue), 0);
	gpu_queue_launch(queue);
	for (int i = 0; i < 30; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pause_us(200);
	}
	fake->hold(false);
	wait_done(queue, 1);
	queue_end();
}
END_TEST

START_TEST(two_queues)
{
	struct gpu_queue *first, *second;

	queue_begin();
	first = queue;
	is_ok(gpu_queue_new(gpu, &second));
	fake->hold(true);
	memset(memory, 5, ARENA);
	for (uint64_t i = 0; i < 200; i++) {
		queue = i % 2 ? second : first;
		ck_assert_uint_eq(add(copy(arena + i * 8, host + i * 8, 8)), i / 2 + 1);
		if (i % 20 == 5)
			gpu_queue_launch(queue);
	}
	gpu_queue_launch(first);
	gpu_queue_launch(second);
	fake->hold(false);
	wait_done(first, 100);
	wait_done(second, 100);
	ck_assert_mem_eq(fake->look(arena, 1600), memory, 1600);
	gpu_queue_free(second);
	queue = first;
	queue_end();
}
END_TEST

#if !defined(__SANITIZE_THREAD__)
/* A child has no part in the queue, whatever a thread of the driver is doing. */
static void use_in_child(uint64_t given)
{
	uint64_t limit_ns = hang_limit_ns();

	if (add(copy(arena, host, 8)) != given + 1)
		_exit(1);
	gpu_queue_launch(queue);
	while (gpu_queue_done(queue) <= given && may_wait(limit_ns))
		pause_us(100);
	if (gpu_queue_done(queue) != given + 1 || !*why(queue))
		_exit(2);
	gpu_queue_free(queue);
	_exit(0);
}

START_TEST(forks_at_work)
{
	enum { LONG = 2 << 20, FORKS = 8 };
	struct gpu_work work = {
		.action = GPU_DIVIDE, .dtype = FRL_FLOAT8_E4M3, .divisor = 3, .count = LONG
	};
	int status;
	pid_t child;

	queue_begin();
	work.dst = work.src = allocate(gpu->context, LONG);
	for (uint64_t i = 1; i <= FORKS; i++) {
		ck_assert_uint_eq(add(work), i);
		gpu_queue_launch(queue);
		pause_us(500 * (unsigned)i);
		child = fork();
		ck_assert_int_ge(child, 0);
		if (child == 0)
			use_in_child(i);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
		wait_done(queue, i);
		ck_assert_str_eq(why(queue), "");
	}
	release(gpu->context, work.dst);
	queue_end();
}
END_TEST
#endif

TEST_MAIN(gpu_queue)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
