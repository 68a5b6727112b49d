/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"

enum {
	CUDA_VERSION_MIN = 11030, /* the first version with cuGetProcAddress() */
	CUDA_VERSION_V2 = 12000,  /* the first version in which that has five arguments */
};

#define CUDA_LIBRARY "libcuda.so.1"
#define UPDATE_DRIVER \
	"Ferrule needs the driver of CUDA 11.3 (465.19) or newer: update NVIDIA's driver"

static struct {
	pthread_mutex_t mutex; /* protects all fields that are not atomic */
	void *library;
	struct cuda_api api;
	_Atomic(const struct cuda_api *) looked; /* &api, once all functions are known */
	_Atomic(const struct cuda_api *) ready;  /* &api, once cuInit() has succeeded */
	int kept_error;                          /* a permanent failure */
	char kept_why[ERROR_TEXT_MAX];

	_Atomic(void *) noticed; /* a handle of the library, which other code has loaded */
	_Atomic(unsigned long long)
		seen_loads; /* the loader's load count when the library was last missing */
} the_cuda = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* ---- is libcuda.so.1 loaded? */

static int read_loads(struct dl_phdr_info *info, size_t size, void *user_data)
{
	*(unsigned long long *)user_data = info->dlpi_adds;
	return 1; /* the count is the same in all entries: the first is enough */
}

bool cuda_is_loaded(void)
{
	unsigned long long loads = 0;
	void *none = NULL;
	void *library;

	if (atomic_load_explicit(&the_cuda.noticed, memory_order_relaxed))
		return true;
	dl_iterate_phdr(read_loads, &loads);
	/* Read the counter before searching: the next call then sees a library that is loaded
	 * meanwhile. */
	if (loads == atomic_load_explicit(&the_cuda.seen_loads, memory_order_relaxed))
		return false;
	library = dlopen(CUDA_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
	if (!library) {
		atomic_store_explicit(&the_cuda.seen_loads, loads, memory_order_relaxed);
		return false;
	}
	/* Keep the handle: it prevents unloading of the library, so the result stays true. */
	if (!atomic_compare_exchange_strong(&the_cuda.noticed, &none, library))
		dlclose(library);
	return true;
}

/* ---- loading */

/* cuGetProcAddress(), with either of its two signatures. */
struct finder {
	cu_get_proc_address_v2 find_v2;
	cu_get_proc_address find;
};

/* Returns NULL if the driver lacks the function. Default streams have the legacy meaning (no
 * per-thread default streams), because Ferrule always names its stream. */
static void *find_function(const struct finder *finder, const char *name, int version)
{
	void *function = NULL;
	cu_proc_status status;
	cu_result result;

	if (finder->find_v2)
		result = finder->find_v2(
			name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
	else
		result = finder->find(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
	return result == CUDA_SUCCESS ? function : NULL;
}

/* Finds all functions. Returns the name of a required function that is missing, or NULL. */
static const char *find_functions(const struct finder *finder, struct cuda_api *api)
{
	const char *missing = NULL;

#define CUDA_OPTIONAL(name, version, args) \
	api->name = (cu_result(*) args)find_function(finder, #name, version);
#define CUDA_CALL(name, version, args)                                        \
	api->name = (cu_result(*) args)find_function(finder, #name, version); \
	if (!api->name && !missing)                                           \
		missing = #name;
#include "gpudirect/cuda/cuda_calls.inc"
#undef CUDA_CALL
#undef CUDA_OPTIONAL
	return missing;
}

static int read_version(void *library, int *ret_version)
{
	cu_result (*get_version)(int *ret_version) = (cu_result(*)(int *))dlsym(
		library, "cuDriverGetVersion");
	cu_result result;

	if (!get_version)
		return frl_fail(-ENOSYS,
			CUDA_LIBRARY " has no cuDriverGetVersion: it is not NVIDIA's driver");
	result = get_version(ret_version);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, "cuDriverGetVersion", NULL);
}

static int fill_api(void *library, struct cuda_api *api)
{
	struct finder finder = { .find_v2 = NULL };
	const char *missing = "cuGetProcAddress";
	int err = read_version(library, &api->version);

	if (err < 0)
		return err;
	if (api->version < CUDA_VERSION_MIN)
		return frl_fail(-ENOSYS,
			"this machine's driver is that of CUDA %d.%d; " UPDATE_DRIVER,
			api->version / 1000, api->version % 1000 / 10);
	if (api->version >= CUDA_VERSION_V2)
		finder.find_v2 = (cu_get_proc_address_v2)dlsym(library, "cuGetProcAddress_v2");
	finder.find = (cu_get_proc_address)dlsym(library, "cuGetProcAddress");
	if (finder.find_v2 || finder.find)
		missing = find_functions(&finder, api);
	if (missing)
		return frl_fail(-ENOSYS,
			CUDA_LIBRARY
			" says that it is of CUDA %d.%d, but has no %s; " UPDATE_DRIVER,
			api->version / 1000, api->version % 1000 / 10, missing);
	return 0;
}

static int keep_failure(int err)
{
	the_cuda.kept_error = err;
	snprintf(the_cuda.kept_why, sizeof(the_cuda.kept_why), "%s", frl_last_error());
	return err;
}

/* Requires the mutex. A missing library may appear later (an application may load it from its
 * own folder), so that failure is not kept. The properties of a library that was found do not
 * change. */
static int look_locked(const struct cuda_api **ret_cuda)
{
	void *library;
	int err;

	*ret_cuda = cuda_if_looked();
	if (*ret_cuda)
		return 0;
	if (the_cuda.kept_error)
		return frl_fail(the_cuda.kept_error, "%s", the_cuda.kept_why);
	library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return frl_fail(-ENOSYS,
			"no CUDA here: %s: install NVIDIA's driver; a container has to be started "
			"with its GPUs (docker run --gpus all)",
			dlerror());
	err = fill_api(library, &the_cuda.api);
	if (err < 0) {
		dlclose(library);
		return keep_failure(err);
	}
	the_cuda.library = library;
	*ret_cuda = &the_cuda.api;
	atomic_store_explicit(&the_cuda.looked, &the_cuda.api, memory_order_release);
	return 0;
}

const struct cuda_api *cuda_if_looked(void)
{
	return atomic_load_explicit(&the_cuda.looked, memory_order_acquire);
}

int cuda_look(const struct cuda_api **ret_cuda)
{
	const struct cuda_api *api = cuda_if_looked();
	int err = 0;

	if (!api) {
		pthread_mutex_lock(&the_cuda.mutex);
		err = look_locked(&api);
		pthread_mutex_unlock(&the_cuda.mutex);
	}
	if (err == 0)
		*ret_cuda = api;
	return err;
}

/* ---- initializing */

/* Returns whether a failure is permanent in this process, because it concerns the library or the
 * kernel driver. All others may be temporary: a fabric manager or an MPS server that is starting, a
 * device in exclusive use by another process, a kernel module that is not loaded yet, a lack of
 * files or memory. An application may also select its devices (CUDA_VISIBLE_DEVICES) after
 * Ferrule's first attempt. */
static bool is_lasting(cu_result result)
{
	switch (result) {
	case CUDA_ERROR_STUB_LIBRARY:
	case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
	case CUDA_ERROR_DEVICE_NOT_LICENSED:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
	case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: return true;
	default: return false;
	}
}

/* Requires the mutex. */
static int init_locked(const struct cuda_api **ret_cuda)
{
	cu_result result;
	int err;

	*ret_cuda = atomic_load_explicit(&the_cuda.ready, memory_order_acquire);
	if (*ret_cuda)
		return 0;
	if (the_cuda.kept_error)
		return frl_fail(the_cuda.kept_error, "%s", the_cuda.kept_why);
	err = look_locked(ret_cuda);
	if (err < 0)
		return err;
	result = the_cuda.api.cuInit(0);
	if (result != CUDA_SUCCESS) {
		err = cuda_fail(result, "cuInit", NULL);
		return is_lasting(result) ? keep_failure(err) : err;
	}
	atomic_store_explicit(&the_cuda.ready, &the_cuda.api, memory_order_release);
	return 0;
}

int cuda_get(const struct cuda_api **ret_cuda)
{
	const struct cuda_api *api = atomic_load_explicit(&the_cuda.ready, memory_order_acquire);
	int err = 0;

	if (!api) {
		pthread_mutex_lock(&the_cuda.mutex);
		err = init_locked(&api);
		pthread_mutex_unlock(&the_cuda.mutex);
	}
	if (err == 0)
		*ret_cuda = api;
	return err;
}

bool cuda_loads_lazily(const struct cuda_api *cuda)
{
	cu_module_loading_mode mode = CU_MODULE_LAZY_LOADING;

	if (!cuda->cuModuleGetLoadingMode)
		return false;
	return cuda->cuModuleGetLoadingMode(&mode) != CUDA_SUCCESS ||
		mode != CU_MODULE_EAGER_LOADING;
}

void cuda_reset(void)
{
	void *noticed = atomic_exchange(&the_cuda.noticed, NULL);

	pthread_mutex_lock(&the_cuda.mutex);
	atomic_store(&the_cuda.ready, NULL);
	atomic_store(&the_cuda.looked, NULL);
	atomic_store(&the_cuda.seen_loads, 0);
	the_cuda.kept_error = 0;
	memset(&the_cuda.api, 0, sizeof(the_cuda.api));
	if (the_cuda.library)
		dlclose(the_cuda.library);
	the_cuda.library = NULL;
	pthread_mutex_unlock(&the_cuda.mutex);
	if (noticed)
		dlclose(noticed);
}
