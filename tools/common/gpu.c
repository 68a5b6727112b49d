/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/common.h"

enum {
	MAX_GPUS = 64,
	STREAM_NON_BLOCKING = 1, /* CU_STREAM_NON_BLOCKING */
};

/*
 * Declared as in cuda.h. A suffix in a symbol's name is the version that cuda.h selects by a macro.
 */
typedef unsigned long long device_address;
#define DRIVER_CALLS(X)                                                                           \
	X(cuInit, "cuInit", (unsigned flags))                                                     \
	X(cuGetErrorName, "cuGetErrorName", (int result, const char **ret_name))                  \
	X(cuDeviceGetCount, "cuDeviceGetCount", (int *ret_n))                                     \
	X(cuDeviceGet, "cuDeviceGet", (int *ret_device, int ordinal))                             \
	X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **ret_context, int device)) \
	X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                \
	X(cuCtxSetCurrent, "cuCtxSetCurrent", (void *context))                                    \
	X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (void *context))                               \
	X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (void **ret_context))                            \
	X(cuMemAlloc, "cuMemAlloc_v2", (device_address * ret_address, size_t size))               \
	X(cuMemFree, "cuMemFree_v2", (device_address address))                                    \
	X(cuMemAllocHost, "cuMemAllocHost_v2", (void **ret_address, size_t size))                 \
	X(cuMemFreeHost, "cuMemFreeHost", (void *address))                                        \
	X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                              \
		(device_address to, const void *from, size_t size, void *stream))                 \
	X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                              \
		(void *to, device_address from, size_t size, void *stream))                       \
	X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority",                               \
		(void **ret_stream, unsigned flags, int priority))                                \
	X(cuStreamSynchronize, "cuStreamSynchronize", (void *stream))                             \
	X(cuStreamDestroy, "cuStreamDestroy_v2", (void *stream))

static struct {
	pthread_mutex_t lock;
	bool is_loaded;
	int n;
	int devices[MAX_GPUS];
	void *contexts[MAX_GPUS]; /* until the process ends */
	void *streams[MAX_GPUS];  /* for copies */
#define DECLARE(name, symbol, args) int(*name) args;
	DRIVER_CALLS(DECLARE)
#undef DECLARE
} cuda = { .lock = PTHREAD_MUTEX_INITIALIZER };

int mem_option(const char *text, struct mem_option *ret_option)
{
	uint64_t gpu = 0;

	*ret_option = (struct mem_option){ .gpu = -1 };
	if (strcmp(text, "host") == 0)
		return 0;
	ret_option->is_gpu = true;
	if (strcmp(text, "cuda") == 0)
		return 0;
	if (strncmp(text, "cuda:", 5) == 0 && parse_number(text + 5, 0, MAX_GPUS - 1, &gpu)) {
		ret_option->gpu = (int)gpu;
		return 0;
	}
	return usage_error("--mem '%s': use host, cuda or cuda:N", text);
}

static int failed(int result, const char *what)
{
	const char *name = NULL;

	if (cuda.cuGetErrorName)
		cuda.cuGetErrorName(result, &name);
	say("%s: CUDA error %s (%d)", what, name ? name : "unknown", result);
	return -EIO;
}

static int find_calls(void *library)
{
#define FIND(name, symbol, args)                                                      \
	*(void **)&cuda.name = dlsym(library, symbol);                                \
	if (!cuda.name) {                                                             \
		say("libcuda.so.1 has no " symbol ": the driver is older than 11.0"); \
		return -ENOSYS;                                                       \
	}
	DRIVER_CALLS(FIND)
#undef FIND
	return 0;
}

/* At the end of the process only memory of the library is still allocated in the driver. */
static void give_back(void)
{
	for (int i = 0; i < cuda.n; i++) {
		if (cuda.streams[i])
			cuda.cuStreamDestroy(cuda.streams[i]);
		if (cuda.contexts[i])
			cuda.cuDevicePrimaryCtxRelease(cuda.devices[i]);
	}
}

/* The caller holds the lock. */
static int load(void)
{
	void *library;
	int rc;

	if (cuda.is_loaded)
		return 0;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		say("cannot load CUDA: %s. Install NVIDIA's driver", dlerror());
		return -ENODEV;
	}
	rc = find_calls(library);
	if (rc)
		return rc;
	rc = cuda.cuInit(0);
	if (!rc)
		rc = cuda.cuDeviceGetCount(&cuda.n);
	if (rc)
		return failed(rc, "cannot use CUDA");
	if (cuda.n == 0) {
		say("CUDA shows no GPU");
		return -ENODEV;
	}
	cuda.n = cuda.n < MAX_GPUS ? cuda.n : MAX_GPUS;
	cuda.is_loaded = true;
	atexit(give_back);
	return 0;
}

/* The caller holds the lock. */
static int open_gpu(int gpu)
{
	int rc = load();

	if (rc)
		return rc;
	if (gpu < 0 || gpu >= cuda.n) {
		say("there is no GPU %d: CUDA shows %d", gpu, cuda.n);
		return -ENODEV;
	}
	if (cuda.contexts[gpu])
		return 0;
	rc = cuda.cuDeviceGet(&cuda.devices[gpu], gpu);
	if (!rc)
		rc = cuda.cuDevicePrimaryCtxRetain(&cuda.contexts[gpu], cuda.devices[gpu]);
	return rc ? failed(rc, "cannot use the GPU") : 0;
}

static int enter(int gpu)
{
	int rc;

	pthread_mutex_lock(&cuda.lock);
	rc = open_gpu(gpu);
	pthread_mutex_unlock(&cuda.lock);
	if (!rc && (rc = cuda.cuCtxPushCurrent(cuda.contexts[gpu])))
		rc = failed(rc, "cannot use the GPU's context");
	return rc;
}

static void leave(void)
{
	void *context;

	cuda.cuCtxPopCurrent(&context);
}

int gpu_of(const struct mem_option *option, int rank, int *ret_gpu)
{
	int rc;

	pthread_mutex_lock(&cuda.lock);
	rc = load();
	pthread_mutex_unlock(&cuda.lock);
	if (!rc)
		*ret_gpu = option->gpu >= 0 ? option->gpu : rank % cuda.n;
	return rc;
}

int gpu_use(int gpu)
{
	int rc;

	pthread_mutex_lock(&cuda.lock);
	rc = open_gpu(gpu);
	pthread_mutex_unlock(&cuda.lock);
	if (!rc && (rc = cuda.cuCtxSetCurrent(cuda.contexts[gpu])))
		rc = failed(rc, "cannot use the GPU's context");
	return rc;
}

int gpu_alloc(int gpu, size_t size, struct gpu_memory *ret_memory)
{
	struct gpu_memory memory = { .size = size, .gpu = gpu };
	device_address address = 0;
	void *host = NULL;
	int rc = enter(gpu);

	if (rc)
		return rc;
	rc = cuda.cuMemAlloc(&address, size);
	if (!rc)
		rc = cuda.cuMemAllocHost(&host, size);
	memory.data = (uint8_t *)(uintptr_t)address;
	memory.host = host;
	leave();
	if (rc) {
		failed(rc, "cannot allocate memory of the GPU");
		gpu_free(&memory);
		return -ENOMEM;
	}
	memset(host, 0, size);
	*ret_memory = memory;
	return 0;
}

void gpu_free(struct gpu_memory *memory)
{
	if ((!memory->data && !memory->host) || enter(memory->gpu))
		return;
	if (memory->host)
		cuda.cuMemFreeHost(memory->host);
	if (memory->data)
		cuda.cuMemFree((uintptr_t)memory->data);
	leave();
	*memory = (struct gpu_memory){ .size = 0 };
}

int gpu_stream_create(int gpu, void **ret_stream)
{
	int rc = enter(gpu);

	if (rc)
		return rc;
	rc = cuda.cuStreamCreateWithPriority(ret_stream, STREAM_NON_BLOCKING, 0);
	leave();
	return rc ? failed(rc, "cannot make a stream") : 0;
}

void gpu_stream_destroy(int gpu, void *stream)
{
	if (!stream || enter(gpu))
		return;
	/* Copies of a failed operation may still be in progress, and their memory is freed next. */
	cuda.cuStreamSynchronize(stream);
	cuda.cuStreamDestroy(stream);
	leave();
}

int gpu_give_later(const struct gpu_memory *memory, void *stream)
{
	int rc = enter(memory->gpu);

	if (rc)
		return rc;
	rc = cuda.cuMemcpyHtoDAsync((uintptr_t)memory->data, memory->host, memory->size, stream);
	leave();
	return rc ? failed(rc, "cannot copy to the GPU") : 0;
}

/* One stream per GPU: copies of several threads wait for each other, which is acceptable here. */
static int copy_stream(int gpu, void **ret_stream)
{
	int rc = 0;

	pthread_mutex_lock(&cuda.lock);
	if (!cuda.streams[gpu])
		rc = cuda.cuStreamCreateWithPriority(&cuda.streams[gpu], STREAM_NON_BLOCKING, 0);
	*ret_stream = cuda.streams[gpu];
	pthread_mutex_unlock(&cuda.lock);
	return rc;
}

static int copy(const struct gpu_memory *memory, size_t offset, size_t size, bool to_gpu)
{
	device_address address = (uintptr_t)memory->data + offset;
	uint8_t *host = memory->host + offset;
	void *stream;
	int rc;

	if (!size)
		return 0;
	rc = enter(memory->gpu);
	if (rc)
		return rc;
	rc = copy_stream(memory->gpu, &stream);
	if (!rc)
		rc = to_gpu ? cuda.cuMemcpyHtoDAsync(address, host, size, stream)
			    : cuda.cuMemcpyDtoHAsync(host, address, size, stream);
	if (!rc)
		rc = cuda.cuStreamSynchronize(stream);
	leave();
	return rc ? failed(rc, to_gpu ? "cannot copy to the GPU" : "cannot copy from the GPU") : 0;
}

int gpu_give(const struct gpu_memory *memory, size_t offset, size_t size)
{
	return copy(memory, offset, size, true);
}

int gpu_take(const struct gpu_memory *memory, size_t offset, size_t size)
{
	return copy(memory, offset, size, false);
}
