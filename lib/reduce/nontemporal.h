/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element-wise functions for vectors longer than the caches. Non-temporal stores neither fetch
 * lines nor displace others. Any thread.
 */
#ifndef FERRULE_REDUCE_NONTEMPORAL_H
#define FERRULE_REDUCE_NONTEMPORAL_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/reduce.h>

/* Returns true if this processor has such a function for the type and operation. */
bool reduce_has_nontemporal(enum frl_dtype dtype, enum frl_op op);

/*
 * Same result as frl_reduce_local(), with non-temporal stores where possible. `dst` must overlap
 * neither operand. Stores are visible before all later stores. May prefetch memory beyond the
 * operands.
 */
void reduce_nontemporal(void *dst, const void *a, const void *b, size_t count, enum frl_dtype dtype,
	enum frl_op op);

#endif
