/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that wait for a stream of the application: they begin when it has reached them, in the
 * order in which they were started. Captured streams are refused, and not disturbed.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/gpu/comm_gpu_fixture.h"
#include "tests/fixtures/program.h"

enum { SHORT = 50, LONG = 30000, PATIENCE = 200 };

/* Functions that only tests need. */
static struct {
	cu_result (*begin_capture)(cu_stream stream, cu_capture_mode mode);
	cu_result (*end_capture)(cu_stream stream, void **ret_graph);
	cu_result (*destroy_graph)(void *graph);
} more;

static void *find(const char *name)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

static void find_more(void)
{
	*(void **)(void *)&more.begin_capture = find("cuStreamBeginCapture_v2");
	*(void **)(void *)&more.end_capture = find("cuStreamEndCapture");
	*(void **)(void *)&more.destroy_graph = find("cuGraphDestroy");
}

static cu_stream new_stream(unsigned int flags)
{
	cu_stream stream = NULL;
	struct gpu_scope scope;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuStreamCreateWithPriority(&stream, flags, 0));
	gpu_leave(&scope);
	return stream;
}

static void end_stream(cu_stream stream)
{
	struct gpu_scope scope;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuStreamSynchronize(stream));
	MUST(test_gpu->cuda->cuStreamDestroy(stream));
	gpu_leave(&scope);
}

/* The work of a kernel of the application. */
static void write_in_stream(uint8_t *to, const void *from, size_t bytes, cu_stream stream)
{
	struct gpu_scope scope;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuMemcpyHtoDAsync((uintptr_t)to, from, bytes, stream));
	gpu_leave(&scope);
}

/* ---- one rank's part */

struct part {
	size_t count;
	int32_t *values; /* of this rank; in host memory that is pinned by nobody */
	int32_t *got;
	uint8_t *memory; /* on the GPU */
	cu_stream stream;
};

static void part_init(struct part *part, const struct rank *rank, size_t count)
{
	size_t bytes = count * sizeof(int32_t);

	*part = (struct part){ .count = count,
		.values = malloc(bytes),
		.got = calloc(count, sizeof(int32_t)),
		.memory = test_gpu_alloc(bytes),
		.stream = new_stream(CU_STREAM_NON_BLOCKING) };
	for (size_t i = 0; i < count; i++)
		part->values[i] = (int32_t)i * 3 + rank->number;
	/* Before the stream has reached the operation: other numbers. */
	test_gpu_put(part->memory, part->got, bytes);
}

static void part_end(struct part *part)
{
	end_stream(part->stream);
	test_gpu_free(part->memory);
	free(part->values);
	free(part->got);
}

static int start_sum(struct rank *rank, const struct part *part, bool on_stream, cu_stream stream,
	struct frl_request **ret_request)
{
	const struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = part->memory,
		.recv = part->memory,
		.count = part->count,
		.dtype = FRL_INT32,
		.op = FRL_SUM,
		.on_stream = on_stream,
		.stream = stream };

	return frl_start(rank->comm, &c, ret_request);
}

static void expect_sums(struct rank *rank, const struct part *part)
{
	int sum = rank->ranks * (rank->ranks - 1) / 2;

	test_gpu_get(part->got, part->memory, part->count * sizeof(int32_t));
	for (size_t i = 0; i < part->count && !rank->failure[0]; i++)
		expect(rank, part->got[i] == (int32_t)i * 3 * rank->ranks + sum);
}

/* It stays so. */
static bool is_waiting(struct rank *rank, struct frl_request *request)
{
	bool done = false;

	for (int i = 0; i < PATIENCE && !done; i++) {
		if (!expect(rank, frl_request_test(request, &done) == 0))
			return false;
		if (i % 16 == 0)
			job_sleep_ms(1);
	}
	return !done;
}

/* tests/device/gpu.sh counts these lines. */
static bool has_double(const char *test)
{
	if (!fake)
		printf("left out: %s needs the double of the driver\n", test);
	return fake;
}

/* ---- the tests */

/* Every rank has its own stream; that of rank 0 is held for a while. */
static void run_late(struct rank *rank)
{
	size_t count = *(const size_t *)rank->job->arg;
	bool is_late = rank->number == 0 && fake;
	struct frl_request *request;
	struct part part;

	part_init(&part, rank, count);
	if (is_late)
		fake->hold_stream(part.stream, true);
	write_in_stream(part.memory, part.values, count * sizeof(int32_t), part.stream);
	if (expect(rank, start_sum(rank, &part, true, part.stream, &request) == 0)) {
		if (is_late) {
			expect(rank, is_waiting(rank, request));
			fake->hold_stream(part.stream, false);
		}
		expect(rank, frl_request_wait(request) == 0);
	}
	expect_sums(rank, &part);
	part_end(&part);
}

static const size_t lengths[] = { SHORT, LONG };

START_LOOP_TEST(held_up, 6)
{
	size_t count = lengths[_i % 2];
	struct job job = { .ranks = 1 + _i / 2, .main = run_late, .arg = &count };

	job_run(&job);
}
END_TEST

/* The default stream comes after blocking streams. */
static void run_default(struct rank *rank)
{
	size_t count = *(const size_t *)rank->job->arg;
	struct frl_request *request;
	struct part part;
	cu_stream blocking = new_stream(CU_STREAM_DEFAULT);

	part_init(&part, rank, count);
	expect(rank, frl_barrier(rank->comm) == 0);
	if (fake)
		fake->hold_stream(blocking, true);
	write_in_stream(part.memory, part.values, count * sizeof(int32_t), blocking);
	if (expect(rank, start_sum(rank, &part, true, NULL, &request) == 0)) {
		if (fake)
			expect(rank, is_waiting(rank, request));
		if (fake)
			fake->hold_stream(blocking, false);
		expect(rank, frl_request_wait(request) == 0);
	}
	expect_sums(rank, &part);
	end_stream(blocking);
	part_end(&part);
}

START_LOOP_TEST(default_stream, 2)
{
	size_t count = lengths[_i];
	struct job job = { .ranks = 2, .main = run_default, .arg = &count };

	job_run(&job);
}
END_TEST

/* A later operation does not overtake it, and is right as well. */
static void run_in_order(struct rank *rank)
{
	bool is_late = rank->number == 0 && fake;
	struct frl_request *first, *second;
	struct part late, later;

	part_init(&late, rank, LONG);
	part_init(&later, rank, LONG);
	test_gpu_put(later.memory, later.values, LONG * sizeof(int32_t));
	if (is_late)
		fake->hold_stream(late.stream, true);
	write_in_stream(late.memory, late.values, LONG * sizeof(int32_t), late.stream);
	if (!expect(rank, start_sum(rank, &late, true, late.stream, &first) == 0) ||
		!expect(rank, start_sum(rank, &later, false, NULL, &second) == 0))
		return;
	if (is_late) {
		expect(rank, is_waiting(rank, second));
		fake->hold_stream(late.stream, false);
	}
	expect(rank, frl_request_wait(second) == 0);
	expect(rank, frl_request_wait(first) == 0);
	expect_sums(rank, &late);
	expect_sums(rank, &later);
	part_end(&late);
	part_end(&later);
}

JOB_TEST(in_order, 1, job_run, .ranks = 2, .main = run_in_order);

/* Rank 0 sends to 1 when its stream has reached the send, and to 2 at once. */
static atomic_bool has_come;

static void run_apart(struct rank *rank)
{
	struct frl_collective c = {
		.coll = rank->number ? FRL_RECV : FRL_SEND, .count = LONG, .dtype = FRL_INT32
	};
	struct frl_request *requests[2];
	struct part part;

	part_init(&part, rank, LONG);
	c.send = c.recv = part.memory;
	if (rank->number > 0) {
		expect(rank, frl_run(rank->comm, &c) == 0);
		if (rank->number == 2)
			atomic_store(&has_come, true);
	} else {
		fake->hold_stream(part.stream, true);
		write_in_stream(part.memory, part.values, LONG * sizeof(int32_t), part.stream);
		for (int i = 0; i < 2; i++) {
			c.root = i + 1;
			c.on_stream = i == 0;
			c.stream = part.stream;
			if (!expect(rank, frl_start(rank->comm, &c, &requests[i]) == 0))
				return;
		}
		expect(rank, frl_request_wait(requests[1]) == 0);
		while (!atomic_load(&has_come) && !rank->failure[0])
			job_sleep_ms(1);
		expect(rank, is_waiting(rank, requests[0]));
		fake->hold_stream(part.stream, false);
		expect(rank, frl_request_wait(requests[0]) == 0);
	}
	test_gpu_get(part.got, part.memory, LONG * sizeof(int32_t));
	for (size_t i = 0; i < LONG && rank->number == 1 && !rank->failure[0]; i++)
		expect(rank, part.got[i] == (int32_t)i * 3);
	part_end(&part);
}

START_TEST(others_go_on)
{
	struct job job = { .ranks = 3, .main = run_apart };

	/* Streams of a real GPU cannot be held. */
	if (!has_double("others_go_on"))
		return;
	atomic_store(&has_come, false);
	job_run(&job);
}
END_TEST

/* Host memory that a stream writes; and a barrier. */
static void run_host(struct rank *rank)
{
	struct gpu_scope scope;
	struct frl_request *request;
	struct part part;
	int started;
	struct frl_collective c = {
		.coll = FRL_ALLREDUCE, .count = LONG, .dtype = FRL_INT32, .on_stream = true
	};

	part_init(&part, rank, LONG);
	c.stream = part.stream;
	for (int round = 0; round < 2; round++) {
		c.coll = round ? FRL_BARRIER : FRL_ALLREDUCE;
		c.send = c.recv = part.got;
		test_gpu_put(part.memory, part.values, LONG * sizeof(int32_t));
		if (fake)
			fake->hold_stream(part.stream, true);
		test_gpu_enter(test_gpu, &scope);
		expect(rank,
			test_gpu->cuda->cuMemcpyDtoHAsync(part.got, (uintptr_t)part.memory,
				LONG * sizeof(int32_t), part.stream) == CUDA_SUCCESS);
		/* In an application it is current anyway. */
		started = frl_start(rank->comm, &c, &request);
		gpu_leave(&scope);
		if (!expect(rank, started == 0))
			return;
		if (fake)
			expect(rank, is_waiting(rank, request));
		if (fake)
			fake->hold_stream(part.stream, false);
		expect(rank, frl_request_wait(request) == 0);
		for (size_t i = 0; i < LONG && !rank->failure[0]; i++)
			expect(rank,
				part.got[i] ==
					(round ? (int32_t)i * 3 + rank->number
					       : (int32_t)i * 6 + 1));
	}
	part_end(&part);
}

JOB_TEST(host_memory, 1, job_run, .ranks = 2, .main = run_host);

/* A captured stream is refused without side effects, and stays captured. */
static void run_captured(struct rank *rank)
{
	cu_capture_status status = CU_STREAM_CAPTURE_STATUS_NONE;
	cu_stream blocking = new_stream(CU_STREAM_DEFAULT);
	struct frl_request *request = NULL;
	struct gpu_scope scope;
	void *graph = NULL;
	struct part part;

	part_init(&part, rank, LONG);
	test_gpu_put(part.memory, part.values, LONG * sizeof(int32_t));
	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number == 0) {
		test_gpu_enter(test_gpu, &scope);
		expect(rank,
			more.begin_capture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
				CUDA_SUCCESS);
		gpu_leave(&scope);
		expect(rank, start_sum(rank, &part, true, blocking, &request) == -ENOTSUP);
		expect(rank, strstr(frl_last_error(), "captured into a CUDA graph") != NULL);
		expect(rank, start_sum(rank, &part, true, NULL, &request) == -ENOTSUP);
		/* Without a stream, or in another one, the capture does not matter. */
	}
	if (expect(rank, start_sum(rank, &part, true, part.stream, &request) == 0))
		expect(rank, frl_request_wait(request) == 0);
	if (rank->number == 0) {
		test_gpu_enter(test_gpu, &scope);
		expect(rank,
			test_gpu->cuda->cuStreamIsCapturing(blocking, &status) == CUDA_SUCCESS);
		expect(rank, status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
		expect(rank, more.end_capture(blocking, &graph) == CUDA_SUCCESS);
		more.destroy_graph(graph);
		gpu_leave(&scope);
	}
	/* Copies to the host would end the capture of the other rank. */
	expect(rank, frl_barrier(rank->comm) == 0);
	expect_sums(rank, &part);
	end_stream(blocking);
	part_end(&part);
}

JOB_TEST(captured, 1, job_run, .ranks = 2, .main = run_captured);

/* While another thread captures, everything continues, and its capture, too. */
static void run_beside_capture(struct rank *rank)
{
	struct frl_request *request;
	struct part part;

	part_init(&part, rank, *(const size_t *)rank->job->arg);
	test_gpu_put(part.memory, part.values, part.count * sizeof(int32_t));
	expect(rank, frl_barrier(rank->comm) == 0);
	fake->set_capture(true);
	if (expect(rank, start_sum(rank, &part, true, part.stream, &request) == 0))
		expect(rank, frl_request_wait(request) == 0);
	expect(rank, frl_barrier(rank->comm) == 0);
	fake->set_capture(false);
	expect_sums(rank, &part);
	part_end(&part);
}

START_LOOP_TEST(beside_a_capture, 2)
{
	size_t count = lengths[_i];
	struct job job = { .ranks = 2, .main = run_beside_capture, .arg = &count };
	struct fake_cuda_stats stats;

	/* Other threads of the test would disturb it. */
	if (!has_double("beside_a_capture"))
		return;
	job_run(&job);
	fake->stats(&stats);
	ck_assert_uint_eq(stats.captures_broken, 0);
}
END_TEST

/* ---- calls that fail */

/* At the start nothing has happened yet: the same operation works then. */
static const char *const at_start[] = { "cuEventCreate", "cuEventRecord", "cuStreamIsCapturing",
	"cuStreamGetCtx" };

static void run_refused(struct rank *rank)
{
	struct frl_request *request;
	struct part part;

	part_init(&part, rank, LONG);
	test_gpu_put(part.memory, part.values, LONG * sizeof(int32_t));
	expect(rank, frl_barrier(rank->comm) == 0);
	if (rank->number == 0) {
		const char *name = rank->job->arg;

		fake->fail_call(name, 1, CUDA_ERROR_INVALID_VALUE, 1);
		expect(rank, start_sum(rank, &part, true, part.stream, &request) == -EINVAL);
		expect(rank, strstr(frl_last_error(), name) != NULL);
	}
	expect(rank, frl_barrier(rank->comm) == 0);
	if (expect(rank, start_sum(rank, &part, true, part.stream, &request) == 0))
		expect(rank, frl_request_wait(request) == 0);
	expect_sums(rank, &part);
	part_end(&part);
}

START_LOOP_TEST(refused, ROWS(at_start))
{
	struct job job = { .ranks = 2, .main = run_refused, .arg = (void *)at_start[_i] };

	if (has_double("refused"))
		job_run(&job);
}
END_TEST

/* Afterwards all ranks get the failure. */

static void run_failing(struct rank *rank)
{
	struct frl_request *request;
	struct part part;
	int err;

	part_init(&part, rank, LONG);
	expect(rank, frl_barrier(rank->comm) == 0);
	job_meet(rank->job);
	if (rank->number == 0) {
		fake->hold_stream(part.stream, true);
		write_in_stream(part.memory, part.values, LONG * sizeof(int32_t), part.stream);
		fake->fail_call("cuEventQuery", 1, CUDA_ERROR_INVALID_VALUE, 1);
	}
	/* At the other rank it may have failed before. */
	err = start_sum(rank, &part, rank->number == 0, part.stream, &request);
	if (!err)
		err = frl_request_wait(request);
	expect(rank, err < 0);
	expect(rank, strstr(frl_last_error(), "cuEventQuery") != NULL);
	fake->fail_call("cuEventQuery", 0, 0, 0);
	fake->hold_stream(part.stream, false);
	part_end(&part);
}

START_TEST(failing)
{
	struct job job = { .ranks = 2, .main = run_failing };

	if (!has_double("failing"))
		return;
	job_run(&job);
}
END_TEST

/* A stream that takes too long is reported, as ranks are. */
static void run_too_late(struct rank *rank)
{
	struct frl_request *request;
	struct part part;

	part_init(&part, rank, LONG);
	fake->hold_stream(part.stream, true);
	write_in_stream(part.memory, part.values, LONG * sizeof(int32_t), part.stream);
	if (expect(rank, start_sum(rank, &part, true, part.stream, &request) == 0)) {
		expect(rank, frl_request_wait(request) == -ETIMEDOUT);
		expect(rank, strstr(frl_last_error(), "earlier work in its stream") != NULL);
	}
	fake->hold_stream(part.stream, false);
	part_end(&part);
}

START_TEST(too_late)
{
	struct job job = { .ranks = 1, .main = run_too_late, .timeout_ms = 100 };

	if (has_double("too_late"))
		job_run(&job);
}
END_TEST

/* A stream of an unknown context. */
static void run_nowhere(struct rank *rank)
{
	int32_t value = 1;
	struct frl_request *request;
	const struct frl_collective c = { .coll = FRL_ALLREDUCE,
		.send = &value,
		.recv = &value,
		.count = 1,
		.dtype = FRL_INT32,
		.on_stream = true };

	expect(rank, frl_start(rank->comm, &c, &request) == -EINVAL);
	expect(rank, strstr(frl_last_error(), "no CUDA context is current") != NULL);
	expect(rank, frl_barrier(rank->comm) == 0);
}

JOB_TEST(nowhere, 1, job_run, .ranks = 2, .main = run_nowhere);

TEST_MAIN(comm_gpu_stream)
{
	int failed;

	/* Streams of the application are held until the test continues: loading Ferrule's kernels
	 * lazily would wait for them. */
	setenv("FAKE_CUDA_LOADING", "eager", 1);
	if (!test_gpu_open())
		return SKIPPED;
	find_more();
	failed = run_suite_unforked(all_tests(NULL, NULL));
	failed += !test_gpu_close();
	return failed;
}
