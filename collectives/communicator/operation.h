/* SPDX-License-Identifier: BSD-3-Clause */
/* A checked operation, with everything that is derived from its arguments: api/operation.c. */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_OPERATION_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_OPERATION_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/collective.h>

#include "collectives/communicator/run.h"

struct operation {
	struct schedule_key key;
	struct plan_job job;
	struct signature signature;
	size_t bytes[PLAN_BUFFERS];
	enum frl_op op; /* of the reductions, without scaling */
	bool to_self;
	bool is_empty;
};

static inline bool dtype_is_float_narrow(enum frl_dtype dtype)
{
	return dtype == FRL_FLOAT16 || dtype == FRL_BFLOAT16 || dtype == FRL_FLOAT8_E4M3 ||
		dtype == FRL_FLOAT8_E5M2;
}

/* Returns whether inputs are scaled before they are summed, which needs scratch. */
static inline bool operation_scales_first(enum frl_op op, enum frl_dtype dtype)
{
	return op == FRL_PREMUL_SUM || (op == FRL_AVG && dtype_is_float_narrow(dtype));
}

#endif
