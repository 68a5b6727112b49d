/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FERRULE_BASE_ROUND_H
#define FERRULE_BASE_ROUND_H

#include <stdint.h>

/* Returns the least multiple of `unit` (not 0) that is `number` or more. Any thread. */
static inline uint64_t round_up(uint64_t number, uint64_t unit)
{
	return (number + unit - 1) / unit * unit;
}

#endif
