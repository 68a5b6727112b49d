/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The double of libcuda: device memory. Two windows have the same size. Device addresses lie in one
 * that nobody may touch. At the same offset in the other one, files are mapped where something is
 * allocated, one for each block of memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

enum {
	SMALL = 1 << 20, /* allocations below this share blocks */
	ALIGNMENT = 512,
	POISON = 0xa5,
	POISONED = 8 << 20, /* bytes at most: more would cost memory that nobody touches */
};

/* ---- windows */

static uint8_t *window_new(void)
{
	void *at = mmap(
		NULL, FAKE_WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

int fake_windows_make(void)
{
	if (!fake.device_window)
		fake.device_window = window_new();
	if (!fake.real_window)
		fake.real_window = window_new();
	return fake.device_window && fake.real_window ? 0 : -1;
}

/* Its start is a multiple of the size of all blocks. */
static uint64_t window_start(void)
{
	uint64_t at = (uint64_t)(uintptr_t)fake.device_window;

	return (at + FAKE_CUDA_BLOCK - 1) / FAKE_CUDA_BLOCK * FAKE_CUDA_BLOCK;
}

uint8_t *fake_real(uint64_t address)
{
	return fake.real_window + (address - (uint64_t)(uintptr_t)fake.device_window);
}

uint64_t fake_address(uint64_t size, uint64_t alignment)
{
	uint64_t at = window_start(), end = window_start() + FAKE_WINDOW - FAKE_CUDA_BLOCK;

	/* Ranges are sorted; a range inside another one is no obstacle of its own. */
	for (const struct fake_range *range = fake.ranges; range; range = range->next) {
		if (range->kind == FAKE_HOST_REGISTERED && !range->real_is_apart)
			continue;
		if (range->size == 0 || range->base < window_start() || range->base >= end)
			continue;
		if (range->base >= at + size)
			break;
		if (range->base + range->size > at)
			at = (range->base + range->size + alignment - 1) / alignment * alignment;
	}
	return at + size <= end ? at : 0;
}

/* ---- blocks */

struct fake_block *fake_block_new(int device, uint64_t size)
{
	struct fake_block *block = calloc(1, sizeof(*block));
	uint8_t *at;

	if (!block)
		return NULL;
	size = (size + FAKE_CUDA_BLOCK - 1) / FAKE_CUDA_BLOCK * FAKE_CUDA_BLOCK;
	block->fd = memfd_create("fake-cuda", MFD_CLOEXEC);
	*block = (struct fake_block){ .fd = block->fd, .size = size, .device = device };
	if (block->fd < 0 || ftruncate(block->fd, (off_t)size) < 0 ||
		fake.devices[device].used + size > fake.memory) {
		if (block->fd >= 0)
			close(block->fd);
		free(block);
		return NULL;
	}
	/* Fresh memory is not zero. */
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, block->fd, 0);
	if (at != MAP_FAILED) {
		memset(at, POISON, size < POISONED ? size : POISONED);
		munmap(at, size);
	}
	fake.devices[device].used += size;
	block->id = ++fake.next_id;
	fake.n_blocks++;
	block->is_rdma_capable = true;
	block->holders = 1;
	return block;
}

void fake_block_put(struct fake_block *block)
{
	if (--block->holders > 0)
		return;
	close(block->fd);
	fake.n_blocks--;
	fake.devices[block->device].used -= block->size;
	free(block);
}

bool fake_block_map(struct fake_block *block, uint64_t offset, uint64_t address, uint64_t size)
{
	return mmap(fake_real(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		       block->fd, (off_t)offset) != MAP_FAILED;
}

void fake_block_unmap(uint64_t address, uint64_t size)
{
	mmap(fake_real(address), size, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

/* ---- ranges */

static bool is_container(const struct fake_range *range)
{
	return range->kind == FAKE_RESERVATION || range->kind == FAKE_SHARED;
}

struct fake_range *fake_range_at(uint64_t address, uint64_t size)
{
	for (struct fake_range *range = fake.ranges; range; range = range->next)
		if (!is_container(range) && address >= range->base &&
			address - range->base < range->size &&
			size <= range->size - (address - range->base))
			return range;
	return NULL;
}

struct fake_range *fake_range_of_host(const void *host, uint64_t size)
{
	const uint8_t *at = host;

	for (struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->host && at >= range->host &&
			(uint64_t)(at - range->host) < range->host_size &&
			size <= range->host_size - (uint64_t)(at - range->host))
			return range;
	return NULL;
}

struct fake_range *fake_range_add(const struct fake_range *range)
{
	struct fake_range **at = &fake.ranges, *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	/* Containers come before their contents. */
	while (*at && (*at)->base <= range->base)
		at = &(*at)->next;
	*copy = *range;
	copy->buffer_id = ++fake.next_id;
	copy->next = *at;
	*at = copy;
	return copy;
}

void fake_range_remove(struct fake_range *range)
{
	struct fake_range **at = &fake.ranges;

	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	free(range);
}

/* ---- allocations */

/* Returns an address of this size in a block that small allocations of the same kind share. */
static uint64_t small_address(struct fake_range *shared, uint64_t size)
{
	uint64_t at = shared->base;

	for (const struct fake_range *range = shared->next; range; range = range->next) {
		if (range->base >= at + size || range->base >= shared->base + shared->size)
			break;
		at = (range->base + range->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	}
	return at + size <= shared->base + shared->size ? at : 0;
}

static struct fake_range *block_range(struct fake_range *range, uint64_t size)
{
	struct fake_range *added;

	range->base = fake_address(size, FAKE_CUDA_BLOCK);
	range->block = range->base ? fake_block_new(range->device, size) : NULL;
	if (!range->block)
		return NULL;
	if (!fake_block_map(range->block, 0, range->base, range->block->size)) {
		fake_block_put(range->block);
		return NULL;
	}
	range->real = fake_real(range->base);
	added = fake_range_add(range);
	if (!added) {
		fake_block_unmap(range->base, range->block->size);
		fake_block_put(range->block);
	}
	return added;
}

static struct fake_range *small(struct fake_range *range)
{
	struct fake_range *shared, *added;
	uint64_t at = 0;

	for (shared = fake.ranges; shared; shared = shared->next) {
		if (shared->kind != FAKE_SHARED || shared->device != range->device ||
			shared->context != range->context || shared->flags != range->kind)
			continue;
		at = small_address(shared, range->size);
		if (at)
			break;
	}
	if (!shared) {
		struct fake_range wants = *range;

		wants.kind = FAKE_SHARED;
		wants.flags = range->kind;
		wants.size = FAKE_CUDA_BLOCK;
		shared = block_range(&wants, FAKE_CUDA_BLOCK);
		if (!shared)
			return NULL;
		at = shared->base;
	}
	range->base = at;
	range->real = fake_real(at);
	range->block = shared->block;
	range->block_offset = at - shared->base;
	added = fake_range_add(range);
	if (added) {
		shared->block->holders++;
		memset(added->real, POISON, added->size);
	}
	return added;
}

static void block_end(struct fake_range *range)
{
	fake_block_unmap(range->base, range->block->size);
	fake_block_put(range->block);
	fake_range_remove(range);
}

static void device_free(struct fake_range *range)
{
	struct fake_range *shared = fake.ranges;
	struct fake_block *block = range->block;

	while (shared && (shared->kind != FAKE_SHARED || shared->block != block))
		shared = shared->next;
	if (!shared) {
		block_end(range);
		return;
	}
	memset(range->real, POISON, range->size);
	fake_range_remove(range);
	block->holders--;
	if (block->holders == 1)
		block_end(shared);
}

void fake_range_free(struct fake_range *range)
{
	switch (range->kind) {
	case FAKE_DEVICE:
	case FAKE_POOL: device_free(range); break;
	case FAKE_MANAGED:
		munmap(range->real, range->size);
		fake_range_remove(range);
		break;
	case FAKE_HOST_ALLOCATED:
		fake.host_used -= range->host_size;
		munmap(range->host, range->host_size);
		fake_range_remove(range);
		break;
	case FAKE_HOST_REGISTERED:
		fake.host_used -= range->host_size;
		fake_range_remove(range);
		break;
	case FAKE_MAPPING:
		fake_block_unmap(range->base, range->size);
		fake_block_put(range->block);
		fake_range_remove(range);
		break;
	case FAKE_RESERVATION: fake_range_remove(range); break;
	case FAKE_SHARED: break;
	}
}

void fake_memory_drop(const struct fake_context *context)
{
	struct fake_range *range;

	/* Freeing one may free its container, so start again each time. */
	do {
		for (range = fake.ranges; range; range = range->next)
			if (range->kind != FAKE_SHARED && (!context || range->context == context))
				break;
		if (range)
			fake_range_free(range);
	} while (range);
}

static cu_result allocate(enum fake_range_kind kind, struct fake_context *context, int device,
	size_t size, cu_deviceptr *ret_address)
{
	struct fake_range wants = {
		.kind = kind, .size = size, .context = context, .device = device
	};
	struct fake_range *range;

	if (!ret_address || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > fake.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range = size < SMALL ? small(&wants) : block_range(&wants, size);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_address = range->base;
	return CUDA_SUCCESS;
}

cu_result cuMemAlloc_v2(cu_deviceptr *ret_address, size_t size)
{
	cu_result result = fake_enter("cuMemAlloc", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	return fake_leave(allocate(FAKE_DEVICE, context, context->device, size, ret_address));
}

cu_result cuMemFree_v2(cu_deviceptr address)
{
	cu_result result = fake_enter("cuMemFree", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	if (address == 0)
		return fake_leave(CUDA_SUCCESS);
	fake_worker_pause();
	range = fake_range_at(address, 1);
	if (!range || range->base != address ||
		(range->kind != FAKE_DEVICE && range->kind != FAKE_POOL &&
			range->kind != FAKE_MANAGED))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_range_free(range);
	return fake_leave(CUDA_SUCCESS);
}

/* One address for the GPU and the processor. */
cu_result cuMemAllocManaged(cu_deviceptr *ret_address, size_t size, unsigned int flags)
{
	cu_result result = fake_enter("cuMemAllocManaged", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_range wants = { .kind = FAKE_MANAGED };
	struct fake_context *context;
	void *at;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_address || size == 0 || (flags != 1 && flags != 2))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_current(&context);
	wants.size = (size + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
	at = mmap(NULL, wants.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	wants.base = (uint64_t)(uintptr_t)at;
	wants.real = wants.host = at;
	wants.host_size = wants.size;
	wants.context = context;
	wants.device = context->device;
	if (!fake_range_add(&wants)) {
		munmap(at, wants.size);
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*ret_address = wants.base;
	return fake_leave(CUDA_SUCCESS);
}

/* Visible at once: work queued before does not matter to fresh memory. */
cu_result cuMemAllocAsync(cu_deviceptr *ret_address, size_t size, cu_stream handle)
{
	cu_result result = fake_enter("cuMemAllocAsync", FAKE_CONTEXTED);
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS &&
		!fake_attribute(
			stream->context->device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS)
		result = allocate(FAKE_POOL, NULL, stream->context->device, size, ret_address);
	return fake_leave(result);
}

cu_result cuMemFreeAsync(cu_deviceptr address, cu_stream handle)
{
	cu_result result = fake_enter("cuMemFreeAsync", FAKE_CONTEXTED);
	struct fake_range *range = NULL;
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS) {
		range = fake_range_at(address, 1);
		if (!range || range->base != address || range->kind != FAKE_POOL)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (result == CUDA_SUCCESS)
		result = fake_queue(
			stream, &(struct fake_work){ .kind = FAKE_FREE, .dst = address });
	return fake_leave(result);
}

cu_result cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	cu_result result = fake_enter("cuMemGetInfo", FAKE_CONTEXTED);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	if (ret_free)
		*ret_free = fake.memory - fake.devices[context->device].used;
	if (ret_total)
		*ret_total = fake.memory;
	return fake_leave(CUDA_SUCCESS);
}
