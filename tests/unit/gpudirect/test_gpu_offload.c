/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's requests to GPU memory, on the double of the driver: payload in, payload out, in
 * order, and impossible requests. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpudirect/offload.h"
#include "gpudirect/queue.h"
#include "lib/base/clock.h"
#include "lib/engine/offload/offload.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"

enum { ROOM = 4096, PACKET = 4096 };

static struct gpu *gpu;
static struct offload *offload;
static cu_deviceptr there;

static void begin(void)
{
	gpu = hold(0);
	there = allocate(gpu->context, ROOM);
	is_ok(gpu_offload_new(gpu, &offload));
}

static void end(void)
{
	fake->hold(false);
	gpu_offload_free(offload);
	release(gpu->context, there);
	gpu_release(gpu);
}

static void wait_done(uint64_t ticket)
{
	uint64_t end_ns = hang_limit_ns();

	ck_assert_uint_ne(ticket, 0);
	while (offload->ops->done(offload) < ticket) {
		ck_assert_uint_lt(clock_now_ns(), end_ns);
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
}

static uint8_t *gpu_at(uint32_t offset)
{
	return at(there + offset);
}

START_TEST(reaches_what_is_mapped)
{
	begin();
	ck_assert(!offload->ops->reaches(offload, memory, 1));
	is_ok(offload->ops->map(offload, memory, PACKET));
	ck_assert(offload->ops->reaches(offload, memory, PACKET));
	ck_assert(!offload->ops->reaches(offload, memory, PACKET + 1));
	ck_assert(!offload->ops->reaches(offload, memory + PACKET, 1));
	offload->ops->unmap(offload, memory, PACKET);
	ck_assert(!offload->ops->reaches(offload, memory, 1));
	end();
}
END_TEST

static uint64_t place(uint8_t *dst, const uint8_t *src, const uint8_t *payload, uint32_t length,
	const struct frl_recv_action *action)
{
	const struct offload_placement placement = {
		.dst = dst, .src = src, .payload = payload, .length = length, .action = action
	};

	return offload->ops->place(offload, &placement);
}

/* Memory that it has been given and no longer reaches: permanently. */
START_LOOP_TEST(mapping_is_gone, 2)
{
	begin();
	is_ok(offload->ops->map(offload, memory, PACKET));
	fake->hold(true);
	ck_assert_uint_eq(place(gpu_at(0), NULL, memory, 64, NULL), 1);
	offload->ops->launch(offload);
	offload->ops->unmap(offload, memory, PACKET);
	ck_assert_ptr_null(offload->ops->error(offload));
	if (_i)
		ck_assert_uint_eq(offload->ops->gather(offload, memory, gpu_at(0), 64), 0);
	else
		ck_assert_uint_eq(place(gpu_at(0), NULL, memory, 64, NULL), 0);
	ck_assert_ptr_nonnull(offload->ops->error(offload));
	ck_assert_ptr_nonnull(strstr(offload->ops->error(offload), "mapped for GPU 0"));
	/* Work under way is waited for all the same. */
	ck_assert_uint_eq(offload->ops->done(offload), 0);
	is_ok(offload->ops->map(offload, memory, PACKET));
	ck_assert_uint_eq(place(gpu_at(0), NULL, memory, 64, NULL), 0);
	fake->hold(false);
	wait_done(1);
	offload->ops->unmap(offload, memory, PACKET);
	end();
}
END_TEST

/* Both where the GPU sees host memory at its own address and where it does not. */
START_LOOP_TEST(in_and_out, 2)
{
	const uint8_t *payload = memory + 182;
	uint8_t *out = memory + PACKET + 58;

	fake->set_host_apart(_i);
	begin();
	is_ok(offload->ops->map(offload, memory, 2 * PACKET));
	for (int i = 0; i < 2 * PACKET; i++)
		memory[i] = (uint8_t)(i * 31 + i / 256);
	ck_assert_uint_eq(place(gpu_at(3), NULL, payload, 1000, NULL), 1);
	/* Sent bytes are those placed just before. */
	ck_assert_uint_eq(offload->ops->gather(offload, out, gpu_at(3), 1000), 2);
	offload->ops->launch(offload);
	wait_done(2);
	ck_assert_mem_eq(fake->look(there + 3, 1000), payload, 1000);
	ck_assert_mem_eq(out, payload, 1000);
	ck_assert_uint_eq(out[-1], (uint8_t)((PACKET + 57) * 31 + (PACKET + 57) / 256));
	ck_assert_uint_eq(out[1000], (uint8_t)((PACKET + 1058) * 31 + (PACKET + 1058) / 256));
	offload->ops->unmap(offload, memory, 2 * PACKET);
	end();
}
END_TEST

/* dst = src + payload, and dst = dst + payload. */
START_TEST(reductions)
{
	const struct frl_recv_action action = {
		.type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32, .op = FRL_SUM
	};
	float first[64], payload[64], sum[64];

	begin();
	is_ok(offload->ops->map(offload, memory, PACKET));
	for (int i = 0; i < 64; i++) {
		first[i] = (float)i / 3;
		payload[i] = (float)(i * i) / 7;
		sum[i] = first[i] + payload[i];
	}
	memcpy(memory + 46, payload, sizeof(payload));
	ck_assert(fake->write(there + 1024, first, sizeof(first)));
	ck_assert_uint_eq(place(gpu_at(0), gpu_at(1024), memory + 46, sizeof(payload), &action), 1);
	ck_assert_uint_eq(place(gpu_at(1024), NULL, memory + 46, sizeof(payload), &action), 2);
	offload->ops->launch(offload);
	wait_done(2);
	ck_assert_mem_eq(fake->look(there, sizeof(sum)), sum, sizeof(sum));
	ck_assert_mem_eq(fake->look(there + 1024, sizeof(sum)), sum, sizeof(sum));
	offload->ops->unmap(offload, memory, PACKET);
	end();
}
END_TEST

/* Into host memory as well, which is gathered into in turn: in order. */
START_TEST(results_in_host_memory)
{
	const struct frl_recv_action action = {
		.type = FRL_ACTION_REDUCE, .dtype = FRL_INT32, .op = FRL_SUM
	};
	enum { N = 500, ALSO = 2052 };
	int32_t first[N], sum[N];

	begin();
	is_ok(offload->ops->map(offload, memory, PACKET));
	for (int32_t i = 0; i < N; i++) {
		first[i] = i * 5;
		sum[i] = i * 5 + 0x04040404;
	}
	memset(memory, 4, PACKET);
	ck_assert(fake->write(there + 4, first, sizeof(first)));
	fake->hold(true);
	for (uint64_t k = 1; k < 4; k += 2) {
		const struct offload_placement placement = {
			.dst = gpu_at(4),
			.payload = memory,
			.also = memory + ALSO,
			.length = sizeof(sum),
			.action = &action,
		};

		ck_assert_uint_eq(offload->ops->place(offload, &placement), k);
		ck_assert_uint_eq(
			offload->ops->gather(offload, memory + ALSO, gpu_at(4), 8), k + 1);
		offload->ops->launch(offload);
	}
	fake->hold(false);
	wait_done(4);
	for (int32_t i = 0; i < N; i++)
		sum[i] += 0x04040404;
	ck_assert_mem_eq(fake->look(there + 4, sizeof(sum)), sum, sizeof(sum));
	ck_assert_mem_eq(memory + ALSO, sum, sizeof(sum));
	ck_assert_uint_eq(memory[ALSO - 1], 4);
	ck_assert_uint_eq(memory[ALSO + sizeof(sum)], 4);
	offload->ops->unmap(offload, memory, PACKET);
	/* Not if it is not reached. */
	ck_assert_uint_eq(offload->ops->place(offload,
				  &(struct offload_placement){ .dst = gpu_at(4),
					  .payload = memory,
					  .also = memory + ALSO,
					  .length = 4,
					  .action = &action }),
		0);
	ck_assert_ptr_nonnull(offload->ops->error(offload));
	end();
}
END_TEST

/* An action that copies is none. */
START_TEST(copies)
{
	const struct frl_recv_action action = { .type = FRL_ACTION_COPY };

	begin();
	is_ok(offload->ops->map(offload, memory, PACKET));
	memset(memory, 6, 99);
	ck_assert_uint_eq(place(gpu_at(0), gpu_at(2048), memory, 99, &action), 1);
	offload->ops->launch(offload);
	wait_done(1);
	ck_assert_mem_eq(fake->look(there, 99), memory, 99);
	offload->ops->unmap(offload, memory, PACKET);
	end();
}
END_TEST

START_TEST(no_room)
{
	uint64_t n = 0;

	begin();
	is_ok(offload->ops->map(offload, memory, PACKET));
	fake->hold(true);
	while (place(gpu_at((uint32_t)(n % ROOM)), NULL, memory, 1, NULL))
		n++;
	ck_assert_uint_ge(n, GPU_QUEUE_PIECES / 2);
	ck_assert_uint_eq(offload->ops->done(offload), 0);
	fake->hold(false);
	offload->ops->launch(offload);
	wait_done(n);
	ck_assert_uint_eq(place(gpu_at(0), NULL, memory, 1, NULL), n + 1);
	offload->ops->launch(offload);
	wait_done(n + 1);
	offload->ops->unmap(offload, memory, PACKET);
	end();
}
END_TEST

START_TEST(failure)
{
	begin();
	is_ok(offload->ops->map(offload, memory, PACKET));
	ck_assert_ptr_null(offload->ops->error(offload));
	place(gpu_at(0), NULL, memory, 64, NULL);
	fake->fail_call("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED, 1);
	offload->ops->launch(offload);
	wait_done(1);
	ck_assert_ptr_nonnull(offload->ops->error(offload));
	ck_assert_ptr_nonnull(strstr(offload->ops->error(offload), "cuLaunchKernel"));
	ck_assert_uint_eq(place(gpu_at(0), NULL, memory, 64, NULL), 0);
	ck_assert_uint_eq(offload->ops->gather(offload, memory, gpu_at(0), 64), 0);
	offload->ops->unmap(offload, memory, PACKET);
	end();
}
END_TEST

START_TEST(cannot_be_made)
{
	gpu = hold(0);
	fake->fail_call("cuStreamCreateWithPriority", 1, CUDA_ERROR_OUT_OF_MEMORY, 1);
	is_refused(gpu_offload_new(gpu, &offload), -ENOMEM, "cuStreamCreateWithPriority");
	gpu_release(gpu);
	gpu_offload_free(NULL);
}
END_TEST

TEST_MAIN(gpu_offload)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
