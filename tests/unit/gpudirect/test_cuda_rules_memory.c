/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Assumptions of Ferrule, and of the double of CUDA's driver, about the driver: attributes of
 * pointers, virtual memory, host memory, dma-bufs. The same binary runs on a GPU and on the double.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/gpudirect/cuda_fixture.h"
#include "tests/fixtures/program.h"

enum { PAGE = CUDA_FIXTURE_PAGE, SIZE = 4 << 20, BLOCK = 2 << 20 };

/* ---- what a pointer is */

enum what { DEVICE, POOL, MANAGED, HOST, REGISTERED, VIRTUAL };

struct memory {
	enum what what;
	cu_deviceptr address; /* the GPU's */
	void *host;
	cu_deviceptr reserved;
};

static const struct cu_mem_prop virtual_prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};

/* One more block, without rights for anybody. */
static void virtual_map(struct memory *memory, unsigned i)
{
	cu_mem_handle handle;

	ck_cu_ok(cu.cuMemCreate(&handle, BLOCK, &virtual_prop, 0));
	ck_cu_ok(cu.cuMemMap(memory->reserved + (uint64_t)i * BLOCK, BLOCK, 0, handle, 0));
	ck_cu_ok(cu.cuMemRelease(handle));
}

static void virtual_make(struct memory *memory, unsigned n_reserved, unsigned n_mapped)
{
	struct cu_mem_access access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t granularity;

	ck_cu_ok(cu.cuMemGetAllocationGranularity(&granularity, &virtual_prop, 0));
	ck_assert_uint_eq(BLOCK % granularity, 0);
	ck_cu_ok(cu.cuMemAddressReserve(&memory->reserved, (size_t)n_reserved * BLOCK, 0, 0, 0));
	for (unsigned i = 0; i < n_mapped; i++)
		virtual_map(memory, i);
	ck_cu_ok(cu.cuMemSetAccess(memory->reserved, (size_t)n_mapped * BLOCK, &access, 1));
	memory->address = memory->reserved;
}

static void virtual_free(struct memory *memory, unsigned n_reserved, unsigned n_mapped)
{
	for (unsigned i = 0; i < n_mapped; i++)
		ck_cu_ok(cu.cuMemUnmap(memory->reserved + (uint64_t)i * BLOCK, BLOCK));
	ck_cu_ok(cu.cuMemAddressFree(memory->reserved, (size_t)n_reserved * BLOCK));
}

static void memory_make(struct memory *memory, enum what what)
{
	*memory = (struct memory){ .what = what };
	switch (what) {
	case DEVICE: ck_cu_ok(cu.cuMemAlloc(&memory->address, SIZE)); break;
	case POOL:
		ck_cu_ok(cu.cuMemAllocAsync(&memory->address, SIZE, NULL));
		ck_cu_ok(cu.cuStreamSynchronize(NULL));
		break;
	case MANAGED:
		ck_cu_ok(cu.cuMemAllocManaged(&memory->address, SIZE, CU_MEM_ATTACH_GLOBAL));
		break;
	case HOST:
		ck_cu_ok(cu.cuMemAllocHost(&memory->host, SIZE));
		memory->address = (cu_deviceptr)(uintptr_t)memory->host;
		break;
	case REGISTERED:
		memory->host = cuda_pages(SIZE);
		ck_cu_ok(cu.cuMemHostRegister(memory->host, SIZE,
			CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
		ck_cu_ok(cu.cuMemHostGetDevicePointer(&memory->address, memory->host, 0));
		break;
	case VIRTUAL: virtual_make(memory, 4, 2); break;
	}
}

static void memory_free(struct memory *memory)
{
	switch (memory->what) {
	case DEVICE:
	case POOL:
	case MANAGED: ck_cu_ok(cu.cuMemFree(memory->address)); break;
	case HOST: ck_cu_ok(cu.cuMemFreeHost(memory->host)); break;
	case REGISTERED:
		ck_cu_ok(cu.cuMemHostUnregister(memory->host));
		munmap(memory->host, SIZE);
		break;
	case VIRTUAL: virtual_free(memory, 4, 2); break;
	}
}

static const struct {
	enum what what;
	int type;
	bool has_context, is_managed, has_host;
} kinds[] = {
	{ DEVICE, CU_MEMORYTYPE_DEVICE, true, false, false },
	{ POOL, CU_MEMORYTYPE_DEVICE, false, false, false },
	{ MANAGED, CU_MEMORYTYPE_DEVICE, true, true, true },
	{ HOST, CU_MEMORYTYPE_HOST, true, false, true },
	{ REGISTERED, CU_MEMORYTYPE_HOST, true, false, true },
	{ VIRTUAL, CU_MEMORYTYPE_DEVICE, false, false, false },
};

START_LOOP_TEST(attributes, ROWS(kinds))
{
	cu_pointer_attribute asked[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_BUFFER_ID };
	unsigned type = 0, is_managed = 0;
	unsigned long long id = 0;
	cu_context of = NULL;
	struct memory memory;
	void *host = NULL;
	int ordinal = -1;
	void *data[] = { &type, &ordinal, &is_managed, &of, &id };
	cu_result result;

	memory_make(&memory, kinds[_i].what);
	ck_cu_ok(cu.cuPointerGetAttributes(5, asked, data, memory.address + 100));
	ck_assert_uint_eq(type, kinds[_i].type);
	ck_assert_int_eq(ordinal, 0);
	ck_assert_uint_eq(is_managed, kinds[_i].is_managed);
	ck_assert_ptr_eq(of, kinds[_i].has_context ? cuda_context : NULL);
	ck_assert_uint_ne(id, 0);
	result = cu.cuPointerGetAttribute(
		&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory.address + 100);
	ck_assert_int_eq(result == CUDA_SUCCESS && host != NULL, kinds[_i].has_host);
	if (memory.host)
		ck_assert_ptr_eq(host, (uint8_t *)memory.host + 100);
	memory_free(&memory);
}
END_TEST

START_TEST(not_cuda)
{
	cu_pointer_attribute asked[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_BUFFER_ID };
	unsigned type = 1;
	unsigned long long id = 1;
	cu_context of = cuda_context;
	void *data[] = { &type, &of, &id };
	void *ordinary = malloc(64);

	ck_cu(cu.cuPointerGetAttribute(
		      &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (cu_deviceptr)(uintptr_t)ordinary),
		CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuPointerGetAttributes(3, asked, data, (cu_deviceptr)(uintptr_t)ordinary));
	ck_assert_uint_eq(type, 0);
	ck_assert_ptr_null(of);
	ck_assert_uint_eq(id, 0);
	free(ordinary);
}
END_TEST

/* Several handles in one range of addresses, of which only some are mapped. */
START_TEST(virtual_memory)
{
	uint8_t out[64];
	struct memory memory = { .what = VIRTUAL };
	cu_deviceptr base = 0;
	unsigned is_mapped = 0;
	size_t size = 0;

	virtual_make(&memory, 4, 3);
	ck_cu_ok(cu.cuMemsetD8(memory.address, 1, BLOCK));
	ck_cu_ok(cu.cuMemsetD8(memory.address + BLOCK, 2, BLOCK));
	ck_cu_ok(cu.cuMemcpyDtoH(out, memory.address + BLOCK - 32, 64));
	ck_assert_mem_eq(out + 31, "\1\2", 2);
	ck_cu_ok(cu.cuPointerGetAttribute(
		&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory.address + BLOCK));
	ck_assert_uint_eq(base, memory.reserved);
	ck_cu_ok(cu.cuPointerGetAttribute(
		&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory.address + BLOCK));
	ck_assert_uint_eq(size, 4u * BLOCK);
	ck_cu_ok(cu.cuMemGetAddressRange(&base, &size, memory.address + BLOCK + 5));
	ck_assert_uint_eq(base, memory.reserved + BLOCK);
	ck_assert_uint_eq(size, BLOCK);
	ck_cu_ok(cu.cuPointerGetAttribute(
		&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, memory.address + 2 * BLOCK));
	ck_assert_uint_eq(is_mapped, 1);
	ck_assert_int_ne(cu.cuMemcpyDtoH(out, memory.address + 3ull * BLOCK, 64), CUDA_SUCCESS);
	ck_assert_int_ne(cu.cuMemAddressFree(memory.reserved, (size_t)4 * BLOCK), CUDA_SUCCESS);
	virtual_free(&memory, 4, 3);
}
END_TEST

/* The two numbers together distinguish mapped memory from a later mapping there. */
START_LOOP_TEST(mapped_anew, 2)
{
	struct memory memory = { .what = VIRTUAL };
	unsigned long long id[2], block[2];
	cu_mem_handle old;

	virtual_make(&memory, 2, 1);
	for (int i = 0; i < 2; i++) {
		ck_cu_ok(cu.cuPointerGetAttribute(
			&id[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, memory.address + PAGE));
		ck_cu_ok(cu.cuPointerGetAttribute(
			&block[i], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, memory.address + PAGE));
		ck_assert_uint_ne(block[i], 0);
		if (i)
			break;
		/* With the old memory alive, and without. */
		if (_i)
			ck_cu_ok(cu.cuMemRetainAllocationHandle(
				&old, (void *)(uintptr_t)memory.address));
		ck_cu_ok(cu.cuMemUnmap(memory.address, BLOCK));
		virtual_map(&memory, 0);
	}
	ck_assert(id[0] != id[1] || block[0] != block[1]);
	if (_i)
		ck_cu_ok(cu.cuMemRelease(old));
	virtual_free(&memory, 2, 1);
}
END_TEST

/* The rights of the device whose context is current. */
START_TEST(rights_of_mappings)
{
	struct cu_mem_access access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		CU_MEM_ACCESS_FLAGS_PROT_READ };
	struct memory memory = { .what = VIRTUAL };
	unsigned rights = 7;

	virtual_make(&memory, 3, 2);
	virtual_map(&memory, 2);
	ck_cu_ok(cu.cuPointerGetAttribute(
		&rights, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory.address + PAGE));
	ck_assert_uint_eq(rights, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ck_cu_ok(cu.cuPointerGetAttribute(
		&rights, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory.address + 2 * BLOCK));
	ck_assert_uint_eq(rights, 0);
	ck_cu_ok(cu.cuMemSetAccess(memory.address + BLOCK, BLOCK, &access, 1));
	ck_cu_ok(cu.cuPointerGetAttribute(
		&rights, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory.address + BLOCK));
	ck_assert_uint_eq(rights, CU_MEM_ACCESS_FLAGS_PROT_READ);
	virtual_free(&memory, 3, 3);
}
END_TEST

/* ---- host memory */

START_TEST(registration)
{
	enum { MAPPED = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP };
	uint8_t *host = cuda_pages(8 * PAGE);
	cu_deviceptr at = 0, inside = 0;

	ck_cu(cu.cuMemHostRegister(host, 0, MAPPED), CUDA_ERROR_INVALID_VALUE);
	ck_cu_ok(cu.cuMemHostRegister(host + 2 * PAGE, 4 * PAGE, MAPPED));
	/* All of it, part of it, more than it. */
	ck_cu(cu.cuMemHostRegister(host + 2 * PAGE, 4 * PAGE, MAPPED),
		CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ck_cu(cu.cuMemHostRegister(host + 3 * PAGE, PAGE, MAPPED),
		CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ck_cu(cu.cuMemHostRegister(host + 5 * PAGE, 2 * PAGE, MAPPED),
		CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ck_cu(cu.cuMemHostRegister(host, 8 * PAGE, MAPPED),
		CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	/* Ranges that only touch it are free. */
	ck_cu_ok(cu.cuMemHostRegister(host + 6 * PAGE, PAGE, MAPPED));
	ck_cu_ok(cu.cuMemHostUnregister(host + 6 * PAGE));
	ck_cu_ok(cu.cuMemHostGetDevicePointer(&at, host + 2 * PAGE, 0));
	ck_cu_ok(cu.cuMemHostGetDevicePointer(&inside, host + 4 * PAGE + 7, 0));
	ck_assert_uint_eq(inside, at + 2 * PAGE + 7);
	ck_cu(cu.cuMemHostGetDevicePointer(&at, host, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_ne(cu.cuMemHostUnregister(host + 3 * PAGE), CUDA_SUCCESS);
	ck_cu_ok(cu.cuMemHostUnregister(host + 2 * PAGE));
	ck_cu(cu.cuMemHostUnregister(host + 2 * PAGE), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ck_cu_ok(cu.cuMemHostRegister(host, 8 * PAGE, MAPPED));
	ck_cu_ok(cu.cuMemHostUnregister(host));
	munmap(host, 8 * PAGE);
}
END_TEST

/* Pages that are not there cannot be pinned. */
START_TEST(registration_of_nothing)
{
	uint8_t *host = cuda_pages(2 * PAGE);

	munmap(host + PAGE, PAGE);
	ck_assert_int_ne(
		cu.cuMemHostRegister(host, 2 * PAGE, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
	munmap(host, PAGE);
}
END_TEST

START_TEST(registered_is_reached)
{
	uint8_t *host = cuda_pages(2 * PAGE);
	cu_deviceptr at = 0, device;

	ck_cu_ok(cu.cuMemAlloc(&device, 2 * PAGE));
	ck_cu_ok(cu.cuMemHostRegister(
		host, 2 * PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	ck_cu_ok(cu.cuMemHostGetDevicePointer(&at, host, 0));
	memset(host, 3, 2 * PAGE);
	ck_cu_ok(cu.cuMemcpyDtoD(device, at + 10, PAGE));
	ck_cu_ok(cu.cuMemsetD8(at, 0, 2 * PAGE));
	ck_cu_ok(cu.cuCtxSynchronize());
	ck_assert_uint_eq(host[2 * PAGE - 1], 0);
	ck_cu_ok(cu.cuMemcpyDtoH(host, device, PAGE));
	ck_assert_uint_eq(host[PAGE - 1], 3);
	ck_cu_ok(cu.cuMemHostUnregister(host));
	ck_cu_ok(cu.cuMemFree(device));
	munmap(host, 2 * PAGE);
}
END_TEST

START_TEST(dma_bufs)
{
	cu_deviceptr address;
	int is_supported, fd = -1;

	ck_cu_ok(cu.cuDeviceGetAttribute(&is_supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
	ck_cu_ok(cu.cuMemAlloc(&address, SIZE));
	if (is_supported) {
		ck_cu_ok(cu.cuMemGetHandleForAddressRange(
			&fd, address + PAGE, 2 * PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(close(fd), 0);
		ck_cu(cu.cuMemGetHandleForAddressRange(
			      &fd, address + 512, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			CUDA_ERROR_INVALID_VALUE);
		ck_cu(cu.cuMemGetHandleForAddressRange(
			      &fd, address, 100, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			CUDA_ERROR_INVALID_VALUE);
	} else {
		ck_assert_int_ne(cu.cuMemGetHandleForAddressRange(&fd, address, PAGE,
					 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			CUDA_SUCCESS);
	}
	ck_cu_ok(cu.cuMemFree(address));
}
END_TEST

TEST_MAIN(cuda_rules_memory)
{
	return cuda_main(all_tests(cuda_setup, cuda_teardown));
}
