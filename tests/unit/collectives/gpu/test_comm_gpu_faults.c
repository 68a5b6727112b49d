/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU's memory cannot be used, a call of the driver fails, a kernel crashes, or an operation ends
 * early: all ranks get the reason, no rank waits for ever, nothing is left behind, and freed memory
 * is not touched any more. On the double alone.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "collectives/gpu/compute.h"
#include "tests/unit/collectives/gpu/comm_gpu_fixture.h"
#include "tests/fixtures/program.h"

enum { SHORT = 100, LONG = 40000, TIMEOUT_MS = 20000, PATIENCE = 100 };
/* The address sanitizer checks each of them for leaks, too. */
enum { CALLS_MOST = 60, CALLS = JOB_SHARE > 4 ? 7 : CALLS_MOST };

static const size_t lengths[] = { SHORT, LONG };

static int sum_up(struct rank *rank, void *send, void *recv, size_t count)
{
	return frl_allreduce(rank->comm, send, recv, count, FRL_INT32, FRL_SUM);
}

/* As a process that has not used CUDA. Nothing of it is in use. */
static void renew(void)
{
	fake->reset();
	cuda_reset();
	ck_assert_int_eq(gpu_hold(NULL, 0, &test_gpu), 0);
}

static void let_go(void)
{
	gpu_release(test_gpu);
	test_gpu = NULL;
}

/* ---- memory that is refused, without harm */

static void expect_refused(
	struct rank *rank, void *send, void *recv, size_t count, int err, const char *why)
{
	expect(rank, sum_up(rank, send, recv, count) == err);
	if (!strstr(frl_last_error(), why))
		complain(rank, "\"%s\" instead of \"%s\"", frl_last_error(), why);
}

static void run_refused(struct rank *rank)
{
	cu_result (*alloc_managed)(cu_deviceptr * ret_address, size_t size, unsigned int flags);
	uint8_t *memory = test_gpu_alloc(SHORT * 4), *other;
	struct gpu *gpu_1 = NULL;
	struct gpu_scope scope;
	cu_deviceptr managed = 0;

	*(void **)(void *)&alloc_managed = dlsym(
		dlopen("libcuda.so.1", RTLD_NOW), "cuMemAllocManaged");
	test_gpu_enter(test_gpu, &scope);
	MUST(alloc_managed(&managed, SHORT * 4, 1));
	gpu_leave(&scope);
	expect_refused(rank, memory, (void *)(uintptr_t)managed, SHORT, -ENOTSUP,
		"the receive buffer is managed memory");
	expect_refused(
		rank, memory, memory, SHORT * 1000000, -EINVAL, "allreduce: the send buffer");
	MUST(gpu_hold(NULL, 1, &gpu_1));
	test_gpu_enter(gpu_1, &scope);
	other = test_gpu_alloc_in(gpu_1, SHORT * 4);
	expect_refused(rank, memory, other, SHORT, -EINVAL, "both must be of one GPU");
	/* Another time on that one, with a queue of its own there. */
	expect(rank, sum_up(rank, memory, memory, SHORT) == 0);
	expect(rank, sum_up(rank, other, other, SHORT) == 0);
	expect(rank, rank->comm->computes && rank->comm->computes->next);
	expect(rank, gpu_1->cuda->cuMemFree((uintptr_t)other) == CUDA_SUCCESS);
	expect(rank, gpu_1->cuda->cuMemFree(managed) == CUDA_SUCCESS);
	gpu_leave(&scope);
	gpu_release(gpu_1);
	test_gpu_free(memory);
}

JOB_TEST(refused, 1, job_run, .ranks = 2, .main = run_refused);

/* ---- any call fails */

struct fault {
	cu_result result;
	unsigned nth;
	size_t count;
	atomic_bool has_failed;
};

static void run_faulty(struct rank *rank)
{
	struct fault *fault = rank->job->arg;
	size_t bytes = fault->count * sizeof(int32_t);
	uint8_t *memory = test_gpu_alloc(bytes);
	int32_t *values = malloc(bytes);
	int err;

	for (size_t i = 0; i < fault->count; i++)
		values[i] = (int32_t)i;
	test_gpu_put(memory, values, bytes);
	err = frl_barrier(rank->comm);
	if (rank->number == 0)
		fake->fail_call(NULL, fault->nth, fault->result, 1);
	for (int i = 0; i < 2 && !err; i++)
		err = sum_up(rank, memory, memory, fault->count);
	if (err) {
		char why[JOB_TEXT];

		snprintf(why, sizeof(why), "%s", frl_last_error());
		/* It reports the failure, and so do all others. */
		if (!strstr(why, "cu") && !strstr(why, "GPU") && !strstr(why, "aborted"))
			complain(rank, "call %u fails with %d: \"%s\"", fault->nth, fault->result,
				why);
		frl_comm_abort(rank->comm, why);
		atomic_store(&fault->has_failed, true);
	} else {
		fake->fail_call(NULL, 0, 0, 0);
		test_gpu_get(values, memory, bytes);
		for (size_t i = 0; i < fault->count && !rank->failure[0]; i++)
			expect(rank, values[i] == (int32_t)i * rank->ranks * rank->ranks);
	}
	fake->fail_call(NULL, 0, 0, 0);
	test_gpu_free(memory);
	free(values);
}

/* Calls that free something: it is left behind then. */
static bool gives_back(const char *call)
{
	return call &&
		(strstr(call, "Free") || strstr(call, "Destroy") || strstr(call, "Release") ||
			strstr(call, "Unregister") || strstr(call, "Unload"));
}

static const cu_result results[] = {
	CUDA_ERROR_INVALID_VALUE,
	CUDA_ERROR_OUT_OF_MEMORY,
	CUDA_ERROR_NOT_SUPPORTED,
	CUDA_ERROR_LAUNCH_FAILED,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
};

/* The test's own GPU is there before, and after. */
START_LOOP_TEST(any_call, 2 * ROWS(results))
{
	struct fault fault = { .result = results[_i / 2], .count = lengths[_i % 2] };
	unsigned failures = 0;

	/* The rank of the n-th call is random, and some calls may fail without harm. */
	for (fault.nth = 1; fault.nth <= CALLS || (failures == 0 && fault.nth <= CALLS_MOST);
		fault.nth++) {
		struct job job = {
			.ranks = 2, .main = run_faulty, .arg = &fault, .timeout_ms = TIMEOUT_MS
		};

		atomic_store(&fault.has_failed, false);
		job_run(&job);
		failures += atomic_load(&fault.has_failed);
		let_go();
		if (fake->leaks()[0] && !gives_back(fake->failed()))
			ck_abort_msg("call %u (%s) fails with %d: %s is left behind", fault.nth,
				fake->failed(), fault.result, fake->leaks());
		renew();
	}
	ck_assert_uint_gt(failures, 0);
}
END_TEST

/* ---- kernels that crash: the n-th piece of work, with the context */

static void run_crashing(struct rank *rank)
{
	struct fault *fault = rank->job->arg;
	uint8_t *memory = test_gpu_alloc(fault->count * sizeof(int32_t));
	int err = frl_barrier(rank->comm);

	if (rank->number == 0)
		fake->fail_call("work", fault->nth, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
	for (int i = 0; i < 100 && !err; i++)
		err = sum_up(rank, memory, memory, fault->count);
	expect(rank, err < 0);
	expect(rank, strstr(frl_last_error(), "GPU") || strstr(frl_last_error(), "driver"));
	frl_comm_abort(rank->comm, frl_last_error());
	/* The memory went with the context. */
}

START_LOOP_TEST(crash, 8)
{
	struct fault fault = { .nth = 1 + (unsigned)_i, .count = lengths[_i % 2] };
	struct job job = {
		.ranks = 2, .main = run_crashing, .arg = &fault, .timeout_ms = TIMEOUT_MS
	};

	job_run(&job);
}
END_TEST

/* ---- the end, while the GPU is at work */

/* Nothing is freed while the GPU may write to it; then nothing writes any more. */
static void run_aborted(struct rank *rank)
{
	struct fault *fault = rank->job->arg;
	size_t bytes = fault->count * sizeof(int32_t);
	uint8_t *memory = test_gpu_alloc(bytes), *pattern = malloc(bytes), *got = malloc(bytes);
	struct frl_request *request = NULL;
	bool done = false;
	int err;

	test_gpu_put(memory, memset(pattern, 0, bytes), bytes);
	expect(rank, sum_up(rank, memory, memory, fault->count) == 0);
	job_meet(rank->job);
	if (rank->number == 0)
		fake->hold(true);
	job_meet(rank->job);
	err = frl_allreduce_start(
		rank->comm, memory, memory, fault->count, FRL_INT32, FRL_SUM, &request);
	/* Until something waits for the GPU: data of the first round is seen in the second, however
	 * the ranks are scheduled. */
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < PATIENCE && !err; i++) {
			err = frl_request_test(request, &done);
			if (i % 16 == 0)
				job_sleep_ms(1);
		}
		job_meet(rank->job);
	}
	expect(rank, err == 0 && !done);
	if (rank->number == 0)
		frl_comm_abort(rank->comm, "for a try");
	/* It is not over while its pieces are in flight. */
	for (int i = 0; i < PATIENCE && !err && fault->nth == 0; i++) {
		err = frl_request_test(request, &done);
		if (i % 16 == 0)
			job_sleep_ms(1);
	}
	if (fault->nth == 0)
		expect(rank, err == 0 && !done);
	job_meet(rank->job);
	if (rank->number == 0)
		fake->hold(false);
	err = frl_request_wait(request);
	expect(rank, err == -ECANCELED);
	test_gpu_put(memory, memset(pattern, 0xa5, bytes), bytes);
	job_meet(rank->job);
	fake->settle();
	test_gpu_get(got, memory, bytes);
	expect(rank, memcmp(got, pattern, bytes) == 0);
	test_gpu_free(memory);
	free(pattern);
	free(got);
}

START_LOOP_TEST(aborted, 4)
{
	struct fault fault = { .count = lengths[_i % 2] };
	struct job job = { .ranks = 2, .main = run_aborted, .arg = &fault };

	job_run(&job);
}
END_TEST

static void set_left(struct rank *rank, bool left)
{
	pthread_mutex_lock(&rank->job->mutex);
	rank->left = left;
	pthread_mutex_unlock(&rank->job->mutex);
}

/* A rank that has sent all that another rank needs may leave, while that one waits for its
 * stream. */
static void run_left_alone(struct rank *rank)
{
	struct frl_collective c = {
		.coll = FRL_BROADCAST, .count = SHORT, .dtype = FRL_INT32, .on_stream = true
	};
	uint8_t *memory = test_gpu_alloc(SHORT * sizeof(int32_t));
	struct frl_request *request;
	struct gpu_scope scope;
	cu_stream stream = NULL;
	int32_t zero = 0;
	bool done = false;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	c.send = c.recv = memory;
	c.stream = stream;
	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number == 1) {
		fake->hold_stream(stream, true);
		MUST(test_gpu->cuda->cuMemcpyHtoDAsync((uintptr_t)memory, &zero, 4, stream));
	}
	expect(rank, frl_start(rank->comm, &c, &request) == 0);
	if (rank->number == 0) {
		expect(rank, frl_request_wait(request) == 0);
		set_left(rank, true);
	}
	for (int i = 0; i < 100 && rank->number == 1 && !rank->failure[0]; i++) {
		expect(rank, frl_request_test(request, &done) == 0 && !done);
		job_sleep_ms(1);
	}
	if (rank->number == 1) {
		fake->hold_stream(stream, false);
		if (!rank->failure[0])
			expect(rank, frl_request_wait(request) == 0);
	}
	job_meet(rank->job);
	set_left(rank, false);
	MUST(test_gpu->cuda->cuStreamSynchronize(stream));
	MUST(test_gpu->cuda->cuStreamDestroy(stream));
	gpu_leave(&scope);
	test_gpu_free(memory);
}

JOB_TEST(left_alone, 1, job_run, .ranks = 2, .main = run_left_alone);

/* Destroyed with requests in flight: their resources are free when that returns. */
static void run_destroyed(struct rank *rank)
{
	struct fault *fault = rank->job->arg;
	size_t bytes = fault->count * sizeof(int32_t);
	uint8_t *memory = test_gpu_alloc(bytes);
	struct frl_request *request;

	expect(rank, sum_up(rank, memory, memory, fault->count) == 0);
	job_meet(rank->job);
	expect(rank,
		frl_allreduce_start(rank->comm, memory, memory, fault->count, FRL_INT32, FRL_SUM,
			&request) == 0);
	job_meet(rank->job);
	frl_comm_destroy(rank->comm);
	rank->comm = NULL;
	test_gpu_free(memory);
}

START_LOOP_TEST(destroyed, 8)
{
	struct fault fault = { .count = lengths[_i % 2] };
	struct job job = { .ranks = 2, .main = run_destroyed, .arg = &fault };

	fake->set_delay(_i < 4 ? 500 : 0);
	job_run(&job);
	fake->set_delay(0);
	ck_assert_str_eq(fake->fault(), "");
}
END_TEST

TEST_MAIN(comm_gpu_faults)
{
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	/* Streams of the application are held until the test continues: loading Ferrule's kernels
	 * lazily would wait for them. */
	setenv("FAKE_CUDA_LOADING", "eager", 1);
	if (!test_gpu_open())
		return SKIPPED;
	if (!fake) {
		fprintf(stderr, "skipped: a GPU does not fail when told to\n");
		return SKIPPED;
	}
	let_go();
	return run_suite_unforked(all_tests(renew, let_go));
}
