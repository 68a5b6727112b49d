/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/reduce/kernels.h"

const struct reduce_kernels *const reduce_all_kernels[] = {
	&reduce_plain,
	NULL,
};
