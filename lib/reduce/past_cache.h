/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element-wise functions for vectors that are longer than the caches: with non-temporal stores,
 * lines need not be fetched first and displace nothing. Any thread.
 */
#ifndef FERRULE_REDUCE_PAST_CACHE_H
#define FERRULE_REDUCE_PAST_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/reduce.h>

/* Whether this processor has such a function of this type and operation. */
bool reduce_can_pass_cache(enum frl_dtype dtype, enum frl_op op);

/*
 * As frl_reduce_local(), bit for bit, with non-temporal stores where possible; `dst` overlaps
 * neither operand. What was written is visible before anything that is written later. May fetch
 * (and no more than that) what lies behind the operands.
 */
void reduce_past_cache(void *dst, const void *a, const void *b, size_t count, enum frl_dtype dtype,
	enum frl_op op);

#endif
