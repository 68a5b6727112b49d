/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: modules, and launches. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

enum { LAZY_SINCE = 12020 };

void fake_modules_drop(const struct fake_context *context)
{
	struct fake_module **at = &fake.modules;

	while (*at) {
		struct fake_module *module = *at;

		if (module->context != context) {
			at = &module->next;
			continue;
		}
		*at = module->next;
		free(module);
	}
}

static struct fake_module *module_of(cu_module handle)
{
	for (struct fake_module *module = fake.modules; module; module = module->next)
		if ((cu_module)(void *)module == handle)
			return module;
	return NULL;
}

enum kernel { WORK, MANY, KERNELS };

static const struct {
	const char *name;
	size_t parameter; /* bytes */
} kernels[KERNELS] = {
	[WORK] = { "ferrule_work", sizeof(struct gpu_batch) },
	[MANY] = { "ferrule_work_many", sizeof(struct gpu_batch_many) },
};

/* ferrule_work has the address of its module; ferrule_work_many has that of a byte in it. */
static cu_function function_of(struct fake_module *module, enum kernel kernel)
{
	return kernel == WORK ? (cu_function)(void *)module : (cu_function)(void *)&module->many;
}

static struct fake_module *module_of_function(cu_function function, enum kernel *ret_kernel)
{
	for (struct fake_module *module = fake.modules; module; module = module->next) {
		for (enum kernel kernel = WORK; kernel < KERNELS; kernel++) {
			*ret_kernel = kernel;
			if (function_of(module, kernel) == function)
				return module;
		}
	}
	return NULL;
}

/* Drivers of CUDA 12.2 and later load lazily unless told otherwise. */
static cu_module_loading_mode loading_mode(void)
{
	if (fake.loading)
		return fake.loading;
	return fake.version >= LAZY_SINCE ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
}

cu_result cuModuleGetLoadingMode(cu_module_loading_mode *ret_mode)
{
	cu_result result = fake_enter("cuModuleGetLoadingMode", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_mode)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_mode = loading_mode();
	return fake_leave(CUDA_SUCCESS);
}

static cu_result load(cu_module *ret_module, const void *image)
{
	struct fake_module *module;

	if (!ret_module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fake_current(&module->context);
	for (enum kernel kernel = WORK; kernel < KERNELS; kernel++)
		module->is_loaded[kernel] = loading_mode() == CU_MODULE_EAGER_LOADING;
	module->next = fake.modules;
	fake.modules = module;
	*ret_module = (cu_module)(void *)module;
	return CUDA_SUCCESS;
}

cu_result cuModuleLoadData(cu_module *ret_module, const void *image)
{
	cu_result result = fake_enter("cuModuleLoadData", FAKE_CONTEXTED | FAKE_UNSAFE);

	return result == CUDA_SUCCESS ? fake_leave(load(ret_module, image)) : result;
}

cu_result cuModuleLoadDataEx(cu_module *ret_module, const void *image, unsigned int n,
	cu_jit_option *options, void **values)
{
	cu_result result = fake_enter("cuModuleLoadDataEx", FAKE_CONTEXTED | FAKE_UNSAFE);

	if (result != CUDA_SUCCESS)
		return result;
	if (n > 0 && (!options || !values))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return fake_leave(load(ret_module, image));
}

cu_result cuModuleUnload(cu_module handle)
{
	cu_result result = fake_enter("cuModuleUnload", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_module **at = &fake.modules, *module;

	if (result != CUDA_SUCCESS)
		return result;
	module = module_of(handle);
	if (!module)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	while (*at != module)
		at = &(*at)->next;
	*at = module->next;
	free(module);
	return fake_leave(CUDA_SUCCESS);
}

/*
 * The first use of a function whose module was loaded lazily: "Loading kernels might require
 * context synchronization" (CUDA C++ Programming Guide, Lazy Loading). The double always
 * synchronizes, with the context's lock. The module may be unloaded meanwhile.
 */
static cu_result load_function(cu_module handle, enum kernel kernel)
{
	struct fake_module *module = module_of(handle);
	cu_result result = CUDA_SUCCESS;

	if (!module->is_loaded[kernel]) {
		result = fake_capture_check();
		if (result == CUDA_SUCCESS)
			result = fake_context_wait(module->context);
		module = module_of(handle);
		if (result == CUDA_SUCCESS && !module)
			result = CUDA_ERROR_INVALID_HANDLE;
	}
	if (result == CUDA_SUCCESS)
		module_of(handle)->is_loaded[kernel] = true;
	return result;
}

static enum kernel kernel_of(const char *name)
{
	enum kernel kernel = WORK;

	while (kernel < KERNELS && strcmp(name, kernels[kernel].name) != 0)
		kernel++;
	return kernel;
}

cu_result cuModuleGetFunction(cu_function *ret_function, cu_module handle, const char *name)
{
	cu_result result = fake_enter("cuModuleGetFunction", FAKE_CONTEXTED);
	struct fake_module *module;
	enum kernel kernel;

	if (result != CUDA_SUCCESS)
		return result;
	module = module_of(handle);
	if (!module)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_function || !name)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	kernel = kernel_of(name);
	if (kernel == KERNELS)
		return fake_leave(CUDA_ERROR_NOT_FOUND);
	result = load_function(handle, kernel);
	if (result == CUDA_SUCCESS)
		*ret_function = function_of(module, kernel);
	return fake_leave(result);
}

cu_result cuFuncGetAttribute(int *ret_value, int attribute, cu_function function)
{
	cu_result result = fake_enter("cuFuncGetAttribute", FAKE_CONTEXTED);
	enum kernel kernel;

	if (result != CUDA_SUCCESS)
		return result;
	if (!module_of_function(function, &kernel))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_value)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_value = attribute == 0 ? GPU_BLOCK_THREADS : 0; /* MAX_THREADS_PER_BLOCK */
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuFuncSetAttribute(cu_function function, int attribute, int value)
{
	cu_result result = fake_enter("cuFuncSetAttribute", FAKE_CONTEXTED);
	enum kernel kernel;

	if (result != CUDA_SUCCESS)
		return result;
	return fake_leave(
		module_of_function(function, &kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *ret_blocks, cu_function function, int block_size, size_t shared_bytes)
{
	cu_result result = fake_enter(
		"cuOccupancyMaxActiveBlocksPerMultiprocessor", FAKE_CONTEXTED);
	enum kernel kernel;

	if (result != CUDA_SUCCESS)
		return result;
	if (!module_of_function(function, &kernel))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_blocks || block_size <= 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_blocks = 4;
	return fake_leave(CUDA_SUCCESS);
}

static cu_result launch(
	struct fake_module *module, struct fake_stream *stream, struct fake_work *work)
{
	cu_result result;

	/* The first launch may allocate memory. */
	if (!module->is_launched) {
		result = fake_capture_check();
		if (result != CUDA_SUCCESS)
			return result;
	}
	result = fake_queue(stream, work);
	if (result == CUDA_SUCCESS) {
		module->is_launched = true;
		fake.stats.launches++;
	}
	return result;
}

/* Bytes of a kernel's parameters, at most. */
static size_t parameter_limit(void)
{
	return fake.version < 12010 ? 4096 : 32764;
}

/* A GPU would fail unpredictably with others. */
static bool is_sound(enum kernel kernel, const void *parameter, unsigned grid, unsigned block)
{
	const uint32_t max_pieces = kernel == MANY ? GPU_BATCH_MANY : GPU_BATCH_PIECES;
	const struct gpu_batch *batch = parameter; /* both begin like this */

	return block == GPU_BLOCK_THREADS && batch->n_pieces > 0 && batch->n_pieces <= max_pieces &&
		batch->n_blocks == grid;
}

/* A small batch as a large one. */
static void copy_batch(struct gpu_batch_many *to, const struct gpu_batch *from)
{
	memcpy(to, from, offsetof(struct gpu_batch, pieces));
	memcpy(to->pieces, from->pieces, sizeof(from->pieces));
}

static cu_result launch_batch(struct fake_module *module, enum kernel kernel,
	struct fake_stream *stream, unsigned grid, const void *parameter)
{
	struct fake_work work = { .kind = FAKE_KERNEL, .grid = grid, .block = GPU_BLOCK_THREADS };
	cu_result result;

	work.batch = malloc(sizeof(*work.batch));
	if (!work.batch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (kernel == MANY)
		memcpy(work.batch, parameter, sizeof(*work.batch));
	else
		copy_batch(work.batch, parameter);
	result = launch(module, stream, &work);
	if (result == CUDA_SUCCESS && kernel == MANY)
		fake.stats.large_launches++;
	if (result != CUDA_SUCCESS || stream->capture != CU_STREAM_CAPTURE_STATUS_NONE)
		free(work.batch);
	return result;
}

cu_result cuLaunchKernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
	unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
	unsigned int shared_bytes, cu_stream handle, void **parameters, void **extra)
{
	cu_result result = fake_enter("cuLaunchKernel", FAKE_CONTEXTED);
	struct fake_context *context;
	struct fake_module *module;
	struct fake_stream *stream;
	enum kernel kernel;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	module = module_of_function(function, &kernel);
	if (!module || module->context != context)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_y != 1 ||
		block_z != 1 ||
		block_x > (unsigned)fake_attribute(
				  context->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) ||
		shared_bytes != 0 || extra || !parameters || !parameters[0] ||
		!is_sound(kernel, parameters[0], grid_x, block_x))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (kernels[kernel].parameter > parameter_limit())
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS)
		result = launch_batch(module, kernel, stream, grid_x, parameters[0]);
	return fake_leave(result);
}
