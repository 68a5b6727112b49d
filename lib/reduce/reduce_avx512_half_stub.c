/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces lib/reduce/reduce_avx512_half.c if the compiler has no float16 arithmetic. */
#include "lib/reduce/kernels.h"

static bool never(void)
{
	return false;
}

const struct reduce_kernels reduce_avx512_half = { .name = "avx512-half", .supported = never };
