/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: access checks, and copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

static bool is_allowed(
	const struct fake_context *context, const struct fake_range *range, bool is_written)
{
	switch (range->kind) {
	case FAKE_DEVICE: return range->context == context;
	case FAKE_POOL: return range->device == context->device;
	case FAKE_MAPPING:
		return range->device == context->device &&
			(range->access & (is_written ? 2 : 1)) != 0;
	case FAKE_MANAGED:
	case FAKE_HOST_ALLOCATED: return true;
	case FAKE_HOST_REGISTERED:
		return range->context == context || (range->flags & CU_MEMHOSTREGISTER_PORTABLE);
	default: return false;
	}
}

uint8_t *fake_find_bytes(
	const struct fake_context *context, uint64_t address, uint64_t size, bool is_written)
{
	const struct fake_range *first = fake_range_at(address, 1), *range = first;
	uint64_t end = address + size, at = address;

	/* Only mappings go on in the next one. */
	while (range && end >= address && (!context || is_allowed(context, range, is_written))) {
		if (end <= range->base + range->size)
			return first->real + (address - first->base);
		at = range->base + range->size;
		range = range->kind == FAKE_MAPPING ? fake_range_at(at, 1) : NULL;
		if (range && range->kind != FAKE_MAPPING)
			range = NULL;
	}
	return NULL;
}

uint8_t *fake_reach(const struct fake_context *context, uint64_t address, uint64_t size,
	bool is_written, const char *what)
{
	static uint8_t nothing;
	uint8_t *at = size > 0 ? fake_find_bytes(context, address, size, is_written) : &nothing;

	if (at)
		return at;
	snprintf(fake.fault, sizeof(fake.fault),
		"%s: %llu bytes at %#llx are not to be %s in this context", what,
		(unsigned long long)size, (unsigned long long)address,
		is_written ? "written" : "read");
	fprintf(stderr, "fake_libcuda: %s\n", fake.fault);
	return NULL;
}

/* ---- copies */

/* The source is memory that CUDA does not know: it is copied at once. */
static uint8_t *stage(const struct fake_work *work)
{
	uint8_t *copy;

	if (work->kind != FAKE_COPY || !work->is_src_host ||
		fake_range_of_host((void *)(uintptr_t)work->src, work->size))
		return NULL;
	copy = malloc(work->size);
	if (copy)
		memcpy(copy, (void *)(uintptr_t)work->src, work->size);
	return copy;
}

static cu_result transfer(
	const char *name, unsigned needs, cu_stream handle, const struct fake_work *wants)
{
	cu_result result = fake_enter(name, FAKE_CONTEXTED | needs);
	struct fake_work work = *wants;
	struct fake_context *context;
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	result = fake_stream_of(handle, &stream);
	if (result != CUDA_SUCCESS || work.size == 0)
		return fake_leave(result);
	if ((!work.is_dst_host && !fake_find_bytes(context, work.dst, work.size, true)) ||
		(work.kind == FAKE_COPY && !work.is_src_host &&
			!fake_find_bytes(context, work.src, work.size, false)))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	work.staged = stage(&work);
	result = fake_queue(stream, &work);
	/* A synchronous copy waits. */
	if (result == CUDA_SUCCESS && needs)
		result = fake_wait(context, fake_stream_is_idle, stream);
	return fake_leave(result);
}

static struct fake_work copy(uint64_t dst, uint64_t src, size_t size)
{
	return (struct fake_work){ .kind = FAKE_COPY, .dst = dst, .src = src, .size = size };
}

static struct fake_work to_host(void *dst, cu_deviceptr src, size_t size)
{
	struct fake_work work = copy((uintptr_t)dst, src, size);

	work.is_dst_host = true;
	return work;
}

static struct fake_work from_host(cu_deviceptr dst, const void *src, size_t size)
{
	struct fake_work work = copy(dst, (uintptr_t)src, size);

	work.is_src_host = true;
	return work;
}

cu_result cuMemcpyDtoH_v2(void *dst, cu_deviceptr src, size_t size)
{
	struct fake_work work = to_host(dst, src, size);

	return transfer("cuMemcpyDtoH", FAKE_UNSAFE, NULL, &work);
}

cu_result cuMemcpyHtoD_v2(cu_deviceptr dst, const void *src, size_t size)
{
	struct fake_work work = from_host(dst, src, size);

	return transfer("cuMemcpyHtoD", FAKE_UNSAFE, NULL, &work);
}

cu_result cuMemcpyDtoD_v2(cu_deviceptr dst, cu_deviceptr src, size_t size)
{
	struct fake_work work = copy(dst, src, size);

	return transfer("cuMemcpyDtoD", FAKE_UNSAFE, NULL, &work);
}

cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_deviceptr src, size_t size, cu_stream stream)
{
	struct fake_work work = to_host(dst, src, size);

	return transfer("cuMemcpyDtoHAsync", 0, stream, &work);
}

cu_result cuMemcpyHtoDAsync_v2(cu_deviceptr dst, const void *src, size_t size, cu_stream stream)
{
	struct fake_work work = from_host(dst, src, size);

	return transfer("cuMemcpyHtoDAsync", 0, stream, &work);
}

cu_result cuMemcpyDtoDAsync_v2(cu_deviceptr dst, cu_deviceptr src, size_t size, cu_stream stream)
{
	struct fake_work work = copy(dst, src, size);

	return transfer("cuMemcpyDtoDAsync", 0, stream, &work);
}

cu_result cuMemsetD8_v2(cu_deviceptr dst, unsigned char value, size_t size)
{
	return transfer("cuMemsetD8", FAKE_UNSAFE, NULL,
		&(struct fake_work){ .kind = FAKE_SET, .dst = dst, .value = value, .size = size });
}

cu_result cuMemsetD8Async(cu_deviceptr dst, unsigned char value, size_t size, cu_stream stream)
{
	return transfer("cuMemsetD8Async", 0, stream,
		&(struct fake_work){ .kind = FAKE_SET, .dst = dst, .value = value, .size = size });
}
