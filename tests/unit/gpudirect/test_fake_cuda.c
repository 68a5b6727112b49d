/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of CUDA's driver refuses, detects and waits as a driver does in cases that Ferrule
 * avoids: other tests do not see that. Its normal work is shown by other tests, and by
 * test_cuda_rules*.c, also on a GPU. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpudirect/kernels/batch.h"
#include "tests/unit/gpudirect/cuda_fixture.h"
#include "tests/fixtures/program.h"

enum { PAGE = CUDA_FIXTURE_PAGE, SIZE = 1 << 20, LONG = 4 << 20 };

/* The requirements of a kernel. */
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

/* ---- what is left behind */

START_TEST(leaks)
{
	cu_stream another;
	cu_event event;

	ck_assert_str_eq(cuda_fake->leaks(),
		"2 allocations, 1 host allocation, 1 retained primary context, 1 stream, 1 module");
	ck_cu_ok(cu.cuStreamCreate(&another, 0));
	ck_cu_ok(cu.cuEventCreate(&event, 0));
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_STREAM), 2);
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_EVENT), 1);
	ck_assert_uint_eq(cuda_fake->live(FAKE_CUDA_KINDS), 8);
	/* A context takes with it what is its own. */
	ck_cu_ok(cu.cuDevicePrimaryCtxRelease(0));
	ck_assert_str_eq(cuda_fake->leaks(), "");
	has_failed = true;
}
END_TEST

/* The actions of this program when it is started with an argument. */
static int leave_something(bool is_freed)
{
	const char *lacks;
	cu_context own;
	cu_deviceptr address;

	if (!driver_load(&cu, &lacks) || cu.cuInit(0) != CUDA_SUCCESS ||
		cu.cuCtxCreate(&own, 0, 0) != CUDA_SUCCESS ||
		cu.cuMemAlloc(&address, SIZE) != CUDA_SUCCESS)
		return 1;
	return is_freed ? cu.cuCtxDestroy(own) : 0;
}

static const struct {
	const char *tells, *argument;
	int status;
} endings[] = {
	{ "1", "leave", 86 },
	{ "1", "free", 0 },
	{ "0", "leave", 0 },
};

START_LOOP_TEST(left_at_exit, ROWS(endings))
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		setenv("FAKE_CUDA_LEAKS", endings[_i].tells, 1);
		test_exec(endings[_i].argument);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), endings[_i].status);
}
END_TEST

/* ---- memory */

/* A system call tells without a crash. */
START_TEST(not_the_processors)
{
	cu_deviceptr addresses[3];
	int ends[2];

	ck_cu_ok(cu.cuMemAlloc(&addresses[0], SIZE));
	ck_cu_ok(cu.cuMemAlloc(&addresses[1], 100));
	ck_cu_ok(cuda_fake->make_virtual(0, LONG, 1, true, &addresses[2]));
	ck_assert_int_eq(pipe(ends), 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(write(ends[1], (void *)(uintptr_t)addresses[i], 1), -1);
		ck_assert_int_eq(errno, EFAULT);
	}
	close(ends[0]);
	close(ends[1]);
	ck_cu_ok(cu.cuMemFree(addresses[0]));
	ck_cu_ok(cu.cuMemFree(addresses[1]));
	ck_cu_ok(cuda_fake->free_virtual(addresses[2]));
}
END_TEST

static const struct {
	const char *name;
	cu_device_attribute attribute;
	unsigned long long flags;
	bool is_pcie, is_virtual, is_capable;
	size_t size;
	cu_result result;
} exports[] = {
	{ "no dma-bufs", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, false, false, true, PAGE,
		CUDA_ERROR_NOT_SUPPORTED },
	{ "PCIe", 0, 1, false, false, true, PAGE, CUDA_ERROR_NOT_SUPPORTED },
	{ "PCIe works", 0, 1, true, false, true, PAGE, CUDA_SUCCESS },
	{ "no such flag", 0, 2, true, false, true, PAGE, CUDA_ERROR_INVALID_VALUE },
	{ "beyond the end", 0, 0, false, false, true, LONG + PAGE, CUDA_ERROR_INVALID_VALUE },
	{ "of one handle", 0, 0, false, true, true, FAKE_CUDA_BLOCK, CUDA_SUCCESS },
	{ "not for NICs", 0, 0, false, true, false, PAGE, CUDA_ERROR_NOT_SUPPORTED },
	{ "of two handles", 0, 0, false, true, true, LONG, CUDA_ERROR_INVALID_VALUE },
};

START_LOOP_TEST(exporting, ROWS(exports))
{
	cu_deviceptr address;
	int fd = -1;

	if (exports[_i].attribute)
		cuda_fake->set_attribute(-1, exports[_i].attribute, 0);
	cuda_fake->set_pcie(exports[_i].is_pcie);
	if (exports[_i].is_virtual)
		ck_cu_ok(cuda_fake->make_virtual(0, 2 * LONG, 2, exports[_i].is_capable, &address));
	else
		ck_cu_ok(cu.cuMemAlloc(&address, LONG));
	ck_cu(cu.cuMemGetHandleForAddressRange(&fd, address, exports[_i].size,
		      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, exports[_i].flags),
		exports[_i].result);
	ck_assert_int_eq(fd >= 0, exports[_i].result == CUDA_SUCCESS);
	if (fd >= 0)
		close(fd);
	if (exports[_i].is_virtual)
		ck_cu_ok(cuda_fake->free_virtual(address));
	else
		ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

/* ---- kernels */

/* The failure is permanent, for everything in the context, and for no other one. */
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
	struct gpu_batch_many batch = {
		.done = (uint64_t)(uintptr_t)done,
		.sequence = 7,
		.counter = counter,
		.n_pieces = 1,
		.n_blocks = 1,
		.first_block = { 0, 1 },
		.pieces = { copy(memory + SIZE / 2, memory, 1) },
	};
	void *parameters[] = { &batch };
	cu_function many;

	cuda_fake->set_version(parameters_rows[_i].version);
	ck_cu_ok(cu.cuModuleGetFunction(&many, module, "ferrule_work_many"));
	ck_cu(cu.cuLaunchKernel(
		      many, 1, 1, 1, GPU_BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL),
		parameters_rows[_i].result);
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(atomic_load(done), parameters_rows[_i].result == CUDA_SUCCESS ? 7 : 0);
	cuda_fake->set_version(13000);
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

enum wrong {
	FREED,
	ORDINARY,
	BEYOND,
	FOREIGN,
	UNMAPPED,
	NO_WORD,
	UNREGISTERED,
	APART,
	INJECTED,
	WRONGS
};

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
		ck_cu_ok(cuda_fake->make_virtual(0, LONG, 1, true, &batch.pieces[0].also));
		batch.pieces[0].also += FAKE_CUDA_BLOCK - 10;
		break;
	case NO_WORD: batch.done = (uint64_t)(uintptr_t)ordinary; break;
	case UNREGISTERED:
	case APART: batch.pieces[0].dst = (uint64_t)(uintptr_t)cuda_pages(PAGE); break;
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
	/* A GPU does not get there by the host's address then. */
	cuda_fake->set_host_apart(_i == APART);
	if (_i == UNREGISTERED || _i == APART)
		ck_cu_ok(cu.cuMemHostRegister((void *)(uintptr_t)batch.pieces[0].dst, PAGE,
			CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_cu_ok(launch(stream, batch));
	ck_cu_ok(cu.cuEventRecord(event, stream));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_gate, &unused));
	/* Nothing waits for queued work. */
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

/* When a lazily loaded function is first used, the call waits for queued work, and calls of other
 * threads wait for it. */
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

TEST_MAIN(fake_cuda)
{
	if (argc > 1)
		return leave_something(strcmp(argv[1], "free") == 0);
	return cuda_double_main(all_tests(setup, teardown));
}
