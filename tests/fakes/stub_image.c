/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces the kernels where there is no nvcc: the double of the driver takes any image. */
#include "gpudirect/kernels/image.h"

#define STUB                                                                           \
	{                                                                              \
		.bytes = "for the double of the driver", .size = 28, .toolkit = 13000, \
		.codes = { 75, 80, 90, 100, 120 }, .ptx = 75                           \
	}

const struct image_data image_data = STUB, image_many = STUB;
