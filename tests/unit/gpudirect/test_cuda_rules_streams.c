/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Assumptions of Ferrule, and of the double of CUDA's driver, about the driver: streams, events and
 * captures. The same binary runs on a GPU and on the double. "answers" tries cases that cuda.h
 * leaves open, and prints the results: Ferrule must accept any of them.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/gpudirect/cuda_fixture.h"
#include "tests/fixtures/program.h"

enum { PAGE = CUDA_FIXTURE_PAGE, SIZE = 1 << 16 };

static cu_stream stream, other;
static struct cuda_gate gate;

static void setup(void)
{
	int least, greatest;

	cuda_setup();
	atomic_store(&gate.is_open, false);
	atomic_store(&gate.is_reached, false);
	ck_cu_ok(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	ck_assert_int_le(greatest, least);
	ck_cu_ok(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
	ck_cu_ok(cu.cuStreamCreate(&other, CU_STREAM_DEFAULT));
}

static void teardown(void)
{
	ck_cu_ok(cu.cuStreamDestroy(stream));
	ck_cu_ok(cu.cuStreamDestroy(other));
	ck_cu_ok(cu.cuCtxSynchronize());
	cuda_teardown();
}

static void open_gate(void)
{
	atomic_store(&gate.is_open, true);
}

START_TEST(asynchronous)
{
	atomic_int count = 0;

	ck_cu_ok(cu.cuStreamQuery(stream));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_gate, &gate));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_count, &count));
	ck_cu(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	cuda_gate_reached(&gate);
	ck_assert_int_eq(atomic_load(&count), 0);
	open_gate();
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	ck_assert_int_eq(atomic_load(&count), 1);
	ck_cu_ok(cu.cuStreamQuery(stream));
}
END_TEST

START_TEST(what_a_stream_is)
{
	cu_context of = NULL;
	unsigned flags;
	int priority, least, greatest;

	ck_cu_ok(cu.cuStreamGetCtx(stream, &of));
	ck_assert_ptr_eq(of, cuda_context);
	of = NULL;
	ck_cu_ok(cu.cuStreamGetCtx(NULL, &of));
	ck_assert_ptr_eq(of, cuda_context);
	ck_cu_ok(cu.cuStreamGetFlags(stream, &flags));
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	ck_cu_ok(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	ck_cu_ok(cu.cuStreamGetPriority(stream, &priority));
	ck_assert_int_eq(priority, greatest);
	ck_cu_ok(cu.cuStreamGetPriority(other, &priority));
	ck_assert_int_eq(priority, least);
}
END_TEST

START_TEST(events)
{
	cu_event event;

	ck_cu_ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	/* Never recorded: nothing to wait for. */
	ck_cu_ok(cu.cuEventQuery(event));
	ck_cu_ok(cu.cuEventSynchronize(event));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_gate, &gate));
	ck_cu_ok(cu.cuEventRecord(event, stream));
	ck_cu(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
	/* Recorded again: it stands for the last time. */
	ck_cu_ok(cu.cuEventRecord(event, other));
	ck_cu_ok(cu.cuEventSynchronize(event));
	ck_cu_ok(cu.cuEventRecord(event, stream));
	ck_cu(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
	open_gate();
	ck_cu_ok(cu.cuEventSynchronize(event));
	ck_cu_ok(cu.cuEventQuery(event));
	ck_cu_ok(cu.cuEventDestroy(event));
}
END_TEST

START_TEST(streams_wait_for_events)
{
	atomic_int count = 0;
	cu_event event;

	ck_cu_ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_gate, &gate));
	ck_cu_ok(cu.cuEventRecord(event, stream));
	ck_cu_ok(cu.cuStreamWaitEvent(other, event, 0));
	ck_cu_ok(cu.cuLaunchHostFunc(other, cuda_count, &count));
	/* An event may go while others wait for it. */
	ck_cu_ok(cu.cuEventDestroy(event));
	cuda_gate_reached(&gate);
	for (unsigned i = 0; i < 20; i++)
		cuda_nap();
	ck_assert_int_eq(atomic_load(&count), 0);
	open_gate();
	ck_cu_ok(cu.cuStreamSynchronize(other));
	ck_assert_int_eq(atomic_load(&count), 1);
}
END_TEST

/* The legacy stream waits for blocking ones, not for others. */
START_LOOP_TEST(legacy_stream, 2)
{
	cu_deviceptr address;
	cu_event event;
	uint8_t byte;

	ck_cu_ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	ck_cu_ok(cu.cuLaunchHostFunc(_i ? other : stream, cuda_gate, &gate));
	cuda_gate_reached(&gate);
	if (_i) {
		ck_cu_ok(cu.cuEventRecord(event, NULL));
		ck_cu(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
		open_gate();
		ck_cu_ok(cu.cuEventSynchronize(event));
	} else {
		ck_cu_ok(cu.cuMemcpyDtoH(&byte, address, 1));
		ck_cu(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
		open_gate();
	}
	ck_cu_ok(cu.cuCtxSynchronize());
	ck_cu_ok(cu.cuEventDestroy(event));
	ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

START_TEST(copies_in_order)
{
	cu_deviceptr a, b;
	uint8_t *host;

	ck_cu_ok(cu.cuMemAllocHost((void **)(void *)&host, SIZE));
	ck_cu_ok(cu.cuMemAlloc(&a, SIZE));
	ck_cu_ok(cu.cuMemAlloc(&b, SIZE));
	for (unsigned i = 0; i < 50; i++) {
		memset(host, (int)i, SIZE);
		ck_cu_ok(cu.cuMemcpyHtoDAsync(a, host, SIZE, stream));
		ck_cu_ok(cu.cuMemcpyDtoDAsync(b, a, SIZE, stream));
		ck_cu_ok(cu.cuMemsetD8Async(a, 255, SIZE, stream));
		ck_cu_ok(cu.cuMemcpyDtoHAsync(host, b, SIZE, stream));
		ck_cu_ok(cu.cuStreamSynchronize(stream));
		ck_assert_uint_eq(host[0], i);
		ck_assert_uint_eq(host[SIZE - 1], i);
	}
	ck_cu_ok(cu.cuMemFree(a));
	ck_cu_ok(cu.cuMemFree(b));
	ck_cu_ok(cu.cuMemFreeHost(host));
}
END_TEST

/* Memory that CUDA does not know may be changed as soon as the call is back. */
START_TEST(pageable_source)
{
	uint8_t host[256], out[256];
	cu_deviceptr address;

	ck_cu_ok(cu.cuMemAlloc(&address, sizeof(host)));
	memset(host, 7, sizeof(host));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_gate, &gate));
	ck_cu_ok(cu.cuMemcpyHtoDAsync(address, host, sizeof(host), stream));
	memset(host, 8, sizeof(host));
	open_gate();
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	ck_cu_ok(cu.cuMemcpyDtoH(out, address, sizeof(out)));
	ck_assert_uint_eq(out[0], 7);
	ck_assert_uint_eq(out[255], 7);
	ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

/* Its queued work is done, though it is gone. */
START_TEST(destroyed_with_work)
{
	atomic_int count = 0;
	cu_stream gone;

	ck_cu_ok(cu.cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
	ck_cu_ok(cu.cuLaunchHostFunc(gone, cuda_gate, &gate));
	ck_cu_ok(cu.cuLaunchHostFunc(gone, cuda_count, &count));
	ck_cu_ok(cu.cuStreamDestroy(gone));
	open_gate();
	ck_cu_ok(cu.cuCtxSynchronize());
	ck_assert_int_eq(atomic_load(&count), 1);
}
END_TEST

/* ---- captures */

START_TEST(mode_is_exchanged)
{
	cu_capture_mode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	ck_cu_ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_cu_ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	mode = 3;
	ck_cu(cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Captured work does not run; the stream cannot be queried, nor the legacy one used. */
START_TEST(capture)
{
	cu_capture_status status;
	atomic_int count = 0;
	cu_graph graph = NULL;
	cu_event event;

	ck_cu_ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cu_ok(cu.cuStreamIsCapturing(other, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	ck_cu_ok(cu.cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cu_ok(cu.cuStreamIsCapturing(other, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cu_ok(cu.cuLaunchHostFunc(other, cuda_count, &count));
	ck_cu_ok(cu.cuEventRecord(event, other));
	ck_cu(cu.cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
	ck_cu(cu.cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ck_cu(cu.cuStreamQuery(other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ck_cu_ok(cu.cuStreamIsCapturing(other, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	ck_cu(cu.cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_cu_ok(cu.cuStreamQuery(other));
	ck_assert_int_eq(atomic_load(&count), 0);
	ck_cu_ok(cu.cuEventDestroy(event));
}
END_TEST

static const struct {
	cu_capture_mode captured, own;
	bool is_refused;
} modes[] = {
	{ CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, true },
	{ CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false },
	{ CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, false },
	{ CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false },
	{ CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, false },
};

static void *allocates(void *row)
{
	cu_capture_mode mode = modes[(uintptr_t)row].own;
	cu_result result;
	cu_deviceptr address;

	ck_cu_ok(cu.cuCtxPushCurrent(cuda_context));
	ck_cu_ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	result = cu.cuMemAlloc(&address, SIZE);
	ck_assert_int_eq(result,
		modes[(uintptr_t)row].is_refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
						 : CUDA_SUCCESS);
	if (result == CUDA_SUCCESS)
		ck_cu_ok(cu.cuMemFree(address));
	ck_cu_ok(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	return NULL;
}

/* Another thread allocates while this one captures: a refused call ends the capture. */
START_LOOP_TEST(capture_and_others, ROWS(modes))
{
	cu_graph graph = NULL;
	pthread_t thread;

	ck_cu_ok(cu.cuStreamBeginCapture(stream, modes[_i].captured));
	ck_assert_int_eq(pthread_create(&thread, NULL, allocates, (void *)(uintptr_t)_i), 0);
	pthread_join(thread, NULL);
	ck_cu(cu.cuStreamEndCapture(stream, &graph),
		modes[_i].is_refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
	if (graph)
		ck_cu_ok(cu.cuGraphDestroy(graph));
}
END_TEST

/* Launches into other streams are no matter to a capture. */
START_TEST(capture_and_launches)
{
	cu_graph graph = NULL;
	atomic_int count = 0;

	ck_cu_ok(cu.cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cu_ok(cu.cuLaunchHostFunc(stream, cuda_count, &count));
	while (atomic_load(&count) == 0)
		cuda_nap();
	ck_cu_ok(cu.cuStreamEndCapture(other, &graph));
	ck_cu_ok(cu.cuGraphDestroy(graph));
}
END_TEST

/* ---- what cuda.h leaves open */

static void answer(const char *question, cu_result result)
{
	printf("answer (%s): %s: %s (%d)\n", cuda_fake ? "double" : "GPU", question,
		cuda_name(result), result);
}

static void ask_while_capturing(void)
{
	cu_graph graph = NULL;
	cu_stream made;
	cu_event event;

	ck_cu_ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 4; i++) {
		cu_result result = CUDA_SUCCESS;

		ck_cu_ok(cu.cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
		switch (i) {
		case 0: result = cu.cuStreamQuery(stream); break;
		case 1: result = cu.cuEventQuery(event); break;
		case 2: result = cu.cuEventRecord(event, stream); break;
		case 3: result = cu.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); break;
		}
		answer((const char *[]){ "cuStreamQuery() of another stream during a capture",
			       "cuEventQuery() during a capture",
			       "cuEventRecord() in another stream during a capture",
			       "cuStreamCreate() during a capture" }[i],
			result);
		if (i == 3 && result == CUDA_SUCCESS)
			ck_cu_ok(cu.cuStreamDestroy(made));
		if (cu.cuStreamEndCapture(other, &graph) == CUDA_SUCCESS && graph)
			ck_cu_ok(cu.cuGraphDestroy(graph));
	}
	ck_cu_ok(cu.cuEventDestroy(event));
}

static void ask_about_host_memory(void)
{
	uint8_t *host = cuda_pages(4 * PAGE);
	cu_deviceptr at;
	cu_result result;

	ck_cu_ok(cu.cuMemHostRegister(host, PAGE + 100, CU_MEMHOSTREGISTER_PORTABLE));
	result = cu.cuMemHostRegister(host + PAGE + 2048, 100, CU_MEMHOSTREGISTER_PORTABLE);
	answer("cuMemHostRegister() of other bytes of a page", result);
	if (result == CUDA_SUCCESS)
		ck_cu_ok(cu.cuMemHostUnregister(host + PAGE + 2048));
	answer("cuMemHostGetDevicePointer() without DEVICEMAP",
		cu.cuMemHostGetDevicePointer(&at, host, 0));
	answer("the same behind the last byte, in its page",
		cu.cuMemHostGetDevicePointer(&at, host + PAGE + 200, 0));
	answer("cuMemHostUnregister() within a range", cu.cuMemHostUnregister(host + 64));
	ck_cu_ok(cu.cuMemHostUnregister(host));
	munmap(host, 4 * PAGE);
}

static void ask_about_pointers(void)
{
	cu_deviceptr pool, device, base;
	unsigned one = 1, type;
	uint8_t is[4] = { 0xee, 0xee, 0xee, 0xee };
	int fd = -1;

	ck_cu_ok(cu.cuMemAllocAsync(&pool, 2 << 20, stream));
	ck_cu_ok(cu.cuMemAlloc(&device, 1000));
	ck_cu_ok(cu.cuStreamSynchronize(stream));
	answer("SYNC_MEMOPS of memory of a pool",
		cu.cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pool));
	answer("a dma-buf of memory of a pool",
		cu.cuMemGetHandleForAddressRange(
			&fd, pool, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	if (fd >= 0)
		close(fd);
	fd = -1;
	answer("a dma-buf of the page around 1000 bytes",
		cu.cuMemGetHandleForAddressRange(
			&fd, device / PAGE * PAGE, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	if (fd >= 0)
		close(fd);
	ck_cu_ok(cu.cuPointerGetAttribute(is, CU_POINTER_ATTRIBUTE_IS_MANAGED, device));
	printf("answer (%s): IS_MANAGED writes %s\n", cuda_fake ? "double" : "GPU",
		is[3] == 0xee ? "fewer than 4 bytes" : "4 bytes");
	ck_cu_ok(cu.cuCtxPopCurrent(NULL));
	answer("cuPointerGetAttribute() without a context",
		cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
	answer("cuMemGetAddressRange() without a context",
		cu.cuMemGetAddressRange(&base, NULL, device));
	ck_cu_ok(cu.cuCtxPushCurrent(cuda_context));
	ck_cu_ok(cu.cuMemFreeAsync(pool, stream));
	ck_cu_ok(cu.cuMemFree(device));
	ck_cu_ok(cu.cuStreamSynchronize(stream));
}

START_TEST(answers)
{
	ask_while_capturing();
	ask_about_host_memory();
	ask_about_pointers();
}
END_TEST

TEST_MAIN(cuda_rules_streams)
{
	return cuda_main(all_tests(setup, teardown));
}
