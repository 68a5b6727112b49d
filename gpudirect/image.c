/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/image.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpudirect/gpu.h"
#include "lib/base/error.h"

/* The oldest GPUs that the image has code for; for later than NEWEST_CODE ones the driver compiles
 * its PTX. */
enum { OLDEST_MAJOR = 8, NEWEST_CODE_MAJOR = 9 };

struct gpu_image {
	cu_module module;
	cu_function function;
	cu_function ring; /* NULL: nobody has asked for it yet */
};

/* A context's image is loaded once, whichever thread comes first. */
static pthread_mutex_t load_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Whether the driver compiles the kernels: for GPUs that the image has no code for, which are also
 * those of Tegra (Orin and its like), where code for others of the same major version does not
 * run. */
static bool is_compiled_by_driver(int major, int minor)
{
	return major > NEWEST_CODE_MAJOR || (major == 8 && (minor == 7 || minor == 8));
}

int image_oldest_driver(int compute_major, int compute_minor, int toolkit)
{
	return is_compiled_by_driver(compute_major, compute_minor) ? toolkit
								   : toolkit / 1000 * 1000;
}

bool image_is_built(void)
{
	return image_data.bytes != NULL;
}

const char *image_why_not(int compute_major, int compute_minor, int driver_version)
{
	static __thread char text[320];
	int toolkit = image_data.toolkit;
	int needed = image_oldest_driver(compute_major, compute_minor, toolkit);

	if (!image_is_built())
		return "this Ferrule was built without kernels for GPUs: build it where nvcc is "
		       "(CUDA 11.8 or later) and without -Dcuda=disabled";
	if (compute_major < OLDEST_MAJOR) {
		snprintf(text, sizeof(text),
			"the GPU has compute capability %d.%d, Ferrule's kernels are for %d.0 "
			"(A100) and later",
			compute_major, compute_minor, OLDEST_MAJOR);
		return text;
	}
	if (driver_version < needed) {
		snprintf(text, sizeof(text),
			"the kernels were built with CUDA %d.%d and need a driver of CUDA %d.%d or "
			"later, this one is of CUDA %d.%d: install a newer driver, or build "
			"Ferrule with the nvcc of CUDA %d",
			toolkit / 1000, toolkit % 1000 / 10, needed / 1000, needed % 1000 / 10,
			driver_version / 1000, driver_version % 1000 / 10, driver_version / 1000);
		return text;
	}
	return NULL;
}

static int refused(const struct gpu *gpu, cu_result result, const char *call)
{
	const char *why;

	switch (result) {
	case CUDA_ERROR_INVALID_IMAGE:
		why = "the driver cannot read them; it may be older than the nvcc that made them: "
		      "install a newer driver, or build Ferrule with an older CUDA";
		break;
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
		why = "they are not for this GPU: Ferrule's are for compute capability 8.0 and "
		      "later";
		break;
	case CUDA_ERROR_INVALID_PTX:
		why = "the driver cannot compile them for this GPU: install a newer driver";
		break;
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
		why = "for this GPU they have to be compiled by the driver, which is older than "
		      "the nvcc that made them: install a newer driver, or build Ferrule with an "
		      "older CUDA";
		break;
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
		why = "for this GPU they have to be compiled by the driver, and that is "
		      "switched off: unset CUDA_DISABLE_PTX_JIT";
		break;
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
		why = "for this GPU they have to be compiled by the driver, and its compiler "
		      "(libnvidia-ptxjitcompiler.so.1) is not here: install it with the driver";
		break;
	default: return cuda_fail(result, call, "loading Ferrule's kernels");
	}
	return frl_fail(-ENOTSUP,
		"%s: %s (%d): the kernels (CUDA %d.%d) do not run on GPU %d with compute "
		"capability %d.%d and a driver of CUDA %d.%d: %s",
		call, cuda_result_name(result), result, image_data.toolkit / 1000,
		image_data.toolkit % 1000 / 10, gpu->ordinal, gpu->caps.compute_major,
		gpu->caps.compute_minor, gpu->cuda->version / 1000, gpu->cuda->version % 1000 / 10,
		why);
}

/* In the GPU's context. */
static int load(struct gpu *gpu, struct gpu_image *image)
{
	const struct cuda_api *cuda = gpu->cuda;
	cu_result result = cuda->cuModuleLoadData(&image->module, image_data.bytes);

	if (result)
		return refused(gpu, result, "cuModuleLoadData");
	/* Where modules are loaded lazily this loads the function: not its first launch, which
	 * would then wait for whatever runs in the context. */
	result = cuda->cuModuleGetFunction(&image->function, image->module, "ferrule_work");
	if (!result)
		return 0;
	cuda->cuModuleUnload(image->module);
	return refused(gpu, result, "cuModuleGetFunction");
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

static int find_ring(struct gpu *gpu)
{
	struct gpu_image *image = gpu->image;
	struct gpu_scope scope;
	cu_result result;
	int rc;

	if (image->ring)
		return 0;
	rc = gpu_enter(gpu, &scope);
	if (rc)
		return rc;
	result = gpu->cuda->cuModuleGetFunction(&image->ring, image->module, "ferrule_ring");
	gpu_leave(&scope);
	return result ? refused(gpu, result, "cuModuleGetFunction") : 0;
}

static int load_locked(struct gpu *gpu, bool wants_ring)
{
	const char *why = image_why_not(
		gpu->caps.compute_major, gpu->caps.compute_minor, gpu->cuda->version);
	int rc;

	if (why)
		return frl_fail(
			-ENOTSUP, "GPU %d cannot move or reduce payload: %s", gpu->ordinal, why);
	pthread_mutex_lock(&load_mutex);
	rc = load_once(gpu);
	if (!rc && wants_ring)
		rc = find_ring(gpu);
	pthread_mutex_unlock(&load_mutex);
	return rc;
}

int image_load(struct gpu *gpu, cu_function *ret_function)
{
	int rc = load_locked(gpu, false);

	if (!rc)
		*ret_function = gpu->image->function;
	return rc;
}

int image_load_ring(struct gpu *gpu, cu_function *ret_function)
{
	int rc = load_locked(gpu, true);

	if (!rc)
		*ret_function = gpu->image->ring;
	return rc;
}

void image_unload(struct gpu *gpu)
{
	struct gpu_scope scope;

	if (!gpu->image)
		return;
	if (!gpu_enter(gpu, &scope)) {
		gpu->cuda->cuModuleUnload(gpu->image->module);
		gpu_leave(&scope);
	}
	free(gpu->image);
	gpu->image = NULL;
}
