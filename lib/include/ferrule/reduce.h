/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types, operations and wire types, and the element-wise code that receives and collectives
 * share.
 *
 * The result of an operation is defined for every pair of elements. It is bitwise the same on every
 * processor and for both orders of the two operands:
 *
 * - Integers wrap.
 * - float32 and float64 follow IEEE 754, rounded to nearest even.
 * - float16, bfloat16 and the two float8 types are computed in float32 and rounded once, to nearest
 *   even. Results that are too large become infinite in float16 and bfloat16. In float8 they become
 *   the largest finite number (448, 57344), as in the saturating conversions of GPUs; infinite
 *   operands of float8_e5m2 stay infinite.
 * - MAX and MIN of floats are C's fmax() and fmin(): a NaN operand is ignored unless both are NaN.
 *   -0 is less than +0.
 * - Every NaN result has the same bits: positive, quiet, no payload (0x7fc00000 in float32, 0x7e00
 *   in float16, 0x7fc0 in bfloat16, 0x7f in float8_e4m3, 0x7e in float8_e5m2).
 * - Denormal numbers are kept, unless the calling thread has set the processor to flush them to
 *   zero. The rounding mode is the default one.
 *
 * Threads: the functions have no state; any thread may call them.
 *
 * Sources: IEEE 754-2019; Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433.
 */
#ifndef FERRULE_REDUCE_H
#define FERRULE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are those of NCCL. */
enum frl_dtype {
	FRL_INT8,
	FRL_UINT8,
	FRL_INT32,
	FRL_UINT32,
	FRL_INT64,
	FRL_UINT64,
	FRL_FLOAT16,
	FRL_FLOAT32,
	FRL_FLOAT64,
	FRL_BFLOAT16,
	FRL_FLOAT8_E4M3, /* 4 bits of exponent, 3 of mantissa; no infinity, one NaN of each sign */
	FRL_FLOAT8_E5M2,
	FRL_DTYPES /* number of types */
};

enum frl_op {
	FRL_SUM,
	FRL_PROD,
	FRL_MAX,
	FRL_MIN,
	FRL_AVG,        /* the sum divided by the number of ranks */
	FRL_PREMUL_SUM, /* the sum of each rank's input times a scalar of that rank */
	FRL_OPS         /* number of operations */
};

/* Encoding of float32 elements in packets. */
enum frl_wire {
	FRL_WIRE_SAME, /* not encoded */
	FRL_WIRE_FLOAT16,
	FRL_WIRE_BFLOAT16,
	FRL_WIRE_INT8, /* blocks of FRL_WIRE_BLOCK elements with a scale */
	FRL_WIRES      /* number of wire types */
};

/* Elements per block of FRL_WIRE_INT8. A block is 2 bytes of scale and one byte per element. */
enum { FRL_WIRE_BLOCK = 128 };

/* Returns the bytes of one element, or 0 for an invalid type. */
FRL_API size_t frl_dtype_size(enum frl_dtype dtype);

/*
 * Return the name: "float32", "float8_e4m3", ...; "sum", "premul_sum", ...; "same", "float16",
 * "bfloat16", "int8". NULL for an invalid value.
 */
FRL_API const char *frl_dtype_name(enum frl_dtype dtype);
FRL_API const char *frl_op_name(enum frl_op op);
FRL_API const char *frl_wire_name(enum frl_wire wire);

/*
 * Convert a name, in upper or lower case, to its value. Other names in common use are accepted as
 * well ("f32", "float", "half", "bf16", "e4m3", "product", "average"). Return -EINVAL for an
 * unknown name.
 */
FRL_API int frl_dtype_parse(const char *name, enum frl_dtype *ret_dtype);
FRL_API int frl_op_parse(const char *name, enum frl_op *ret_op);
FRL_API int frl_wire_parse(const char *name, enum frl_wire *ret_wire);

/*
 * Returns whether frl_reduce_local() supports the operation: SUM, PROD, MAX and MIN. AVG and
 * PREMUL_SUM are sums that are scaled afterwards or before.
 */
FRL_API bool frl_op_is_elementwise(enum frl_op op);

/*
 * Computes dst[i] = op(a[i], b[i]) for `count` elements with the fastest code for this processor.
 * Any alignment is allowed. dst may equal a or b, but must not overlap them otherwise. Does nothing
 * for an unsupported type or operation.
 */
FRL_API void frl_reduce_local(void *dst, const void *a, const void *b, size_t count,
	enum frl_dtype dtype, enum frl_op op);

/*
 * Computes the same in plain C: the reference for the fast versions, with bitwise the same results.
 */
FRL_API void frl_reduce_local_plain(void *dst, const void *a, const void *b, size_t count,
	enum frl_dtype dtype, enum frl_op op);

/*
 * Computes dst[i] = src[i] * *scalar, for PREMUL_SUM. The scalar is one element of the type.
 * Rounds, wraps and saturates as PROD does. Any alignment is allowed; dst may equal src.
 */
FRL_API void frl_scale_local(
	void *dst, const void *src, size_t count, enum frl_dtype dtype, const void *scalar);

/*
 * Computes dst[i] = src[i] / n, for AVG. Floats are divided in float32 (float64 in float64) by n in
 * that type, then rounded. Integers: the wrapped sum is divided and rounded toward zero, as in C.
 * Any alignment is allowed; dst may equal src. Does nothing if n is 0.
 */
FRL_API void frl_divide_local(
	void *dst, const void *src, size_t count, enum frl_dtype dtype, uint32_t n);

/*
 * Wire types: shorter encodings of float32.
 *
 * SAME: 4 bytes per element, copied.
 *
 * FLOAT16: 2 bytes, rounded to nearest even. |error| <= 2^-11 |x|, or 2^-25 below 2^-14.
 *
 * BFLOAT16: 2 bytes, rounded to nearest even. |error| <= 2^-8 |x|, or 2^-134 below 2^-126.
 *
 * INT8: blocks of 128 elements; the last block may be shorter. A block is a bfloat16 scale, then
 * signed bytes; x is decoded as scale * byte. The scale is the block's largest |x| (amax) / 127,
 * rounded up, at least 2^-126. Bytes are rounded to nearest even. |error| <= scale * (1/2 + 2^-15),
 * which is at most amax/254 * (1 + 2^-7) * (1 + 2^-14), or 2^-127 * (1 + 2^-14) if that is larger.
 * All elements of a block with a NaN or an infinity are decoded as NaN.
 *
 * FLOAT16 and BFLOAT16 keep infinities. Finite numbers that would become infinite saturate
 * (+-65504, +-(2^128 - 2^120)). frl_wire_encode() returns the number of saturated elements; a GPU
 * does not count them, so collectives never report that number.
 *
 * All numbers of more than one byte are little-endian. The encoding of elements that begin at a
 * multiple of FRL_WIRE_BLOCK is a part of the encoding of all elements, from byte
 * frl_wire_size(wire, first) on.
 */

/* Returns the bytes of `count` encoded elements, or 0 for an invalid wire type. */
FRL_API size_t frl_wire_size(enum frl_wire wire, size_t count);

/*
 * Encodes `count` elements into frl_wire_size() bytes at dst, which must not overlap src. Returns
 * the number of finite elements that were too large for the type and were saturated.
 */
FRL_API size_t frl_wire_encode(void *dst, const float *src, size_t count, enum frl_wire wire);

/* Decodes: dst[i] = decoded element i. dst and src must not overlap. Any bytes can be decoded. */
FRL_API void frl_wire_decode(float *dst, const void *src, size_t count, enum frl_wire wire);

/*
 * Computes dst[i] = a[i] + decoded element i, as FRL_SUM adds. dst may equal a; neither may overlap
 * src.
 */
FRL_API void frl_wire_decode_add(
	float *dst, const float *a, const void *src, size_t count, enum frl_wire wire);

/*
 * Computes dst[i] = op(a[i], decoded element i), as frl_reduce_local() does. dst may equal a;
 * neither may overlap src. MAX and MIN with INT8 differ in one point: the result is NaN if an
 * operand is NaN. A decoded NaN may stand for a block whose numbers could not be encoded, and
 * ignoring these would give a wrong result. Does nothing for an operation that is not element-wise.
 */
FRL_API void frl_wire_decode_reduce(float *dst, const float *a, const void *src, size_t count,
	enum frl_wire wire, enum frl_op op);

#ifdef __cplusplus
}
#endif
#endif
