/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbers of NVIDIA's cuda.h, for a test of gpudirect/cuda/cuda_abi.h. One file cannot include
 * both headers. */
#ifndef FERRULE_TESTS_UNIT_GPUDIRECT_CUDA_HEADER_H
#define FERRULE_TESTS_UNIT_GPUDIRECT_CUDA_HEADER_H

#include <stddef.h>

struct cuda_number {
	const char *name;
	long value;
};

/* NULL: this cuda.h is older than the one that cuda_abi.h was written from. */
const struct cuda_number *cuda_header_numbers(size_t *ret_n);

#endif
