/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/reduce/kernels.h"

const struct reduce_kernels *const reduce_all_kernels[] = {
	&reduce_avx512_half,
	&reduce_avx512,
	&reduce_avx2,
	&reduce_plain,
	NULL,
};
