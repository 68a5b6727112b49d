/* SPDX-License-Identifier: BSD-3-Clause */
/* Every failure of a queue of work for a GPU, temporary or permanent, on the double of the
 * driver. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/host.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "tests/unit/gpudirect/gpu_queue_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/stopped_clock.h"

/* Results that go away: the piece stays, and is done in its turn. */
static const cu_result passing[] = { CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD };

START_LOOP_TEST(refused_for_now, 2 * ROWS(passing))
{
	const char *call = _i % 2 ? "cuCtxPushCurrent" : "cuLaunchKernel";
	struct gpu_queue_stats stats;

	if (_i % 2 && passing[_i / 2] == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
		return; /* making a context current is no matter of captures */
	queue_begin();
	fake->fail_call(call, 1, passing[_i / 2], 0);
	memset(memory, 3, 64);
	memset(memory + 64, 4, 64);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	/* It conflicts with the piece that could not leave. */
	ck_assert_uint_eq(add(copy(arena, host + 64, 64)), 0);
	ck_assert_uint_eq(add(copy(arena + 64, host + 64, 64)), 2);
	for (int i = 0; i < 20; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pause_us(100);
	}
	gpu_queue_stats(queue, &stats);
	ck_assert_uint_ge(stats.retries, 3);
	ck_assert_uint_eq(stats.launches, 0);
	ck_assert_str_eq(why(queue), "");
	fake->fail_call(call, 0, 0, 0);
	/* Only this launches it again. */
	wait_done(queue, 2);
	ck_assert_mem_eq(fake->look(arena, 128), memory, 128);
	queue_end();
}
END_TEST

static const cu_result fatal[] = { CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
	CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_HANDLE };

/* A launch reports it: nothing runs any more, and all is over at once. */
START_LOOP_TEST(fatal_at_launch, ROWS(fatal))
{
	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	add(copy(arena, host, 64));
	fake->fail_call("cuLaunchKernel", 1, fatal[_i], 1);
	gpu_queue_launch(queue);
	ck_assert_uint_eq(gpu_queue_done(queue), 2);
	ck_assert_ptr_nonnull(strstr(why(queue), "cuLaunchKernel"));
	ck_assert_uint_eq(add(copy(arena, host, 64)), 0);
	gpu_queue_launch(queue);
	ck_assert_uint_eq(gpu_queue_done(queue), 2);
	queue_end();
}
END_TEST

/* A batch is launched, and held. */
static void begin_held(void)
{
	queue_begin();
	fake->hold(true);
	memset(memory, 9, 64);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
}

/* Launched work goes on after another failure: it is waited for. */
START_TEST(refused_for_good)
{
	begin_held();
	add(copy(arena + 64, host, 64));
	fake->fail_call("cuLaunchKernel", 1, CUDA_ERROR_INVALID_VALUE, 1);
	gpu_queue_launch(queue);
	for (int i = 0; i < 30; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		ck_assert_ptr_nonnull(strstr(why(queue), "CUDA_ERROR_INVALID_VALUE"));
		pause_us(200);
	}
	fake->hold(false);
	wait_done(queue, 2);
	ck_assert_mem_eq(fake->look(arena, 64), memory, 64);
	ck_assert_int_ne(*(uint8_t *)fake->look(arena + 64, 1), 9);
	ck_assert_uint_eq(add(copy(arena, host, 64)), 0);
	queue_end();
}
END_TEST

/* Dropped work is never launched, and counts as done with the launched work. */
START_TEST(dropped)
{
	struct gpu_queue_stats stats;

	begin_held();
	fake->fail_call("cuLaunchKernel", 1, CUDA_ERROR_OUT_OF_MEMORY, 1);
	add(copy(arena + 64, host, 64));
	gpu_queue_launch(queue);
	gpu_queue_drop(queue);
	pause_us(2000);
	ck_assert_uint_eq(gpu_queue_done(queue), 0);
	ck_assert_uint_eq(add(copy(arena, host, 64)), 0);
	fake->hold(false);
	wait_done(queue, 2);
	gpu_queue_launch(queue);
	gpu_queue_stats(queue, &stats);
	ck_assert_uint_eq(stats.launches, 1);
	ck_assert_mem_eq(fake->look(arena, 64), memory, 64);
	ck_assert_int_ne(*(uint8_t *)fake->look(arena + 64, 1), 9);
	queue_end();
}
END_TEST

/* With nothing under way it is over at once. */
START_TEST(refused_for_good_when_idle)
{
	queue_begin();
	fake->fail_call("cuLaunchKernel", 1, CUDA_ERROR_INVALID_VALUE, 1);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	ck_assert_uint_eq(gpu_queue_done(queue), 1);
	ck_assert_str_ne(why(queue), "");
	queue_end();
}
END_TEST

/* A kernel that fails reports nothing; the stream does. */
START_TEST(fails_on_the_gpu)
{
	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	fake->fail_call("work", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
	/* A refused query of the stream is repeated. */
	fake->fail_call("cuStreamQuery", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 3);
	add(copy(arena, host, 32));
	gpu_queue_launch(queue);
	fake->hold(false);
	wait_done(queue, 2);
	ck_assert_ptr_nonnull(strstr(why(queue), "CUDA_ERROR_ILLEGAL_ADDRESS"));
	ck_assert_uint_eq(gpu_queue_done(queue), 2);
	fake->fail_call(NULL, 0, 0, 0);
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, (size_t)PAGES * PAGE);
	gpu_release(gpu);
	fake->reset();
}
END_TEST

/* The lines of the log that contain this. */
struct told {
	const char *word;
	unsigned n;
};

static void count_lines(enum frl_log_level level, const char *line, void *arg)
{
	struct told *told = arg;

	(void)level;
	told->n += strstr(line, told->word) != NULL;
}

/* A GPU whose state cannot be queried any more, as one that fell off its bus: no answer says that
 * nothing runs, and none ever will. */
static const struct {
	const char *call;
	cu_result result;
} silent[] = {
	{ "cuStreamQuery", CUDA_ERROR_UNKNOWN },
	{ "cuStreamQuery", CUDA_ERROR_ILLEGAL_STATE },
	{ "cuStreamQuery", 12345 }, /* of a newer driver's */
	{ "cuCtxPushCurrent", CUDA_ERROR_UNKNOWN },
	{ "cuCtxPushCurrent", CUDA_ERROR_OPERATING_SYSTEM },
};

/* With a moment for other threads. */
static void pass_ms(void)
{
	clock_advance_ms(1);
	pause_us(100);
}

START_LOOP_TEST(says_nothing_any_more, ROWS(silent))
{
	struct told told = { .word = "is abandoned" };
	uint64_t begin;

	frl_set_log(count_lines, FRL_LOG_WARNING, &told);
	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	add(copy(arena, host, 32));
	fake->fail_call(silent[_i].call, 1, silent[_i].result, 0);
	clock_stop();
	begin = clock_now_ns();
	/* Memory that the GPU may still write is not released, but the failure is reported at
	 * once. */
	for (int i = 0; i < 1000 && !*why(queue); i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pass_ms();
	}
	ck_assert_ptr_nonnull(strstr(why(queue), silent[_i].call));
	ck_assert_uint_eq(gpu_queue_done(queue), 0);
	ck_assert_uint_eq(add(copy(arena, host, 16)), 0);
	while (gpu_queue_done(queue) < 2 && clock_now_ns() - begin < UINT64_C(10000000000))
		pass_ms();
	ck_assert_uint_ge(clock_now_ns() - begin, UINT64_C(1500000000));
	ck_assert_uint_lt(clock_now_ns() - begin, UINT64_C(10000000000));
	clock_go_on();
	ck_assert_uint_eq(told.n, 1);
	ck_assert_uint_eq(gpu_queue_done(queue), 2);
	ck_assert_uint_eq(told.n, 1);
	if (_i % 2) {
		/* It is back, and nothing is left. */
		fake->fail_call(NULL, 0, 0, 0);
		fake->hold(false);
		fake->settle();
		queue_end();
	} else {
		/* This does not wait, and takes nothing away that a kernel may still write. */
		gpu_queue_free(queue);
		fake->fail_call(NULL, 0, 0, 0);
		fake->hold(false);
		fake->settle();
		ck_assert_str_eq(fake->fault(), "");
		gpu_host_unmap(gpu, memory, (size_t)PAGES * PAGE);
		gpu_release(gpu);
		fake->reset();
	}
	frl_set_log(NULL, FRL_LOG_WARNING, NULL);
}
END_TEST

/* One that answers again after a while: then its running work is known, and is waited for. */
START_LOOP_TEST(says_something_again, 2)
{
	const char *call = silent[_i * 3].call;

	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	clock_stop();
	for (int round = 0; round < 3; round++) {
		fake->fail_call(call, 1, CUDA_ERROR_UNKNOWN, 0);
		for (int i = 0; i < 800; i++) {
			ck_assert_uint_eq(gpu_queue_done(queue), 0);
			pass_ms();
		}
		fake->fail_call(call, 0, 0, 0);
		for (int i = 0; i < 20; i++) {
			ck_assert_uint_eq(gpu_queue_done(queue), 0);
			pass_ms();
		}
	}
	clock_go_on();
	ck_assert_str_ne(why(queue), "");
	fake->hold(false);
	wait_done(queue, 1);
	queue_end();
}
END_TEST

/* A temporary condition never ends a queue, however long it lasts; it is reported. */
START_LOOP_TEST(looks_are_refused_for_long, 2)
{
	static const struct {
		const char *call;
		cu_result result;
	} rows[] = {
		{ "cuStreamQuery", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED },
		{ "cuCtxPushCurrent", CUDA_ERROR_OUT_OF_MEMORY },
	};
	struct told told = { .word = rows[_i].call };

	frl_set_log(count_lines, FRL_LOG_WARNING, &told);
	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	fake->fail_call(rows[_i].call, 1, rows[_i].result, 0);
	clock_stop();
	for (int i = 0; i < 2500; i++) {
		ck_assert_uint_eq(gpu_queue_done(queue), 0);
		pass_ms();
	}
	clock_go_on();
	ck_assert_str_eq(why(queue), "");
	ck_assert_uint_eq(told.n, 1);
	fake->fail_call(NULL, 0, 0, 0);
	fake->hold(false);
	wait_done(queue, 1);
	ck_assert_str_eq(why(queue), "");
	queue_end();
	frl_set_log(NULL, FRL_LOG_WARNING, NULL);
}
END_TEST

/* Memory that is freed under a queue is a failure of the context's, not a crash. */
START_TEST(freed_memory)
{
	queue_begin();
	fake->hold(true);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	release(gpu->context, arena);
	fake->hold(false);
	wait_done(queue, 1);
	ck_assert_str_ne(why(queue), "");
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, (size_t)PAGES * PAGE);
	gpu_release(gpu);
	fake->reset();
}
END_TEST

START_LOOP_TEST(context_is_gone, 2)
{
	cu_context context = own_context();
	cu_deviceptr mine = allocate(context, 64);

	is_ok(gpu_hold(context, 0, &gpu));
	is_ok(gpu_host_map(gpu, memory, PAGE));
	host = gpu_host_address(gpu, memory, 64);
	is_ok(gpu_queue_new(gpu, &queue));
	fake->hold(true);
	add(copy(mine, host, 64));
	gpu_queue_launch(queue);
	if (_i)
		add(copy(mine, host, 32));
	fake->hold(false);
	fake->settle();
	ck_assert_int_eq(cu.cuCtxDestroy(context), 0);
	add(copy(mine, host, 16));
	gpu_queue_launch(queue);
	wait_done(queue, 2);
	ck_assert_ptr_nonnull(strstr(why(queue), "gone"));
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, PAGE);
	gpu_release(gpu);
}
END_TEST

/* The query of finished work is the first to notice: no data that is read then went with the
 * context. */
START_LOOP_TEST(context_is_gone_unseen, 2)
{
	bool is_reset = _i;
	cu_context context = is_reset ? NULL : own_context();
	cu_deviceptr mine;

	is_ok(gpu_hold(context, 0, &gpu));
	mine = allocate(gpu->context, 64);
	is_ok(gpu_host_map(gpu, memory, PAGE));
	host = gpu_host_address(gpu, memory, 64);
	is_ok(gpu_queue_new(gpu, &queue));
	fake->hold(true);
	ck_assert_uint_eq(add(copy(mine, host, 64)), 1);
	gpu_queue_launch(queue);
	if (is_reset)
		ck_assert_int_eq(cu.cuDevicePrimaryCtxReset(gpu->device), 0);
	else
		ck_assert_int_eq(cu.cuCtxDestroy(context), 0);
	wait_done(queue, 1);
	ck_assert_ptr_nonnull(strstr(why(queue), "gone"));
	fake->hold(false);
	gpu_queue_free(queue);
	gpu_host_unmap(gpu, memory, PAGE);
	gpu_release(gpu);
}
END_TEST

/* An application captures a graph, in its thread's way or all: neither notices the other. */
START_TEST(capture)
{
	struct fake_cuda_stats stats;

	queue_begin();
	fake->set_capture(true);
	for (uint64_t i = 1; i <= 50; i++) {
		uint64_t ticket;

		while (!(ticket = add(copy(arena, host, 64)))) {
			fake->hold(false);
			gpu_queue_done(queue);
		}
		ck_assert_uint_eq(ticket, i);
		gpu_queue_launch(queue);
		if (i % 10 == 0) {
			fake->hold(i % 20 == 0);
			pause_us(1500);
			gpu_queue_done(queue);
		}
	}
	fake->hold(false);
	wait_done(queue, 50);
	gpu_queue_free(queue);
	is_ok(gpu_queue_new(gpu, &queue));
	fake->stats(&stats);
	ck_assert_uint_eq(stats.captures_broken, 0);
	fake->set_capture(false);
	queue_end();
}
END_TEST

static void *release_later(void *arg)
{
	(void)arg;
	pause_us(50000);
	fake->hold(false);
	return NULL;
}

START_LOOP_TEST(free_waits, ROWS(passing) + 1)
{
	pthread_t thread;

	queue_begin();
	fake->hold(true);
	memset(memory, 7, 64);
	add(copy(arena, host, 64));
	gpu_queue_launch(queue);
	add(copy(arena, host, 8)); /* not launched: never done */
	if (_i)
		fake->fail_call("cuStreamSynchronize", 1, passing[_i - 1], 5);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_later, NULL), 0);
	gpu_queue_free(queue);
	queue = NULL;
	ck_assert_mem_eq(fake->look(arena, 64), memory, 64);
	pthread_join(thread, NULL);
	queue_end();
}
END_TEST

/* Each call that makes a queue fails once: an error with its name, and nothing is left. */
START_LOOP_TEST(cannot_be_made, 3)
{
	static const cu_result results[] = { CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
		CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };
	unsigned n_failed = 0, n_spared = 0;
	int rc;

	for (unsigned nth = 1;; nth++) {
		const char *failed;
		unsigned calls;

		gpu = hold(0);
		calls = fake->calls(NULL);
		fake->fail_call(NULL, nth, results[_i], 1);
		rc = gpu_queue_new(gpu, &queue);
		calls = fake->calls(NULL) - calls;
		failed = fake->failed();
		fake->fail_call(NULL, 0, 0, 0);
		if (!rc)
			gpu_queue_free(queue);
		/* The kernels may have been loaded, and stay. */
		gpu_release(gpu);
		ck_assert_str_eq(fake->leaks(), "");
		if (calls < nth)
			break;
		ck_assert_ptr_nonnull(failed);
		/* A call that only distinguishes contexts may fail. */
		if (strcmp(failed, "cuCtxGetId") == 0)
			continue;
		if (!rc && strncmp(failed, "cuModule", 8) == 0) {
			n_spared++;
			continue;
		}
		ck_assert_msg(rc < 0, "%s failed, and nothing came of it", failed);
		ck_assert_msg(strstr(frl_last_error(), failed), "no '%s' in '%s'", failed,
			frl_last_error());
		n_failed++;
	}
	/* For the second image, which only makes launches fewer: the module and its function. */
	ck_assert_uint_eq(n_spared, 2);
	/* The context twice, the module, its function, and six that a queue takes. */
	ck_assert_uint_ge(n_failed, 9);
}
END_TEST

/* The driver's text about an image, and a word of Ferrule's. */
static const struct {
	cu_result result;
	const char *word;
} images[] = {
	{ CUDA_ERROR_INVALID_IMAGE, "newer driver" },
	{ CUDA_ERROR_NO_BINARY_FOR_GPU, "not for this GPU" },
	{ CUDA_ERROR_INVALID_PTX, "newer driver" },
	{ CUDA_ERROR_JIT_COMPILATION_DISABLED, "CUDA_DISABLE_PTX_JIT" },
	{ CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "libnvidia-ptxjitcompiler" },
	{ CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "older CUDA" },
};

START_LOOP_TEST(image_is_refused, ROWS(images))
{
	gpu = hold(0);
	fake->fail_call("cuModuleLoadData", 1, images[_i].result, 1);
	is_refused(gpu_queue_new(gpu, &queue), -ENOTSUP, images[_i].word);
	is_ok(gpu_queue_new(gpu, &queue));
	gpu_queue_free(queue);
	gpu_release(gpu);
}
END_TEST

START_TEST(driver_is_older)
{
	fake->set_version(12040);
	gpu = hold(0);
	is_refused(gpu_queue_new(gpu, &queue), -ENOTSUP, "not 12.4");
	gpu_release(gpu);
}
END_TEST

START_TEST(gpu_is_older)
{
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7);
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 2);
	gpu = hold(0);
	is_refused(gpu_queue_new(gpu, &queue), -ENOTSUP, "compute capability 7.2");
	gpu_release(gpu);
}
END_TEST

/* No GPU's, but the memory is touched by nobody meanwhile: freeing nothing does nothing. */
START_TEST(free_of_nothing)
{
	gpu_queue_free(NULL);
}
END_TEST

TEST_MAIN(gpu_queue_faults)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
