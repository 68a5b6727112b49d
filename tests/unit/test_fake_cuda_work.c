/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of CUDA's driver: work that tests hold, kernels, and work that goes wrong. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpudirect/batch.h"
#include "tests/unit/cuda_fixture.h"
#include "tests/unit/program.h"

enum { PAGE = CUDA_FIXTURE_PAGE, SIZE = 1 << 20, STREAMS = 3, THREADS = 4 };

/* What a kernel needs. */
static cu_stream stream;
static cu_module module;
static cu_function kernel;
static _Atomic uint64_t *done;
static cu_deviceptr counter, memory;
static bool has_failed; /* nothing can be given back one by one */

static void setup(void)
{
	has_failed = false;
	cuda_setup();
	ck_cu_ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cu_ok(cu.cuModuleLoadData(&module, "any image"));
	ck_cu_ok(cu.cuModuleGetFunction(&kernel, module, "ferrule_work"));
	ck_cu_ok(cu.cuMemAllocHost((void **)(void *)&done, PAGE));
	ck_cu_ok(cu.cuMemAlloc(&counter, 4));
	ck_cu_ok(cu.cuMemsetD8(counter, 0, 4));
	ck_cu_ok(cu.cuMemAlloc(&memory, SIZE));
}

static void teardown(void)
{
	cuda_fake->hold(false);
	if (has_failed) {
		cuda_fake->reset();
		return;
	}
	ck_cu_ok(cu.cuCtxSynchronize());
	ck_cu_ok(cu.cuMemFree(memory));
	ck_cu_ok(cu.cuMemFree(counter));
	ck_cu_ok(cu.cuMemFreeHost((void *)done));
	ck_cu_ok(cu.cuModuleUnload(module));
	ck_cu_ok(cu.cuStreamDestroy(stream));
	cuda_teardown();
}

static struct gpu_batch batch_of(struct gpu_work work, uint16_t blocks, uint64_t sequence)
{
	struct gpu_batch batch = {
		.done = (uint64_t)(uintptr_t)done,
		.sequence = sequence,
		.counter = counter,
		.n_pieces = 1,
		.n_blocks = blocks,
		.first_block = { 0, blocks },
	};

	batch.pieces[0] = work;
	return batch;
}

static cu_result launch(cu_stream at, struct gpu_batch batch)
{
	void *parameters[] = { &batch };
	cu_result result = cu.cuLaunchKernel(
		kernel, batch.n_blocks, 1, 1, GPU_BLOCK_THREADS, 1, 1, 0, at, parameters, NULL);

	/* It was copied. */
	memset(&batch, 0xff, sizeof(batch));
	return result;
}

static struct gpu_work copy(cu_deviceptr dst, cu_deviceptr src, uint64_t bytes)
{
	return (struct gpu_work){ .action = GPU_COPY, .dst = dst, .src = src, .count = bytes };
}

/* ---- kernels */

START_LOOP_TEST(kernel_copies, 6)
{
	static const uint64_t lengths[] = { 1, 15, 16, 4095, 4096, 100000 };
	uint64_t length = lengths[_i];
	uint8_t *in = malloc(length), *out = malloc(length);
	struct fake_cuda_stats stats;

	for (unsigned blocks = 1; blocks <= 5; blocks += 2) {
		for (uint64_t i = 0; i < length; i++)
			in[i] = (uint8_t)(i * 31 + blocks);
		ck_cu_ok(cu.cuMemcpyHtoD(memory + 5, in, length));
		ck_cu_ok(launch(stream,
			batch_of(copy(memory + SIZE / 2, memory + 5, length), (uint16_t)blocks,
				blocks)));
		ck_cu_ok(cu.cuStreamSynchronize(stream));
		ck_assert_uint_eq(atomic_load(done), blocks);
		ck_cu_ok(cu.cuMemcpyDtoH(out, memory + SIZE / 2, length));
		ck_assert_mem_eq(in, out, length);
	}
	cuda_fake->stats(&stats);
	ck_assert_uint_eq(stats.launches, 3);
	ck_assert_uint_eq(stats.kernels, 3);
	ck_assert_uint_eq(stats.pieces, 3);
	free(in);
	free(out);
}
END_TEST

/* Of a driver of this version; the result of a kernel with a parameter of more than 4096 bytes. */
static const struct {
	int version;
	cu_result result;
} parameters_rows[] = {
	{ 12000, CUDA_ERROR_NOT_SUPPORTED },
	{ 12010, CUDA_SUCCESS },
	{ 13000, CUDA_SUCCESS },
};

START_LOOP_TEST(large_parameter, ROWS(parameters_rows))
{
	struct gpu_batch_many *batch = calloc(1, sizeof(*batch));
	void *parameters[] = { batch };
	struct fake_cuda_stats stats;
	uint8_t in[GPU_BATCH_MANY], out[GPU_BATCH_MANY];
	cu_function many;

	cuda_fake->set_version(parameters_rows[_i].version);
	ck_cu_ok(cu.cuModuleGetFunction(&many, module, "ferrule_work_many"));
	for (unsigned i = 0; i < GPU_BATCH_MANY; i++) {
		in[i] = (uint8_t)(i * 31 + 1);
		batch->pieces[i] = copy(memory + SIZE / 2 + i, memory + i, 1);
		batch->first_block[i + 1] = (uint16_t)(i + 1);
	}
	ck_cu_ok(cu.cuMemcpyHtoD(memory, in, sizeof(in)));
	batch->done = (uint64_t)(uintptr_t)done;
	batch->counter = counter;
	batch->sequence = 7;
	batch->n_pieces = batch->n_blocks = GPU_BATCH_MANY;
	ck_cu(cu.cuLaunchKernel(many, batch->n_blocks, 1, 1, GPU_BLOCK_THREADS, 1, 1, 0, stream,
		      parameters, NULL),
		parameters_rows[_i].result);
	free(batch);
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	cuda_fake->stats(&stats);
	ck_assert_uint_eq(stats.large_launches, parameters_rows[_i].result == CUDA_SUCCESS);
	if (parameters_rows[_i].result == CUDA_SUCCESS) {
		ck_assert_uint_eq(atomic_load(done), 7);
		ck_cu_ok(cu.cuMemcpyDtoH(out, memory + SIZE / 2, sizeof(out)));
		ck_assert_mem_eq(in, out, sizeof(in));
	}
	cuda_fake->set_version(13000);
}
END_TEST

START_LOOP_TEST(kernel_reduces_host_memory, 2)
{
	float *host = cuda_pages(2 * PAGE), sum[8];
	float local[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	cu_deviceptr at;

	cuda_fake->set_host_apart(_i);
	for (unsigned i = 0; i < 8; i++)
		host[i] = (float)(10 * i);
	ck_cu_ok(cu.cuMemHostRegister(
		host, 2 * PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_cu_ok(cu.cuMemHostGetDevicePointer(&at, host, 0));
	ck_cu_ok(cu.cuMemcpyHtoD(memory, local, sizeof(local)));
	ck_cu_ok(launch(stream,
		batch_of((struct gpu_work){ .action = GPU_REDUCE,
				 .dtype = FRL_FLOAT32,
				 .op = FRL_SUM,
				 .dst = memory,
				 .src = at,
				 .operand = memory,
				 .also = at + PAGE,
				 .count = 8 },
			1, 7)));
	while (atomic_load(done) != 7)
		cuda_nap();
	ck_cu_ok(cu.cuMemcpyDtoH(sum, memory, sizeof(sum)));
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_float_eq(sum[i], local[i] + (float)(10 * i));
		ck_assert_float_eq(host[PAGE / 4 + i], sum[i]);
	}
	ck_cu_ok(cu.cuMemHostUnregister(host));
	munmap(host, 2 * PAGE);
}
END_TEST

START_TEST(bad_launches)
{
	struct gpu_batch batch = batch_of(copy(memory, memory + 4096, 16), 2, 1);
	void *parameters[] = { &batch };
	cu_function none;

	ck_cu(cu.cuModuleGetFunction(&none, module, "no_kernel"), CUDA_ERROR_NOT_FOUND);
	ck_cu(cu.cuLaunchKernel(
		      kernel, 1, 1, 1, GPU_BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_cu(cu.cuLaunchKernel(kernel, 2, 1, 1, 2048, 1, 1, 0, stream, parameters, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_cu(cu.cuLaunchKernel((cu_function)(void *)&batch, 2, 1, 1, GPU_BLOCK_THREADS, 1, 1, 0,
		      stream, parameters, NULL),
		CUDA_ERROR_INVALID_HANDLE);
	ck_cu(cu.cuLaunchKernel(kernel, 2, 1, 1, GPU_BLOCK_THREADS, 1, 1, 0,
		      (cu_stream)(void *)&batch, parameters, NULL),
		CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* ---- holding */

static uint8_t byte_at(cu_deviceptr address)
{
	uint8_t byte = 0;

	ck_assert(cuda_fake->read(&byte, address, 1));
	return byte;
}

START_TEST(hold_and_step)
{
	cu_stream streams[STREAMS];
	unsigned n = 0;

	ck_cu_ok(cu.cuMemsetD8(memory, 0, SIZE));
	cuda_fake->hold(true);
	for (unsigned i = 0; i < STREAMS; i++) {
		ck_cu_ok(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		for (unsigned j = 1; j <= 4; j++)
			ck_cu_ok(cu.cuMemsetD8Async(memory + i, (uint8_t)j, 1, streams[i]));
	}
	ck_assert_uint_eq(cuda_fake->queued(), 12);
	cuda_fake->settle();
	for (unsigned i = 1; i <= 12; i++) {
		unsigned sum = 0;

		ck_assert_uint_eq(cuda_fake->step(1), 1);
		for (unsigned j = 0; j < STREAMS; j++)
			sum += byte_at(memory + j);
		/* One more of one stream, in order. */
		ck_assert_uint_eq(sum, i);
		n++;
	}
	ck_assert_uint_eq(cuda_fake->step(5), 0);
	ck_assert_uint_eq(cuda_fake->queued(), 0);
	cuda_fake->hold(false);
	for (unsigned i = 0; i < STREAMS; i++)
		ck_cu_ok(cu.cuStreamDestroy(streams[i]));
	ck_assert_uint_eq(n, 12);
}
END_TEST

/* The legacy stream goes on, and so do other streams where one is held. */
START_LOOP_TEST(hold_one, 2)
{
	cu_stream other;
	uint8_t byte;

	ck_cu_ok(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cu_ok(cu.cuMemsetD8(memory, 1, 2));
	if (_i)
		cuda_fake->hold_stream(stream, true);
	else
		cuda_fake->hold(true);
	ck_cu_ok(cu.cuMemsetD8Async(memory, 2, 1, stream));
	ck_cu_ok(cu.cuMemsetD8Async(memory + 1, 2, 1, other));
	cuda_fake->settle();
	ck_cu_ok(cu.cuMemcpyDtoH(&byte, memory, 1));
	ck_assert_uint_eq(byte, 1);
	ck_cu_ok(cu.cuMemcpyDtoH(&byte, memory + 1, 1));
	ck_assert_uint_eq(byte, _i ? 2 : 1);
	ck_cu(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	cuda_fake->hold(false);
	cuda_fake->hold_stream(stream, false);
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(byte_at(memory), 2);
	ck_cu_ok(cu.cuStreamDestroy(other));
}
END_TEST

/* ---- what goes wrong */

enum wrong { FREED, ORDINARY, BEYOND, FOREIGN, UNMAPPED, NO_WORD, UNREGISTERED, INJECTED, WRONGS };

static struct gpu_batch wrong_batch(enum wrong wrong)
{
	struct gpu_batch batch = batch_of(copy(memory, memory + 4096, 64), 2, 1);
	static uint8_t ordinary[64];
	cu_context made;

	switch (wrong) {
	case FREED:
	case INJECTED:
	case WRONGS: break;
	case ORDINARY: batch.pieces[0].src = (uint64_t)(uintptr_t)ordinary; break;
	case BEYOND: batch.pieces[0].dst = memory + SIZE - 63; break;
	case FOREIGN:
		ck_cu_ok(cu.cuCtxCreate(&made, 0, 0));
		ck_cu_ok(cu.cuMemAlloc(&batch.pieces[0].dst, SIZE));
		ck_cu_ok(cu.cuCtxPopCurrent(NULL));
		break;
	case UNMAPPED:
		ck_cu_ok(cuda_fake->make_virtual(0, 4 << 20, 1, true, &batch.pieces[0].also));
		batch.pieces[0].also += FAKE_CUDA_BLOCK - 10;
		break;
	case NO_WORD: batch.done = (uint64_t)(uintptr_t)ordinary; break;
	case UNREGISTERED: batch.pieces[0].dst = (uint64_t)(uintptr_t)cuda_pages(PAGE); break;
	}
	return batch;
}

/* It is for good, for all that is in the context, and for no other one. */
START_LOOP_TEST(faults, WRONGS)
{
	struct gpu_batch batch = wrong_batch(_i);
	struct cuda_gate unused;
	cu_deviceptr address;
	cu_context made;
	cu_event event;

	has_failed = true;
	ck_cu_ok(cu.cuEventCreate(&event, 0));
	cuda_fake->hold(true);
	if (_i == UNREGISTERED)
		ck_cu_ok(cu.cuMemHostRegister((void *)(uintptr_t)batch.pieces[0].dst, PAGE,
			CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_cu_ok(launch(stream, batch));
	ck_cu_ok(cu.cuEventRecord(event, stream));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_gate, &unused));
	/* Nothing waits for what is queued. */
	if (_i == FREED)
		ck_cu_ok(cu.cuMemFree(memory));
	if (_i == UNREGISTERED)
		ck_cu_ok(cu.cuMemHostUnregister((void *)(uintptr_t)batch.pieces[0].dst));
	if (_i == INJECTED)
		cuda_fake->fail_call("work", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
	ck_assert_str_eq(cuda_fake->fault(), "");
	cuda_fake->hold(false);
	ck_cu(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cuda_fake->fault()[0] != '\0', _i != INJECTED);
	ck_assert_uint_eq(atomic_load(done), 0);
	ck_assert_uint_eq(cuda_fake->queued(), 0);
	ck_cu(cu.cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_cu(cu.cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_cu(cu.cuMemAlloc(&address, SIZE), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_cu(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_cu_ok(cu.cuCtxCreate(&made, 0, 0));
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu_ok(cu.cuMemsetD8(address, 1, SIZE));
}
END_TEST

START_TEST(killed)
{
	cu_deviceptr address;

	has_failed = true;
	cuda_fake->kill(cuda_context, CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_cu(cu.cuMemAlloc(&address, SIZE), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_cu(launch(stream, batch_of(copy(memory, memory + 4096, 64), 1, 1)),
		CUDA_ERROR_ECC_UNCORRECTABLE);
}
END_TEST

/* A stream-ordered free is when it is its turn. */
START_TEST(freed_in_order)
{
	cu_deviceptr address;

	ck_cu_ok(cu.cuMemAllocAsync(&address, SIZE, stream));
	cuda_fake->hold(true);
	ck_cu_ok(launch(stream, batch_of(copy(address, memory, 64), 1, 1)));
	ck_cu_ok(cu.cuMemFreeAsync(address, stream));
	ck_assert_ptr_nonnull(cuda_fake->look(address, SIZE));
	cuda_fake->hold(false);
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	ck_assert_ptr_null(cuda_fake->look(address, SIZE));
	ck_assert_uint_eq(atomic_load(done), 1);
}
END_TEST

/* ---- loading */

/* Begins while the call of another thread loads a function. Returns how much is queued then. */
static void *ask_meanwhile(void *ret_queued)
{
	int n;

	while (cuda_fake->calls("cuModuleGetFunction") < 2) /* that of setup(), and this one */
		cuda_nap();
	ck_cu_ok(cu.cuDeviceGetCount(&n));
	*(unsigned *)ret_queued = cuda_fake->queued();
	return NULL;
}

static void queue_slow_work(void)
{
	cuda_fake->set_delay(10000);
	for (int i = 0; i < 20; i++)
		ck_cu_ok(cu.cuMemsetD8Async(memory, 1, SIZE, stream));
}

/* The first time that a lazily loaded function is wanted, the call waits for what is queued, and
 * calls of other threads wait for it. */
START_TEST(lazy_loading_waits)
{
	unsigned queued = 1;
	cu_function many;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, ask_meanwhile, &queued), 0);
	queue_slow_work();
	ck_cu_ok(cu.cuModuleGetFunction(&many, module, "ferrule_work_many"));
	ck_assert_uint_eq(cuda_fake->queued(), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(queued, 0);
	/* Once. */
	cuda_fake->hold(true);
	ck_cu_ok(cu.cuMemsetD8Async(memory, 1, SIZE, stream));
	ck_cu_ok(cu.cuModuleGetFunction(&many, module, "ferrule_work_many"));
	ck_cu_ok(cu.cuModuleGetFunction(&many, module, "ferrule_work"));
	ck_assert_uint_eq(cuda_fake->queued(), 1);
	cuda_fake->hold(false);
}
END_TEST

START_TEST(eager_loading_does_not)
{
	cu_function many;

	teardown();
	setenv("FAKE_CUDA_LOADING", "eager", 1);
	setup();
	unsetenv("FAKE_CUDA_LOADING");
	cuda_fake->hold(true);
	ck_cu_ok(cu.cuMemsetD8Async(memory, 1, SIZE, stream));
	ck_cu_ok(cu.cuModuleGetFunction(&many, module, "ferrule_work_many"));
	ck_assert_uint_eq(cuda_fake->queued(), 1);
	cuda_fake->hold(false);
}
END_TEST

/* ---- captures elsewhere */

START_TEST(capture_elsewhere)
{
	cu_capture_mode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct fake_cuda_stats stats;
	cu_deviceptr address;

	/* The first launch may take memory. */
	cuda_fake->set_capture(true);
	ck_cu(launch(stream, batch_of(copy(memory, memory + 4096, 64), 1, 1)),
		CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ck_cu(cu.cuMemAlloc(&address, SIZE), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	cuda_fake->stats(&stats);
	ck_assert_uint_eq(stats.captures_broken, 2);
	ck_cu_ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(cuda_fake->capture_mode(), CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu_ok(cu.cuMemFree(address));
	ck_cu_ok(launch(stream, batch_of(copy(memory, memory + 4096, 64), 1, 1)));
	ck_cu_ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_cu_ok(launch(stream, batch_of(copy(memory, memory + 4096, 64), 1, 2)));
	while (atomic_load(done) != 2)
		cuda_nap();
	cuda_fake->set_capture(false);
	cuda_fake->stats(&stats);
	ck_assert_uint_eq(stats.captures_broken, 2);
}
END_TEST

/* ---- threads */

static void *works(void *unused)
{
	uint8_t *host;
	cu_stream own;
	cu_event event;

	ck_cu_ok(cu.cuCtxPushCurrent(cuda_context));
	ck_cu_ok(cu.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	ck_cu_ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cu_ok(cu.cuMemAllocHost((void **)(void *)&host, PAGE));
	for (unsigned i = 1; i <= 50; i++) {
		struct gpu_batch batch;
		cu_deviceptr address, own_counter;

		ck_cu_ok(cu.cuMemAlloc(&address, 3 * PAGE));
		ck_cu_ok(cu.cuMemAlloc(&own_counter, 4));
		ck_cu_ok(cu.cuMemsetD8Async(own_counter, 0, 4, own));
		ck_cu_ok(cu.cuMemsetD8Async(address, (uint8_t)i, PAGE, own));
		batch = batch_of(copy(address + PAGE + 3, address + 1, PAGE - 1), 3, i);
		batch.done = (uint64_t)(uintptr_t)host;
		batch.counter = own_counter;
		ck_cu_ok(launch(own, batch));
		ck_cu_ok(cu.cuMemcpyDtoHAsync(host + 8, address + 2 * PAGE, 1, own));
		ck_cu_ok(cu.cuEventRecord(event, own));
		ck_cu_ok(cu.cuEventSynchronize(event));
		ck_assert_uint_eq(*(uint64_t *)(void *)host, i);
		ck_assert_uint_eq(host[8], (uint8_t)i);
		ck_cu_ok(cu.cuMemFree(address));
		ck_cu_ok(cu.cuMemFree(own_counter));
	}
	ck_cu_ok(cu.cuMemFreeHost(host));
	ck_cu_ok(cu.cuEventDestroy(event));
	ck_cu_ok(cu.cuStreamDestroy(own));
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	return unused;
}

START_LOOP_TEST(many_threads, 2)
{
	pthread_t threads[THREADS];

	cuda_fake->set_delay((unsigned)_i * 100);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, works, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

TEST_MAIN(fake_cuda_work)
{
	return cuda_double_main(all_tests(setup, teardown));
}
