/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels, as nvcc has compiled them at build time: embedded into the library, and loaded into
 * a context when they are first used there. gpudirect/image.py makes the image; a Ferrule that is
 * built without nvcc has none. Any thread.
 */
#ifndef FERRULE_GPUDIRECT_IMAGE_H
#define FERRULE_GPUDIRECT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "gpudirect/cuda.h"

struct gpu;

/* What was embedded. */
struct image_data {
	const void *bytes; /* a fat binary, or NULL: none */
	size_t size;
	int toolkit; /* the nvcc that made it: 13000 is 13.0 */
	/* Compute capabilities that it has code for, 75 is 7.5, in ascending order; 0: no more. */
	uint16_t codes[8];
	uint16_t ptx; /* the compute capability of its PTX, which drivers compile for later GPUs */
};

/* Generated from kernels.cu, or image_none.c's. The second one has `ferrule_work_many`, where nvcc
 * is of CUDA 12.1 or later. */
extern const struct image_data image_data, image_many;

bool image_is_built(void);

/* The oldest driver, as cuDriverGetVersion() has it, with which an image runs on such a GPU: code
 * runs with any driver of the toolkit's major version; PTX needs one that is not older than the
 * toolkit. 0: the image is not for such a GPU. */
int image_oldest_driver(const struct image_data *image, int compute_major, int compute_minor);

/* NULL: the kernels run on GPUs of this compute capability with this driver (as
 * cuDriverGetVersion() has it). Else a sentence that says why not, and what to do; it is valid
 * until this thread asks again. */
const char *image_why_not(int compute_major, int compute_minor, int driver_version);

/*
 * The function `ferrule_work`, loaded into the GPU's context if it is not there yet, where it stays
 * until image_unload(). And `ferrule_work_many`, or NULL: this Ferrule or the driver is of a CUDA
 * before 12.1, in which parameters of kernels have 4096 bytes at most. -ENOTSUP: as
 * image_why_not(), or the driver refuses the image; -ENOMEM, and as gpu_enter() and cuda_fail().
 */
int image_load(struct gpu *gpu, cu_function *ret_function, cu_function *ret_many);

/* For tests: these images in place of image_data and image_many; NULL: the embedded one again. */
void image_use(const struct image_data *image, const struct image_data *many);

/* Nothing of it runs any more. Nothing is done where it was not loaded. */
void image_unload(struct gpu *gpu);

#endif
