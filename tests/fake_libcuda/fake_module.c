/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: modules, and launches. */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_libcuda/fake_exports.h"
#include "tests/fake_libcuda/fake_internal.h"

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

/* A module has one kernel, which has its address. */
static struct fake_module *module_of_function(cu_function function)
{
	return module_of((cu_module)(void *)function);
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

cu_result cuModuleGetFunction(cu_function *ret_function, cu_module handle, const char *name)
{
	cu_result result = fake_enter("cuModuleGetFunction", FAKE_CONTEXTED);
	struct fake_module *module;

	if (result != CUDA_SUCCESS)
		return result;
	module = module_of(handle);
	if (!module)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_function || !name)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (strcmp(name, "ferrule_work") != 0)
		return fake_leave(CUDA_ERROR_NOT_FOUND);
	*ret_function = (cu_function)(void *)module;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuFuncGetAttribute(int *ret_value, int attribute, cu_function function)
{
	cu_result result = fake_enter("cuFuncGetAttribute", FAKE_CONTEXTED);

	if (result != CUDA_SUCCESS)
		return result;
	if (!module_of_function(function))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_value)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_value = attribute == 0 ? GPU_BLOCK_THREADS : 0; /* MAX_THREADS_PER_BLOCK */
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuFuncSetAttribute(cu_function function, int attribute, int value)
{
	cu_result result = fake_enter("cuFuncSetAttribute", FAKE_CONTEXTED);

	if (result != CUDA_SUCCESS)
		return result;
	return fake_leave(module_of_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *ret_blocks, cu_function function, int block_size, size_t shared_bytes)
{
	cu_result result = fake_enter(
		"cuOccupancyMaxActiveBlocksPerMultiprocessor", FAKE_CONTEXTED);

	if (result != CUDA_SUCCESS)
		return result;
	if (!module_of_function(function))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!ret_blocks || block_size <= 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_blocks = 4;
	return fake_leave(CUDA_SUCCESS);
}

static cu_result launch(struct fake_module *module, unsigned grid, unsigned block,
	struct fake_stream *stream, const struct gpu_batch *batch)
{
	struct fake_work work = { .kind = FAKE_KERNEL, .grid = grid, .block = block };
	cu_result result;

	/* A kernel is loaded when it is launched for the first time, which takes memory. */
	if (!module->is_loaded) {
		result = fake_capture_check();
		if (result != CUDA_SUCCESS)
			return result;
	}
	work.batch = malloc(sizeof(*work.batch));
	if (!work.batch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*work.batch = *batch;
	result = fake_queue(stream, &work);
	if (result != CUDA_SUCCESS || stream->capture != CU_STREAM_CAPTURE_STATUS_NONE)
		free(work.batch);
	if (result == CUDA_SUCCESS) {
		module->is_loaded = true;
		fake.stats.launches++;
	}
	return result;
}

cu_result cuLaunchKernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
	unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
	unsigned int shared_bytes, cu_stream handle, void **parameters, void **extra)
{
	cu_result result = fake_enter("cuLaunchKernel", FAKE_CONTEXTED);
	const struct gpu_batch *batch;
	struct fake_context *context;
	struct fake_module *module;
	struct fake_stream *stream;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	module = module_of_function(function);
	if (!module || module->context != context)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_y != 1 ||
		block_z != 1 ||
		block_x > (unsigned)fake_attribute(
				  context->device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) ||
		shared_bytes != 0 || extra || !parameters || !parameters[0])
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	/* A GPU would go wrong with these, in some way or other. */
	batch = parameters[0];
	if (batch->n_pieces == 0 || batch->n_pieces > GPU_BATCH_PIECES ||
		batch->n_blocks != grid_x || block_x != GPU_BLOCK_THREADS)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	result = fake_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS)
		result = launch(module, grid_x, block_x, stream, batch);
	return fake_leave(result);
}
