/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: virtual memory. Addresses and the memory mapped there are separate. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

static struct fake_block *block_of(cu_mem_handle handle)
{
	for (struct fake_block *block = fake.handles; block; block = block->next)
		if ((uintptr_t)block == handle && block->n_handles > 0)
			return block;
	return NULL;
}

static struct fake_range *reservation_of(cu_deviceptr address, size_t size)
{
	for (struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_RESERVATION && address >= range->base &&
			address - range->base < range->size &&
			size <= range->size - (address - range->base))
			return range;
	return NULL;
}

static bool is_any_mapped(cu_deviceptr address, size_t size)
{
	for (const struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_MAPPING && range->base < address + size &&
			address < range->base + range->size)
			return true;
	return false;
}

static bool is_blocks(uint64_t number)
{
	return number > 0 && number % FAKE_CUDA_BLOCK == 0;
}

static cu_result reserve(size_t size, cu_deviceptr *ret_address)
{
	struct fake_range wants = { .kind = FAKE_RESERVATION, .size = size, .device = -1 };

	if (!ret_address || !is_blocks(size))
		return CUDA_ERROR_INVALID_VALUE;
	wants.base = fake_address(size, FAKE_CUDA_BLOCK);
	if (wants.base == 0 || !fake_range_add(&wants))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_address = wants.base;
	return CUDA_SUCCESS;
}

cu_result cuMemAddressReserve(cu_deviceptr *ret_address, size_t size, size_t alignment,
	cu_deviceptr at, unsigned long long flags)
{
	cu_result result = fake_enter("cuMemAddressReserve", 0);

	if (result != CUDA_SUCCESS)
		return result;
	/* A requested address is a hint that need not be granted. */
	if (flags != 0 || alignment > FAKE_CUDA_BLOCK)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return fake_leave(reserve(size, ret_address));
}

static cu_result unreserve(cu_deviceptr address, size_t size)
{
	struct fake_range *range = reservation_of(address, size);

	if (!range || range->base != address || range->size != size || is_any_mapped(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	fake_range_free(range);
	return CUDA_SUCCESS;
}

cu_result cuMemAddressFree(cu_deviceptr address, size_t size)
{
	cu_result result = fake_enter("cuMemAddressFree", 0);

	return result == CUDA_SUCCESS ? fake_leave(unreserve(address, size)) : result;
}

static cu_result create(int device, size_t size, bool is_rdma_capable, cu_mem_handle *ret_handle)
{
	struct fake_block *block;

	if (!ret_handle || !is_blocks(size))
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= fake.n_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	block = fake_block_new(device, size);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block->is_rdma_capable = is_rdma_capable;
	block->n_handles = 1;
	block->next = fake.handles;
	fake.handles = block;
	*ret_handle = (uintptr_t)block;
	return CUDA_SUCCESS;
}

cu_result cuMemCreate(cu_mem_handle *ret_handle, size_t size, const struct cu_mem_prop *prop,
	unsigned long long flags)
{
	cu_result result = fake_enter("cuMemCreate", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!prop || flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
		prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return fake_leave(create(prop->location.id, size, prop->rdma_capable, ret_handle));
}

/* The last holder of a block, a handle or a mapping, takes it off the list. */
static void block_put(struct fake_block *block)
{
	struct fake_block **at = &fake.handles;

	if (block->holders == 1) {
		while (*at && *at != block)
			at = &(*at)->next;
		if (*at)
			*at = block->next;
	}
	fake_block_put(block);
}

static void mapping_free(struct fake_range *range)
{
	struct fake_block *block = range->block;

	block->holders++;
	fake_range_free(range);
	block_put(block);
}

static cu_result release(cu_mem_handle handle)
{
	struct fake_block *block = block_of(handle);

	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	block->n_handles--;
	block_put(block);
	return CUDA_SUCCESS;
}

cu_result cuMemRelease(cu_mem_handle handle)
{
	cu_result result = fake_enter("cuMemRelease", 0);

	return result == CUDA_SUCCESS ? fake_leave(release(handle)) : result;
}

static cu_result map(cu_deviceptr address, size_t size, cu_mem_handle handle)
{
	struct fake_range wants = { .kind = FAKE_MAPPING, .base = address, .size = size };
	struct fake_block *block = block_of(handle);
	struct fake_range *range;

	if (!block || !is_blocks(size) || size > block->size || address % FAKE_CUDA_BLOCK != 0 ||
		!reservation_of(address, size) || is_any_mapped(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	wants.device = block->device;
	wants.block = block;
	if (!fake_block_map(block, 0, address, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	range = fake_range_add(&wants);
	if (!range) {
		fake_block_unmap(address, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->real = fake_real(address);
	block->holders++;
	return CUDA_SUCCESS;
}

cu_result cuMemMap(cu_deviceptr address, size_t size, size_t offset, cu_mem_handle handle,
	unsigned long long flags)
{
	cu_result result = fake_enter("cuMemMap", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (offset != 0 || flags != 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return fake_leave(map(address, size, handle));
}

/* Handles whole mappings only. `access` is the access to set, or -1 to unmap. */
static cu_result change(cu_deviceptr address, size_t size, int access)
{
	cu_deviceptr at = address;
	struct fake_range *range;

	while (at < address + size) {
		range = fake_range_at(at, 1);
		if (!range || range->kind != FAKE_MAPPING || range->base != at)
			return CUDA_ERROR_INVALID_VALUE;
		at += range->size;
	}
	if (size == 0 || at != address + size)
		return CUDA_ERROR_INVALID_VALUE;
	for (at = address; at < address + size;) {
		range = fake_range_at(at, 1);
		at += range->size;
		if (access < 0)
			mapping_free(range);
		else
			range->access = access;
	}
	return CUDA_SUCCESS;
}

cu_result cuMemUnmap(cu_deviceptr address, size_t size)
{
	cu_result result = fake_enter("cuMemUnmap", FAKE_UNSAFE);

	if (result != CUDA_SUCCESS)
		return result;
	fake_worker_pause();
	return fake_leave(change(address, size, -1));
}

cu_result cuMemSetAccess(
	cu_deviceptr address, size_t size, const struct cu_mem_access *access, size_t n)
{
	cu_result result = fake_enter("cuMemSetAccess", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!access || n == 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (access[i].location.id < 0 || access[i].location.id >= fake.n_devices)
			result = CUDA_ERROR_INVALID_DEVICE;
		else
			result = change(address, size, access[i].flags);
	}
	return fake_leave(result);
}

cu_result cuMemGetAllocationGranularity(
	size_t *ret_granularity, const struct cu_mem_prop *prop, int option)
{
	cu_result result = fake_enter("cuMemGetAllocationGranularity", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_granularity || !prop || option < 0 || option > 1)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_granularity = FAKE_CUDA_BLOCK;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuMemRetainAllocationHandle(cu_mem_handle *ret_handle, void *address)
{
	cu_result result = fake_enter("cuMemRetainAllocationHandle", 0);
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	range = fake_range_at((uint64_t)(uintptr_t)address, 1);
	if (!ret_handle || !range || range->kind != FAKE_MAPPING)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	range->block->n_handles++;
	range->block->holders++;
	*ret_handle = (uintptr_t)range->block;
	return fake_leave(CUDA_SUCCESS);
}

void fake_virtual_reset(void)
{
	struct fake_range *range;

	do {
		for (range = fake.ranges; range && range->kind != FAKE_MAPPING;)
			range = range->next;
		if (range)
			mapping_free(range);
	} while (range);
	while (fake.handles)
		release((uintptr_t)fake.handles);
}

cu_result fake_make_virtual(
	int ordinal, size_t reserved, unsigned n, bool is_rdma_capable, cu_deviceptr *ret_address)
{
	cu_deviceptr base;
	cu_result result = reserve(reserved, &base);

	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
		uint64_t at = base + (uint64_t)i * FAKE_CUDA_BLOCK;
		cu_mem_handle handle;

		result = create(ordinal, FAKE_CUDA_BLOCK, is_rdma_capable, &handle);
		if (result != CUDA_SUCCESS)
			break;
		result = map(at, FAKE_CUDA_BLOCK, handle);
		release(handle);
		if (result == CUDA_SUCCESS)
			result = change(at, FAKE_CUDA_BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	if (result == CUDA_SUCCESS)
		*ret_address = base;
	return result;
}

cu_result fake_free_virtual(cu_deviceptr address)
{
	struct fake_range *range = reservation_of(address, 1), *mapping;

	if (!range || range->base != address)
		return CUDA_ERROR_INVALID_VALUE;
	do {
		for (mapping = fake.ranges; mapping; mapping = mapping->next)
			if (mapping->kind == FAKE_MAPPING && mapping->base >= address &&
				mapping->base - address < range->size)
				break;
		if (mapping)
			mapping_free(mapping);
	} while (mapping);
	fake_range_free(range);
	return CUDA_SUCCESS;
}
