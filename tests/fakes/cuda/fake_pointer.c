/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: attributes of pointers. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

/* A pointer is looked up by the GPU's address, then by the processor's. */
static struct fake_range *lookup(cu_deviceptr address)
{
	struct fake_range *range = fake_range_at(address, 1);

	return range ? range : fake_range_of_host((void *)(uintptr_t)address, 1);
}

static const struct fake_range *reservation(cu_deviceptr address)
{
	for (const struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_RESERVATION && address >= range->base &&
			address - range->base < range->size)
			return range;
	return NULL;
}

static bool is_host(const struct fake_range *range)
{
	return range->kind == FAKE_HOST_ALLOCATED || range->kind == FAKE_HOST_REGISTERED;
}

static bool is_rdma_capable(const struct fake_range *range)
{
	if (range->kind == FAKE_MAPPING)
		return range->block->is_rdma_capable &&
			fake_attribute(range->device,
				CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	return range->kind == FAKE_DEVICE &&
		fake_attribute(range->device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
}

union value {
	void *pointer;
	uint64_t u64;
	unsigned int u32;
	int i32;
};

static cu_result addresses_of(const struct fake_range *range, cu_pointer_attribute attribute,
	cu_deviceptr address, union value *value)
{
	uint64_t into = range->host && range->kind == FAKE_HOST_REGISTERED &&
			!(range->size > 0 && address - range->base < range->size)
		? address - (uint64_t)(uintptr_t)range->host
		: address - range->base;
	struct fake_context *context;

	if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
		value->pointer = range->host ? range->host + into : NULL;
		return range->host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (fake_current(&context) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_CONTEXT;
	value->u64 = range->base + into;
	return range->size > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* For a range that is no mapping the same, whatever attribute is queried. */
static void extent_of(const struct fake_range *range, cu_pointer_attribute attribute,
	cu_deviceptr address, union value *value)
{
	const struct fake_range *whole = range->kind == FAKE_MAPPING &&
			(attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
				attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		? reservation(address)
		: range;

	value->u64 = attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
			attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
		? whole->base
		: whole->size;
}

static cu_result value_of(const struct fake_range *range, cu_pointer_attribute attribute,
	cu_deviceptr address, union value *value)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		value->pointer = range->context ? fake_context_handle(range->context) : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		value->u32 = is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return addresses_of(range, attribute, address, value);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: value->u32 = range->sync_memops; break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		value->u64 = range->kind == FAKE_MAPPING && fake.is_one_id
			? reservation(address)->buffer_id
			: range->buffer_id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED: value->u32 = range->kind == FAKE_MANAGED; break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: value->i32 = range->device; break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		value->u32 = range->kind == FAKE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		extent_of(range, attribute, address, value);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED: value->u32 = 1; break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: value->u64 = CU_MEM_HANDLE_TYPE_NONE; break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		value->u32 = is_rdma_capable(range);
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		value->u32 = range->kind == FAKE_MAPPING ? (unsigned)range->access : 3;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		value->pointer = range->kind == FAKE_POOL ? &fake.devices[range->device] : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		value->u64 = range->block ? range->block->id : range->buffer_id;
		break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* 0: not an attribute of this driver. */
static size_t size_of(cu_pointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER: return sizeof(void *);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return sizeof(uint64_t);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return sizeof(int);
	/* A byte each: "a boolean". */
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return 1;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return sizeof(int);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return fake.version >= 11030 ? sizeof(void *) : 0;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return fake.version >= 11080 ? sizeof(uint64_t) : 0;
	default: return 0;
	}
}

/* Attributes of addresses that are reserved but not mapped. */
static cu_result unmapped_value(
	cu_pointer_attribute attribute, cu_deviceptr address, union value *value)
{
	const struct fake_range *range = reservation(address);

	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MAPPED: value->u32 = 0; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: value->u64 = range->base; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE: value->u64 = range->size; return CUDA_SUCCESS;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
}

static cu_result get(cu_pointer_attribute attribute, cu_deviceptr address, union value *value)
{
	const struct fake_range *range = lookup(address);

	memset(value, 0, sizeof(*value));
	return range ? value_of(range, attribute, address, value)
		     : unmapped_value(attribute, address, value);
}

cu_result cuPointerGetAttribute(void *data, cu_pointer_attribute attribute, cu_deviceptr address)
{
	cu_result result = fake_enter("cuPointerGetAttribute", 0);
	union value value;

	if (result != CUDA_SUCCESS)
		return result;
	if (!data || size_of(attribute) == 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	result = get(attribute, address, &value);
	if (result == CUDA_SUCCESS)
		memcpy(data, &value, size_of(attribute));
	return fake_leave(result);
}

cu_result cuPointerGetAttributes(
	unsigned int n, cu_pointer_attribute *attributes, void **data, cu_deviceptr address)
{
	cu_result result = fake_enter("cuPointerGetAttributes", 0);
	union value value;

	if (result != CUDA_SUCCESS)
		return result;
	for (unsigned i = 0; i < n; i++)
		if (!data || !data[i] || !attributes || size_of(attributes[i]) == 0)
			return fake_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i < n; i++) {
		if (get(attributes[i], address, &value) != CUDA_SUCCESS) {
			memset(&value, 0, sizeof(value));
			if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
				value.i32 = -2; /* CU_DEVICE_INVALID */
		}
		memcpy(data[i], &value, size_of(attributes[i]));
	}
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuPointerSetAttribute(
	const void *data, cu_pointer_attribute attribute, cu_deviceptr address)
{
	cu_result result = fake_enter("cuPointerSetAttribute", 0);
	struct fake_range *range;
	unsigned int value;

	if (result != CUDA_SUCCESS)
		return result;
	range = lookup(address);
	if (!data || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !range || is_host(range))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (range->kind != FAKE_DEVICE)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	memcpy(&value, data, sizeof(value));
	range->sync_memops = value != 0;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuMemGetAddressRange_v2(cu_deviceptr *ret_base, size_t *ret_size, cu_deviceptr address)
{
	cu_result result = fake_enter("cuMemGetAddressRange", FAKE_CONTEXTED);
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	range = fake_range_at(address, 1);
	if (!range)
		return fake_leave(CUDA_ERROR_NOT_FOUND);
	if (ret_base)
		*ret_base = range->base;
	if (ret_size)
		*ret_size = range->size;
	return fake_leave(CUDA_SUCCESS);
}
