/* SPDX-License-Identifier: BSD-3-Clause */
/* The kind of memory, dma-bufs of it, and flushes: on the double of the driver. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include "gpudirect/host.h"
#include "gpudirect/memory.h"
#include "lib/base/error.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"

/* ---- what memory is */

static struct gpu_memory memory_of(cu_deviceptr address, size_t length)
{
	struct gpu_memory found;

	is_ok(gpu_memory_of(at(address), length, &found));
	return found;
}

START_TEST(host_memory)
{
	struct gpu *gpu;
	void *pinned;

	/* A query of a pointer does not initialize CUDA. */
	ck_assert_int_eq(memory_of((uintptr_t)memory, PAGE).kind, GPU_MEMORY_HOST);
	ck_assert_uint_eq(fake->calls("cuInit"), 0);
	gpu = hold(0);
	ck_assert_int_eq(memory_of((uintptr_t)memory, 3 * PAGE).kind, GPU_MEMORY_HOST);
	is_ok(gpu_host_map(gpu, memory, PAGE));
	ck_assert_int_eq(memory_of((uintptr_t)memory + 8, 8).kind, GPU_MEMORY_HOST);
	gpu_host_unmap(gpu, memory, PAGE);
	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	ck_assert_int_eq(cu.cuMemAllocHost(&pinned, 100), 0);
	ck_assert_int_eq(memory_of((uintptr_t)pinned, 100).kind, GPU_MEMORY_HOST);
	ck_assert_int_eq(cu.cuMemFreeHost(pinned), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
	gpu_release(gpu);
}
END_TEST

/* Where not even the kernel reads for others, the mapping decides. */
START_TEST(memory_without_pages)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);
	uint8_t *beyond = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	struct gpu_memory found;

	ck_assert_ptr_ne(beyond, MAP_FAILED);
	ck_assert_int_eq(memory_of((uintptr_t)beyond, PAGE).kind, GPU_MEMORY_HOST);
	munmap(beyond, PAGE);
	close(fd);
	ck_assert_int_eq(mprotect(memory + PAGE, PAGE, PROT_NONE), 0);
	is_refused(gpu_memory_of(memory + PAGE, 8, &found), -EINVAL, "freed");
	is_refused(gpu_memory_of(memory, 2 * PAGE, &found), -EINVAL,
		"not all readable host memory or GPU memory");
	ck_assert_int_eq(memory_of((uintptr_t)memory, PAGE).kind, GPU_MEMORY_HOST);
}
END_TEST

/* For each operation: two queries to the driver, none to the kernel, which knows better. */
START_TEST(looked_at_only)
{
	cu_context own = own_context();
	cu_deviceptr a = allocate(own, 1000);
	struct gpu_memory found;
	unsigned before;

	ck_assert_int_eq(mprotect(memory + PAGE, PAGE, PROT_NONE), 0);
	before = fake->calls("cuPointerGetAttribute");
	is_ok(gpu_memory_look(memory, 2 * PAGE, &found));
	ck_assert_int_eq(found.kind, GPU_MEMORY_HOST);
	ck_assert_uint_eq(fake->calls("cuPointerGetAttribute"), before + 2);
	is_ok(gpu_memory_look(at(a + 10), 990, &found));
	ck_assert_int_eq(found.kind, GPU_MEMORY_DEVICE);
	ck_assert_ptr_eq(found.context, own);
	is_refused(gpu_memory_look(at(a + 10), 991, &found), -EINVAL, "not in one allocation");
	/* A broken context says nothing of any memory. */
	fake->fail_call("cuPointerGetAttribute", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
	is_ok(gpu_memory_look(memory, PAGE, &found));
	ck_assert_int_eq(found.kind, GPU_MEMORY_HOST);
	ck_assert_int_lt(gpu_memory_look(at(a), 8, &found), 0);
	fake->fail_call("cuPointerGetAttribute", 0, 0, 0);
	release(own, a);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

START_TEST(device_memory)
{
	cu_context own = own_context();
	cu_deviceptr a = allocate(own, 1000), b = allocate(own, 4 * MIB), again;
	struct gpu_memory found = memory_of(a + 10, 990), other = memory_of(b + 5 * PAGE, MIB);

	ck_assert_int_eq(found.kind, GPU_MEMORY_DEVICE);
	ck_assert_ptr_eq(found.context, own);
	ck_assert_int_eq(found.ordinal, 0);
	ck_assert_uint_eq(found.base, a);
	ck_assert_uint_eq(found.size, 1000);
	ck_assert(found.rdma_capable);
	ck_assert_uint_ne(found.buffer_id, 0);
	ck_assert_uint_eq(other.base, b);
	ck_assert_uint_ne(found.buffer_id, other.buffer_id);
	is_refused(gpu_memory_of(at(a + 10), 991, &found), -EINVAL, "not in one allocation");
	release(own, a);
	again = allocate(own, 1000);
	ck_assert_uint_eq(again, a);
	ck_assert_uint_ne(memory_of(again, 1000).buffer_id, found.buffer_id);
	release(own, again);
	is_refused(gpu_memory_of(at(again), 8, &found), -EINVAL, "freed");
	release(own, b);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

START_TEST(pools_and_managed_memory)
{
	struct gpu *gpu = hold(0);
	cu_deviceptr pooled, managed;
	cu_stream stream;

	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	ck_assert_int_eq(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	ck_assert_int_eq(cu.cuMemAllocAsync(&pooled, 100, stream), 0);
	ck_assert_int_eq(cu.cuStreamSynchronize(stream), 0);
	ck_assert_int_eq(cu.cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL), 0);
	ck_assert_int_eq(memory_of(pooled, 100).kind, GPU_MEMORY_POOL);
	ck_assert_ptr_null(memory_of(pooled, 100).context);
	ck_assert(!memory_of(pooled, 100).rdma_capable);
	ck_assert_int_eq(memory_of(managed, 100).kind, GPU_MEMORY_MANAGED);
	ck_assert_int_eq(cu.cuMemFreeAsync(pooled, stream), 0);
	ck_assert_int_eq(cu.cuStreamSynchronize(stream), 0);
	ck_assert_int_eq(cu.cuStreamDestroy(stream), 0);
	ck_assert_int_eq(cu.cuMemFree(managed), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
	gpu_release(gpu);
}
END_TEST

/* As PyTorch's expandable segments: many mappings in a row are one range. */
START_TEST(virtual_memory)
{
	struct gpu *gpu = hold(0);
	struct gpu_memory found, part;
	cu_deviceptr start;

	ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 8, true, &start), 0);
	found = memory_of(start + MIB, 15 * MIB);
	ck_assert_int_eq(found.kind, GPU_MEMORY_VIRTUAL);
	ck_assert_ptr_null(found.context);
	ck_assert(found.rdma_capable);
	ck_assert_uint_le(found.base, start + MIB);
	ck_assert_uint_ge(found.base + found.size, start + 16 * MIB);
	part = memory_of(start + MIB, MIB);
	ck_assert_uint_ne(part.buffer_id, found.buffer_id);
	ck_assert_uint_eq(memory_of(start + MIB, 15 * MIB).buffer_id, found.buffer_id);
	is_refused(gpu_memory_of(at(start + MIB), 15 * MIB + 1, &found), -EINVAL, "not mapped");
	is_refused(gpu_memory_of(at(start + 20 * MIB), 8, &found), -EINVAL, "");
	ck_assert_int_eq(fake->free_virtual(start), 0);
	gpu_release(gpu);
}
END_TEST

START_TEST(driver_is_too_old)
{
	cu_context own = own_context();
	cu_deviceptr a = allocate(own, 1000);
	struct gpu_memory found;

	fake->set_version(11020);
	cuda_reset();
	is_refused(gpu_memory_of(at(a), 8, &found), -ENOSYS, "memory of a GPU");
	ck_assert_int_eq(memory_of((uintptr_t)memory, 8).kind, GPU_MEMORY_HOST);
	fake->set_version(13000);
	cuda_reset();
	release(own, a);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

/* Where the driver cannot say, the processor can. */
START_TEST(driver_is_broken)
{
	cu_context own = own_context();
	cu_deviceptr a = allocate(own, 1000);
	struct gpu_memory found;

	fake->fail_call("cuPointerGetAttribute", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
	ck_assert_int_eq(memory_of((uintptr_t)memory, PAGE).kind, GPU_MEMORY_HOST);
	ck_assert_int_lt(gpu_memory_of(at(a), 8, &found), 0);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
	fake->fail_call("cuPointerGetAttribute", 0, 0, 0);
	release(own, a);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

/* ---- dma-bufs */

START_LOOP_TEST(dma_buf_of_whole_pages, 2)
{
	cu_context own = own_context();
	cu_deviceptr a = allocate(own, 4 * MIB), from;
	const cu_deviceptr address = a + 5 * PAGE + 100;
	struct gpu_memory found = memory_of(address, PAGE);
	uint64_t offset = 0;
	struct gpu *gpu;
	size_t size;
	int fd;

	fake->set_pcie(_i != 0);
	is_ok(gpu_hold(own, 0, &gpu));
	is_ok(gpu_memory_export(gpu, &found, at(address), PAGE, &fd, &offset));
	ck_assert_uint_eq(offset, 100);
	ck_assert(fake->dma_buf(fd, &from, &size));
	ck_assert_uint_eq(from, a + 5 * PAGE);
	ck_assert_uint_eq(size, 2 * PAGE);
	ck_assert_uint_eq(fake->calls("cuMemGetHandleForAddressRange"), _i ? 1 : 2);
	close(fd);
	ck_assert_uint_eq(fake->context_depth(), 0);
	release(own, a);
	gpu_release(gpu);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

static const struct {
	cu_device_attribute attribute; /* that is 0 */
	const char *missing;
	bool is_small, is_pool;
	int rc;
	const char *word;
} no_dma_buf[] = {
	{ CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, NULL, false, false, -ENOTSUP, "open kernel" },
	{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, NULL, false, false, -ENOTSUP, "NICs" },
	{ 0, "cuMemGetHandleForAddressRange", false, false, -ENOTSUP, "11.7" },
	{ 0, NULL, true, false, -EINVAL, "whole pages" },
	{ 0, NULL, false, true, -ENOTSUP, "cuMemAlloc" },
};

START_LOOP_TEST(why_no_dma_buf, ROWS(no_dma_buf))
{
	size_t size = no_dma_buf[_i].is_small ? 700 : 4 * MIB;
	struct gpu_memory found;
	struct gpu *gpu;
	cu_deviceptr a;
	cu_context own;
	uint64_t offset;
	int fd = -1;

	fake->set_missing(no_dma_buf[_i].missing);
	if (no_dma_buf[_i].attribute)
		fake->set_attribute(-1, no_dma_buf[_i].attribute, 0);
	own = own_context();
	a = allocate(own, size);
	is_ok(gpu_hold(own, 0, &gpu));
	found = memory_of(a, size);
	/* The driver decides; what is likely to be wrong is told. */
	if (no_dma_buf[_i].is_small)
		fake->fail_call("cuMemGetHandleForAddressRange", 1, CUDA_ERROR_INVALID_VALUE, 2);
	if (no_dma_buf[_i].is_pool) {
		found.kind = GPU_MEMORY_POOL;
		found.rdma_capable = false;
	}
	is_refused(gpu_memory_export(gpu, &found, at(a), size, &fd, &offset), no_dma_buf[_i].rc,
		no_dma_buf[_i].word);
	ck_assert_int_eq(fd, -1);
	release(own, a);
	gpu_release(gpu);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
}
END_TEST

/* ---- flushes */

static const struct {
	int ordering, options;
	unsigned flushes, copies;
} flushing[] = {
	{ CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES, 1, 0, 0 },
	{ CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 1, 0, 0 },
	{ CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, 1, 1, 0 },
	{ CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, 0, 0, 1 },
};

/* None of them waits for the application's work, which may wait for the flushed data. */
START_LOOP_TEST(flushed_as_the_device_needs_it, ROWS(flushing))
{
	struct fake_cuda_stats before, after;
	struct gpu *gpu;
	cu_stream busy;
	cu_deviceptr a;

	fake->set_attribute(
		-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, flushing[_i].ordering);
	fake->set_attribute(
		-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, flushing[_i].options);
	gpu = hold(0);
	a = allocate(gpu->context, 4096);
	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	ck_assert_int_eq(cu.cuStreamCreate(&busy, CU_STREAM_DEFAULT), 0);
	fake->hold_stream(busy, true);
	ck_assert_int_eq(cu.cuMemsetD8Async(a + 8, 1, 8, busy), 0);
	fake->stats(&before);
	is_ok(gpu_memory_flush(gpu, at(a)));
	fake->stats(&after);
	ck_assert_uint_eq(after.flushes - before.flushes, flushing[_i].flushes);
	ck_assert_uint_eq(after.copies - before.copies, flushing[_i].copies);
	fake->hold_stream(busy, false);
	ck_assert_int_eq(cu.cuStreamSynchronize(busy), 0);
	ck_assert_int_eq(cu.cuStreamDestroy(busy), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
	release(gpu->context, a);
	gpu_release(gpu);
}
END_TEST

START_LOOP_TEST(flush_that_fails, 2)
{
	struct gpu *gpu;
	cu_deviceptr a;

	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0);
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, _i);
	gpu = hold(0);
	a = allocate(gpu->context, 4096);
	fake->fail_call(
		_i ? "cuFlushGPUDirectRDMAWrites" : "cuMemcpyDtoHAsync", 1, CUDA_ERROR_UNKNOWN, 1);
	is_refused(gpu_memory_flush(gpu, at(a)), -EIO, "flushing");
	is_ok(gpu_memory_flush(gpu, at(a)));
	release(gpu->context, a);
	gpu_release(gpu);
}
END_TEST

static const char *loaded_too_early;

/* Before anything has loaded CUDA, in a process of its own kind: nobody is to. */
static void look_without_cuda(void)
{
	struct gpu_memory found = { .kind = GPU_MEMORY_DEVICE };
	int on_stack = 0;

	if (gpu_memory_of(&on_stack, sizeof(on_stack), &found) || found.kind != GPU_MEMORY_HOST)
		loaded_too_early = "memory is a GPU's without CUDA";
	else if (cuda_is_loaded())
		loaded_too_early = "CUDA was loaded by asking";
}

START_TEST(without_cuda)
{
	ck_assert_msg(!loaded_too_early, "%s", loaded_too_early);
}
END_TEST

TEST_MAIN(gpu_memory)
{
	look_without_cuda();
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(gpu_setup, gpu_teardown));
}
