/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/nccl/caller/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/nccl/caller/row.h"

#define CUDA_CALLS(X)                                                                  \
	X(cuInit, "cuInit", (unsigned))                                                \
	X(cuDeviceGet, "cuDeviceGet", (int *, int))                                    \
	X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, int))        \
	X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int))            \
	X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (void *))                           \
	X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (void **))                            \
	X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                \
	X(cuMemAlloc, "cuMemAlloc_v2", (unsigned long long *, size_t))                 \
	X(cuMemFree, "cuMemFree_v2", (unsigned long long))                             \
	X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (unsigned long long, const void *, size_t)) \
	X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, unsigned long long, size_t))

static struct {
	pthread_once_t once;
	char why_not[200];
	int device;
	void *context;
#define DECLARE(name, symbol, args) int(*name) args;
	CUDA_CALLS(DECLARE)
#undef DECLARE
} cuda = { .once = PTHREAD_ONCE_INIT };

#define CUDA_MUST(call)                                                 \
	do {                                                            \
		int cuda_ = (call);                                     \
		REQUIRE(!cuda_, "%s gave CUDA error %d", #call, cuda_); \
	} while (0)

/* Anything that is left with the driver when the process ends is then the plugin's. */
static void let_go(void)
{
	cuda.cuDevicePrimaryCtxRelease(cuda.device);
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int result;

	if (!library) {
		snprintf(cuda.why_not, sizeof(cuda.why_not), "no CUDA here: %s", dlerror());
		return;
	}
#define FIND(name, symbol, args)                       \
	*(void **)&cuda.name = dlsym(library, symbol); \
	REQUIRE(cuda.name, "libcuda.so.1 has no " symbol);
	CUDA_CALLS(FIND)
#undef FIND
	result = cuda.cuInit(0);
	if (result) {
		snprintf(cuda.why_not, sizeof(cuda.why_not), "CUDA cannot be used: cuInit gave %d",
			result);
		return;
	}
	CUDA_MUST(cuda.cuDeviceGet(&cuda.device, 0));
	CUDA_MUST(cuda.cuDevicePrimaryCtxRetain(&cuda.context, cuda.device));
	atexit(let_go);
}

static void enter(void)
{
	pthread_once(&cuda.once, load);
	if (*cuda.why_not)
		skip("%s", cuda.why_not);
	CUDA_MUST(cuda.cuCtxPushCurrent(cuda.context));
}

static void leave(void)
{
	void *context;

	CUDA_MUST(cuda.cuCtxPopCurrent(&context));
}

bool cuda_set_current(void)
{
	pthread_once(&cuda.once, load);
	if (*cuda.why_not)
		return false;
	enter();
	return true;
}

void cuda_unset_current(void)
{
	leave();
}

uint8_t *cuda_alloc(size_t size)
{
	unsigned long long address;

	enter();
	CUDA_MUST(cuda.cuMemAlloc(&address, size));
	leave();
	return (uint8_t *)(uintptr_t)address;
}

void cuda_free(uint8_t *memory)
{
	enter();
	CUDA_MUST(cuda.cuMemFree((uintptr_t)memory));
	leave();
}

void cuda_give(uint8_t *to, const void *from, size_t size)
{
	if (!size)
		return;
	enter();
	CUDA_MUST(cuda.cuMemcpyHtoD((uintptr_t)to, from, size));
	leave();
}

void cuda_take(void *to, const uint8_t *from, size_t size)
{
	if (!size)
		return;
	enter();
	CUDA_MUST(cuda.cuMemcpyDtoH(to, (uintptr_t)from, size));
	leave();
}

void cuda_check(void)
{
	int result;

	enter();
	result = cuda.cuCtxSynchronize();
	REQUIRE(!result, "the GPU has failed: CUDA error %d", result);
	leave();
}
