/* SPDX-License-Identifier: BSD-3-Clause */
/* Instead of lib/reduce/reduce_avx512_half.c where the compiler has no arithmetic on float16. */
#include "lib/reduce/kernels.h"

static bool never(void)
{
	return false;
}

const struct reduce_kernels reduce_avx512_half = { .name = "avx512-half", .supported = never };
