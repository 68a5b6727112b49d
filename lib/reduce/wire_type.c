/* SPDX-License-Identifier: BSD-3-Clause */
/* Public functions of the wire types. The loops are in lib/reduce/wire_loops.h and lanes.h. */
#include "lib/reduce/kernels.h"

#include "lib/reduce/loops.h"

enum { DECODED = 8 * FRL_WIRE_BLOCK }; /* elements at a time; they fit the first-level cache */

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

/* Returns NaN if an operand is NaN, which MAX and MIN would ignore. `b` is decoded int8. */
static void reduce_or_nan(
	any_f32 *dst, const any_f32 *a, const float *b, size_t count, enum frl_op op)
{
	for (size_t i = 0; i < count; i++) {
		float x = a[i], y = b[i];

		if (x != x || y != y)
			dst[i] = element_sum_f32(x, y);
		else
			dst[i] = op == FRL_MAX ? element_max_f32(x, y) : element_min_f32(x, y);
	}
}

void frl_wire_decode_reduce(float *dst, const float *a, const void *src, size_t count,
	enum frl_wire wire, enum frl_op op)
{
	const struct reduce_kernels *best = reduce_best_kernels();
	bool keeps_nan = wire == FRL_WIRE_INT8 && (op == FRL_MAX || op == FRL_MIN);
	any_f32 *out = (any_f32 *)dst;
	const any_f32 *x = (const any_f32 *)a;
	const uint8_t *y = src;
	float decoded[DECODED];

	if (!is_wire(wire) || !frl_op_is_elementwise(op))
		return;
	if (op == FRL_SUM) {
		best->decode_add[wire](dst, a, src, count);
		return;
	}
	for (size_t i = 0; i < count; i += DECODED) {
		size_t n = count - i < DECODED ? count - i : DECODED;

		best->decode[wire](decoded, y + frl_wire_size(wire, i), n);
		if (keeps_nan)
			reduce_or_nan(out + i, x + i, decoded, n, op);
		else
			best->reduce[FRL_FLOAT32][op](out + i, x + i, decoded, n);
	}
}
