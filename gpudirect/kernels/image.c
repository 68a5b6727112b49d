/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/kernels/image.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpudirect/gpu.h"
#include "lib/base/error.h"
#include "lib/base/thread_text.h"

/* The first CUDA version whose kernel parameters have room for that of ferrule_work_many. */
enum { MANY_SINCE = 12010 };

struct gpu_image {
	cu_module module, many_module; /* many_module may be NULL, */
	cu_function function, many;    /* and then `many` is NULL too */
};

/* Serializes loading: a context's image is loaded once, by the first thread that needs it. */
static pthread_mutex_t load_mutex = PTHREAD_MUTEX_INITIALIZER;

static const struct image_data *used = &image_data, *used_many = &image_many;

/* Returns whether the GPU is a Tegra (Orin; Thor, which CUDA 13 calls 11.0). Code for other GPUs of
 * the same major version does not run there. */
static bool is_tegra(int major, int minor)
{
	return (major == 8 && (minor == 7 || minor == 8)) || (major == 10 && minor == 1);
}

/* Returns whether the image has binary code for the GPU. Code runs on GPUs of the same major
 * version and the same or a later minor version. */
static bool has_code(const struct image_data *image, int major, int minor)
{
	const size_t n = sizeof(image->codes) / sizeof(image->codes[0]);

	for (size_t i = 0; i < n && image->codes[i]; i++)
		if (image->codes[i] / 10 == major && image->codes[i] % 10 <= minor)
			return !is_tegra(major, minor);
	return false;
}

int image_oldest_driver(const struct image_data *image, int compute_major, int compute_minor)
{
	if (has_code(image, compute_major, compute_minor))
		return image->toolkit / 1000 * 1000;
	return 10 * compute_major + compute_minor < image->ptx ? 0 : image->toolkit;
}

void image_use(const struct image_data *image, const struct image_data *many)
{
	used = image ? image : &image_data;
	used_many = many ? many : &image_many;
}

bool image_is_built(void)
{
	return used->bytes != NULL;
}

const char *image_why_not(int compute_major, int compute_minor, int driver_version)
{
	int toolkit = used->toolkit;
	int needed = image_oldest_driver(used, compute_major, compute_minor);
	char *text;

	if (!image_is_built())
		return "this Ferrule was built without GPU kernels: build it with nvcc (CUDA 11.8 "
		       "or later) and without -Dcuda=disabled";
	if (needed && driver_version >= needed)
		return NULL;
	text = thread_text(THREAD_TEXT_KERNELS);
	if (!text)
		return "Ferrule's kernels are for a newer GPU or driver";
	if (!needed) {
		snprintf(text, THREAD_TEXT_SIZE,
			"the GPU has compute capability %d.%d, Ferrule's kernels are for %d.%d and "
			"later",
			compute_major, compute_minor, used->ptx / 10, used->ptx % 10);
		return text;
	}
	snprintf(text, THREAD_TEXT_SIZE,
		"kernels of CUDA %d.%d need a driver of CUDA %d.%d or later, not %d.%d: "
		"install a newer driver, or build with CUDA %d",
		toolkit / 1000, toolkit % 1000 / 10, needed / 1000, needed % 1000 / 10,
		driver_version / 1000, driver_version % 1000 / 10, driver_version / 1000);
	return text;
}

static int refused(const struct gpu *gpu, cu_result result, const char *call)
{
	char text[96];
	const char *why;

	switch (result) {
	case CUDA_ERROR_INVALID_IMAGE:
		why = "the driver cannot read them, perhaps because nvcc was newer: install a "
		      "newer driver, or build Ferrule with an older CUDA";
		break;
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
		snprintf(text, sizeof(text),
			"they are not for this GPU: Ferrule's are for compute capability %d.%d and "
			"later",
			used->ptx / 10, used->ptx % 10);
		why = text;
		break;
	case CUDA_ERROR_INVALID_PTX:
		why = "the driver cannot compile them for this GPU: install a newer driver";
		break;
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
		why = "the driver must compile them for this GPU, but is older than the nvcc used: "
		      "install a newer driver, or build with an older CUDA";
		break;
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
		why = "the driver must compile them for this GPU, but CUDA_DISABLE_PTX_JIT forbids "
		      "this: unset it";
		break;
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
		why = "the driver must compile them for this GPU, but its compiler "
		      "(libnvidia-ptxjitcompiler.so.1) is missing: install it with the driver";
		break;
	default: return cuda_fail(result, call, "loading Ferrule's kernels");
	}
	return frl_fail(-ENOTSUP,
		"%s: %s (%d): the kernels (CUDA %d.%d) do not run on GPU %d with compute "
		"capability %d.%d and a driver of CUDA %d.%d: %s",
		call, cuda_result_name(result), result, used->toolkit / 1000,
		used->toolkit % 1000 / 10, gpu->ordinal, gpu->caps.compute_major,
		gpu->caps.compute_minor, gpu->cuda->version / 1000, gpu->cuda->version % 1000 / 10,
		why);
}

/* In the GPU's context. */
static int load_module(struct gpu *gpu, const struct image_data *data, const char *name,
	cu_module *ret_module, cu_function *ret_function)
{
	const struct cuda_api *cuda = gpu->cuda;
	cu_module module;
	cu_function function;
	cu_result result = cuda->cuModuleLoadData(&module, data->bytes);

	if (result)
		return refused(gpu, result, "cuModuleLoadData");
	/* With lazy loading this call loads the function. Otherwise its first launch would load it,
	 * and would wait for all kernels that run in the context. */
	result = cuda->cuModuleGetFunction(&function, module, name);
	if (!result) {
		*ret_module = module;
		*ret_function = function;
		return 0;
	}
	cuda->cuModuleUnload(module);
	return refused(gpu, result, "cuModuleGetFunction");
}

/* In the GPU's context. */
static int load(struct gpu *gpu, struct gpu_image *image)
{
	int rc = load_module(gpu, used, "ferrule_work", &image->module, &image->function);

	if (rc || !used_many->bytes || gpu->cuda->version < MANY_SINCE)
		return rc;
	/* Not a failure: `ferrule_work_many` only reduces the number of launches. */
	if (load_module(gpu, used_many, "ferrule_work_many", &image->many_module, &image->many))
		frl_log(FRL_LOG_WARNING, "GPU %d gets more and smaller launches: %s", gpu->ordinal,
			frl_last_error());
	return 0;
}

static int load_once(struct gpu *gpu)
{
	struct gpu_image *image;
	struct gpu_scope scope;
	int rc;

	if (gpu->image)
		return 0;
	rc = gpu_enter(gpu, &scope);
	if (rc)
		return rc;
	image = calloc(1, sizeof(*image));
	rc = image ? load(gpu, image) : frl_fail(-ENOMEM, "no memory for a GPU's kernels");
	gpu_leave(&scope);
	if (rc)
		free(image);
	else
		gpu->image = image;
	return rc;
}

int image_load(struct gpu *gpu, cu_function *ret_function, cu_function *ret_many)
{
	const char *why = image_why_not(
		gpu->caps.compute_major, gpu->caps.compute_minor, gpu->cuda->version);
	int rc;

	if (why)
		return frl_fail(
			-ENOTSUP, "GPU %d cannot move or reduce payload: %s", gpu->ordinal, why);
	pthread_mutex_lock(&load_mutex);
	rc = load_once(gpu);
	pthread_mutex_unlock(&load_mutex);
	if (rc)
		return rc;
	*ret_function = gpu->image->function;
	*ret_many = gpu->image->many;
	return 0;
}

void image_unload(struct gpu *gpu)
{
	struct gpu_scope scope;

	if (!gpu->image)
		return;
	if (!gpu_enter(gpu, &scope)) {
		if (gpu->image->many_module)
			gpu->cuda->cuModuleUnload(gpu->image->many_module);
		gpu->cuda->cuModuleUnload(gpu->image->module);
		gpu_leave(&scope);
	}
	free(gpu->image);
	gpu->image = NULL;
}
