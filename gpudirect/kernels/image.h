/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels that nvcc compiled at build time. They are embedded into the library, and loaded into
 * a context at their first use there. gpudirect/kernels/image.py generates the image. A build
 * without nvcc has no image. Callable from any thread.
 */
#ifndef FERRULE_GPUDIRECT_IMAGE_H
#define FERRULE_GPUDIRECT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "gpudirect/cuda/cuda.h"

struct gpu;

/* An embedded image. */
struct image_data {
	const void *bytes; /* a fat binary, or NULL if there is none */
	size_t size;
	int toolkit; /* the version of nvcc: 13000 is 13.0 */
	/* The compute capabilities of the binary code, in ascending order (75 is 7.5), ended by
	 * 0. */
	uint16_t codes[8];
	uint16_t ptx; /* the compute capability of the PTX, which drivers compile for later GPUs */
};

/* Generated from kernels.cu, or empty (image_none.c). image_many contains `ferrule_work_many`, if
 * nvcc is from CUDA 12.1 or later. */
extern const struct image_data image_data, image_many;

bool image_is_built(void);

/* Returns the oldest driver version (as cuDriverGetVersion()) that can run the image on such a GPU.
 * Binary code runs with every driver of the toolkit's major version. PTX needs a driver at least as
 * new as the toolkit. Returns 0 if the image does not support the GPU. */
int image_oldest_driver(const struct image_data *image, int compute_major, int compute_minor);

/* Returns NULL if the kernels run on this compute capability with this driver version (as
 * cuDriverGetVersion()). Otherwise returns the reason and the remedy. The text is valid until this
 * thread's next call. */
const char *image_why_not(int compute_major, int compute_minor, int driver_version);

/*
 * Loads the kernels into the GPU's context, unless they are loaded already. They stay loaded until
 * image_unload(). Returns `ferrule_work`, and `ferrule_work_many` or NULL. It is NULL if this build
 * or the driver is older than CUDA 12.1, where kernel parameters are limited to 4096 bytes.
 * -ENOTSUP: as image_why_not(), or the driver rejects the image. Other errors: -ENOMEM, as
 * gpu_enter() and as cuda_fail().
 */
int image_load(struct gpu *gpu, cu_function *ret_function, cu_function *ret_many);

/* For tests: replaces image_data and image_many. NULL restores the embedded image. */
void image_use(const struct image_data *image, const struct image_data *many);

/* Unloads the kernels. None of them may be running. Does nothing if they are not loaded. */
void image_unload(struct gpu *gpu);

#endif
