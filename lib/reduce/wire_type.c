/* SPDX-License-Identifier: BSD-3-Clause */
/* The wire types' public functions; lib/reduce/wire_loops.h and lanes.h have the loops. */
#include "lib/reduce/kernels.h"

static bool is_wire(enum frl_wire wire)
{
	return (unsigned int)wire < FRL_WIRES;
}

size_t frl_wire_size(enum frl_wire wire, size_t count)
{
	switch (wire) {
	case FRL_WIRE_SAME: return count * sizeof(float);
	case FRL_WIRE_FLOAT16: return count * 2;
	case FRL_WIRE_BFLOAT16: return count * 2;
	case FRL_WIRE_INT8: return count + (count + FRL_WIRE_BLOCK - 1) / FRL_WIRE_BLOCK * 2;
	case FRL_WIRES: break;
	}
	return 0;
}

size_t frl_wire_encode(void *dst, const float *src, size_t count, enum frl_wire wire)
{
	return is_wire(wire) ? reduce_best_kernels()->encode[wire](dst, src, count) : 0;
}

void frl_wire_decode(float *dst, const void *src, size_t count, enum frl_wire wire)
{
	if (is_wire(wire))
		reduce_best_kernels()->decode[wire](dst, src, count);
}

void frl_wire_decode_add(
	float *dst, const float *a, const void *src, size_t count, enum frl_wire wire)
{
	if (is_wire(wire))
		reduce_best_kernels()->decode_add[wire](dst, a, src, count);
}
