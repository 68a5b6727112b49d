/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: host memory that the GPU reaches. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

static uint64_t page_down(const void *at)
{
	return (uint64_t)(uintptr_t)at / FAKE_PAGE * FAKE_PAGE;
}

static uint64_t page_up(const void *at, uint64_t size)
{
	return ((uint64_t)(uintptr_t)at + size + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
}

/* Pages are pinned, so two registrations share none. */
static bool is_taken(const void *address, size_t size)
{
	uint64_t begin = page_down(address), end = page_up(address, size);

	for (const struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->host && page_down(range->host) < end &&
			begin < page_up(range->host, range->host_size))
			return true;
	return false;
}

static bool is_mapped(const void *address, size_t size)
{
	uint64_t begin = page_down(address), end = page_up(address, size);
	uint64_t window = (uint64_t)(uintptr_t)fake.device_window;
	unsigned char core[256];

	if (begin < window + FAKE_WINDOW && window < end)
		return false;
	for (; begin < end; begin += sizeof(core) * FAKE_PAGE) {
		uint64_t length = end - begin;

		if (length > sizeof(core) * FAKE_PAGE)
			length = sizeof(core) * FAKE_PAGE;
		if (mincore((void *)(uintptr_t)begin, length, core) < 0 && errno == ENOMEM)
			return false;
	}
	return true;
}

static cu_result add_registration(
	struct fake_context *context, void *address, size_t size, unsigned flags)
{
	uint64_t into = (uint64_t)(uintptr_t)address % FAKE_PAGE;
	struct fake_range wants = {
		.kind = FAKE_HOST_REGISTERED,
		.real = address,
		.host = address,
		.host_size = size,
		.context = context,
		.device = context->device,
		.flags = flags,
	};

	if (flags & CU_MEMHOSTREGISTER_DEVICEMAP) {
		wants.size = size;
		wants.base = (uint64_t)(uintptr_t)address;
		if (fake.is_host_apart) {
			wants.real_is_apart = true;
			wants.base = fake_address(into + size, FAKE_PAGE);
			if (wants.base == 0)
				return CUDA_ERROR_OUT_OF_MEMORY;
			wants.base += into;
		}
	}
	if (!fake_range_add(&wants))
		return CUDA_ERROR_OUT_OF_MEMORY;
	fake.host_used += size;
	return CUDA_SUCCESS;
}

cu_result cuMemHostRegister_v2(void *address, size_t size, unsigned int flags)
{
	cu_result result = fake_enter("cuMemHostRegister", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	if (!address || size == 0 || flags > 15)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!fake_attribute(context->device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) ||
		flags > (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
		result = CUDA_ERROR_NOT_SUPPORTED;
	else if (is_taken(address, size))
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (!is_mapped(address, size))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (size > fake.host_limit - fake.host_used)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else
		result = add_registration(context, address, size, flags);
	return fake_leave(result);
}

cu_result cuMemHostUnregister(void *address)
{
	cu_result result = fake_enter("cuMemHostUnregister", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	fake_worker_pause();
	range = fake_range_of_host(address, 1);
	if (!range || range->kind != FAKE_HOST_REGISTERED)
		return fake_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	if (range->host != address)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_range_free(range);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuMemHostGetDevicePointer_v2(cu_deviceptr *ret_address, void *host, unsigned int flags)
{
	cu_result result = fake_enter("cuMemHostGetDevicePointer", FAKE_CONTEXTED);
	struct fake_context *context;
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	range = fake_range_of_host(host, 1);
	if (!ret_address || flags != 0 || !range || range->size == 0 ||
		range->kind == FAKE_MANAGED ||
		(range->context != context && !(range->flags & CU_MEMHOSTREGISTER_PORTABLE)) ||
		!fake_attribute(context->device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_address = range->base + (uint64_t)((uint8_t *)host - range->host);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuMemHostGetFlags(unsigned int *ret_flags, void *host)
{
	cu_result result = fake_enter("cuMemHostGetFlags", FAKE_CONTEXTED);
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	range = fake_range_of_host(host, 1);
	if (!ret_flags || !range || range->kind == FAKE_MANAGED)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_flags = range->flags;
	return fake_leave(CUDA_SUCCESS);
}

/* Reachable from all contexts at the same address. */
static cu_result allocate(void **ret_address, size_t size)
{
	struct fake_range wants = {
		.kind = FAKE_HOST_ALLOCATED,
		.flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
	};
	struct fake_context *context;
	void *at;

	fake_current(&context);
	if (!ret_address || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	size = (size + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
	if (size > fake.host_limit - fake.host_used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wants.context = context;
	wants.device = context->device;
	wants.base = (uint64_t)(uintptr_t)at;
	wants.real = wants.host = at;
	wants.size = wants.host_size = size;
	if (!fake_range_add(&wants)) {
		munmap(at, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fake.host_used += size;
	*ret_address = at;
	return CUDA_SUCCESS;
}

cu_result cuMemAllocHost_v2(void **ret_address, size_t size)
{
	cu_result result = fake_enter("cuMemAllocHost", FAKE_CONTEXTED | FAKE_UNSAFE);

	return result == CUDA_SUCCESS ? fake_leave(allocate(ret_address, size)) : result;
}

cu_result cuMemHostAlloc(void **ret_address, size_t size, unsigned int flags)
{
	cu_result result = fake_enter("cuMemHostAlloc", FAKE_CONTEXTED | FAKE_UNSAFE);

	if (result != CUDA_SUCCESS)
		return result;
	return fake_leave(flags > (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)
			? CUDA_ERROR_INVALID_VALUE
			: allocate(ret_address, size));
}

cu_result cuMemFreeHost(void *address)
{
	cu_result result = fake_enter("cuMemFreeHost", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	fake_worker_pause();
	range = fake_range_of_host(address, 1);
	if (!range || range->kind != FAKE_HOST_ALLOCATED || range->host != address)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_range_free(range);
	return fake_leave(CUDA_SUCCESS);
}
