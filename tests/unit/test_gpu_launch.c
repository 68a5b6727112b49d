/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues whose work is launched ahead (memop), and such with a kernel that stays (persistent), on
 * the double of the driver: whatever becomes of the thread that uses them, what is on the GPU ends,
 * and no batch is lost or done twice on the way.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/host.h"
#include "gpudirect/launcher.h"
#include "gpudirect/mode.h"
#include "gpudirect/rest.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "tests/unit/gpu_launch.h"
#include "tests/unit/program.h"

static const uint64_t in_any_case_ns = HANG_S * UINT64_C(1000000000);

static const enum gpu_queue_mode modes[MODES] = { GPU_QUEUE_MEMOP, GPU_QUEUE_PERSISTENT };

/* Loops count modes first. The rest of the index. */
int launch_begin(int index)
{
	queue_mode = modes[index % MODES];
	queue_begin();
	return index / MODES;
}

/* One more in the first number of the GPU's memory: done twice or not at all shows. */
void launch_count(void)
{
	struct gpu_work work = { .action = GPU_REDUCE,
		.dtype = FRL_INT32,
		.op = FRL_SUM,
		.dst = arena,
		.operand = arena,
		.src = host,
		.count = 1 };

	ck_assert_uint_ne(gpu_queue_add(queue, &work), 0);
	gpu_queue_launch(queue);
}

int launch_counted(void)
{
	return *(int *)fake->look(arena, sizeof(int));
}

void launch_count_from(int n)
{
	int one = 1;

	memcpy(memory, &one, sizeof(one));
	ck_assert(fake->write(arena, &n, sizeof(n)));
}

/* Something waits on the GPU for more work: in the stream, or in a kernel that stays. The number of
 * batches that this took. */
uint64_t launch_arm(void)
{
	uint64_t n = 0;

	for (uint64_t limit_ns = hang_limit_ns(); may_wait(limit_ns);) {
		launch_count();
		n++;
		wait_done(queue, n);
		/* Right after the work: there is what was launched ahead, or a kernel. */
		if (fake->queued() > 0)
			return n;
	}
	ck_abort_msg("nothing is ever launched ahead");
	return 0;
}

bool launch_is_quiet_soon(void)
{
	uint64_t end_ns = hang_limit_ns();

	while (fake->queued() > 0 && clock_now_ns() < end_ns)
		pause_us(200);
	return fake->queued() == 0;
}

/* ---- what it is for */

/* Most batches cost no call of the driver. */
START_LOOP_TEST(needs_no_driver, MODES)
{
	uint64_t end_ns = clock_now_ns() + in_any_case_ns;
	unsigned n_without = 0;
	int n = 0;

	launch_begin(_i);
	launch_count_from(0);
	/* What was launched ahead is given up when this thread is held up for long. */
	for (; n_without < 20 && clock_now_ns() < end_ns; n++) {
		unsigned calls = fake->calls(NULL);

		launch_count();
		n_without += fake->calls(NULL) == calls;
		wait_done(queue, (uint64_t)n + 1);
	}
	ck_assert_uint_eq(n_without, 20);
	ck_assert_int_eq(launch_counted(), n);
	queue_end();
}
END_TEST

/* Whatever the pauses are: just when what waits is let go, or a kernel ends. */
START_LOOP_TEST(counts_right, MODES)
{
	enum { N = 400 };
	struct random_state random;
	uint64_t ticket = 0, end_ns;

	launch_begin(_i);
	launch_count_from(0);
	random_seed(&random, (uint64_t)_i + 1);
	for (int i = 0; i < N; i++) {
		uint64_t rest = queue_mode == GPU_QUEUE_MEMOP ? REST_NS : 50000;

		launch_count();
		ticket++;
		if (random_below(&random, 4))
			wait_done(queue, ticket);
		end_ns = clock_now_ns() + (random_below(&random, 3) ? rest * 9 / 10 : 0) +
			random_below(&random, rest / 5);
		while (clock_now_ns() < end_ns)
			if (random_below(&random, 2))
				gpu_queue_done(queue);
	}
	wait_done(queue, ticket);
	ck_assert_int_eq(launch_counted(), N);
	ck_assert_str_eq(why(queue), "");
	queue_end();
}
END_TEST

/* At rest nothing runs, nothing waits, and nobody calls the driver. */
START_LOOP_TEST(rests, MODES)
{
	unsigned calls;

	launch_begin(_i);
	launch_count_from(0);
	wait_done(queue, launch_arm());
	ck_assert(launch_is_quiet_soon());
	calls = fake->calls(NULL);
	for (int i = 0; i < 20; i++) {
		gpu_queue_done(queue);
		pause_us(200);
	}
	ck_assert_uint_eq(fake->calls(NULL), calls);
	ck_assert_uint_eq(fake->queued(), 0);
	queue_end();
}
END_TEST

/* A kernel that has work all the time ends all the same. */
START_TEST(kernel_ends)
{
	uint64_t end_ns, n = 0;
	struct fake_cuda_stats before, after;

	queue_mode = GPU_QUEUE_PERSISTENT;
	queue_begin();
	fake->stats(&before);
	end_ns = hang_limit_ns();
	do {
		launch_count();
		wait_done(queue, ++n);
		fake->stats(&after);
	} while (after.kernels < before.kernels + 4 && clock_now_ns() < end_ns);
	ck_assert_uint_ge(after.kernels - before.kernels, 4);
	queue_end();
}
END_TEST

/* ---- whoever waits for the GPU */

static void synchronize(void)
{
	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	ck_assert_int_eq(cu.cuCtxSynchronize(), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
}

static void free_some(void)
{
	release(gpu->context, allocate(gpu->context, 4096));
}

/* The thread that uses the queue is the only one, and waits for all that is on the GPU. */
START_LOOP_TEST(waits_in_the_only_thread, 2 * MODES)
{
	int is_free = launch_begin(_i);

	fake->set_locks(true);
	launch_count_from(0);
	for (int i = 0; i < 5; i++) {
		uint64_t start;

		launch_arm();
		start = clock_now_ns();
		(is_free ? free_some : synchronize)();
		ck_assert_uint_lt(clock_now_ns() - start, in_any_case_ns);
		ck_assert_uint_eq(fake->queued(), 0);
		gpu_queue_free(queue);
		is_ok(gpu_queue_new(gpu, queue_mode, &queue));
	}
	fake->set_locks(false);
	queue_end();
}
END_TEST

static atomic_bool is_over;

static void *free_all_the_time(void *arg)
{
	while (!atomic_load(&is_over)) {
		free_some();
		pause_us(5);
	}
	return arg;
}

/* Another thread has the driver's lock while it waits for what is in the stream, and the one that
 * puts more into it waits for the lock. */
START_LOOP_TEST(beside_a_thread_that_waits, MODES)
{
	enum { N = 300 };
	uint64_t start = clock_now_ns();
	pthread_t thread;

	launch_begin(_i);
	fake->set_locks(true);
	launch_count_from(0);
	atomic_store(&is_over, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, free_all_the_time, NULL), 0);
	for (uint64_t i = 1; i <= N; i++) {
		launch_count();
		if (i % 4 == 0)
			wait_done(queue, i);
	}
	wait_done(queue, N);
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	ck_assert_int_eq(launch_counted(), N);
	ck_assert_uint_lt(clock_now_ns() - start, in_any_case_ns);
	fake->set_locks(false);
	queue_end();
}
END_TEST

/* ---- the end, while something waits */

START_LOOP_TEST(freed, MODES)
{
	uint64_t start;

	launch_begin(_i);
	launch_count_from(0);
	launch_arm();
	launch_count();
	start = clock_now_ns();
	gpu_queue_free(queue);
	ck_assert_uint_lt(clock_now_ns() - start, in_any_case_ns);
	queue = NULL;
	ck_assert_uint_eq(fake->queued(), 0);
	queue_end();
}
END_TEST

/* What was taken is done when the queue is gone, also where a kernel has just left it. */
START_LOOP_TEST(freed_at_any_time, MODES)
{
	struct random_state random;

	launch_begin(_i);
	gpu_queue_free(queue);
	random_seed(&random, 7);
	launch_count_from(0);
	for (int i = 1; i <= 200; i++) {
		uint64_t end_ns;

		is_ok(gpu_queue_new(gpu, queue_mode, &queue));
		launch_count();
		wait_done(queue, 1);
		end_ns = clock_now_ns() + random_below(&random, 120000);
		while (clock_now_ns() < end_ns)
			;
		launch_count();
		gpu_queue_free(queue);
		ck_assert_int_eq(launch_counted(), 2 * i);
	}
	queue = NULL;
	queue_end();
}
END_TEST

START_LOOP_TEST(dropped, MODES)
{
	uint64_t n, start;

	launch_begin(_i);
	launch_count_from(0);
	n = launch_arm();
	launch_count();
	add(copy(arena + 64, host, 8));
	start = clock_now_ns();
	gpu_queue_drop(queue);
	wait_done(queue, n + 2);
	ck_assert(launch_is_quiet_soon());
	ck_assert_uint_lt(clock_now_ns() - start, in_any_case_ns);
	ck_assert_int_eq(launch_counted(), (int)n + 1);
	ck_assert_uint_eq(add(copy(arena, host, 8)), 0);
	queue_end();
}
END_TEST

/* The work of a kernel that was launched ahead, or has been there, fails. */
START_LOOP_TEST(fails_on_the_gpu, MODES)
{
	uint64_t n;

	launch_begin(_i);
	launch_count_from(0);
	n = launch_arm();
	add(copy(arena, host + (uint64_t)PAGES * PAGE, 64));
	gpu_queue_launch(queue);
	wait_done(queue, n + 1);
	ck_assert_ptr_nonnull(strstr(why(queue), "CUDA_ERROR_ILLEGAL_ADDRESS"));
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, (size_t)PAGES * PAGE);
	gpu_release(gpu);
	fake->reset();
}
END_TEST

START_LOOP_TEST(context_is_gone, MODES)
{
	cu_context context = own_context();
	cu_deviceptr mine = allocate(context, 64);

	queue_mode = modes[_i % MODES];
	is_ok(gpu_hold(context, 0, &gpu));
	is_ok(gpu_host_map(gpu, memory, PAGE));
	host = gpu_host_address(gpu, memory, 64);
	is_ok(gpu_queue_new(gpu, queue_mode, &queue));
	arena = mine;
	launch_count_from(0);
	launch_arm();
	ck_assert_int_eq(cu.cuCtxDestroy(context), 0);
	/* What the thread that lets go writes to is there. */
	pause_us(3 * REST_NS / 1000);
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, PAGE);
	gpu_release(gpu);
}
END_TEST

/* The GPU stands still for long, and goes on. */
START_LOOP_TEST(held, 2 * MODES)
{
	uint64_t n;

	launch_begin(_i);
	launch_count_from(0);
	n = launch_arm();
	fake->hold(true);
	for (int i = 0; i < 10; i++) {
		launch_count();
		n++;
		pause_us(2 * REST_NS / 1000);
		ck_assert_uint_lt(gpu_queue_done(queue), n);
	}
	fake->hold(false);
	if (_i / MODES)
		gpu_queue_free(queue);
	else
		wait_done(queue, n);
	ck_assert_int_eq(launch_counted(), (int)n);
	if (_i / MODES)
		queue = NULL;
	queue_end();
}
END_TEST

/* ---- calls that fail */

/* Which call of those that make a chain longer fails, and how. */
static const struct {
	const char *call;
	cu_result result;
} refusals[] = {
	{ "cuStreamWaitValue64", CUDA_ERROR_OUT_OF_MEMORY },
	{ "cuStreamWaitValue64", CUDA_ERROR_NOT_SUPPORTED },
	{ "cuLaunchKernel", CUDA_ERROR_OUT_OF_MEMORY },
	{ "cuLaunchKernel", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
};

START_LOOP_TEST(chain_cannot_grow, ROWS(refusals))
{
	enum { N = 100 };

	queue_mode = GPU_QUEUE_MEMOP;
	queue_begin();
	launch_count_from(0);
	for (uint64_t i = 1; i <= N; i++) {
		launch_count();
		if (i % 10 == 0)
			fake->fail_call(refusals[_i].call, 1 + (unsigned)(i / 10 % 3),
				refusals[_i].result, 1 + (unsigned)(i / 20));
		wait_done(queue, i);
	}
	fake->fail_call(NULL, 0, 0, 0);
	wait_done(queue, N);
	ck_assert_int_eq(launch_counted(), N);
	ck_assert_str_eq(why(queue), "");
	ck_assert(launch_is_quiet_soon());
	queue_end();
}
END_TEST

/* A kernel ends by its clock and leaves batches, and there is no next one: refused for good, for
 * long, or since nothing works any more. */
static const struct {
	cu_result result;
	bool is_freed; /* while batches are left */
} no_next[] = {
	{ CUDA_ERROR_INVALID_VALUE, false },
	{ CUDA_ERROR_NOT_SUPPORTED, true },
	{ CUDA_ERROR_INVALID_HANDLE, false },
	{ CUDA_ERROR_OUT_OF_MEMORY, true },
};

START_LOOP_TEST(next_kernel_is_refused, ROWS(no_next))
{
	enum { N = 100, BYTES = PAGES * PAGE / 2 };
	uint64_t start;

	queue_mode = GPU_QUEUE_PERSISTENT;
	queue_begin();
	fake->hold(true);
	for (uint64_t i = 1; i <= N; i++) {
		ck_assert_uint_eq(add(copy(host + BYTES, host, BYTES)), i);
		gpu_queue_launch(queue);
	}
	fake->fail_call("cuLaunchKernel", 1, no_next[_i].result, 0);
	fake->hold(false);
	start = clock_now_ns();
	if (no_next[_i].is_freed) {
		gpu_queue_free(queue);
		queue = NULL;
	} else {
		wait_done(queue, N);
		ck_assert_ptr_nonnull(strstr(why(queue), "cuLaunchKernel"));
	}
	ck_assert_uint_lt(clock_now_ns() - start, in_any_case_ns);
	ck_assert_ptr_nonnull(fake->failed());
	ck_assert_uint_eq(fake->queued(), 0);
	queue_end();
}
END_TEST

/* GPUs and drivers for which a mode is not. */
static const struct {
	enum gpu_queue_mode mode;
	cu_device_attribute attribute; /* that is 0 */
	const char *missing;
	const char *word; /* NULL: it works */
} unfit[] = {
	{ GPU_QUEUE_MEMOP, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, NULL,
		"CAN_USE_64_BIT_STREAM_MEM_OPS" },
	{ GPU_QUEUE_MEMOP, 0, "cuStreamWaitValue64", "cuStreamWaitValue64()" },
	{ GPU_QUEUE_MEMOP, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, NULL, "flush" },
	{ GPU_QUEUE_MEMOP, 0, NULL, NULL },
	{ GPU_QUEUE_PERSISTENT, 0, NULL, "runs already" },
};

/* On a GPU where a NIC's writes are not ordered for kernels that run already. */
START_LOOP_TEST(is_unfit, ROWS(unfit))
{
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0);
	if (unfit[_i].attribute)
		fake->set_attribute(-1, unfit[_i].attribute, 0);
	fake->set_missing(unfit[_i].missing);
	gpu = hold(0);
	if (unfit[_i].word) {
		is_refused(gpu_queue_new(gpu, unfit[_i].mode, &queue), -ENOTSUP, unfit[_i].word);
	} else {
		is_ok(gpu_queue_new(gpu, unfit[_i].mode, &queue));
		gpu_queue_free(queue);
	}
	gpu_release(gpu);
	fake->set_missing(NULL);
}
END_TEST

/* With --mode: the exit status is the mode that the settings ask for. */
TEST_MAIN(gpu_launch)
{
	Suite *suite;

	if (argc == 2 && strcmp(argv[1], "--mode") == 0)
		_exit((int)gpu_queue_mode_wanted());
	if (!gpu_is_fake())
		return TEST_SKIPPED;
	suite = all_tests(gpu_setup, gpu_teardown);
	launch_add_process_tests(suite);
	launch_add_ring_tests(suite);
	return run_suite(suite);
}
