/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues of work for a GPU without kernels, on the double of the driver: all that kernels do, bit
 * by bit, and what goes wrong in the midst of a batch. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpudirect/batch.h"
#include "gpudirect/host.h"
#include "lib/base/random.h"
#include "tests/unit/gpu_queue_fixture.h"
#include "tests/unit/program.h"

/* ---- results are those of kernels, bit by bit */

enum {
	PART = 8192, /* of a place's memory: dst, src, operand, also */
	PARTS = 4,
	ROUNDS = 4,
};

/* The same memory twice: one queue works on each. */
static struct place {
	struct gpu_queue *queue;
	cu_deviceptr gpu; /* PARTS parts, */
	uint64_t host;    /* and as many here, as the GPU sees it */
	uint8_t *memory;
	size_t part;
} places[2];

static void places_begin(size_t part)
{
	static const enum gpu_queue_mode modes[] = { GPU_QUEUE_BATCH, GPU_QUEUE_STAGED };

	for (int i = 0; i < 2; i++) {
		struct place *p = &places[i];

		p->part = part;
		p->memory = aligned_alloc(PAGE, PARTS * part);
		ck_assert_ptr_nonnull(p->memory);
		is_ok(gpu_host_map(gpu, p->memory, PARTS * part));
		p->host = gpu_host_address(gpu, p->memory, PARTS * part);
		p->gpu = allocate(gpu->context, PARTS * part);
		is_ok(gpu_queue_new(gpu, modes[i], &p->queue));
	}
}

static void places_end(void)
{
	for (int i = 0; i < 2; i++) {
		struct place *p = &places[i];

		gpu_queue_free(p->queue);
		gpu_host_unmap(gpu, p->memory, PARTS * p->part);
		release(gpu->context, p->gpu);
		free(p->memory);
	}
}

static void places_fill(struct random_state *random)
{
	size_t bytes = PARTS * places[0].part;
	uint8_t *all = malloc(bytes);

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t value = random_u64(random);

		memcpy(all + i, &value, 8);
	}
	for (int i = 0; i < 2; i++) {
		memcpy(places[i].memory, all, bytes);
		ck_assert(fake->write(places[i].gpu, all, bytes));
	}
	free(all);
}

/* The piece, whose addresses are offsets in a place: what is below PARTS parts is on the GPU. */
static void places_add(const struct gpu_work *piece)
{
	for (int i = 0; i < 2; i++) {
		const struct place *p = &places[i];
		struct gpu_work work = *piece;
		uint64_t *const at[] = { &work.dst, &work.src, &work.operand, &work.also };

		for (int j = 0; j < 4; j++) {
			if (j == 3 && !work.also)
				continue;
			*at[j] = *at[j] < PARTS * p->part ? p->gpu + *at[j]
							  : p->host + *at[j] - PARTS * p->part;
		}
		ck_assert_uint_ne(gpu_queue_add(p->queue, &work), 0);
		gpu_queue_launch(p->queue);
	}
}

static void places_compare(const struct gpu_work *piece)
{
	size_t bytes = PARTS * places[0].part;

	for (int i = 0; i < 2; i++) {
		struct gpu_queue_stats stats;

		gpu_queue_stats(places[i].queue, &stats);
		wait_done(places[i].queue, stats.pieces);
		ck_assert_str_eq(why(places[i].queue), "");
	}
	ck_assert_msg(memcmp(places[0].memory, places[1].memory, bytes) == 0 &&
			memcmp(fake->look(places[0].gpu, bytes), fake->look(places[1].gpu, bytes),
				bytes) == 0,
		"action %u, type %u, operation %u, wire type %u, %llu elements: not what kernels "
		"give",
		piece->action, piece->dtype, piece->op, piece->wire,
		(unsigned long long)piece->count);
}

/* In its part, on the GPU or not, aligned or not. */
static uint64_t part_at(struct random_state *random, unsigned part)
{
	uint64_t offset = random_below(random, 2) ? random_below(random, 64) : 0;

	return (random_below(random, 2) ? PARTS * PART : 0) + part * PART + offset;
}

static void one_kind(struct random_state *random, struct gpu_work work)
{
	static const uint64_t counts[] = { 0, 1, 127, 128, 129, 700 };

	work.count = counts[random_below(random, ROWS(counts))];
	work.dst = part_at(random, 0);
	work.src = part_at(random, 1);
	work.operand = random_below(random, 2) ? work.dst : part_at(random, 2);
	if (work.action < GPU_ENCODE && random_below(random, 4) == 0)
		work.src = work.dst;
	if (random_below(random, 2))
		work.also = part_at(random, 3);
	work.divisor = (uint32_t)random_below(random, 5);
	for (int i = 0; i < 8; i++)
		work.scalar[i] = (uint8_t)random_u64(random);
	places_add(&work);
	places_compare(&work);
}

START_LOOP_TEST(every_kind, ROUNDS)
{
	struct random_state random;
	struct gpu_work work = { .action = GPU_COPY };

	random_seed(&random, (uint64_t)_i + 1);
	fake->set_host_apart(_i % 2);
	queue_begin();
	places_begin(PART);
	places_fill(&random);
	one_kind(&random, work);
	for (uint8_t dtype = 0; dtype < FRL_DTYPES; dtype++) {
		work = (struct gpu_work){ .action = GPU_REDUCE, .dtype = dtype };
		for (work.op = FRL_SUM; work.op <= FRL_MIN; work.op++)
			one_kind(&random, work);
		for (work.action = GPU_SCALE; work.action <= GPU_DIVIDE; work.action++)
			one_kind(&random, work);
	}
	for (uint8_t wire = 0; wire < FRL_WIRES; wire++) {
		work = (struct gpu_work){ .dtype = FRL_FLOAT32, .wire = wire };
		for (work.action = GPU_ENCODE; work.action <= GPU_DECODE; work.action++)
			one_kind(&random, work);
		work.action = GPU_DECODE_REDUCE;
		for (work.op = FRL_SUM; work.op <= FRL_MIN; work.op++)
			one_kind(&random, work);
	}
	places_end();
	queue_end();
}
END_TEST

/* Longer than what is copied at a time. */
static const struct gpu_work long_rows[] = {
	{ .action = GPU_COPY },
	{ .action = GPU_REDUCE, .dtype = FRL_BFLOAT16, .op = FRL_SUM },
	{ .action = GPU_DIVIDE, .dtype = FRL_INT32, .divisor = 3 },
	{ .action = GPU_ENCODE, .dtype = FRL_FLOAT32, .wire = FRL_WIRE_INT8 },
	{ .action = GPU_DECODE_REDUCE, .dtype = FRL_FLOAT32, .wire = FRL_WIRE_INT8 },
};

START_LOOP_TEST(long_pieces, ROWS(long_rows))
{
	enum { LONG = 6 << 20 };
	struct gpu_work work = long_rows[_i];
	struct random_state random;

	random_seed(&random, 7);
	queue_begin();
	places_begin(LONG);
	places_fill(&random);
	work.count = work.action == GPU_COPY ? LONG : LONG / 4 - 5;
	work.dst = 0;
	work.src = LONG;
	work.operand = 2 * LONG;
	work.also = (PARTS + 3) * LONG;
	places_add(&work);
	/* Beside short ones, on what the long one wrote. */
	work = (struct gpu_work){ .action = GPU_SCALE, .dtype = FRL_UINT8, .count = 999 };
	work.dst = work.src = 5;
	work.scalar[0] = 3;
	places_add(&work);
	places_compare(&work);
	places_end();
	queue_end();
}
END_TEST

/* ---- in the midst of a batch */

enum { MIDST = 512 };

/* Two copies to the GPU, and a sum there with what the processor has. */
static void add_three(void)
{
	const struct gpu_work sum = { .action = GPU_REDUCE,
		.dtype = FRL_UINT8,
		.op = FRL_SUM,
		.dst = arena + 128,
		.operand = arena + 128,
		.src = host + 128,
		.count = 64 };

	memset(memory, 3, MIDST);
	ck_assert(fake->write(arena, memory, MIDST));
	ck_assert_uint_eq(add(copy(arena, host + 1, 60)), 1);
	ck_assert_uint_eq(add(copy(arena + 64, host + 64, 60)), 2);
	ck_assert_uint_eq(add(sum), 3);
	memset(memory, 5, MIDST);
}

static const struct {
	const char *call;
	unsigned nth;
} calls[] = {
	{ "cuMemcpyHtoDAsync", 1 },
	{ "cuMemcpyHtoDAsync", 2 },
	{ "cuMemcpyDtoHAsync", 1 },
	{ "cuLaunchHostFunc", 1 },
	{ "cuMemcpyHtoDAsync", 3 },
	{ "cuLaunchHostFunc", 2 },
};

/* Each call is refused for a while: it goes on with this one, and does none twice. */
START_LOOP_TEST(refused_for_now, ROWS(calls))
{
	struct gpu_queue_stats stats;
	const uint8_t *bytes;

	queue_begin();
	add_three();
	fake->fail_call(calls[_i].call, calls[_i].nth, CUDA_ERROR_OUT_OF_MEMORY, 3);
	gpu_queue_launch(queue);
	/* This one waits for it. */
	while (!add(copy(arena + 256, arena + 128, 64)))
		gpu_queue_done(queue);
	gpu_queue_launch(queue);
	wait_done(queue, 4);
	ck_assert_str_eq(why(queue), "");
	gpu_queue_stats(queue, &stats);
	ck_assert_uint_ge(stats.retries, 2);
	bytes = fake->look(arena, MIDST);
	ck_assert_int_eq(bytes[59], 5);
	ck_assert_int_eq(bytes[60], 3);
	ck_assert_int_eq(bytes[123], 5);
	ck_assert_int_eq(bytes[128], 8);
	ck_assert_int_eq(bytes[191], 8);
	ck_assert_mem_eq(bytes + 256, bytes + 128, 64);
	queue_end();
}
END_TEST

/* Each call is refused for good: what is in the stream is waited for, the rest is not done. */
START_LOOP_TEST(refused_for_good, ROWS(calls))
{
	queue_begin();
	fake->hold(true);
	add_three();
	fake->fail_call(calls[_i].call, calls[_i].nth, CUDA_ERROR_INVALID_VALUE, 0);
	gpu_queue_launch(queue);
	for (int i = 0; i < 20 && _i > 0; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pause_us(200);
	}
	fake->hold(false);
	wait_done(queue, 3);
	ck_assert_ptr_nonnull(strstr(why(queue), calls[_i].call));
	ck_assert_uint_eq(fake->queued(), 0);
	ck_assert_int_eq(*(uint8_t *)fake->look(arena, 1), _i == 0 ? 3 : 5);
	queue_end();
}
END_TEST

/* Dropped there: what is not in the stream yet never is. */
START_TEST(dropped)
{
	queue_begin();
	fake->hold(true);
	add_three();
	fake->fail_call("cuMemcpyDtoHAsync", 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
	gpu_queue_launch(queue);
	gpu_queue_drop(queue);
	for (int i = 0; i < 20; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pause_us(200);
	}
	fake->hold(false);
	wait_done(queue, 3);
	ck_assert_int_eq(*(uint8_t *)fake->look(arena + 64, 1), 5);
	ck_assert_int_eq(*(uint8_t *)fake->look(arena + 128, 1), 3);
	queue_end();
}
END_TEST

/* What comes after that says nothing of what was left out, until all has ended. */
START_TEST(dropped_after_others)
{
	queue_begin();
	fake->hold(true);
	ck_assert_uint_eq(add(copy(arena, host, 60)), 1);
	gpu_queue_launch(queue);
	ck_assert_uint_eq(add(copy(arena, host, 8)), 2);
	gpu_queue_launch(queue);
	gpu_queue_drop(queue);
	ck_assert_uint_eq(fake->step(2), 2);
	for (int i = 0; i < 20; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pause_us(200);
	}
	fake->hold(false);
	wait_done(queue, 2);
	queue_end();
}
END_TEST

/* Never more at a time than a driver's list takes, however many a batch comes to; and all of it is
 * done. */
START_TEST(fills_no_list)
{
	enum { N = 1500, LIST = 512 };
	uint64_t given = 0, done = 0;
	unsigned most = 0, queued;
	struct gpu_work work = copy(0, 0, 1);

	queue_begin();
	for (unsigned i = 0; i < ARENA / 2; i++)
		memory[i] = (uint8_t)(i * 7);
	fake->hold(true);
	while (done < N) {
		uint64_t at = given % (ARENA / 2), ticket;

		work.dst = arena + at;
		work.also = arena + ARENA / 2 + at;
		work.src = host + at;
		ticket = given < N ? gpu_queue_add(queue, &work) : 0;
		given += ticket != 0;
		queued = fake->queued();
		most = queued > most ? queued : most;
		if (ticket)
			continue;
		gpu_queue_launch(queue);
		done = gpu_queue_done(queue);
		if (fake->queued() == queued)
			fake->step(1);
	}
	ck_assert_uint_ge(most, LIST - 2);
	ck_assert_uint_le(most, LIST);
	ck_assert_str_eq(why(queue), "");
	ck_assert_mem_eq(fake->look(arena, ARENA / 2), memory, ARENA / 2);
	ck_assert_mem_eq(fake->look(arena + ARENA / 2, ARENA / 2), memory, ARENA / 2);
	queue_end();
}
END_TEST

/* The context fails while the processor computes: what it reads is in use until that has ended. */
START_LOOP_TEST(fails_meanwhile, 8)
{
	enum { LONG = 8 << 20 };
	uint8_t *other = mmap(
		NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gpu_work work = {
		.action = GPU_DIVIDE, .dtype = FRL_FLOAT8_E4M3, .divisor = 3, .count = LONG
	};

	ck_assert_ptr_ne(other, MAP_FAILED);
	queue_begin();
	is_ok(gpu_host_map(gpu, other, LONG));
	work.dst = allocate(gpu->context, LONG);
	work.src = gpu_host_address(gpu, other, LONG);
	ck_assert_uint_eq(add(work), 1);
	gpu_queue_launch(queue);
	pause_us(1100 + (unsigned)_i * 400);
	fake->kill(gpu->context, CUDA_ERROR_ILLEGAL_ADDRESS);
	wait_done(queue, 1);
	/* Who still reads it ends with a signal. */
	ck_assert_int_eq(mprotect(other, LONG, PROT_NONE), 0);
	pause_us(2000);
	/* Where all of it had ended before, the next one fails. */
	if (!*why(queue)) {
		ck_assert_uint_eq(add(copy(arena, host, 8)), 2);
		wait_done(queue, 2);
	}
	ck_assert_str_ne(why(queue), "");
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, other, LONG);
	gpu_host_unmap(gpu, memory, (size_t)PAGES * PAGE);
	gpu_release(gpu);
	munmap(other, LONG);
	fake->reset();
}
END_TEST

START_TEST(cannot_copy_in_the_background)
{
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0);
	gpu = hold(0);
	is_refused(gpu_queue_new(gpu, GPU_QUEUE_STAGED, &queue), -ENOTSUP, "background");
	gpu_release(gpu);
}
END_TEST

/* Neither kernels nor a GPU that could run them are needed. */
START_TEST(needs_no_kernels)
{
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 6);
	fake->fail_call("cuModuleLoadData", 1, CUDA_ERROR_INVALID_IMAGE, 0);
	queue_begin();
	add_three();
	gpu_queue_launch(queue);
	wait_done(queue, 3);
	ck_assert_int_eq(*(uint8_t *)fake->look(arena + 128, 1), 8);
	ck_assert_uint_eq(fake->calls("cuModuleLoadData"), 0);
	queue_end();
}
END_TEST

TEST_MAIN(gpu_staged)
{
	if (!gpu_is_fake())
		return 77;
	queue_mode = GPU_QUEUE_STAGED;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
